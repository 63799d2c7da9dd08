#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Talks through the relay to an echo, and makes the trouble it offers: relay_test.py PATH_OF_hixl_relay [TEST ...]"""

import os
import socket
import subprocess
import sys
import threading
import unittest

PROGRAM = ""
PATIENCE_S = 30


def echo(connection):
    with connection:
        try:
            while data := connection.recv(1 << 16):
                connection.sendall(data)
        except OSError:
            pass  # reset, as some tests want it


class Relay(unittest.TestCase):
    def setUp(self):
        self.server = socket.create_server(("127.0.0.1", 0))
        self.target = self.server.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()
        self.addCleanup(self.server.close)

    def accept(self):
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=echo, args=(connection,), daemon=True).start()

    def start(self, *arguments, targets=1):
        relay = subprocess.Popen([PROGRAM, *arguments, *[str(self.target)] * targets], text=True,
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(relay.wait, PATIENCE_S)
        self.addCleanup(relay.stdout.close)
        self.addCleanup(relay.stdin.close)
        self.relay = relay
        ports = []
        for _ in range(targets):
            port, target = map(int, relay.stdout.readline().split())
            self.assertEqual(target, self.target)
            ports.append(port)
        return ports

    def dial(self, port):
        connection = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self.addCleanup(connection.close)
        return connection

    def tell(self, command):
        self.relay.stdin.write(command + "\n")
        self.relay.stdin.flush()
        return self.relay.stdout.readline().strip()

    def receive(self, connection, count):
        data = b""
        while len(data) < count:
            piece = connection.recv(count - len(data))
            if not piece:
                break
            data += piece
        return data

    def ask(self, connection, data):
        sender = threading.Thread(target=connection.sendall, args=(data,))
        sender.start()
        answer = self.receive(connection, len(data))
        sender.join()
        return answer

    def test_bytes_pass_both_ways_and_so_does_the_end(self):
        (port,) = self.start()
        connection = self.dial(port)
        data = os.urandom(5_000_000)
        self.assertEqual(self.ask(connection, data), data)
        connection.shutdown(socket.SHUT_WR)
        self.assertEqual(connection.recv(1), b"")

    def test_a_cut_resets_and_refuses_until_healed(self):
        port, other = self.start(targets=2)
        connection, bystander = self.dial(port), self.dial(other)
        self.assertEqual(self.ask(connection, b"before"), b"before")
        self.assertEqual(self.tell(f"cut {port}"), f"done cut {port} connections=0 bytes=12")
        with self.assertRaises(ConnectionResetError):
            connection.recv(1)
        for _ in range(2):  # refused, and not only what had been waiting
            with self.assertRaises(ConnectionRefusedError):
                self.dial(port)
        self.assertEqual(self.ask(bystander, b"well"), b"well")
        self.assertIn("done", self.tell(f"heal {port}"))
        self.assertEqual(self.ask(self.dial(port), b"after"), b"after")

    def test_a_stalled_port_goes_on_where_it_was(self):
        (port,) = self.start()
        connection = self.dial(port)
        self.assertEqual(self.ask(connection, b"1"), b"1")
        self.assertIn("done", self.tell("stall #1"))
        connection.sendall(b"2")
        late = self.dial(port)  # the kernel accepts it
        late.sendall(b"3")
        # Nothing has passed, says the relay, which has had a turn since.
        self.assertIn("connections=1 bytes=2", self.tell("stall #1"))
        self.assertIn("done", self.tell("heal #1"))
        self.assertEqual(self.receive(connection, 1), b"2")
        self.assertEqual(self.receive(late, 1), b"3")

    def test_one_bit_is_flipped_where_it_was_asked_for(self):
        (port,) = self.start()
        connection = self.dial(port)
        self.assertEqual(self.ask(connection, b"abcd"), b"abcd")
        self.assertIn("done", self.tell(f"corrupt {port} 2"))
        answer = self.ask(connection, b"abcd")
        self.assertEqual(answer, b"abbd")
        self.assertEqual(self.ask(connection, b"abcd"), b"abcd")

    def test_a_slow_port_loses_nothing(self):
        (port,) = self.start()
        connection = self.dial(port)
        self.assertIn("done", self.tell(f"slow {port} 4000000"))
        data = os.urandom(400_000)
        self.assertEqual(self.ask(connection, data), data)

    def test_commands_by_the_clock(self):
        (port,) = self.start("--at", "0:cut #1", "--at", "0.01:heal #1")
        self.assertIn("done cut", self.relay.stdout.readline())
        self.assertIn("done heal", self.relay.stdout.readline())
        self.assertEqual(self.ask(self.dial(port), b"x"), b"x")

    def test_a_target_that_is_not_there_resets(self):
        self.server.close()
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))  # does not listen
            self.target = unused.getsockname()[1]
            (port,) = self.start()
            with self.assertRaises(ConnectionResetError):
                self.dial(port).recv(1)

    def test_wrong_commands_are_named_and_change_nothing(self):
        (port,) = self.start()
        for wrong in ("", "melt 1", f"cut {port} 1", "cut", "cut 1", "cut #2", "cut #0", f"corrupt {port}",
                      f"slow {port} fast", f"heal {port} x y"):
            self.assertTrue(self.tell(wrong).startswith("error: "), wrong)
        self.assertEqual(self.ask(self.dial(port), b"x"), b"x")
        self.relay.stdin.write("quit\n")
        self.relay.stdin.flush()
        self.assertEqual(self.relay.wait(PATIENCE_S), 0)

    def test_wrong_arguments_end_it(self):
        for wrong in ([], ["x"], ["300.0.0.1:1"], ["--at", "1", "1"], ["99999"]):
            run = subprocess.run([PROGRAM, *wrong], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                 timeout=PATIENCE_S, check=False)
            self.assertEqual(run.returncode, 1, wrong)
            self.assertTrue(run.stderr.startswith("hixl_relay: "), run.stderr)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
