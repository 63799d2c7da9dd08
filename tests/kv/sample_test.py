#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The sample prints what it should: sample_test.py PATH_OF_hixl_run PATH_OF_kv_push"""

import subprocess
import sys


def main():
    run = subprocess.run([sys.argv[1], "-n", "2", sys.argv[2]], text=True, capture_output=True, timeout=60, check=False)
    lines = run.stdout.splitlines()
    wanted = [f"layer {layer} is here: {layer + 1}" for layer in range(8)]
    # 72 tokens, 8 layers, K and V of 4 heads with 64 numbers of 2 bytes.
    bytes_line = f"{72 * 8 * 2 * 4 * 64 * 2} bytes pushed"
    if run.returncode != 0 or [line for line in lines if line in wanted] != wanted or bytes_line not in lines:
        sys.exit(f"code {run.returncode}\n{run.stdout}\n{run.stderr}")


if __name__ == "__main__":
    main()
