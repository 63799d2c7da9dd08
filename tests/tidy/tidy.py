#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the tree against the house rules of rules.py. Prints `file:line: what, remedy`; exit code 1 if any is broken.

    tidy.py [--root DIR]   every source file that git tracks or would track
    tidy.py --self-test    every rule against snippets that it must catch and must let pass
"""

import argparse
import os
import posixpath
import sys

sys.dont_write_bytecode = True  # The sources may be read-only, and the tree stays clean.

from rules import RULES  # noqa: E402
from source import SourceFile, load_tree  # noqa: E402


def include_circles(files):
    """(file, line, what, remedy) once for each include that closes a circle."""
    by_path = {file.path: file for file in files}
    targets = {}
    for file in files:
        targets[file.path] = []
        for line, mark, path in file.includes:
            places = [posixpath.dirname(file.path)] if mark == '"' else []
            for place in places + ["src", "include"]:
                target = posixpath.normpath(posixpath.join(place, path))
                if target in by_path:
                    targets[file.path].append((line, target))
                    break
    done = set()

    def visit(path, trail):
        for line, target in targets[path]:
            if target in trail:
                circle = trail[trail.index(target):] + [target]
                what = "include circle: " + " -> ".join(circle)
                yield by_path[path], line, what, "move what both need to a third file"
            elif target not in done:
                yield from visit(target, trail + [target])
        done.add(path)

    for file in files:
        if file.path not in done:
            yield from visit(file.path, [file.path])


def check(files):
    for file in files:
        for function, _, _ in RULES:
            for line, what, remedy in function(file):
                yield file, line, what, remedy
    yield from include_circles(files)


def self_test():
    failures = []
    for function, bad, good in RULES:
        for path, text in bad:
            if not list(function(SourceFile(path, text))):
                failures.append(f"{function.__name__} lets pass: {path}: {text[:60]!r}")
        for path, text in good:
            if list(function(SourceFile(path, text))):
                failures.append(f"{function.__name__} refuses: {path}: {text[:60]!r}")

    def circles(*sources):
        return list(include_circles([SourceFile(path, text) for path, text in sources]))

    a, b = ("src/base/a.hpp", '#include "base/b.hpp"'), ("src/base/b.hpp", '#include "a.hpp"')
    if len(circles(a, b)) != 1 or len(circles(("include/hixl/a.hpp", "#include <hixl/a.hpp>"))) != 1:
        failures.append("include_circles lets a circle pass")
    if circles(a, ("src/base/b.hpp", ""), ("src/base/c.cpp", '#include "b.hpp"\n#include "a.hpp"')):
        failures.append("include_circles refuses a tree")

    code = SourceFile("src/a.cpp", 'a("//x"); /* b\nc */ d(\'"\'); // e\nR"(f)" 1\'000 g').code_lines
    if [line.split() for line in code] != [["a(", ");"], ["d(", ");"], ["1'000", "g"]]:
        failures.append(f"comments and strings are cut wrongly: {code}")
    for failure in failures:
        print("self-test:", failure)
    print(f"{len(RULES) + 1} rules, {len(failures)} failures")
    return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser(description="Checks the tree against the house rules.")
    parser.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    files = load_tree(os.path.abspath(arguments.root))
    if len(files) < 10:  # An empty listing must not look like a clean tree.
        print(f"{arguments.root}: only {len(files)} source files found; --root must name the top of the tree")
        return 1
    broken = 0
    for file, line, what, remedy in check(files):
        print(f"{file.path}:{line}: {what}, {remedy}")
        broken += 1
    print(f"{len(files)} files, {broken} broken rules")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
