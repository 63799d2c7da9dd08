#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# One seed in two processes gives one trace: what a failing run prints can be run again. Usage: replay_test.sh hixl_sim
set -eu
trace() { "$1" --seed "$2" | grep '^seed='; }
for seed in 7 23 4711; do
  first=$(trace "$1" "$seed")
  again=$(trace "$1" "$seed")
  if [ "$first" != "$again" ]; then
    printf 'seed %s differs from itself:\n%s\n%s\n' "$seed" "$first" "$again"
    exit 1
  fi
done
