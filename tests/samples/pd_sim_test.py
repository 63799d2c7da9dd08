#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the Prefill/Decode simulator and reads its reports: pd_sim_test.py PATH_OF_hixl_pd_sim [TEST ...]"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""
KEYS = {
    "ranks", "prefill", "decode", "requests", "bytes", "verified_bytes", "reused_bytes", "corrupt", "errors", "wall_s",
    "ttft_ms", "transfer_gbps", "overlap", "links", "policy", "model", "scale", "speedup",
}
# Deadline of an operation that names none. Errors that come much earlier come from the death, not from it.
DEADLINE_MS = 30000


def shared_memory():
    return {name for name in os.listdir("/dev/shm") if "hixl" in name}


class PdSim(unittest.TestCase):
    def run_sim(self, *arguments, links=None, code=0):
        with tempfile.TemporaryDirectory() as folder:
            report = os.path.join(folder, "report.json")
            environment = {key: value for key, value in os.environ.items() if not key.startswith("HIXL_")}
            if links:
                environment["HIXL_LINKS"] = links
            run = subprocess.run([PROGRAM, "--json", report, *arguments], env=environment, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=110, check=False)
            self.assertEqual(run.returncode, code, run.stdout + run.stderr)
            if not os.path.exists(report):
                return None, run
            with open(report, encoding="utf-8") as file:
                return json.load(file), run

    def check_clean(self, report, requests):
        self.assertLessEqual(KEYS, set(report))
        self.assertEqual(report["requests"], requests)
        self.assertEqual(report["completed"], requests)
        self.assertEqual(report["corrupt"], 0)
        self.assertEqual(report["errors"], 0)
        self.assertGreater(report["bytes"], 0)
        self.assertEqual(report["verified_bytes"], report["bytes"])
        self.assertGreaterEqual(sum(link["bytes"] for link in report["links"].values()), report["bytes"])

    def test_every_byte_arrives(self):
        report, run = self.run_sim("--prefill", "2", "--decode", "2", "--requests", "16", "--model", "llama3-8b",
                                   "--scale", "256", "--speedup", "20")
        self.check_clean(report, 16)
        self.assertEqual(report["ranks"], 4)
        self.assertGreater(report["reused_bytes"], 0)  # at least the system prompt
        self.assertIn("speedup 20", run.stdout)
        self.assertIn("scale 256", run.stdout)

    def test_refusals(self):
        """A usage error is 2 and names what is wrong."""
        for arguments, words in ((("--speedup", "nan"), '--speedup: "nan" is not a number from'),
                                 (("--scale", "nan"), '--scale: "nan" is not'), (("--scale", "2x"), '--scale: "2x" is'),
                                 (("--seconds", "inf"), "--seconds"), (("--requests", "-1"), "--requests"),
                                 (("--decode", ""), "--decode"), (("--trace", ""), "--trace: the name is empty"),
                                 (("--kill-decode", "0@nan"), "--kill-decode"), (("--cut-link=0-inf",), "--cut-link"),
                                 (("--model", "best"), "llama3-70b"), (("--bogus",), "--bogus")):
            with self.subTest(arguments=arguments):
                _, run = self.run_sim(*arguments, code=2)
                self.assertIn(words, run.stderr)

    def test_a_table_that_cannot_be_written(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            run = subprocess.run([PROGRAM, "--requests", "2", "--model", "llama3-8b", "--scale", "256", "--speedup",
                                  "100"], text=True, stdout=full, stderr=subprocess.PIPE, timeout=110, check=False)
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertIn("standard output cannot be written", run.stderr)

    def test_over_tcp_alone(self):
        report, _ = self.run_sim("--requests", "8", "--model", "deepseek-r1", "--scale", "64", "--speedup", "20",
                                 "--policy", "round_robin", links="tcp")
        self.check_clean(report, 8)
        self.assertEqual(list(report["links"]), ["tcp"])

    def test_bytes_over_pcie_and_signals_over_tcp(self):
        report, _ = self.run_sim("--requests", "8", "--model", "llama3-8b", "--scale", "256", "--speedup", "20",
                                 links="pcie,tcp")
        self.check_clean(report, 8)
        self.assertLessEqual(set(report["links"]), {"pcie", "tcp"})  # tcp alone where the system forbids the other

    def test_a_trace_file_and_what_is_reused(self):
        lines = [{"timestamp": 0, "input_length": 1500, "output_length": 2, "hash_ids": [1, 2, 3]},
                 {"timestamp": 3000, "input_length": 2048, "output_length": 2, "hash_ids": [1, 2, 3, 4]}]
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as trace:
            trace.write("".join(json.dumps(line) + "\n" for line in lines))
            trace.flush()
            report, _ = self.run_sim("--trace", trace.name, "--model", "qwen3-235b", "--scale", "1024")
        self.check_clean(report, 2)
        block = report["bytes"] // 4
        self.assertEqual(report["bytes"], 4 * block)
        self.assertEqual(report["reused_bytes"], 3 * block)

    def test_a_wrong_trace_is_named(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as trace:
            trace.write('{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1]}\n')
            trace.flush()
            _, run = self.run_sim("--trace", trace.name, code=2)
        self.assertIn(trace.name + ":1:", run.stderr)

    def test_a_killed_decode_costs_its_own_requests_only(self):
        before = shared_memory()
        # Everything goes to Decode 0 until it dies, so it dies with transfers under way.
        report, _ = self.run_sim("--prefill", "2", "--decode", "2", "--requests", "40", "--policy", "most_loaded",
                                 "--scale", "512", "--speedup", "10", "--kill-decode", "0@1")
        self.assertEqual(report["corrupt"], 0)
        self.assertGreater(report["errors"], 0)
        self.assertEqual(report["errors"], report["expected_errors"])
        self.assertEqual(report["completed"] + report["errors"], report["requests"])
        self.assertEqual(report["skipped"], 0)
        self.assertGreater(report["completed"], 0)
        self.assertLess(report["error_after_kill_ms_max"], DEADLINE_MS / 3)
        self.assertEqual(shared_memory(), before)

    def test_a_cut_link_costs_nothing_and_comes_back(self):
        # A request every 50 ms for five seconds, so that there is traffic before, during and after the cut. The link
        # may come back later than that, when the run is over: it dials ever more seldom while it is refused.
        lines = [{"timestamp": 100 * i, "input_length": 2048, "output_length": 2,
                  "hash_ids": list(range(4 * i + 1, 4 * i + 5))} for i in range(100)]
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as trace:
            trace.write("".join(json.dumps(line) + "\n" for line in lines))
            trace.flush()
            report, run = self.run_sim("--trace", trace.name, "--prefill", "2", "--decode", "2", "--model", "llama3-8b",
                                       "--scale", "128", "--speedup", "2", "--prefill-speed", "1000000",
                                       "--policy", "round_robin", "--cut-link=1-2")
        self.check_clean(report, 100)
        self.assertEqual(list(report["links"]), ["tcp"])
        first, second = report["cut"]["links"]
        stands = {"UP", "DEGRADED"}  # the second: slower than its sibling, as a link through a relay is
        for time in "before", "cut", "after":
            self.assertGreater(first[time]["bytes"], 0, report["cut"])
            self.assertLessEqual(set(first[time]["states"]), stands, report["cut"])
        self.assertEqual(first["failures"], 0)
        self.assertGreater(second["before"]["bytes"], 0, report["cut"])
        self.assertEqual(second["cut"]["bytes"], 0, report["cut"])
        self.assertTrue(stands.isdisjoint(second["cut"]["states"]), report["cut"])
        self.assertGreaterEqual(second["failures"], 4)
        self.assertLessEqual(set(second["after"]["states"]), stands, report["cut"])
        self.assertIn("while it was cut", run.stdout)

    def test_wrong_times_of_a_cut_are_refused(self):
        for wrong in "--cut-link=3-2", "--cut-link=1", "--cut-link=-1-2", "--cut-link=a-b":
            _, run = self.run_sim(wrong, code=2)
            self.assertIn("--cut-link: expected FROM-TO", run.stderr)
        _, run = self.run_sim("--cut-link", "--kill-decode", "0@1", code=2)
        self.assertIn("one at a time", run.stderr)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
