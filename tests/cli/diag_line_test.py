#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Command lines that are wrong, and surroundings that are: diag_line_test.py HIXL_DIAG HIXL_RUN [TEST ...]"""

import json
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True

import diag  # noqa: E402


class Lines(diag.DiagTest):
    def refuses(self, words, *arguments):
        """A usage error, said in text even where JSON was asked for."""
        ended = self.diag(*arguments)
        self.assertEqual((ended.code, ended.out), (2, ""), ended)
        self.assertIn(words, ended.err)
        self.assertLess(len(ended.err), 300)

    def test_numbers(self):
        for option in ("--timeout", "--interval", "--count", "--size", "--port"):
            for value in ("nan", "inf", "", "-1", "2s", "9" * 309):
                with self.subTest(option=option, value=value):
                    self.refuses(f'{option}: "{value[:40]}" is not a', "--ping", "127.0.0.1", option, value)
        for verb in (("doctor", "127.0.0.1"), ("links", "127.0.0.1"), ("regions",)):
            self.refuses('--timeout: "nan" is not a number from 0.01 to 600', *verb, "--timeout", "nan")
        for option in ("--port", "--data-port"):
            self.refuses(f'{option}: "" is not a whole number from 0 to 65535', "serve", option, "")

    def test_a_host_and_its_port(self):
        for place in ("127.0.0.1:9", "name:9", "[::1]:9", "[::1", "a:"):
            for line in (["--ping", place], ["links", place], ["doctor", place], ["regions", place]):
                self.refuses("the port is said by --port N", *line)
        self.refuses("--ping: the host is empty", "--ping", "")
        own = self.host()  # ours may be without IPv6
        self.serve("--bind", "::1", on=own, port=9999)
        for host in ("::1", "[::1]"):
            ended = self.diag("--ping", host, "--count", 1, on=own)
            self.assertEqual(ended.code, 0, ended)

    def test_options_of_a_host_that_is_not_there(self):
        for verb in ("links", "doctor"):
            for option in ("--port", "--timeout"):
                self.refuses(f"hixl_diag {verb} HOST {option} N", verb, option, 3)
        self.refuses("hixl_diag --ping HOST", "ping", "127.0.0.1", "--count", 3)

    def test_an_address_for_others_that_is_none(self):
        for place in ("x.invalid", "x.invalid:7", "[::g]:7"):
            told = self.fails("resolve", 10, "serve", "--port", 0, "--advertise", place)
            self.assertIn("--advertise", told["message"])

    def test_bytes_that_are_no_text(self):
        for line in (["--ping", b"h\xff"], ["links", b"h\xff"], ["doctor", b"h\xff"]):
            run = subprocess.run([diag.PROGRAM, *line, "--json"], stdout=subprocess.PIPE, env=diag.QUIET,
                                 timeout=diag.TIMEOUT_S, check=False)
            json.loads(run.stdout.decode("utf-8"))
            self.assertIn("\N{REPLACEMENT CHARACTER}", run.stdout.decode("utf-8"))


class Page(diag.DiagTest):
    def rows(self):
        """Of the last table of docs/diag.md: the name of a row, and what its second column has in code type."""
        with open(os.path.join(os.path.dirname(__file__), "../../docs/diag.md"), encoding="utf-8") as page:
            table = page.read().split("## What `--json` has")[1]
        # What is in brackets is within the field before it.
        return {name: re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", fields))
                for name, fields in re.findall(r"^\| `([\w -]+)` \| (.*) \|$", table, re.M)}

    def test_the_fields_of_each_verb(self):
        rows, port = self.rows(), self.serve()[0]
        there = ["127.0.0.1", "--port", port]
        model = ["--layers", 8, "--kv-heads", 8, "--head-dim", 64, "--tokens", 9]
        for row, line in (("--ping", there), ("links --theirs", there), ("regions", there), ("nic", []), ("topo", []),
                          ("mem", model), ("doctor", [])):
            with self.subTest(row=row):
                told = self.diag(*row.split(), *line, "--json").json if row != "links --theirs" else self.diag(
                    "links", *line, "--theirs", "--json").json
                self.assertEqual([field for field in rows[row] if field not in ("stage", "message")], list(told))


class Surroundings(diag.DiagTest):
    def test_output_that_cannot_be_written(self):
        port, _ = self.serve()
        model = ["mem", "--layers", 8, "--kv-heads", 8, "--head-dim", 64, "--tokens", 9]
        for line in (["links"], ["topo"], ["nic"], ["doctor"], model, ["--ping", "127.0.0.1", "--port", port],
                     ["links", "127.0.0.1", "--port", port], ["regions", "--port", port], ["--help"]):
            for more in ([], ["--json"]):
                with self.subTest(line=line, more=more), open("/dev/full", "w", encoding="utf-8") as full:
                    run = subprocess.run([diag.PROGRAM, *map(str, line), *more], text=True, stdout=full,
                                         stderr=subprocess.PIPE, timeout=diag.TIMEOUT_S, check=False, env=diag.QUIET)
                    self.assertEqual(run.returncode, 19, run)
                    self.assertIn("standard output cannot be written: No space left", run.stderr)

    def test_few_descriptors(self):
        """FD_LIMIT in words at every number that is too low, from the standard three on."""
        for few in (4, 5, 8, 16, 24, 34):
            for line in (["links"], ["--ping", "127.0.0.1"], ["serve", "--port", 0], ["links", "127.0.0.1"]):
                with self.subTest(few=few, line=line):
                    told = self.fails("local", 19, *line, prefix=["prlimit", f"--nofile={few}"])
                    self.assertIn("FD_LIMIT", told["message"])
                    self.assertIn("ulimit -n", told["remedy"])
        self.assertEqual(self.diag("links", prefix=["prlimit", "--nofile=48"]).code, 0)


if __name__ == "__main__":
    diag.main()
