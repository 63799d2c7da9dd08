#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks docs/track-record.md: every scenario that it calls covered stands, by its number, in the name of a test case
of each file that is named beside it (of a Python test: in its first docstring line, which is what unittest shows), and
every command names a test of that folder. Exit code 1 if anything is wrong.

    track_record.py [--root DIR]
    track_record.py --self-test
"""

import os
import re
import sys

sys.dont_write_bytecode = True  # The sources may be read-only, and the tree stays clean.

import pages  # noqa: E402

DOCUMENT = "docs/track-record.md"
COLUMNS = 6
PYTHON_CASE = re.compile(r'\n    def test_\w+\(self\):\n        """(.*)')


def faults_of(text, read):
    """What is wrong in the document. `read(path)`: that file's text, or None."""
    seen = set()
    for number, cells in pages.rows_of(text, "SP"):
        name = cells[0]
        if len(cells) != COLUMNS:
            yield f"{DOCUMENT}:{number}: {len(cells)} cells instead of {COLUMNS}"
            continue
        if name in seen:
            yield f"{DOCUMENT}:{number}: {name} stands there twice"
        seen.add(name)
        if not cells[1] or not cells[5]:
            yield f"{DOCUMENT}:{number}: {name} has no report or no result"
        files = re.findall(r"`([^`]+)`", cells[3])
        commands = cells[4].strip("`").split()
        if not files and not commands:
            continue  # not covered; the result says why
        if not files or not commands:
            yield f"{DOCUMENT}:{number}: {name} has a test or a command, and not the other"
        builds = ""
        for path in files:
            titles = (PYTHON_CASE.findall if path.endswith(".py") else pages.case_titles)(read(path) or "")
            if not any(re.search(rf"\b{name}\b", title) for title in titles):
                yield f"{DOCUMENT}:{number}: no test case of {path} has {name} in its name"
            builds += read(os.path.join(os.path.dirname(path), "meson.build")) or ""
        for command in commands:
            suite, _, key = command.partition("_")
            if f"'{key}'" not in builds and f"'{command}'" not in builds:
                yield f"{DOCUMENT}:{number}: no test {command} of suite {suite} is built from the files of {name}"
    if not seen:
        yield f"{DOCUMENT}: no rows found"


def self_test():
    good = ("| S1 | [a#1](u) | what | `t/a_test.cpp` | `api_a` | holds |\n| P2 | b | | | | not yet |\n"
            "| P4 | c | what | `p/test_b.py` | `python_own` | holds |")
    tree = {"t/a_test.cpp": 'TEST_CASE(\n    "x "\n    "S1 y") {', "t/meson.build": "'a': files('a_test.cpp')",
            "p/test_b.py": 'class B:\n    def test_b(self):\n        \"\"\"P4: y\n        P5\"\"\"\n        P6',
            "p/meson.build": "foreach who : ['own']"}
    bad = [
        good.replace("S1", "S3"),
        good.replace("P4", "P5"),
        good.replace("P4", "P6"),
        good.replace("a_test", "b_test"),
        good.replace("api_a", "api_b"),
        good.replace("`api_a`", ""),
        good.replace("| not yet |", "| |"),
        good.replace("P2", "S1"),
        good.replace("| what |", "|"),
        "no table",
    ]
    failures = [f"refuses what is right: {fault}" for fault in faults_of(good, tree.get)]
    failures += [f"lets pass: {text!r}" for text in bad if not list(faults_of(text, tree.get))]
    return failures


def check(root, read):
    text = read(DOCUMENT) or ""
    return list(faults_of(text, read)), f"{len(list(pages.rows_of(text, 'SP')))} scenarios"


if __name__ == "__main__":
    sys.exit(pages.main("Checks docs/track-record.md against the tests.", self_test, check))
