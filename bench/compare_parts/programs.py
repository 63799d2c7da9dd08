# SPDX-License-Identifier: Apache-2.0
"""Our own programs as contestants: the library between two processes, and the machine's limits."""

import os
from dataclasses import replace

from . import child, read
from .contestant import LIMIT, OTHER, OURS, Contestant

BENCH_ROUNDS_MIN = 100  # hixl_bench takes no fewer
BUSY_ROUNDS = 500  # 8 ms each, a slice of the scheduler, where somebody else has a processor
NAIVE_ROUNDS = 50  # 44 ms each, where Nagle's algorithm meets a delayed acknowledgement
COMPARED = "each byte compared by the target"


def built(*names):
    def missing(tools):
        for name in names:
            if not os.access(tools.program(name), os.X_OK):
                return f"{name} is not built: ninja -C {tools.build} {name}"
        return None
    return missing


def commit(tools):
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    try:
        return child.run(["git", "-C", source, "describe", "--always", "--dirty", "--exclude", "*"], 10).strip()
    except child.Failed:
        return "commit unknown"


def library(name, links, environment=None, arguments=(), rounds_max=1 << 30):
    env = {"HIXL_LINKS": links, **(environment or {})}

    def ask(tools, questions):
        counts = replace(tools, rounds=min(tools.rounds, rounds_max)).counts
        argv = [tools.program("src/cli/hixl_run"), "-n", "2", tools.program("bench/hixl_pair_bench"), *counts,
                *arguments]
        return read.json_rows(child.run(argv + questions, tools.patience_s, env), questions, name)
    return Contestant(name, OURS, ask, built("src/cli/hixl_run", "bench/hixl_pair_bench"),
                      " ".join([*(f"{key}={value}" for key, value in env.items()), *arguments]),
                      f"the bytes are visible at the target; {COMPARED}", commit)


def rival(name, kind, arguments, meaning, rounds_max=1 << 30):
    def ask(tools, questions):
        argv = [tools.program("bench/hixl_rivals"), *replace(tools, rounds=min(tools.rounds, rounds_max)).counts,
                *arguments]
        return read.json_rows(child.run(argv + questions, tools.patience_s), questions, name)
    return Contestant(name, kind, ask, built("bench/hixl_rivals"), " ".join(arguments), meaning)


def _bench(tools, name, *arguments):
    """The row of one bench of hixl_bench."""
    rounds = str(max(tools.rounds, BENCH_ROUNDS_MIN))
    text = child.run([tools.program("bench/hixl_bench"), name, "--rounds", rounds, *arguments], tools.patience_s)
    return read.bench_row(text, name)


def posting():
    """What put() costs its caller while the loop is awake, and the bare way of a cache line to another thread and back,
    which the same program measures before."""
    def ask(one, burst):
        def of(tools, questions):
            row = _bench(tools, "put_async")
            answers = {"post:8:1": {"us": row[one]}, "post:8:64": {"us": row[burst]}}
            return {question: answers[question] for question in questions}
        return of
    line = "cache_line_round_trip_us"
    return [Contestant("HIXL", OURS, ask("p50_us", "burst_p50_us"), built("bench/hixl_bench"), "HIXL_LINKS=hccs",
                       "put() has returned, the put is under way; each byte compared at the end", commit),
            Contestant("a cache line there and back", LIMIT, ask(line, line), built("bench/hixl_bench"), "",
                       "between two spinning threads")]


def barrier():
    def ask(tools, questions):
        return {question: {"us": _bench(tools, "barrier", "--ranks", question.split(":")[1])["p50_us"]}
                for question in questions}
    return Contestant("HIXL", OURS, ask, built("bench/hixl_bench"), "HIXL_LINKS=hccs",
                      "all ranks, a process each, have entered", commit)


def busy():
    """Neither side ever sleeps. The caller turns its own runtime: beside a loop thread that spins there would be three
    of them on two processors."""
    return library("HIXL, busy", "tcp", {"HIXL_POLL": "busy"}, ["--polled"], BUSY_ROUNDS)


def copies():
    return [rival("memcpy, one thread", LIMIT, ["memcpy"], "inside one process"),
            rival("memcpy, two threads", LIMIT, ["memcpy", "--threads", "2"], "inside one process, both spinning")]


def sockets():
    return [rival("raw socket", LIMIT, ["socket"],
                  f"bare bytes, Nagle off, the last message of a group answered; {COMPARED}")]


def answered():
    return [rival("raw socket, each answered", OTHER, ["socket", "--answer-each"],
                  f"bare bytes, Nagle off, every message answered before the next; {COMPARED}")]


def framed():
    return [rival("two-sided, tuned", OTHER, ["socket", "--framed"],
                  "serialised, sent, taken apart, copied to its place, answered; Nagle off, large buffers, memory used "
                  f"again, a thread a connection; {COMPARED}"),
            rival("two-sided, naive", OTHER, ["socket", "--framed", "--naive"],
                  "the same as a socket is by default: Nagle on, length and body in two calls, memory for each "
                  f"message; {COMPARED}", NAIVE_ROUNDS)]
