#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a sample and compares what its ranks print, in any order of lines.

    lines_test.py HIXL_RUN PROGRAM RANKS LINE...    a {rank} or {peer} in LINE stands for each rank and its pair
"""

import subprocess
import sys


def main():
    run, program, ranks, *patterns = sys.argv[1:]
    done = subprocess.run([run, "-n", ranks, program], text=True, stdout=subprocess.PIPE, timeout=100)
    wanted = []
    for pattern in patterns:
        each = "{rank}" in pattern
        wanted += [pattern.format(rank=rank, peer=rank ^ 1) for rank in range(int(ranks) if each else 1)]
    printed = sorted(line for line in done.stdout.split("\n") if line)
    print("\n".join(printed))
    if done.returncode != 0 or printed != sorted(wanted):
        sys.exit(f"ended with {done.returncode}; wanted were:\n" + "\n".join(sorted(wanted)))


if __name__ == "__main__":
    main()
