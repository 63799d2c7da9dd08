# SPDX-License-Identifier: Apache-2.0
"""hixl._meeting: what each side is told when somebody else answers, or nothing that can be read."""

import os
import socket
import time
import unittest
from unittest import mock

import hixl
from hixl import _meeting as meeting

OURS = meeting.Protocol("ours", 2)


class Lines(unittest.TestCase):
    def setUp(self):
        self.here, self.there = socket.socketpair()
        self.deadline = time.monotonic() + 30

    def tearDown(self):
        self.here.close()
        self.there.close()

    def refused(self, code):
        with self.assertRaises(hixl.Error) as caught:
            OURS.answer(self.there, self.deadline)
        self.assertEqual(caught.exception.code.name, code)
        return str(caught.exception)

    def test_a_line_comes_as_it_was_said_and_nothing_behind_it_is_taken(self):
        OURS.send(self.here, self.deadline, rank=3)
        self.here.sendall(b"?")
        fields = OURS.answer(self.there, self.deadline)
        self.assertEqual((fields["rank"], fields["protocol"], fields["version"]), (3, "ours", 2))
        self.assertEqual(self.there.recv(9), b"?")

    def test_each_protocol_has_a_name_and_a_version(self):
        meeting.Protocol("theirs", 2).send(self.here, self.deadline)
        self.assertIn("'theirs'", self.refused("WRONG_PEER"))
        meeting.Protocol("ours", 3).send(self.here, self.deadline)
        self.assertIn("version 3 of ours", self.refused("VERSION_MISMATCH"))
        OURS.send(self.here, self.deadline, error="no room")
        self.assertIn("no room", self.refused("HANDSHAKE_FAILED"))
        OURS.send(self.here, self.deadline, error="")  # it has no words for it, and failed all the same
        self.refused("HANDSHAKE_FAILED")

    def test_nonsense(self):
        for line in (b"GET / HTTP/1.1\r\n", b"{}\n", b"[]\n", b"3\n", b'{"protocol": "ours"}\n', b"[" * 4000 + b"\n"):
            with self.subTest(line[:20]):
                self.here.sendall(line)
                self.refused("MALFORMED_FRAME")
        self.here.sendall(b"x" * 5000)
        self.refused("MALFORMED_FRAME")

    def test_who_dribbles_is_not_waited_for_longer(self):
        self.here.sendall(b"{")
        self.deadline = time.monotonic()
        with self.assertRaises(socket.timeout):
            OURS.answer(self.there, self.deadline)

    def test_the_end(self):
        self.here.close()
        self.refused("HANDSHAKE_FAILED")


class Places(unittest.TestCase):
    def test_urls(self):
        for host, url in (("127.0.0.1", "tcp://127.0.0.1:5"), ("::1", "tcp://[::1]:5")):
            self.assertEqual(meeting.url_at(host, 5), url)
            self.assertEqual(meeting.host_and_port(url), (host, "5"))

    def test_a_world_is_offered_by_the_host_that_has_its_store(self):
        with socket.create_server(("127.0.0.1", 0)) as listener, \
                socket.create_connection(listener.getsockname(), 30) as here, listener.accept()[0] as there:
            deadline = time.monotonic() + 30
            OURS.offer_world(here, deadline, "tcp://0.0.0.0:7", 4)
            self.assertEqual(OURS.world_offered(OURS.receive(there, deadline), there), ("tcp://127.0.0.1:7", 4))
            for fields, code in (({}, "MALFORMED_FRAME"),
                                 ({"store": "tcp://127.0.0.1:7", "rank": 0}, "MALFORMED_FRAME"),
                                 ({"store": "tcp://127.0.0.1:7", "rank": True}, "MALFORMED_FRAME"),
                                 ({"store": "tcp://10.255.255.1:7", "rank": 4}, "WRONG_PEER"),
                                 ({"store": "file:///tmp/x", "rank": 4}, "WRONG_PEER")):
                with self.subTest(fields), self.assertRaises(hixl.Error) as caught:
                    OURS.world_offered(fields, there)
                self.assertEqual(caught.exception.code.name, code)

    def test_options_are_the_environments_but_no_rank(self):
        for who in ({"HIXL_RANK": "1", "HIXL_WORLD_SIZE": "4", "HIXL_STORE": "tcp://127.0.0.1:1"},
                    {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}):
            with self.subTest(who), mock.patch.dict(os.environ, HIXL_LINKS="tcp", HIXL_DIAG="127.0.0.1:1", **who):
                options = meeting.options_at("127.0.0.1")
            self.assertIn("tcp", str(options["links"]).lower())
            self.assertEqual(options["bind"], "127.0.0.1")
            self.assertFalse({"rank", "world_size", "store", "host_store", "diagnosis"} & set(options))


if __name__ == "__main__":
    unittest.main()
