# SPDX-License-Identifier: Apache-2.0
"""What the workers for Python libraries share: two processes, the questions of hixl_pair_bench, its bytes, its rows. A
worker runs in the interpreter that has its library; it starts its target, in the same interpreter, itself."""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

import numpy

ROUNDS_MIN = 5  # bench/measure.hpp, k_rounds_min
WRONG_BYTES = 65  # k_exit_wrong_bytes
STRIDE = 2  # blocks of a batch lie this many blocks apart


def pattern(size, seed):
    """bench/measure.cpp, fill(): a word for each place."""
    places = numpy.arange(0, size, 8, dtype=numpy.uint64) + numpy.uint64(1)
    words = places * numpy.uint64(0x9E3779B97F4A7C15) + numpy.uint64(seed)
    return words.view(numpy.uint8)[:size]


class Ask:
    def __init__(self, text, rounds, megabytes):
        self.text = text
        self.what, size, *count = text.split(":")
        self.size, self.count = int(size), int(count[0]) if count else 1
        self.bytes = self.size * self.count
        self.blocks = self.count if self.what == "batch" else 1
        self.room = self.blocks * STRIDE * self.size if self.what == "batch" else self.size
        self.rounds = max(ROUNDS_MIN, min(rounds, (megabytes << 20) // self.bytes))

    def places(self):
        """(offset, size, seed) of what lies at the target in the end."""
        return [(block * STRIDE * self.size, self.size, self.size + block) for block in range(self.blocks)]

    def moves(self):
        """Offsets of the puts of one round."""
        if self.what == "batch":
            return [block * STRIDE * self.size for block in range(self.blocks)]
        return [0] * self.count


class Line:
    """JSON lines between the two processes, beside what the library prints."""

    def __init__(self, end):
        self.file = end.makefile("rw", encoding="utf-8")

    def say(self, word):
        self.file.write(json.dumps(word) + "\n")
        self.file.flush()

    def hear(self):
        line = self.file.readline()
        if not line:
            sys.exit("the other process is gone")
        return json.loads(line)


def fill(memory, ask):
    for offset, size, seed in ask.places():
        memory[offset:offset + size] = pattern(size, seed)


def _serve(line, memory):
    for order in iter(line.hear, None):
        if order == "cpu":
            line.say(time.process_time())
        else:
            line.say(all(numpy.array_equal(memory[offset:offset + size], pattern(size, seed))
                         for offset, size, seed in order))


def main(target, initiator):
    """target(memory, line) makes the memory reachable and tells how; it gives what must stay alive. initiator(memory,
    line) hears that, and gives round_of(ask): a function that makes one round, until its bytes are there."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--megabytes", type=int, required=True)
    parser.add_argument("--target", type=int, help="descriptor of the other process")
    parser.add_argument("questions", nargs="+")
    arguments = parser.parse_args()
    asks = [Ask(text, arguments.rounds, arguments.megabytes) for text in arguments.questions]
    memory = numpy.ones(max(ask.room for ask in asks) + 4096, dtype=numpy.uint8)
    if arguments.target is not None:
        line = Line(socket.socket(fileno=arguments.target))
        kept = target(memory, line)
        _serve(line, memory)
        del kept
        os._exit(0)  # a library's threads end with it
    here, there = socket.socketpair()
    other = subprocess.Popen([sys.executable, *sys.argv, "--target", str(there.fileno())], pass_fds=[there.fileno()],
                             stdout=sys.stderr)
    there.close()
    line = Line(here)

    def cpu():
        line.say("cpu")
        return time.process_time() + line.hear()

    round_of = initiator(memory, line)
    for ask in asks:
        fill(memory, ask)
        one = round_of(ask)
        for _ in range(ask.rounds // 10 + 1):
            one()
        times = []
        before = cpu()
        for _ in range(ask.rounds):
            start = time.perf_counter_ns()
            one()
            times.append((time.perf_counter_ns() - start) / 1000)
        used = cpu() - before
        line.say(ask.places())
        if line.hear() is not True:
            print(f"{ask.text}: the bytes at the target are not the bytes that were sent", file=sys.stderr)
            other.kill()
            os._exit(WRONG_BYTES)
        median = statistics.median(times)
        print(json.dumps({"question": ask.text, "us": median, "p99_us": sorted(times)[len(times) * 99 // 100],
                          "gbps": ask.bytes / median / 1000, "cpu_s_gb": used / (ask.bytes * ask.rounds * 1e-9),
                          "rounds": ask.rounds, "verified": True}), flush=True)
    line.say(None)
    other.wait()
    os._exit(0)
