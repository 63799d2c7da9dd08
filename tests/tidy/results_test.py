#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/test_results.py: what is counted of a log, and what is said of a failure. results_test.py PROGRAM"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""


def results(*tests):
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder, "log.json")
        log.write_text("\n".join(json.dumps({"name": "hixl:unit / " + name, "result": result, **output})
                                 for name, result, output in tests), encoding="utf-8")
        done = subprocess.run([sys.executable, PROGRAM, str(log), "asan"], capture_output=True, text=True, check=False)
    return done.stdout.splitlines(), done.returncode


class Results(unittest.TestCase):
    def test_counts_and_reasons(self):
        lines, code = results(("a", "OK", {"stdout": "skipped: one part: no disk\nskipped: one part: no disk\n"}),
                              ("b", "SKIP", {"stdout": "no card here\n"}),
                              ("c", "OK", {"stdout": "failed: this: bad\nskipped: that: absent\n"
                                                     "5 passed, 1 failed, 1 skipped"}))
        self.assertEqual((lines[0], code), ("6 1 4", 0))
        self.assertIn("skipped: asan: a: one part: no disk (2 times)", lines)
        self.assertIn("skipped: asan: b: no card here", lines)
        self.assertIn("failed: asan: this: bad", lines)

    def test_a_failure_comes_last_with_the_end_of_its_output(self):
        lines, _ = results(("bad", "FAIL", {"stdout": "".join(f"line {i}\n" for i in range(500))}),
                           ("good", "SKIP", {"stdout": "why not\n"}))
        self.assertEqual(lines[1], "skipped: asan: good: why not")
        self.assertEqual(lines[2], "failed: asan: bad: fail")
        self.assertEqual((lines[3], lines[-1]), ("    line 440", "    line 499"))

    def test_a_sanitizers_report_goes_before_what_follows_it(self):
        said = "begin\n" + "WARNING: ThreadSanitizer: data race (pid=1)\n  Write of size 8\n" + "noise\n" * 500
        lines, _ = results(("race", "ERROR", {"stdout": "quiet\n", "stderr": said}))
        self.assertEqual(lines[1:4], ["failed: asan: race: error",
                                      "    WARNING: ThreadSanitizer: data race (pid=1)", "      Write of size 8"])

    def test_nothing_that_ran_is_no_success(self):
        lines, code = results()
        self.assertEqual((lines, code), ([], 1))


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
