# SPDX-License-Identifier: Apache-2.0
"""What runs in the virtual machine: each case has a name, a command, and the seconds that it may take."""

import os
import shlex
import subprocess
from dataclasses import dataclass

HERE = os.path.dirname(os.path.abspath(__file__))


@dataclass
class Case:
    name: str
    words: list  # one word alone is a shell command
    limit_s: int = 60
    shown: bool = False  # its output is of interest when it passes, too
    not_yet: str = ""  # why it is left out unless it is asked for by name

    def command(self):
        return self.words[0] if len(self.words) == 1 else shlex.join(self.words)

    def absent(self):
        """A program that is missing, or None."""
        for word in self.words[:-1]:
            if os.path.isabs(word) and " " not in word and not os.path.exists(word):
                return word
        return None


# What a plain run leaves out, by parts of names. Each is still run by --only.
NOT_YET = {
    "failover gap": "the emulated machine's own pauses are longer than the gap; takes 100 s",
}


def marked(case):
    for part, reason in NOT_YET.items():
        if part in case.name:
            case.not_yet = reason
    return case


def listed(words):
    """Names of the test cases of a doctest program, in its order."""
    text = subprocess.run([*words, "--list-test-cases"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return [line.strip() for line in text.splitlines() if not line.startswith(("[doctest]", "==="))]


def doctest_cases(build, suite, limit_s):
    """One case for each test case of a program, so that each begins with fresh devices."""
    program = os.path.join(build, "tests", "rdma", f"rdma_{suite}")
    words = [program, "--rank", os.path.join(build, "tests", "process", "process_rank"),
             "--run", os.path.join(build, "src", "cli", "hixl_run"), "--no-version", "--no-colors"]
    if not os.path.exists(program):
        return [Case(suite, words, limit_s)]
    # By number, since a name may hold what is a wildcard or a comma for doctest.
    return [Case(f"{suite}: {name}", [*words, f"--first={i}", f"--last={i}"], limit_s)
            for i, name in enumerate(listed(words), 1)]


def conformance_case(build):
    """All tests that every link must pass, on this one; many and short, so they share a case."""
    words = [os.path.join(build, "tests", "conformance", "conformance"), "--no-version", "--no-colors",
             "--test-case=*Roce>"]
    if os.path.exists(words[0]) and not listed(words):
        words = ["/bin/false"]  # else nothing would run, and pass
    # A quarter of the rounds: everything is slow here.
    return Case("conformance: what every link must pass", ["/usr/bin/env", "HIXL_TEST_SCALE=0.25", *words], 120)


def all_cases(build):
    machine = os.path.join(HERE, "machine")
    cases = [Case(f"machine: {what}", [machine, what], shown=what == "perftest")
             for what in ("devices", "perftest", "port", "unplug", "removal")]
    cases.append(conformance_case(build))
    for suite in ("rails", "break", "peer", "refusal"):
        cases += doctest_cases(build, suite, 75)
    pd_sim = os.path.join(build, "samples", "hixl_pd_sim")
    gap = [os.path.join(build, "bench", "failover_bench"), "command", "--links", "roce", "--rounds", "10"]
    for option, command in (("--break", "down 1"), ("--heal", "up 1"), ("--calm", "up 0")):
        gap += [option, f"{HERE}/devices {command}"]
    pair = ["/usr/bin/env", "HIXL_LINKS=roce", os.path.join(build, "src", "cli", "hixl_run"), "-n", "2",
            os.path.join(build, "bench", "hixl_pair_bench")]
    cases += [
        Case("pd_sim: 2 Prefill and 2 Decode ranks",
             ["/usr/bin/env", "HIXL_LINKS=roce", pd_sim, "--prefill", "2", "--decode", "2", "--requests", "12",
              "--seconds", "60"], 90),
        Case("pings while 1 GiB is registered", [*pair, "register:16777216"], shown=True),
        Case("failover gap of a port that goes down", gap, 90, shown=True),
        Case("beside perftest", [os.path.join(HERE, "beside_perftest.py"), build], 120, shown=True),
    ]
    return [marked(case) for case in cases]
