#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The C names that the library exports: exactly those of the list, each declared in a header, and none declared that is
missing. A name that leaves the list breaks programs that are installed; one that joins it is promised for ever. And the
statuses of status.h: exactly the codes of error.hpp, with their numbers. And each name is called by a test that wants
it to succeed; every_call_test.c calls all of them wrongly.

    symbols_test.py symbols.txt LIBRARY INCLUDE_FOLDER
"""

import pathlib
import re
import subprocess
import sys

sys.dont_write_bytecode = True  # The sources may be read-only, and the tree stays clean.

import every_call  # noqa: E402

LINKER_OWN = {"_init", "_fini", "__bss_start", "_edata", "_end"}


def status_problems(include):
    """Neither list may have what the other has not."""
    codes = {(name.upper(), number) for name, number
             in re.findall(r"^ *X\((\w+), (\d+),", (include / "error.hpp").read_text(), flags=re.MULTILINE)}
    text = (include / "status.h").read_text()
    statuses = set(re.findall(r"\bHIXL_(?:ERR_)?(OK|(?<=ERR_)\w+) = (\d+)\b", text))
    return ([f"{name} = {number} is in error.hpp, but not in status.h" for name, number in sorted(codes - statuses)] +
            [f"{name} = {number} is in status.h, but not in error.hpp" for name, number in sorted(statuses - codes)] +
            ([] if codes else ["error.hpp has no code"]))


def success_problems(include, folder):
    """Of what gives a status somebody has to want HIXL_OK."""
    tests = "".join(path.read_text() for suffix in ("c", "cpp") for path in sorted(folder.glob("*." + suffix)))
    for result, name, _ in every_call.declared(sorted(include.glob("*.h"))):
        called = rf"\b{name.replace('_init_sized', '_init(?:_sized)?').replace('InitSized', 'Init(?:Sized)?')}\("
        wanted = rf"CHECK_OK\({called}|{called}[^;]*\) == HIXL_OK"
        if not re.search(wanted if every_call.plain(result) == ("hixl_status_t", 0) else called, tests):
            yield f"no test in {folder} wants {name} to succeed"


def figures(page, listed):
    """How many functions there are stands in the page."""
    for prefix in ("hixl_", "HIXL_"):
        number = sum(name.startswith(prefix) for name in listed)
        if f"{number} functions `{prefix}…`" not in page:
            yield f"docs/c_api.md does not say that there are {number} functions `{prefix}…`"


def main():
    listed_path, library, include = sys.argv[1:]
    listed = [line for line in pathlib.Path(listed_path).read_text().split("\n") if line and not line.startswith("#")]
    names = subprocess.run(["nm", "-D", "--defined-only", "--format=posix", library], check=True, text=True,
                           stdout=subprocess.PIPE).stdout.split("\n")
    exported = {line.split(" ")[0].split("@")[0] for line in names if line} - LINKER_OWN
    c_names = {name for name in exported if not name.startswith("_Z") and not name.startswith("_ZN")}
    declared = set()
    for header in pathlib.Path(include).glob("*.h"):
        text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
        declared |= set(re.findall(r"HIXL_API (?!__)[^;(]*?\b(\w+)\(", text))
    problems = []
    if listed != sorted(listed) or len(listed) != len(set(listed)):
        problems.append("the list is not sorted, or has a name twice")
    problems += [f"{name} is in the list, but the library does not export it" for name in sorted(set(listed) - c_names)]
    problems += [f"{name} is exported as a C name, but not in the list" for name in sorted(c_names - set(listed))]
    problems += [f"{name} is declared in a header, but not in the list" for name in sorted(declared - set(listed))]
    problems += [f"{name} is in the list, but no header declares it" for name in sorted(set(listed) - declared)]
    problems += status_problems(pathlib.Path(include))
    problems += figures((pathlib.Path(include).parent.parent / "docs" / "c_api.md").read_text(), listed)
    problems += success_problems(pathlib.Path(include), pathlib.Path(listed_path).parent)
    for problem in problems:
        print(problem)
    print(f"{len(listed)} names, {len(problems)} problems")
    return 1 if problems or not listed else 0


if __name__ == "__main__":
    sys.exit(main())
