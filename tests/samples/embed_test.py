#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a sample that hosts two ranks in its own loop and compares what it prints: embed_test.py PROGRAM"""

import subprocess
import sys

EXPECTED = """rank 1 holds: hello through the host's loop
rank 2 is not there: DEADLINE_EXCEEDED
both have stopped
"""
TIMEOUT_S = 60

run = subprocess.run([sys.argv[1]], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=TIMEOUT_S,
                     check=False)
if run.returncode != 0 or run.stdout != EXPECTED or run.stderr:
    sys.exit(f"exit code {run.returncode}, printed:\n{run.stdout}{run.stderr}\nexpected:\n{EXPECTED}")
