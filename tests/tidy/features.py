#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks docs/features.md: each feature stands there once, with a state of the known ones; every file that it names is
there, and in it the test case or heading whose title stands beside it; every test that it names is built, and in the
folder of a test file that is named. Exit code 1 if anything is wrong.

    features.py [--root DIR]
    features.py --self-test
"""

import os
import re
import sys

sys.dont_write_bytecode = True  # The sources may be read-only, and the tree stays clean.

import built  # noqa: E402
import pages  # noqa: E402

DOCUMENT = "docs/features.md"
FEATURES = 206
COLUMNS = 5
STATES = ("shown", "partly", "bench", "not yet", "does not apply")
PLACE = re.compile(r'`([^`]+)`((?:,? "[^"]+")*)(?:; |$)')  # a file, and titles in it


def titles_of(path, text):
    if path.endswith(".py"):
        return re.findall(r"\n    def (test_\w+)\(", text)
    if path.endswith(".md"):
        return re.findall(r"^#+ (.*)", text, re.MULTILINE)
    return pages.case_titles(text)


def faults_of_row(cells, read, builds):
    _, feature, places, commands, state = cells
    word, _, remark = state.partition(": ")
    if not feature:
        yield "it says nothing of the feature"
    if word not in STATES:
        yield f"the state {word!r} is none of: {', '.join(STATES)}"
    elif word != "shown" and not remark:
        yield f"{word}: and why is not said"
    if PLACE.sub("", places) or not re.fullmatch(r"(`\w+( \w+)*`)?", commands):
        yield 'wanted are `file` "title", "title"; `file` and `test test`'
        return
    found = PLACE.findall(places)
    if not found and word in ("shown", "partly", "bench"):
        yield f"{word}, and no file is named"
    tests = commands.strip("`").split()
    for test in tests:
        if not any(test in names for names in builds.values()):
            yield f"no test {test} is built"
    for path, titles in found:
        text = read(path)
        if text is None:
            yield f"there is no {path}"
            continue
        there = titles_of(path, text)
        for title in pages.PIECE.findall(titles):
            cut = title.endswith("…")
            if not any(one.startswith(title[:-1].rstrip()) if cut else one == title for one in there):
                yield f'nothing in {path} has the title "{title}"'
        folder = os.path.dirname(path)
        homes = [builds.get(home + "/meson.build", ()) for home in (folder, os.path.dirname(folder))]
        if path.startswith("tests/") and not any(test in names for names in homes for test in tests):
            yield f"none of its tests is built where {path} is"


def faults_of(text, read, builds, features):
    """What is wrong in the document. `read(path)`: a file's text, or None. `builds`: names of tests by meson.build."""
    seen = set()
    for number, cells in pages.rows_of(text, "F"):
        name = cells[0]
        faults = [f"{len(cells)} cells instead of {COLUMNS}"] if len(cells) != COLUMNS else []
        faults += ["it stands there twice"] if name in seen else []
        seen.add(name)
        for fault in faults or faults_of_row(cells, read, builds):
            yield f"{DOCUMENT}:{number}: {name}: {fault}"
    wanted = {f"F{number}" for number in range(1, features + 1)}
    for name in sorted(wanted ^ seen):
        yield f"{DOCUMENT}: {name} " + ("is missing" if name in wanted else "is no feature")


def self_test():
    rows = ['| F1 | what | `tests/t/a_test.cpp` "F1 x y", "z …"; `docs/b.md` "B" | `api_a_2 api_own` | shown |',
            '| F2 | what | `tests/t/c.py` "test_c" | `python_own` | partly: it lacks something |',
            "| F3 | what | | | not yet: all of it |", "| F4 | what | `docs/b.md` | | shown: here |"]
    good = "\n".join(rows)
    tree = {"tests/t/a_test.cpp": 'TEST_CASE(\n    "F1 x "\n    "y") {\nTEST_CASE_TEMPLATE("z: \\"w\\"", T) {',
            "tests/t/c.py": "class C:\n    def test_c(self):\n", "docs/b.md": "# B\n"}
    build = """foreach a, counts : all  # ['9']
  foreach b : counts
    test('api_' + a + '_' + b, x, args : ['3', a])
  endforeach
  test('api_' + a, ['c'], suite : 'd')
endforeach
foreach e : ['f']
  test('own_' + e + unknown, x)
endforeach
test('api_own', x)
test(
  'python_own', y)"""
    other = "test('unit_a', a)\nall = {'a': ['1', '2']}\nall += {'g': files('h')}"
    known = built.assigned([build, other])
    builds = {"tests/t/meson.build": built.names_of(build, known), "tests/u/meson.build": built.names_of(other, known)}
    changes = [("F3", "F2"), ("F4", "F5"), ("F4 | what", "F4 |"), ("F3 | what | | |", "F3 | what | |"),
               ("a_test.cpp", "b_test.cpp"), ("F1 x y", "F1 x"), ("z …", "w …"), ("test_c", "test_d"), ('"B"', '"C"'),
               ("api_a_2", "api_b_2"), ("api_own", "api_other"), ("`python_own`", ""), ("`python_own`", "`unit_a`"),
               ("partly:", "half:"), (": it lacks something", ""), (": all of it", ""),
               ('"F1 x y", ', 'F1 x y, '), ("`docs/b.md` | |", "| |"), ("`api_a_2 api_own`", "api_a_2"), (good, "")]
    wanted = {"api_a_1", "api_a_2", "api_a", "api_g", "api_own", "python_own"}
    failures = [f"takes {builds} for what is built"] if builds["tests/t/meson.build"] != wanted else []
    failures += [f"refuses what is right: {fault}" for fault in faults_of(good, tree.get, builds, len(rows))]
    failures += [f"lets pass: {new!r} for {old!r}" for old, new in changes
                 if good == good.replace(old, new) or
                 not list(faults_of(good.replace(old, new), tree.get, builds, len(rows)))]
    return failures


def check(root, read):
    texts = {}
    for top in "tests", "bench", "samples":
        for folder, _, files in os.walk(os.path.join(root, top)):
            if "meson.build" in files:
                path = os.path.relpath(os.path.join(folder, "meson.build"), root)
                texts[path] = read(path)
    known = built.assigned(texts.values())
    builds = {path: built.names_of(text, known) for path, text in texts.items()}
    text = read(DOCUMENT) or ""
    states = [cells[-1].partition(": ")[0] for _, cells in pages.rows_of(text, "F")]
    summary = ", ".join(f"{states.count(state)} {state}" for state in STATES)
    return list(faults_of(text, read, builds, FEATURES)), summary


if __name__ == "__main__":
    sys.exit(pages.main("Checks docs/features.md against tests, samples and benchmarks.", self_test, check))
