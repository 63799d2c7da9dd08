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
                    (("--requests", "5001", "--copies", "10000"), 1, "lower --copies or --requests"),
                    (("--trace", folder), 1, "is a folder"),
                    (("--trace", ""), 2, "--trace: the name is empty"),
                    (("--policy", "best"), 2, "best not in {round_robin,"),
                    (("--model", "best"), 2, "llama3-70b"),
                    (("--decodes", "0"), 2, "--decodes")):
                with self.subTest(arguments=arguments):
                    done = run(*arguments)
                    self.assertEqual(done.returncode, code)
                    self.assertIn(words, done.stderr)

    def test_numbers(self):
        """One that is none, or out of its range, is a usage error that names option, value and range."""
        for option in ("--requests", "--copies", "--prefills", "--decodes", "--seed", "--prefill-tokens-per-s",
                       "--step-ms", "--memory-gb-per-s", "--decode-gb", "--slow-share", "--slow-factor", "--stale-ms"):
            for value in ("nan", "inf", "-1", "5ms", "", "1e400", "9" * 309):
                with self.subTest(option=option, value=value):
                    done = run(*SMALL[:-2], option, value)
                    self.assertEqual(done.returncode, 2, done)
                    self.assertRegex(done.stderr, rf'^{option}: "{value[:40]}" is not a (whole )?number from \d')
                    self.assertLess(len(done.stderr), 200)

    def test_fields_of_a_trace(self):
        """What a field does not hold is refused with line and name, not made to fit."""
        good = {"timestamp": "0", "input_length": "600", "output_length": "2", "hash_ids": "[1, 2]"}
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "trace.jsonl")

            def run_with(**changed):
                fields = {name: value for name, value in {**good, **changed}.items() if value is not None}
                with open(trace, "w", encoding="utf-8") as file:
                    for line in (good, fields):
                        file.write("{" + ", ".join(f'"{name}": {value}' for name, value in line.items()) + "}\n")
                return run("--prefills", "2", "--decodes", "2", "--copies", "1", "--trace", trace)

            self.assertEqual(run_with().returncode, 0)
            for name, value in (("input_length", "4294967808"), ("input_length", "true"), ("input_length", "0"),
                                ("output_length", "512.9"), ("output_length", "-1"), ("output_length", '"7"'),
                                ("timestamp", "1e308"), ("timestamp", "-1e308"), ("timestamp", None),
                                ("hash_ids", "[1, -2]"), ("hash_ids", "[1, 0.5]"), ("hash_ids", "7")):
                with self.subTest(name=name, value=value):
                    done = run_with(**{name: value})
                    self.assertEqual(done.returncode, 1, done)
                    self.assertRegex(done.stderr, rf"trace\.jsonl:2: (no )?{name}")

    def test_one_request(self):
        done = run("--prefills", "2", "--decodes", "2", "--copies", "1", "--requests", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("nan", done.stdout)
        self.assertEqual(done.stdout.splitlines()[2].split()[-1], "-")

    def test_a_heading_for_each_column(self):
        heading = run(*SMALL).stdout.splitlines()[1]
        self.assertRegex(heading, r" room p99 s +token p99 ms ")

    def test_help_has_every_default_and_name(self):
        text = run("--help").stdout
        for words in ("=1024", "=4096", "=8000", "=15", "=1200", "=64", "=0.1", "=3", "=100", "=llama3-70b",
                      "llama3-8b,", "deepseek-r1,", "=[hccs,pcie,roce]", "=[round_robin,least_loaded,two_choices]"):
            self.assertIn(words, text)
        # The text is behind the option, or on the next line.
        self.assertNotRegex(text, r"\n  --\S+ \S+ *\n(  -|\n|$)")

    def test_output_that_cannot_be_written(self):
        for arguments in (SMALL, ("--help",)):
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([PROGRAM, *arguments], text=True, stdout=full, stderr=subprocess.PIPE,
                                      timeout=60, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn("standard output cannot be written", done.stderr)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
