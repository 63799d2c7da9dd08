#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ours beside perftest on the same device, in turns, in one run: beside_perftest.py BUILD [ROUNDS]

Prints one row a question with medians over the rounds, their spread, and the ratio, where 1 is perftest and more is
better. Ends with 1 if a ratio of bandwidths is below LEAST: emulation moves by a third, so no finer judgement is
possible there. Small transfers have a floor of their own: the processor that executes the library is emulated as well,
and its part of an operation counts for more than on a real machine (docs/links/roce.md has the profile).
"""

import json
import os
import re
import statistics
import subprocess
import sys
import time

GID_INDEX = "1"  # of the IPv4 address
PORT = "18515"
LEAST = 0.7
LEAST_PUT, LEAST_GET = 0.4, 0.2
PATIENCE_S = 60
QUESTIONS = ["put_lat:8", "get_lat:8", "put_bw:65536", "put_bw:1048576"]


def listens(port):
    return subprocess.run(["ss", "-Hltn", f"sport = :{port}"], stdout=subprocess.PIPE, check=True).stdout != b""


def perftest(program, size, count, column):
    """One figure of its last row. Up to three times: it gives up when it finds the emulated clocks uneven."""
    command = [program, "-d", "rxe0", "-x", GID_INDEX, "-p", PORT, "-s", str(size), "-n", str(count)]
    for _ in range(3):
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + PATIENCE_S
        while not listens(PORT) and server.poll() is None and time.monotonic() < until:
            pass
        client = subprocess.run(command + ["127.0.0.1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                timeout=PATIENCE_S, check=False)
        if client.returncode != 0:
            server.kill()
        server.wait(PATIENCE_S)
        rows = re.findall(rf"^ *{size} +.*", client.stdout, re.MULTILINE)
        if client.returncode == 0 and rows:
            return float(rows[-1].split()[column])
    sys.exit(f"{program} failed:\n{client.stdout}")


def ours(build, rails, questions):
    environment = dict(os.environ, HIXL_LINKS="roce", HIXL_RDMA_DEVICES=rails)
    run = subprocess.run([f"{build}/src/cli/hixl_run", "-n", "2", f"{build}/bench/hixl_pair_bench", *questions,
                          "--polled", "--rounds", "500", "--megabytes", "16"],
                         env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         timeout=2 * PATIENCE_S, check=False)
    rows = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    if run.returncode != 0 or len(rows) != len(questions) or any(row["links"] != "roce" for row in rows):
        sys.exit(f"hixl_pair_bench failed, or another link carried:\n{run.stdout}")
    return [row.get("p50_us") or row["mib_per_s"] for row in rows]


class Figures(dict):
    def add(self, name, value):
        self.setdefault(name, []).append(value)

    def text(self, name):
        values = self[name]
        return f"{statistics.median(values):.1f} ({min(values):.1f} … {max(values):.1f})"


def main():
    build = sys.argv[1]
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    figures = Figures()
    for _ in range(rounds):
        for question, value in zip(QUESTIONS, ours(build, "rxe0", QUESTIONS)):
            figures.add(question, value)
        for size, count in ((65536, 256), (1048576, 16)):
            figures.add(f"ib_write_bw:{size}", perftest("ib_write_bw", size, count, 3))
        figures.add("ib_write_lat:8", perftest("ib_write_lat", 8, 500, 4))
        figures.add("ib_read_lat:8", perftest("ib_read_lat", 8, 500, 4))
        figures.add("request:8", 1 / perftest("ib_write_bw", 8, 4096, 4))
        figures.add("both rails", ours(build, "rxe0,rxe1", ["put_bw:1048576"])[0])
    # A put is three requests: its bytes, the word that tells how far the writes have come, and a read behind both.
    # Emulated processors do each of them one after the other, where a card has them under way at once.
    for read, request in zip(list(figures["ib_read_lat:8"]), figures["request:8"]):
        figures.add("read + 2 requests", read + 2 * request)
    middle = {name: statistics.median(values) for name, values in figures.items()}
    rows = [
        ("64 KiB puts, MiB/s", "put_bw:65536", "ib_write_bw:65536",
         middle["put_bw:65536"] / middle["ib_write_bw:65536"], LEAST),
        ("1 MiB puts, MiB/s", "put_bw:1048576", "ib_write_bw:1048576",
         middle["put_bw:1048576"] / middle["ib_write_bw:1048576"], LEAST),
        ("8 B put, µs", "put_lat:8", "read + 2 requests", middle["read + 2 requests"] / middle["put_lat:8"],
         LEAST_PUT),
        ("8 B put, µs", "put_lat:8", "ib_read_lat:8", middle["ib_read_lat:8"] / middle["put_lat:8"], None),
        ("8 B get, µs", "get_lat:8", "ib_read_lat:8", middle["ib_read_lat:8"] / middle["get_lat:8"], LEAST_GET),
        ("8 B put, µs", "put_lat:8", "ib_write_lat:8", middle["ib_write_lat:8"] / middle["put_lat:8"], None),
        # Both rails share the two emulated processors with both processes: this shows what those give.
        ("two rails, MiB/s", "both rails", "put_bw:1048576", middle["both rails"] / middle["put_bw:1048576"], None),
    ]
    low = 0
    print(f"{'':<20} {'ours':<28} {'beside':<46} ratio")
    for title, own, beside, ratio, least in rows:
        verdict = "  not judged" if least is None else "" if ratio >= least else f"  below {least:.2f}"
        low += least is not None and ratio < least
        print(f"{title:<20} {figures.text(own):<28} {beside + ' ' + figures.text(beside):<46} {ratio:.2f}{verdict}")
    sys.exit(1 if low else 0)


if __name__ == "__main__":
    main()
