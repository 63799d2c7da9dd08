#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What running programs tell hixl_diag of themselves: diag_answer_test.py HIXL_DIAG HIXL_RUN RANK_PROGRAM [TEST ...]"""

import os
import random
import socket
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

import diag  # noqa: E402

RANK_PROGRAM = os.path.abspath(sys.argv.pop(3))
MIB = 1 << 20


def free_ports(count):
    """The first of that many ports in a row of which nobody has one now; below those of outgoing connections."""
    for first in random.sample(range(21_000, 31_000, count), 100):
        try:
            for port in range(first, first + count):
                socket.create_server(("127.0.0.1", port)).close()
            return first
        except OSError:
            continue
    raise OSError("no free ports")


class Rank:
    """A rank that is driven by lines, and answers hixl_diag."""

    def __init__(self, number, store, where, *arguments, size=2):
        env = {**diag.QUIET, "HIXL_RANK": str(number), "HIXL_WORLD_SIZE": str(size), "HIXL_STORE": store,
               "HIXL_DIAG": where}
        ours, theirs = socket.socketpair()  # its standard input, by which it answers, too
        with theirs:
            self.process = subprocess.Popen([RANK_PROGRAM, "--bytes", str(3 * MIB), *arguments], text=True, env=env,
                                            stdin=theirs, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.lines = ours.makefile("rw", encoding="utf-8")
        ours.close()

    def tell(self, line):
        self.lines.write(line + "\n")
        self.lines.flush()

    def hear(self):
        return self.lines.readline().strip()

    def ask(self, line):
        self.tell(line)
        return self.hear()

    def end(self):
        self.process.kill()
        self.lines.close()
        self.process.communicate()


class Answers(diag.DiagTest):
    def store(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return f"file://{folder.name}/ranks"

    def rank(self, *arguments, **more):
        rank = Rank(*arguments, **more)
        self.addCleanup(rank.end)
        return rank

    def pair(self, *arguments):
        for _ in range(5):  # somebody else may have been faster
            port, store = free_ports(2), self.store()
            ranks = [self.rank(number, store, f"127.0.0.1:{port}+", *arguments) for number in (0, 1)]
            if all(rank.ask("lost") == "0" for rank in ranks):  # it has started
                break
        for number, rank in enumerate(ranks):
            rank.tell(f"exchange {1 - number}")
        self.assertEqual([rank.hear() for rank in ranks], ["ok", "ok"])
        return port, ranks

    def test_the_regions_of_every_rank(self):
        """F33: what a running program has registered and what it was told, of each rank at its own port."""
        port, _ = self.pair()
        for number in (0, 1):
            ended = self.diag("regions", "--port", port + number, "--json")
            self.assertEqual(ended.code, 0, ended)
            told = ended.json
            self.assertEqual((told["rank"], told["world_size"]), (number, 2))
            self.assertEqual([region["size"] for region in told["regions"]["own"]], [3 * MIB, 3 * MIB])
            self.assertEqual([(region["rank"], region["size"]) for region in told["regions"]["peers"]],
                             [(1 - number, 3 * MIB)])
            text = self.diag("regions", "127.0.0.1", "--port", port + number)
            self.assertEqual(text.code, 0, text)
            self.assertTrue(text.out.startswith(f"rank {number} of 2\n"), text)
            self.assertIn(str(3 * MIB), text.out)

    def test_the_links_that_a_rank_has(self):
        """Those of the program, beside those of the question itself."""
        port, _ = self.pair()
        ended = self.diag("links", "127.0.0.1", "--port", port + 1, "--theirs", "--json")
        self.assertEqual(ended.code, 0, ended)
        self.assertEqual(ended.json["rank"], 1)
        chosen = [link for link in ended.json["links"] if link["chosen"]]
        self.assertEqual({link["rank"] for link in chosen}, {0})
        self.assertEqual(chosen[0]["kind"], "hccs")
        text = self.diag("links", "127.0.0.1", "--port", port + 1, "--theirs")
        self.assertIn("hccs (emulated: shared memory)", text.out)
        own = self.diag("links", "127.0.0.1", "--port", port + 1, "--json")
        self.assertEqual({link["rank"] for link in own.json}, {0})
        self.assertEqual(self.diag("links", "--theirs").code, 2)

    def test_a_program_whose_loop_stands_still(self):
        """It is pinged all the same, cannot tell of itself, and ends as ever."""
        port, ranks = self.pair("--hosted")
        ranks[0].tell("away")
        self.assertEqual(ranks[0].hear(), "away")
        ended = self.diag("--ping", "127.0.0.1", "--port", port, "--count", 3, "--interval", 0)
        self.assertEqual(ended.code, 0, ended)
        self.fails("transfer", 1, "regions", "--port", port, "--timeout", 0.5)
        self.assertEqual(ranks[0].ask("back"), "back")
        self.assertEqual(self.diag("regions", "--port", port).code, 0)
        for rank in ranks:
            rank.tell("quit")
            self.assertEqual(rank.process.wait(diag.TIMEOUT_S), 0, rank.process.stderr.read())
        self.fails("refused", 12, "regions", "--port", port)

    def test_a_port_that_cannot_be_had(self):
        taken = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(taken.close)
        for where, reason in ((f"127.0.0.1:{taken.getsockname()[1]}", "ADDRESS_IN_USE"), ("everywhere", "host:port"),
                              ("127.0.0.1:65535+", "port 65536"), ("0.0.0.0:0", "SECURITY_REQUIRED")):
            rank = self.rank(1, self.store(), where)
            _, errors = rank.process.communicate(timeout=diag.TIMEOUT_S)
            self.assertEqual(rank.process.returncode, 3)
            self.assertIn("diagnosis=", errors)
            self.assertIn(reason, errors)


if __name__ == "__main__":
    diag.main()
