#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What a failing run prints can be run again: one seed in two processes gives one trace, and so do its choices from a
# file; bytes decide a run as well, also when there are none. No seeds are refused. Usage: replay_test.sh hixl_sim
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trace() { grep -o 'trace=[0-9a-f]*' | head -n 1; }
for seed in 7 23 4711; do
  first=$("$1" --seed "$seed" | trace)
  again=$("$1" --seed "$seed" --record "$work/choices" | trace)
  from_file=$("$1" --choices "$work/choices" | trace)
  if [ "$first" != "$again" ] || [ "$first" != "$from_file" ]; then
    printf 'seed %s differs from itself: %s, %s, from its choices %s\n' "$seed" "$first" "$again" "$from_file"
    exit 1
  fi
done
: >"$work/none"
head -c 4000 "$1" >"$work/some"
for input in none some; do
  first=$("$1" --bytes "$work/$input" | trace)
  again=$("$1" --bytes "$work/$input" | trace)
  if [ -z "$first" ] || [ "$first" != "$again" ]; then
    printf 'bytes "%s" differ from themselves: %s, %s\n' "$input" "$first" "$again"
    exit 1
  fi
done
head -c 1000 "$work/choices" >"$work/torn"
if "$1" --choices "$work/torn" 2>/dev/null; then
  printf 'a torn file of choices was taken\n'
  exit 1
fi
for count in 0 -1 many ''; do
  code=0
  "$1" --seeds "$count" >"$work/said" 2>&1 || code=$?
  if [ "$code" != 2 ] || ! grep -q '^--seeds: ' "$work/said"; then
    printf -- '--seeds "%s" ended with %s and said: %s\n' "$count" "$code" "$(cat "$work/said")"
    exit 1
  fi
done
