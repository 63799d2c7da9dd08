# SPDX-License-Identifier: Apache-2.0
"""Send and receive as in the article: order, views, release, back-pressure, the pool, and what goes wrong."""

import gc
import socket
import threading
import time
import unittest
from unittest import mock

import ascend_hixl
import hixl
from support import at_once, needs_numpy, numpy, pattern

SIZE = 1 << 20


class Between:
    """A runtime whose puts with a signal are made by a function of the test."""

    def __init__(self, runtime, put_with_signal):
        self._runtime, self.put_with_signal = runtime, put_with_signal

    def __getattr__(self, name):
        return getattr(self._runtime, name)


class Ascend(unittest.TestCase):
    buffer_type = "ddr"

    def setUp(self):
        self.decode = ascend_hixl.init(role="requester", buffer_size=SIZE, buffer_type=self.buffer_type, port=None,
                                       max_connections=4)
        self.addCleanup(self.decode.close)
        self.listener = self.decode.listen(port=0)
        self.prefill = ascend_hixl.init(role="responder", buffer_size=SIZE, buffer_type=self.buffer_type)
        self.addCleanup(self.prefill.close)

    def connect(self):
        return self.prefill.connect(peer_ip="127.0.0.1", port=self.listener.port, timeout_ms=5000)

    def receive(self):
        received = self.decode.recv(self.listener, timeout_ms=20000)
        self.assertIsNotNone(received)
        return received

    def until(self, happened):
        deadline = time.monotonic() + 20
        while not happened():
            self.assertLess(time.monotonic(), deadline)
            self.decode.recv(self.listener, timeout_ms=5)

    def bytes_of(self, received):
        back = bytearray(received.nbytes)
        received.copy_out(back)
        return bytes(back)

    def fill(self, data, offset=0):
        self.prefill.runtime.copy_in(self.prefill.buffer, offset, data)

    def test_a_layer_arrives_with_its_metadata(self):
        conn = self.connect()
        self.fill(pattern(SIZE))
        for layer in range(3):
            self.prefill.send(conn=conn, local_buf=self.prefill.buffer, offset=layer * 4096, size=4096,
                              flags=ascend_hixl.FLAG_SYNC, metadata={"layer": layer, "position": 17})
            with self.receive() as data:
                self.assertEqual(data.metadata, {"layer": layer, "position": 17})
                with self.assertRaisesRegex(ValueError, "does not fit"):
                    data.copy_out(bytearray(4095))
                self.assertEqual(self.bytes_of(data), pattern(SIZE)[layer * 4096:layer * 4096 + 4096])
        self.assertIsNone(self.decode.recv(self.listener, timeout_ms=1))

    def test_asynchronous_sends_come_in_their_order(self):
        conn = self.connect()
        self.fill(pattern(SIZE))
        sent = []
        for number in range(200):  # more than the ring holds: the receiver's releases let it go on
            if number >= 40:
                with self.receive() as data:
                    self.assertEqual(self.bytes_of(data)[:number + 1 - 40], pattern(SIZE)[:number + 1 - 40])
            sent.append(self.prefill.send(conn, self.prefill.buffer, size=number + 1, flags=ascend_hixl.FLAG_ASYNC))
        for number in range(160, 200):
            with self.receive() as data:
                self.assertEqual(data.nbytes, number + 1)
        for one in sent:
            one.wait()
            self.assertTrue(one.done())

    def test_memory_of_other_objects(self):
        conn = self.connect()
        for memory in (b"bytes", bytearray(pattern(5000)), memoryview(pattern(100))[10:20], b""):
            self.prefill.send(conn, memory)
            with self.receive() as data:
                self.assertEqual(self.bytes_of(data), bytes(memory))
        sent = self.prefill.send(conn, bytearray(pattern(70000)), offset=5, size=60000, flags=ascend_hixl.FLAG_ASYNC)
        sent.wait()
        with self.receive() as data:
            self.assertEqual(self.bytes_of(data), pattern(70000)[5:60005])
        self.assertEqual(self.prefill.runtime._kept, 0)

    def test_a_receiver_that_holds_back_is_waited_for(self):
        conn = self.connect()
        half = conn.message_max // 2
        self.prefill.send(conn, self.prefill.buffer, size=half)
        self.prefill.send(conn, self.prefill.buffer, size=half)
        first, second = self.receive(), self.receive()
        with self.assertRaises(hixl.RetryLater):
            self.prefill.send(conn, self.prefill.buffer, size=half, timeout_ms=50)
        second.release()  # not the oldest
        with self.assertRaises(hixl.RetryLater):
            self.prefill.send(conn, self.prefill.buffer, size=half, timeout_ms=50)
        first.release()
        self.prefill.send(conn, self.prefill.buffer, size=half)
        self.receive().release()

    def test_bad_calls(self):
        conn = self.connect()
        cases = [(ValueError, lambda: ascend_hixl.init(role="sender")),
                 (ValueError, lambda: ascend_hixl.init(role="responder", buffer_type="tape")),
                 (ValueError, lambda: ascend_hixl.init(role="responder", buffer_size=-1)),
                 (hixl.GiveUp, lambda: ascend_hixl.init(role="responder", buffer_size=1 << 49, buffer_type="ddr")),
                 (hixl.GiveUp, lambda: ascend_hixl.init(role="requester", buffer_size=1 << 49, port=None)),
                 (hixl.FixCall, lambda: self.decode.connect("127.0.0.1", 1)),
                 (hixl.FixCall, lambda: self.decode.send(conn, b"x")),
                 (hixl.FixCall, lambda: self.prefill.recv(timeout_ms=1)),
                 (hixl.FixCall, lambda: self.prefill.listen(0)),
                 (hixl.FixCall, lambda: self.decode.recv(timeout_ms=1)),
                 (TypeError, lambda: self.prefill.connect("127.0.0.1")),
                 (ValueError, lambda: self.prefill.connect("127.0.0.1", 70000)),
                 (hixl.RetryLater, lambda: self.prefill.connect("127.0.0.1", 1)),
                 (hixl.GiveUp, lambda: self.prefill.connect("no-such-host.invalid", 1)),
                 (hixl.GiveUp, lambda: ascend_hixl.init(role="requester", buffer_size=SIZE, port=None).listen(
                     self.listener.port)),
                 (TypeError, lambda: self.prefill.send(None, b"x")), (TypeError, lambda: self.prefill.send(conn, 5)),
                 (ValueError, lambda: self.prefill.send(conn, b"x", flags=7)),
                 (hixl.FixCall, lambda: self.prefill.send(conn, b"12345", offset=6)),
                 (hixl.FixCall, lambda: self.prefill.send(conn, b"12345", size=6)),
                 (hixl.FixCall, lambda: self.prefill.send(conn, b"12345", offset=-1)),
                 (hixl.GiveUp, lambda: self.prefill.send(conn, bytearray(conn.message_max + 1))),
                 (hixl.GiveUp, lambda: self.prefill.send(conn, b"x", metadata="x" * 2000)),
                 (TypeError, lambda: self.prefill.send(conn, b"x", metadata=object()))]
        for kind, call in cases:
            with self.assertRaises(kind) as caught:
                call()
            self.assertTrue(str(caught.exception))
        self.prefill.send(conn, b"still there")
        self.receive().release()

    def test_no_more_connections_than_the_buffer_has_parts(self):
        conns = [self.connect() for _ in range(4)]
        with self.assertRaisesRegex(hixl.Reconnect, "max_connections is 4"):
            self.connect()
        conns.pop().close()
        self.assertEqual(self.prefill._connections, set(conns))
        self.until(lambda: self.listener.connections == 3)  # the requester has to notice
        self.connect()

    def test_a_requester_that_accepts_and_dribbles(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            ended = threading.Event()

            def dribble():
                sock, _ = server.accept()
                with sock:
                    while not ended.wait(0.005):  # well within the time of one read
                        sock.sendall(b" ")

            thread = threading.Thread(target=dribble)
            thread.start()
            try:
                with self.assertRaises(hixl.RetryLater) as caught:
                    self.prefill.connect("127.0.0.1", server.getsockname()[1], timeout_ms=100)
                self.assertEqual(caught.exception.code.name, "CONNECT_TIMEOUT")
                self.assertEqual(caught.exception.detail.stage, hixl.Stage.HANDSHAKE)
            finally:
                ended.set()
                thread.join()

    def test_a_send_that_waits_for_another_one_has_its_own_time(self):
        conn = self.connect()
        with conn._lock:  # as a thread does that waits for room
            with self.assertRaises(hixl.RetryLater) as caught:
                self.prefill.send(conn, b"x", timeout_ms=10)
        self.assertEqual(caught.exception.code.name, "DEADLINE_EXCEEDED")
        for wrong in (-1, 2**31, float("nan")):
            with self.assertRaises(ValueError):
                self.prefill.send(conn, b"x", timeout_ms=wrong)

    def test_no_more_handshakes_at_a_time_than_there_may_be(self):
        with mock.patch.object(hixl._meeting.door, "HANDSHAKES_MAX", 2):
            listener = self.decode.listen(port=0)
        silent = [socket.create_connection(("127.0.0.1", listener.port), 10) for _ in range(2)]
        try:
            with self.assertRaises(hixl.RetryLater):  # nobody has a thread for it
                self.prefill.connect("127.0.0.1", listener.port, timeout_ms=100)
        finally:
            for sock in silent:
                sock.close()
        self.prefill.send(self.prefill.connect("127.0.0.1", listener.port, timeout_ms=20000), b"served")
        self.assertEqual(self.bytes_of(self.decode.recv(listener, timeout_ms=20000)), b"served")

    def test_nonsense_in_a_ring_ends_its_connection_alone(self):
        for text in (b"{", b"[" * 900, b"\xff"):
            conn = self.connect()
            with self.assertLogs("hixl", "WARNING"):
                with conn._lock:
                    conn._post(0, 0, 0, text, 5).wait()
                self.until(lambda: self.listener.connections == 0)
        self.prefill.send(self.connect(), b"others are served")
        self.receive().release()

    def test_releases_that_find_no_room_are_told_later(self):
        with mock.patch.object(ascend_hixl.listener, "LOOK_S", 0.01):
            conn = self.connect()
            inlet, = self.listener._inlets
            runtime, refusals = inlet.runtime, [hixl.Error(hixl.ErrorCode.BUSY) for _ in range(3)]

            def put(*arguments, **options):
                if refusals:
                    raise refusals.pop()
                return runtime.put_with_signal(*arguments, **options)

            inlet.runtime = Between(runtime, put)
            half = conn.message_max // 2
            for _ in range(2):
                self.prefill.send(conn, self.prefill.buffer, size=half)
            for _ in range(2):
                self.receive().release()
            for _ in range(2):  # wait for the whole ring
                self.prefill.send(conn, self.prefill.buffer, size=half, timeout_ms=20000)
        self.assertEqual(refusals, [])

    def test_releases_may_overtake_each_other(self):
        conn = self.connect()
        inlet, = self.listener._inlets
        half = conn.message_max // 2
        for _ in range(2):
            self.prefill.send(conn, self.prefill.buffer, size=half)
        runtime, told = inlet.runtime, []
        inlet.runtime = Between(runtime, lambda *arguments, **options: told.append((arguments, options)))
        for _ in range(2):
            self.receive().release()
        self.assertEqual(len(told), 2)
        for arguments, options in reversed(told):
            runtime.put_with_signal(*arguments, **options).wait()
        inlet.runtime = runtime
        for _ in range(2):
            self.prefill.send(conn, self.prefill.buffer, size=half, timeout_ms=20000)

    def test_f153_many_listeners_of_one_context(self):
        listeners = [self.decode.listen(port=0) for _ in range(8)]
        self.assertEqual(len({one.port for one in listeners} | {self.listener.port}), 9)
        sent = []
        for number, one in enumerate(listeners):
            conn = self.prefill.connect(peer_ip="127.0.0.1", port=one.port, timeout_ms=5000)
            self.addCleanup(conn.close)
            sent.append(self.prefill.send(conn, bytes([number]) * 9, flags=ascend_hixl.FLAG_ASYNC))
        for one in sent:
            one.wait()
        for number, one in reversed(list(enumerate(listeners))):
            with self.decode.recv(one, timeout_ms=20000) as received:
                self.assertEqual(self.bytes_of(received), bytes([number]) * 9)
            self.assertIsNone(self.decode.recv(one, timeout_ms=0))
        self.assertIsNone(self.decode.recv(self.listener, timeout_ms=0))

    def test_something_else_connects(self):
        for line in (b"GET / HTTP/1.1\r\n",
                     b'{"protocol": "ascend_hixl", "version": 99}\n',
                     b'{"protocol": "ascend_hixl", "version": 1, "rank": 5}\n', b"x" * 5000 + b"\n",
                     b"[" * 4000 + b"\n",
                     b'{"protocol": "ascend_hixl", "version": 1, "rank": 5, "store": "tcp://10.255.255.1:5"}\n',
                     b"[]\n"):
            with socket.create_connection(("127.0.0.1", self.listener.port), 10) as sock:
                sock.sendall(line)
                self.assertIn(b"error", sock.recv(4096))
        self.prefill.send(self.connect(), b"others are served")
        self.receive().release()

    def test_a_closed_context(self):
        conn = self.connect()
        self.prefill.send(conn, b"kept")
        received = self.receive()
        self.prefill.close()
        self.decode.close()
        if self.buffer_type == "ddr":
            self.assertEqual(self.bytes_of(received), b"kept")
        for call in (lambda: self.prefill.send(conn, b"x"), lambda: self.decode.recv(self.listener)):
            with self.assertRaises(hixl.FixCall):
                call()


class HostMemory(Ascend):
    def test_views_and_release(self):
        conn = self.connect()
        self.prefill.send(conn, b"where it arrived")
        data = self.receive()
        view = data.view
        self.assertEqual(bytes(view), b"where it arrived")
        self.assertEqual(data.address, self.address_of(data))
        part = view[2:5]  # somebody works on it
        view.release()
        with self.assertRaisesRegex(BufferError, "1 views"):
            data.release()
        part.release()
        data.release()
        data.release()
        with self.assertRaises(hixl.Reconnect):
            data.view

    @staticmethod
    def address_of(data):
        import ctypes
        return ctypes.addressof(ctypes.c_char.from_buffer(data.view))

    @needs_numpy
    def test_arrays_are_the_ring_itself(self):
        conn = self.connect()
        self.assertEqual(conn.transport, "hccs")
        values = numpy.arange(1000, dtype=numpy.float16)
        for number in range(50):
            self.prefill.send(conn, values + number)
            data = self.receive()
            array = data.array("float16")
            self.assertEqual(array.__array_interface__["data"][0], data.address)
            self.assertTrue((array == values + number).all())
            self.assertTrue((numpy.asarray(data).view("float16") == values + number).all())
            del data  # dropped, and the array lives: its room is kept
            gc.collect()
            if number == 0:
                kept = array
        self.assertTrue((kept == values).all())

    def test_a_pool_of_many_threads_and_peers(self):
        threads, each = 16, 20
        others = [ascend_hixl.init(role="requester", buffer_size=SIZE, buffer_type="ddr", port=None)
                  for _ in range(8)]
        for one in others:
            self.addCleanup(one.close)
        listeners = [one.listen(0) for one in others]
        peers = [("127.0.0.1", one.port) for one in listeners]
        with ascend_hixl.HixlPool(peers, buffer_size=1 << 16, buffer_type="ddr") as pool:
            def send(thread):
                for number in range(each):
                    ip, port = peers[(thread + number) % len(peers)]
                    pool.send_to(ip, port, bytes([thread]) * (number + 1), metadata=[thread, number]).wait()

            def take(context, listener):
                got = []
                for _ in range(threads * each // len(peers)):
                    with context.recv(listener, 20000) as data:
                        thread, number = data.metadata
                        got.append((thread, number, bytes(data.view) == bytes([thread]) * (number + 1)))
                return got

            results = at_once(*(lambda t=t: send(t) for t in range(threads)),
                              *(lambda i=i: take(others[i], listeners[i]) for i in range(len(peers))))
            got = sum(results[threads:], [])
            self.assertEqual(sorted(got), [(t, n, True) for t in range(threads) for n in range(each)])
            for context, listener in zip(others, listeners):
                self.assertIsNone(context.recv(listener, 0))
            with self.assertRaises(KeyError):
                pool.send_to("127.0.0.1", 1, b"x")
            pool.connections[peers[0]]._break(hixl.Error(hixl.ErrorCode.PEER_LOST))
            pool.send_to(*peers[0], b"made again").wait()
            with others[0].recv(listeners[0], 20000) as data:
                self.assertEqual(bytes(data.view), b"made again")


class DeviceMemory(Ascend):
    buffer_type = "hbm"

    @needs_numpy
    def test_the_articles_validation(self):
        import ascend_rt
        conn = self.connect()
        for pattern_of in (lambda: ascend_rt.fill(test_buf, value=0.1234),
                           lambda: test_buf.copy_in(numpy.arange(256 * 256).reshape(256, 256) % 2003 - 1001)):
            test_buf = ascend_rt.allocate(shape=(256, 256), dtype="float16")
            pattern_of()
            self.prefill.send(conn=conn, local_buf=test_buf, size=test_buf.nbytes)
            recv_buf = self.decode.recv(self.listener, timeout_ms=20000)
            with self.assertRaises(BufferError):
                recv_buf.view
            self.assertTrue(ascend_rt.allclose(test_buf, recv_buf))
            recv_buf.release()
        ascend_rt.fill(test_buf, value=1)
        self.prefill.send(conn=conn, local_buf=ascend_rt.allocate((256, 256), "float16"))
        self.assertFalse(ascend_rt.allclose(test_buf, self.decode.recv(self.listener, timeout_ms=20000)))
        with self.assertRaises(TypeError):
            ascend_rt.allclose(test_buf, None)


del Ascend  # only its kinds are run


if __name__ == "__main__":
    unittest.main()
