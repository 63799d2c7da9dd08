#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pings that get through, and pings whose target dies: diag_ping_test.py HIXL_DIAG HIXL_RUN [TEST ...]"""

import signal
import subprocess
import sys

sys.dont_write_bytecode = True

import diag  # noqa: E402


class Ping(diag.DiagTest):
    def test_the_command_of_the_article(self):
        """F184, as it is written there, between two hosts; the puts go by tcp."""
        left, right = self.host(), self.host()
        left.connect(right, "v0")
        left.sh("ip address add 10.0.1.24/24 dev v0")
        right.sh("ip address add 10.0.1.25/24 dev v0")
        self.serve("--bind", "10.0.1.25", "--insecure", on=right, port=9999)
        ended = self.diag("--ping", "10.0.1.25", "--count", "10", on=left)
        self.assertEqual(ended.code, 0, ended)
        self.assertIn("10.0.1.25:9999: 10 puts of 8 bytes, 10 there, 0 % lost", ended.out)
        self.assertRegex(ended.out, r"put +min [\d.]+ +avg [\d.]+ +p50 [\d.]+ +p99 [\d.]+ +max [\d.]+ us")
        self.assertRegex(ended.out, r"link +tcp: \w")
        self.assertEqual(len([line for line in ended.out.splitlines() if "8 bytes in" in line]), 10)

    def test_its_numbers_as_json(self):
        """F184 F152: the figures are in order, the link is named, and each stage of the connect has its time."""
        port, _ = self.serve()
        ended = self.diag("--ping", "localhost", "--port", port, "--count", 20, "--interval", 0, "--size", 65536,
                          "--json")
        self.assertEqual(ended.code, 0, ended)
        told = ended.json
        self.assertEqual((told["ok"], told["sent"], told["there"], told["wrong"], told["loss_percent"]),
                         (True, 20, 20, 0, 0))
        put = told["put"]
        self.assertTrue(0 < put["min_us"] <= put["p50_us"] <= put["p99_us"] <= put["max_us"], put)
        self.assertTrue(put["min_us"] <= put["avg_us"] <= put["max_us"], put)
        self.assertEqual(told["link"]["kind"], "hccs")
        self.assertEqual(told["link"]["name"], "hccs (emulated: shared memory)")
        self.assertTrue(told["link"]["reason"])
        self.assertEqual(list(told["stages"]),
                         ["resolve_us", "connect_us", "join_us", "links_us", "exchange_us"])
        self.assertTrue(all(time > 0 for time in told["stages"].values()), told["stages"])

    def test_the_link_that_was_asked_for(self):
        port, _ = self.serve()
        for how in ({"arguments": ["--links", "tcp"]}, {"env": {"HIXL_LINKS": "tcp"}}):
            ended = self.diag("--ping", "127.0.0.1", "--port", port, "--count", 3, "--interval", 0, "--json",
                              *how.get("arguments", []), env=how.get("env"))
            self.assertEqual((ended.code, ended.json["link"]["kind"], ended.json["there"]), (0, "tcp", 3), ended)
        self.fails("link", 17, "--ping", "127.0.0.1", "--port", port, "--links", "ub")
        self.fails("local", 19, "--ping", "127.0.0.1", "--port", port, "--links", "carrier-pigeon")

    def test_ipv6(self):
        host = self.host()
        self.serve("--bind", "::1", on=host, port=9999)
        for links in ("tcp", "hccs"):
            ended = self.diag("--ping", "::1", "--count", 1, "--links", links, "--json", on=host)
            self.assertEqual((ended.code, ended.json.get("address")), (0, "[::1]:9999"), ended)

    def test_callers_side_by_side(self):
        """Each has memory of its own there: nobody reads what another one put."""
        port, _ = self.serve()
        command = [diag.PROGRAM, "--ping", "127.0.0.1", "--port", str(port), "--count", "2000", "--interval", "0",
                   "--size", "4096", "--json"]
        callers = [subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=diag.QUIET)
                   for _ in range(6)]
        for caller in callers:
            out, err = caller.communicate(timeout=diag.TIMEOUT_S)
            self.assertEqual(caller.returncode, 0, out + err)

    def test_a_target_that_dies_is_loss_and_exit_code_1(self):
        for link in ("hccs", "tcp"):
            port, target = self.serve()
            caller = subprocess.Popen([diag.PROGRAM, "--ping", "127.0.0.1", "--port", str(port), "--count", "40",
                                       "--interval", "0.05", "--timeout", "2", "--links", link], text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=diag.QUIET)
            for _ in range(3):
                self.assertIn("bytes in", caller.stdout.readline())
            target.kill()
            out, err = caller.communicate(timeout=diag.TIMEOUT_S)
            self.assertEqual(caller.returncode, 1, out + err)
            self.assertRegex(out, r"40 puts of 8 bytes, \d+ there, [1-9]\d* % lost")
            last = [line for line in out.splitlines() if line.startswith("40: ")]
            self.assertRegex(last[0], r"^40: the answering side is gone \([A-Z_]+\)$")

    def ping_slowly(self, port, *more):
        """A caller that stays: its first put has been told."""
        caller = subprocess.Popen([diag.PROGRAM, "--ping", "127.0.0.1", "--port", str(port), "--count", "1000",
                                   "--interval", "0.2", "--links", "tcp", *more], text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, env=diag.QUIET)
        self.addCleanup(caller.communicate)
        self.addCleanup(caller.kill)
        return caller

    def test_no_place_for_another_caller(self):
        """64 at a time; the place of one that was killed is free again."""
        port, _ = self.serve("--links", "tcp")
        callers = [self.ping_slowly(port) for _ in range(64)]
        for caller in callers:
            self.assertIn("1: 8 bytes in", caller.stdout.readline())
        told = self.fails("busy", 18, "--ping", "127.0.0.1", "--port", port, "--timeout", 30)
        self.assertRegex(told["message"], r"all 64 places of callers are taken \(RANK_CONFLICT\)$")
        self.assertEqual(told["remedy"], "wait until another caller has ended")
        callers[17].kill()
        callers[17].wait(diag.TIMEOUT_S)
        ended = self.diag("--ping", "127.0.0.1", "--port", port, "--count", 1, "--timeout", 30)
        self.assertEqual(ended.code, 0, ended)

    def test_an_interrupt_ends_it_with_its_figures(self):
        port, _ = self.serve()
        caller = self.ping_slowly(port)
        self.assertIn("1: 8 bytes in", caller.stdout.readline())
        caller.send_signal(signal.SIGINT)
        out, err = caller.communicate(timeout=diag.TIMEOUT_S)
        self.assertEqual(caller.returncode, 0, out + err)
        self.assertRegex(out, r"[1-9]\d* puts of 8 bytes, [1-9]\d* there, 0 % lost")

    def test_wrong_command_lines(self):
        for arguments in ([], ["--ping"], ["--ping", "a", "--count", "0"], ["--ping", "a", "--count", "many"],
                          ["--ping", "a", "--size", "65537"], ["--ping", "a", "--port", "70000"], ["what"],
                          ["--count", "3"], ["--ping", "a", "serve"]):
            ended = self.diag(*arguments)
            self.assertEqual(ended.code, 2, (arguments, ended))
            self.assertTrue(ended.err)
        help_text = self.diag("--help")
        self.assertEqual(help_text.code, 0)
        self.assertIn("12 refused", help_text.out)


if __name__ == "__main__":
    diag.main()
