#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What bench/compare makes of programs' output, stored in outputs/, and its arithmetic: reading_test.py BENCH_FOLDER
[TEST ...]"""

import os
import sys
import unittest

sys.dont_write_bytecode = True  # The sources may be read-only, and the tree stays clean.

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "..", "..", "bench"))

from compare_parts import child, read, sums  # noqa: E402

QUESTION = "put:8"


def output(name):
    with open(os.path.join(HERE, "outputs", name), encoding="utf-8") as file:
        return file.read()


class Reading(unittest.TestCase):
    def test_ucx_rows_are_read_by_their_names(self):
        self.assertEqual(read.ucx_latency(output("ucx_put_lat.txt"), 8)["us"], 0.056)
        row = read.ucx_stream(output("ucx_put_bw.txt"), 4096, 128)
        self.assertAlmostEqual(row["gbps"], 64035.02 * (1 << 20) * 1e-9)
        self.assertAlmostEqual(row["us"], 4096 * 128 / (64035.02 * (1 << 20)) * 1e6)
        slow = output("ucx_put_bw.txt").replace("64035.02", "0.00")
        self.assertAlmostEqual(read.ucx_stream(slow, 4096, 1)["us"], 1e6 / 16392965)

    def test_ucx_output_without_figures_is_a_failure(self):
        good = output("ucx_put_bw.txt")
        for text in ("", "iterations,x\n", good.replace("overall_bw", "other"), good.replace("64035.02", "n/a"),
                     good.replace("16392965", "0").replace("64035.02", "0"), good.replace("64035.02", "nan")):
            with self.assertRaises(child.Failed, msg=text):
                read.ucx_stream(text, 4096, 1)
        with self.assertRaises(child.Failed):
            read.ucx_latency(output("ucx_put_lat.txt").replace("0.056", "0.000"), 8)

    def test_rows_of_our_programs(self):
        text = output("pair_bench.txt") + "a line of something else\n"
        rows = read.json_rows(text, ["put:8", "batch:4096:128"], "us")
        self.assertEqual(rows["put:8"]["us"], 0.07)
        self.assertEqual(set(rows), {"put:8", "batch:4096:128"})
        for broken, text_of in (("put:9", text), ("put:8", text.replace('"us":0.07', '"us":"x"')),
                                ("put:8", text.replace('"us":0.07', '"us":-1')),
                                ("put:8", text.replace('"us":0.07', '"us":NaN')), ("put:8", '{"question": "put:8'),
                                ("put:8", '{"question": "put:8", "us": 1}')):
            with self.assertRaises(child.Failed, msg=(broken, text_of)):
                read.json_rows(text_of, [broken], "us")

    def test_a_row_that_was_found_wrong_ends_everything(self):
        with self.assertRaises(child.WrongBytes):
            read.json_rows('{"question": "put:8", "us": 1, "verified": false}', [QUESTION], "us")

    def test_rows_of_hixl_bench_and_of_a_barrier_of_mpi(self):
        row = read.bench_row(output("hixl_bench.txt"), "put_async")
        self.assertEqual((row["p50_us"], row["burst_p50_us"], row["cache_line_round_trip_us"]), (0.23, 0.233, 0.4))
        self.assertEqual(read.barrier_us("a warning\n19.25\n"), {"us": 19.25})
        for broken in (lambda: read.bench_row(output("hixl_bench.txt"), "barrier"), lambda: read.barrier_us(""),
                       lambda: read.barrier_us("no figure"), lambda: read.barrier_us("-1")):
            with self.assertRaises(child.Failed):
                broken()
        with self.assertRaises(child.WrongBytes):
            read.bench_row('{"bench": "put_async", "verified": false}', "put_async")

    def test_versions(self):
        for text, version in ((output("versions.txt").split("\n")[0], "7.0.15"),
                              (output("versions.txt").split("\n")[1], "1.6.18"),
                              (output("versions.txt").split("\n")[2], "1.13.1"), ("none", "version unknown")):
            self.assertEqual(read.first_version(text), version)


class Sums(unittest.TestCase):
    def test_spread_leaves_out_one_round_at_either_end(self):
        self.assertEqual(sums.spread([100, 1, 2, 3, 0]), 1.0)
        self.assertEqual(sums.spread([1, 2, 3]), 1.0)
        self.assertEqual(sums.spread([5]), 0.0)

    def test_ratios_are_of_the_same_round(self):
        self.assertEqual(sums.ratios([2, 8], [1, 4]), [2, 2])

    def test_best_depends_on_the_unit(self):
        results = {"a": [1, 1], "b": [3, 3], "c": []}
        self.assertEqual((sums.best("us", results), sums.best("gbps", results)), ("a", "b"))
        self.assertIsNone(sums.best("us", {"c": []}))

    def test_figures_as_text(self):
        for figure, unit, text in ((0.0712, "us", "0.0712 µs"), (44000, "us", "44 ms"), (9.87, "gbps", "9.87 GB/s"),
                                   (0.0345, "gbps", "34.5 MB/s"), (3 << 20, "staging_bytes", "3 MiB")):
            self.assertEqual(sums.shown(figure, unit), text)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
