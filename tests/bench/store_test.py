#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hixl_rivals against stores that are none: store_test.py PATH_OF_hixl_rivals [TEST ...]"""

import re
import socket
import subprocess
import sys
import threading
import unittest

PROGRAM = ""
WRONG_BYTES = 65  # bench/measure.hpp, k_exit_wrong_bytes
PATIENCE_S = 60


class Store:
    """Of one question. Speaks as much of redis as hixl_rivals asks for; `spoil` changes a value that is given back, or
    `reply` is sent instead of any answer."""

    def __init__(self, spoil=lambda value: value, reply=None):
        self.values, self.spoil, self.reply = {}, spoil, reply
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.threads = [threading.Thread(target=self.serve, daemon=True) for _ in range(2)]
        for thread in self.threads:
            thread.start()

    def serve(self):
        try:
            with self.listener.accept()[0] as end, end.makefile("rb") as lines:
                while words := self.command(lines):
                    if self.reply is not None:
                        end.sendall(self.reply)
                        return
                    if words[0] == b"SET":
                        self.values[words[1]] = words[2]
                        end.sendall(b"+OK\r\n")
                    else:
                        value = self.spoil(self.values[words[1]])
                        end.sendall(b"$%d\r\n%s\r\n" % (len(value), value))
        except OSError:
            pass  # the client is gone, as it should be

    @staticmethod
    def command(lines):
        head = lines.readline()
        words = []
        for _ in range(int(head[1:]) if head else 0):
            size = int(lines.readline()[1:])
            words.append(lines.read(size))
            lines.read(2)
        return words

    def __enter__(self):
        return str(self.listener.getsockname()[1])

    def __exit__(self, *_):
        for _ in self.threads:  # whoever still waits for a client
            with socket.socket() as end:
                end.connect_ex(self.listener.getsockname())
        for thread in self.threads:
            thread.join(PATIENCE_S)
        self.listener.close()


class Rivals(unittest.TestCase):
    def ask(self, *arguments):
        return subprocess.run([PROGRAM, "--rounds", "5", *arguments], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=PATIENCE_S, check=False)

    def test_a_store_that_keeps_bytes(self):
        for question in "put:8", "put:100001", "batch:4096:4":
            with Store() as address:
                run = self.ask("redis", "--address", address, "--piece", "30000", question)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertEqual(re.findall(r'"question":"([^"]*)"', run.stdout), [question])

    def test_a_store_that_changes_one_byte(self):
        with Store(spoil=lambda value: value[:-1] + bytes([value[-1] ^ 1])) as address:
            run = self.ask("redis", "--address", address, "put:4096")
        self.assertEqual((run.returncode, run.stdout), (WRONG_BYTES, ""))
        self.assertIn("are not the bytes that were sent", run.stderr)

    def test_a_store_that_gives_fewer_bytes(self):
        with Store(spoil=lambda value: value[:-1]) as address:
            run = self.ask("redis", "--address", address, "put:4096")
        self.assertEqual(run.returncode, 1)
        self.assertIn('the store answers "$4095" instead of "$4096"', run.stderr)

    def test_a_store_that_refuses_closes_or_never_ends_its_line(self):
        for reply, text in ((b"-OOM no room\r\n", 'answers "-OOM no room"'), (b"", "closed the connection"),
                            (b"x" * 2000, "a line without an end")):
            with Store(reply=reply) as address:
                run = self.ask("redis", "--address", address, "put:8")
            self.assertEqual(run.returncode, 1)
            self.assertIn(text, run.stderr)

    def test_questions_that_are_none(self):
        for question in ("put", "put:", "put:0", "put:8:", "put:-1", "put:8x", "take:8", "put:2000000000", "batch:8:0",
                         "batch:4096:5000", "flight:1073741824:2"):
            run = self.ask("memcpy", question)
            self.assertEqual((run.returncode, run.stdout), (1, ""), question)
            self.assertIn(f"{question}: not a question", run.stderr)


if __name__ == "__main__":
    PROGRAM = sys.argv[1]
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
