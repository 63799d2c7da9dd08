#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Many seeds, others for each commit. Usage: seeds_test.sh hixl_sim SOURCE_ROOT SEEDS
set -eu
commit=$(git -C "$2" rev-parse HEAD 2>/dev/null || echo 'no commit')
exec "$1" --seeds "$3" --jobs 2 --first-from "$commit"
