#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/compare --quick on this machine, with whoever is there: quick_test.py COMPARE BUILD. Nothing is judged but that
the library and the machine's limits answered every question with verified bytes."""

import json
import os
import subprocess
import sys
import tempfile

QUICK_S = 150  # the whole run, with every contestant installed and a machine that does something else too
SECTIONS = ("post", "barrier", "window-small", "window-middle", "window-batch", "tcp-small", "tcp-large", "tcp-batch",
            "tcp-streams")
BESIDE = {"post": "a cache line there and back", "barrier": "HIXL", "window": "memcpy, one thread", "tcp": "raw socket",
          "tcp-streams": "two-sided, naive"}


def main(compare, build):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "compare.json")
        run = subprocess.run([sys.executable, compare, "--build", build, "--quick", "--json", path], text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=QUICK_S, check=False)
        print(run.stdout)
        if run.returncode != 0:
            return run.returncode
        with open(path, encoding="utf-8") as file:
            written = json.load(file)
    sections = {section["key"]: section for section in written["sections"]}
    faults = [] if tuple(sections) == SECTIONS else [f"sections {tuple(sections)}"]
    for key, section in sections.items():
        wanted = {"HIXL", BESIDE.get(key) or BESIDE[key.partition("-")[0]]}
        faults += [f"{key}: nothing of {name}" for name in
                   wanted - {cell["contestant"] for cell in section["cells"]}]
    faults += [f"failed: {name}: {why}" for name, why in written["failed"].items()]
    for fault in faults:
        print("fault:", fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
