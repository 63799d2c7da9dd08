# SPDX-License-Identifier: Apache-2.0
"""What the checks of pages share: tables whose rows begin with an id, titles of test cases, and the command line."""

import argparse
import os
import re

CASE = re.compile(r'\b(?:TEST_CASE|DOCTEST_TEST_CASE)\w*\(\s*((?:"(?:\\.|[^"\\])*"\s*)+)')
PIECE = re.compile(r'"((?:\\.|[^"\\])*)"')
HERE = os.path.dirname(os.path.abspath(__file__))


def rows_of(text, ids):
    """(line number, cells) of each row that begins with a letter of `ids` and a number."""
    for number, line in enumerate(text.split("\n"), 1):
        if re.match(rf"\| [{ids}]\d+ \|", line):
            yield number, [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def case_titles(text):
    """Of the doctest cases of a C++ file, with their pieces put together."""
    return ["".join(PIECE.findall(case)) for case in CASE.findall(text)]


def main(what, self_test, check):
    """The exit code of a check. check(root, read): what is wrong, and a line that sums up; read(path): a text, or None.
    None. self_test(): what it finds wrong with the check itself."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--root", default=os.path.join(HERE, "..", ".."))
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        failures = self_test()
        for failure in failures:
            print("self-test:", failure)
        return 1 if failures else 0

    def read(path):
        try:
            with open(os.path.join(arguments.root, path), encoding="utf-8") as file:
                return file.read()
        except OSError:
            return None

    faults, summary = check(arguments.root, read)
    for fault in faults:
        print(fault)
    print(f"{summary}, {len(faults)} faults")
    return 1 if faults else 0
