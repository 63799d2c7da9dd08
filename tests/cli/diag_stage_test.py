#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each stage at which a call can fail, made in fact: diag_stage_test.py HIXL_DIAG HIXL_RUN [TEST ...]"""

import signal
import socket
import struct
import sys
import threading

sys.dont_write_bytecode = True

import diag  # noqa: E402


class Stranger:
    """Listens on loopback and answers every connection with `answer`; None: closes at once, b"": says nothing."""

    def __init__(self, answer):
        self.answer = answer
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.connections = []
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            if self.answer is None:
                connection.close()
                continue
            self.connections.append(connection)
            try:
                connection.sendall(self.answer)
            except OSError:
                pass

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()
        for connection in self.connections:
            connection.close()


class Crowd:
    """A port whose queue is full: the kernel swallows what comes after it."""

    def __init__(self):
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(0)
        self.port = self.listener.getsockname()[1]
        self.waiting = []
        for _ in range(4):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", self.port))
            self.waiting.append(one)

    def close(self):
        for one in (*self.waiting, self.listener):
            one.close()


class Stages(diag.DiagTest):
    def stranger(self, answer):
        stranger = Stranger(answer)
        self.addCleanup(stranger.close)
        return stranger.port

    def ping(self, port, *more):
        return ["--ping", "127.0.0.1", "--port", port, "--timeout", 0.5, *more]

    def closed_port(self):
        """Nobody listens, and nobody else can take it."""
        taken = socket.socket()
        self.addCleanup(taken.close)
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]

    def test_resolve(self):
        told = self.fails("resolve", 10, "--ping", "x.invalid")
        self.assertIn("x.invalid", told["message"])

    def test_no_route_and_the_command_that_makes_one(self):
        """F185"""
        left, right = self.host(), self.host()
        left.connect(right, "v0")
        left.sh("ip address add 10.77.1.1/24 dev v0; ip route add unreachable 10.98.0.0/16")
        for host, errno in (("10.99.0.7", 101), ("10.98.0.7", 113)):
            told = self.fails("no_route", 11, "--ping", host, on=left)
            self.assertIn(f"errno {errno}", told["message"])
            self.assertIn(f"ip route add {host}/32 via GATEWAY dev v0", told["remedy"])
            self.assertIn("10.77.1.1", told["remedy"])
        told = self.fails("no_route", 11, "--ping", "fd77::7", on=left)
        self.assertIn("no IPv6 address", told["remedy"])

    def test_the_advice_is_a_command_that_helps(self):
        """F185: done as told, the same ping gets through."""
        left, right = self.host(), self.host()
        left.connect(right, "v0")
        left.sh("ip address add 10.77.1.1/24 dev v0")
        right.sh("ip address add 10.77.1.2/24 dev v0; ip address add 10.99.0.7/32 dev lo")
        self.serve("--bind", "10.99.0.7", "--insecure", on=right, port=9999)
        told = self.fails("no_route", 11, "--ping", "10.99.0.7", on=left)
        command = told["remedy"].split("where none is: ")[1].split(",")[0]
        done = left.run(command.replace("GATEWAY", "10.77.1.2"))
        self.assertEqual(done.code, 0, done)
        ended = self.diag("--ping", "10.99.0.7", on=left)
        self.assertEqual(ended.code, 0, ended)

    def test_refused(self):
        port = self.closed_port()
        told = self.fails("refused", 12, *self.ping(port))
        self.assertIn(f"127.0.0.1:{port}", told["message"])
        self.assertIn("errno 111", told["message"])

    def test_filtered(self):
        crowd = Crowd()
        self.addCleanup(crowd.close)
        told = self.fails("filtered", 13, *self.ping(crowd.port))
        self.assertIn("errno 110", told["message"])

    def test_handshake_with_something_else(self):
        garbage = b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10
        for answer in (b"", garbage, None, struct.pack("<IB", 0x4C584948, 1)):
            with self.subTest(answer=answer):
                told = self.fails("handshake", 14, *self.ping(self.stranger(answer)))
                self.assertIn("hixl_diag serve", told["remedy"])

    def test_a_stopped_process(self):
        """Its kernel accepts for it."""
        port, process = self.serve()
        process.send_signal(signal.SIGSTOP)
        told = self.fails("handshake", 14, *self.ping(port))
        self.assertIn("accepts connections and does not answer; perhaps it is stopped", told["message"])

    def test_no_kind_that_both_sides_have(self):
        """Told as soon as it is known, in much less than the time allowed."""
        left, right = self.host(), self.host()
        left.connect(right, "v0")
        left.sh("ip address add 10.77.1.1/24 dev v0")
        right.sh("ip address add 10.77.1.2/24 dev v0")
        self.serve("--bind", "10.77.1.2", "--insecure", on=right, port=9999)
        allowed = diag.TIMEOUT_S * 2  # diag() gives up before it
        for theirs, ours, words in (("tcp", "hccs", "the peer offers no link that stays on its host"),
                                    ("hccs", "tcp", "the peer offers no link over the network")):
            port, _ = self.serve("--links", theirs)
            told = self.fails("link", 17, "--ping", "127.0.0.1", "--port", port, "--links", ours, "--timeout", allowed)
            self.assertIn(f"{ours}: {words}", told["message"])
            self.assertIn("--links", told["remedy"])
        told = self.fails("link", 17, "--ping", "10.77.1.2", "--links", "hccs", "--timeout", allowed, on=left)
        self.assertIn("hccs: ", told["message"])

    def test_a_rendezvous_without_an_answering_rank(self):
        script = f'{diag.PROGRAM} --ping 127.0.0.1 --port ${{HIXL_STORE##*:}} --timeout 0.5 --json'
        run = diag.subprocess.run([diag.LAUNCHER, "-n", "1", "sh", "-c", script], text=True,
                                  stdout=diag.subprocess.PIPE, stderr=diag.subprocess.PIPE, timeout=diag.TIMEOUT_S,
                                  check=False, env=diag.QUIET)
        self.assertEqual(run.returncode, 14, run.stdout + run.stderr)
        self.assertIn('"stage": "handshake"', run.stdout)

    def test_version(self):
        other = struct.pack("<IB", 0x4C584948, 9) + bytes(59)  # "HIXL", version 9, and a header's length
        told = self.fails("version", 15, *self.ping(self.stranger(other)))
        self.assertIn("VERSION_MISMATCH", told["message"])

    def test_authentication(self):
        port, _ = self.serve("--job", "training 17")
        for arguments, env in ((["--job", "training 18"], None), ([], None), ([], {"HIXL_JOB": "other"})):
            told = self.fails("authentication", 16, *self.ping(port, *arguments), env=env)
            self.assertIn("--job", told["remedy"])
        self.assertEqual(self.diag(*self.ping(port, "--count", 1), env={"HIXL_JOB": "training 17"}).code, 0)

    def test_the_data_port_has_its_stages_too(self):
        """The answering rank is told to be at a port that refuses, and at one that swallows."""
        crowd = Crowd()
        self.addCleanup(crowd.close)
        for stage, code, wrong in (("refused", 12, self.closed_port()), ("filtered", 13, crowd.port)):
            port, _ = self.serve("--links", "tcp", "--advertise", f"127.0.0.1:{wrong}")
            told = self.fails(stage, code, *self.ping(port, "--links", "tcp"))
            self.assertIn(f"127.0.0.1:{wrong}", told["message"])
            self.assertIn("--data-port", told["remedy"])

    def test_an_answering_side_that_cannot_be(self):
        taken = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(taken.close)
        told = self.fails("local", 19, "serve", "--port", taken.getsockname()[1])
        self.assertIn("ADDRESS_IN_USE", told["message"])
        told = self.fails("local", 19, "serve", "--port", 0, "--bind", "0.0.0.0")
        self.assertIn("--insecure", told["remedy"])
        told = self.fails("local", 19, "serve", "--port", 0, "--bind", "0.0.0.0", "--insecure")
        self.assertIn("--advertise", told["remedy"])
        self.fails("local", 19, "--ping", "127.0.0.1", "--port", taken.getsockname()[1],
                   env={"HIXL_LINKS": "what"})


if __name__ == "__main__":
    diag.main()
