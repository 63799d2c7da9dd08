#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts one meson test log: test_results.py LOG BUILD prints "PASSED FAILED SKIPPED", then one line for each test that
was skipped (one for all that say the same), and for each that failed a line and, indented, what it said of it.

A test that can run only a part says so with a line "skipped: NAME: REASON", which counts as one skipped beside it. A
test that cannot run at all prints its reason and ends with exit code 77. A test that is a suite of its own ends with
"N passed, N failed, N skipped", which counts instead of its one, and has lines "failed: …" and "skipped: …" of these.
"""

import json
import os
import re
import sys
from collections import Counter

PASSED = ("OK", "EXPECTEDFAIL")
SKIPPED = ("SKIP", "IGNORED")
# Where a sanitizer's report begins; and lines that are told: two stacks and what leads to them.
REPORT = re.compile(r"^.*(?:WARNING: ThreadSanitizer|ERROR: \w+Sanitizer|: runtime error: ).*$", re.MULTILINE)
REPORT_LINES = 60


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"


def report(test):
    """What a failed test said: the first report of a sanitizer, else the end of its output."""
    text = (test.get("stdout") or "") + (test.get("stderr") or "")
    begin = REPORT.search(text)
    lines = text[begin.start():].splitlines()[:REPORT_LINES] if begin else text.splitlines()[-REPORT_LINES:]
    return "".join(f"\n    {line}" for line in lines)


def main():
    path, build = sys.argv[1:]
    if not os.path.exists(path):
        print("no test ran", file=sys.stderr)
        return 1
    passed = failed = skipped = 0
    notes = []
    with open(path, encoding="utf-8", errors="replace") as log:
        for line in log:
            test = json.loads(line)
            name = re.sub(r"^\S+:\S+ / ", "", test["name"])
            output = test.get("stdout") or ""
            own = re.fullmatch(r"(\d+) passed, (\d+) failed, (\d+) skipped", last_line(output))
            if own:
                passed += int(own.group(1))
                failed += int(own.group(2))
                skipped += int(own.group(3))
                notes += [f"{kind}: {build}: {part}" for kind, part in
                          re.findall(r"^(failed|skipped): (\S.*)", output, re.MULTILINE)]
                if int(own.group(2)) > 0:
                    notes.append(f"failed: {build}: {name}, the end of what it said:{report(test)}")
                elif test["result"] not in PASSED:
                    failed += 1
                    notes.append(f"failed: {build}: {name}: {test['result'].lower()}{report(test)}")
                continue
            if test["result"] in PASSED:
                passed += 1
            elif test["result"] in SKIPPED:
                skipped += 1
                notes.append(f"skipped: {build}: {name}: {last_line(output)}")
            else:
                failed += 1
                notes.append(f"failed: {build}: {name}: {test['result'].lower()}{report(test)}")
            for part in re.findall(r"\bskipped: (\S.*)", output):
                skipped += 1
                notes.append(f"skipped: {build}: {name}: {part.strip()}")
    if passed + failed + skipped == 0:
        print("no test ran", file=sys.stderr)
        return 1
    print(passed, failed, skipped)
    # Failures last, where whoever looks at the end of a long log finds them.
    for note, times in sorted(Counter(notes).items(), key=lambda entry: entry[0].startswith("failed: ")):
        print(note + (f" ({times} times)" if times > 1 else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
