#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs tests under this interpreter: runner.py [TEST ...], all of this folder if none is named. Says which interpreter
it is, and of each test that was skipped its name and why; fails if none has run."""

import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))


class Result(unittest.TextTestResult):
    passed = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1


def main():
    print(f"{sys.executable}: {sys.version_info}", flush=True)
    loader, names = unittest.defaultTestLoader, sys.argv[1:]
    tests = loader.loadTestsFromNames(names) if names else loader.discover(HERE, top_level_dir=HERE)
    result = unittest.TextTestRunner(resultclass=Result, warnings=None if sys.warnoptions else "default").run(tests)
    for test, reason in result.skipped:
        print(f"skipped: {test.id()}: {reason}", flush=True)
    if not result.wasSuccessful():
        sys.exit(1)
    if result.passed == 0:
        sys.exit("no test has run")


if __name__ == "__main__":
    main()
