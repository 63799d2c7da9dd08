#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Three planted bugs become scenarios of at most 30 lines, and the command at the end shows the same invariant again.
# Usage: shrink_test.sh hixl_zoo
set -eu
zoo=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
for bug in late_is_success fence_ignored deadline_without_fence; do
  "$zoo" --bug "$bug" --seeds 2000 --stop-after 1 >found || true
  seed=$(sed -n 's/^seed \([0-9]*\): .*/\1/p' found | head -n 1)
  invariant=$(sed -n 's/^seed [0-9]*: \([A-Z0-9]*\): .*/\1/p' found | head -n 1)
  record=
  [ "$bug" = deadline_without_fence ] || record="--record $work/$bug"
  # shellcheck disable=SC2086
  "$zoo" --bug "$bug" --seed "$seed" --shrink $record >scenario || true
  cat scenario
  lines=$(wc -l <scenario)
  command=$(sed -n 's/^replay: //p' scenario)
  if [ "$lines" -gt 30 ] || ! $command | grep -q "$invariant"; then
    printf '%s: %s lines, or its command does not show %s\n' "$bug" "$lines" "$invariant"
    exit 1
  fi
done
