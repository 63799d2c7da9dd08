#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program hixl_fleet: a table, rows for programs, and clear refusals. fleet_run_test.py PATH_OF_hixl_fleet"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""
SMALL = ("--prefills", "20", "--decodes", "10", "--copies", "3", "--requests", "100")


def run(*arguments):
    return subprocess.run([PROGRAM, *arguments], text=True, capture_output=True, timeout=60, check=False)


class Fleet(unittest.TestCase):
    def test_rows(self):
        with tempfile.TemporaryDirectory() as folder:
            report = os.path.join(folder, "rows.json")
            done = run(*SMALL, "--json", report)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(report, encoding="utf-8") as file:
                rows = json.load(file)
        self.assertEqual([(row["link"], row["policy"]) for row in rows],
                         [(link, policy) for link in ("hccs", "pcie", "roce")
                          for policy in ("round_robin", "least_loaded", "two_choices")])
        self.assertEqual({row["requests"] for row in rows}, {300})
        self.assertEqual(len({row["tokens"] for row in rows}), 1)
        self.assertEqual(len(done.stdout.splitlines()), 2 + len(rows))

    def test_refusals(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "trace.jsonl")
            with open(trace, "w", encoding="utf-8") as file:
                file.write('{"timestamp": 0, "input_length": 600, "output_length": 2, "hash_ids": [1]}\n')
            for arguments, code, words in (
                    (("--trace", trace), 1, "trace.jsonl:1: hash_ids that do not cover the input"),
                    (("--trace", trace + "x"), 1, "cannot be opened"),
                    ((*SMALL, "--decode-gb", "0.001"), 1, "raise --decode-gb"),
                    ((*SMALL, "--json", folder), 1, "cannot be written"),
                    (("--policy", "best"), None, "no such policy: best"),
                    (("--decodes", "0"), None, "--decodes")):
                with self.subTest(arguments=arguments):
                    done = run(*arguments)
                    self.assertNotEqual(done.returncode, 0)
                    if code is not None:
                        self.assertEqual(done.returncode, code)
                    self.assertIn(words, done.stderr)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
