# SPDX-License-Identifier: Apache-2.0
"""Listener: the receiving side. A thread answers those who connect, and one for each connection sleeps, without the
GIL, until its next message is there; recv() takes from all of them."""

import json
import queue
import socket
import threading

import hixl

from . import wire

# How often a sleeping thread looks whether its connection has been closed.
LOOK_S = 1.0
HANDSHAKE_S = 10.0


class Listener:
    def __init__(self, context, port):
        self._context = context
        self._messages = queue.Queue()
        self._lock = threading.Lock()
        self._inlets, self._closed = set(), False
        host = context._options["bind"]
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
            self._socket.listen(128)
        except (OSError, OverflowError) as error:
            self._socket.close()
            if isinstance(error, OverflowError):
                raise ValueError(f"port is {port}; it must be 0 ... 65535") from None
            code = "ADDRESS_IN_USE" if error.errno == 98 else "OS_ERROR"
            raise wire.fail(code, f"{host}:{port}: {error.strerror}", os_error=error.errno or 0, port=port) from None
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, name=f"ascend-hixl-{self.port}", daemon=True).start()

    def recv(self, timeout_s):
        try:
            return self._messages.get(timeout=timeout_s) if timeout_s > 0 else self._messages.get_nowait()
        except queue.Empty:
            return None

    @property
    def connections(self):
        """How many responders are connected."""
        return len(self._inlets)

    def _accept(self):
        while True:
            try:
                sock, _ = self._socket.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock):
        """One connection, from its first line to its end."""
        inlet = None
        with sock:
            try:
                sock.settimeout(HANDSHAKE_S)
                inlet = Inlet(self, wire.receive_line(sock), sock.getpeername()[0])
                wire.send_line(sock)
                inlet.meet()
                sock.settimeout(None)
                threading.Thread(target=inlet.watch, args=(self._messages,), daemon=True).start()
                sock.recv(1)  # nothing comes: returns when the other side is gone
            except (OSError, hixl.Error, ValueError) as error:
                try:
                    wire.send_line(sock, error=str(error))
                except OSError:
                    pass
        if inlet is not None:
            inlet.close()

    def close(self):
        with self._lock:
            self._closed, inlets = True, list(self._inlets)
        try:
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        except OSError:
            pass
        self._socket.close()
        for inlet in inlets:
            inlet.close()


class Inlet:
    """The ring of one connection, in a rank of its own in the responder's world."""

    def __init__(self, listener, fields, peer_host):
        context = listener._context
        store = fields.get("store")
        if not isinstance(store, str) or not wire.is_number(fields.get("rank"), 1, 65535):
            raise wire.fail("MALFORMED_FRAME", "no store, or no rank")
        if not store.startswith("tcp://") or wire.host_and_port(store)[0] != peer_host:
            raise wire.fail("WRONG_PEER", "the store is not at the host that connects")
        with listener._lock:
            if listener._closed or len(listener._inlets) >= context.max_connections:
                raise wire.fail("LIMIT_REACHED", f"max_connections is {context.max_connections}")
            listener._inlets.add(self)
        self._listener, self._lock = listener, threading.Lock()
        self._released, self._early, self._lingering, self.closed = 0, set(), [], False
        self.runtime = None
        try:
            self.runtime = hixl.Runtime(rank=fields["rank"], world_size=65536, store=store,
                                        connect_timeout=HANDSHAKE_S, **context._options)
            share = context.buffer_size // context.max_connections // 4096 * 4096
            self.ring = self.runtime.allocate(share, tag=wire.TAG_RING, rights=hixl.Rights.WRITE, **context._memory)
            self.control = self.runtime.allocate(wire.DEPTH * wire.SLOT_BYTES, tag=wire.TAG_CONTROL)
        except BaseException:
            self.close()
            raise

    def meet(self):
        """Tells the sender where the ring is, and learns where it wants to hear of releases."""
        answer = self.runtime.exchange([self.ring, self.control], [0], HANDSHAKE_S)[0]
        self._credit = answer.regions[0].at(0)

    def watch(self, messages):
        number = 1
        while not self.closed:
            slot = number % wire.DEPTH * wire.SLOT_BYTES
            try:
                self.runtime.wait_signal(self.control, number, offset=slot, timeout=LOOK_S)
            except hixl.RetryLater:
                continue
            except hixl.Error:
                return  # stopped
            here = memoryview(self.control)
            start, size, length = wire.SLOT.unpack_from(here, slot + 8)
            if start > self.ring.size or size > self.ring.size - start or length > wire.METADATA_MAX:
                return  # nonsense: nothing more is believed
            text = bytes(here[slot + 32:slot + 32 + length])
            messages.put(Received(self, number, start, size, text))
            number += 1

    def release(self, number):
        """Tells the sender how many have been released, in order."""
        with self._lock:
            self._early.add(number)
            before = self._released
            while self._released + 1 in self._early:
                self._released += 1
                self._early.discard(self._released)
            if self._released == before or self.closed:
                return
            try:
                self.runtime.put_with_signal(b"", self._credit, self._credit, value=self._released)
            except hixl.Error:
                pass  # the sender is gone

    def linger(self, part, number):
        """A message that was dropped while arrays over it live: its room goes back when they have gone."""
        self._lingering.append((part, number))

    def sweep(self):
        for entry in [entry for entry in self._lingering if entry[0].views == 0]:
            self._lingering.remove(entry)
            self.release(entry[1])

    def close(self):
        self.closed = True
        with self._listener._lock:
            self._listener._inlets.discard(self)
        if self.runtime is not None:
            try:
                self.runtime.stop(1)
            except hixl.Error:
                pass


class Received:
    """A message where it arrived. `view` is the memory itself: nothing is copied, and the sender does not write there
    until release(). Who drops a message releases it; who holds a view or an array over it keeps its room."""

    def __init__(self, inlet, number, start, size, text):
        self._inlet, self._number, self._start, self.nbytes = inlet, number, start, size
        self._part = inlet.ring.part(start, size)
        self.metadata = json.loads(text) if text else None

    def _held(self):
        if self._part is None:
            raise wire.fail("STALE", "the message has been released, and its room may hold another one")
        return self._part

    @property
    def address(self):
        return self._inlet.ring.address + self._start

    @property
    def view(self):
        """A memoryview of the ring. BufferError: device memory, see copy_out()."""
        return memoryview(self._held())

    def copy_out(self, buffer):
        """Copies it out of device memory, or any. Of device memory until the context is closed."""
        part, there = self._held(), memoryview(buffer).cast("B")
        if self._inlet.ring.kind == hixl.MemoryKind.HBM:
            self._inlet.runtime.copy_out(self._inlet.ring, self._start, there[:self.nbytes])
        else:
            there[:self.nbytes] = memoryview(part)

    def array(self, dtype="uint8", shape=-1):
        """A numpy array over it, without a copy."""
        import numpy

        return numpy.frombuffer(self._held(), dtype).reshape(shape)

    def __array__(self, dtype=None, copy=None):
        array = self.array()
        return array if dtype is None else array.astype(dtype)

    def __len__(self):
        return self.nbytes

    def release(self):
        """Gives the room back to the sender. BufferError while views or arrays over it live."""
        if self._part is None:
            return
        if self._part.views > 0:
            raise BufferError(f"{self._part.views} views of the message are still there: drop them first")
        self._part = None
        self._inlet.sweep()
        self._inlet.release(self._number)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()

    def __del__(self):
        part = getattr(self, "_part", None)
        if part is None:
            return
        try:
            if part.views > 0:
                self._inlet.linger(part, self._number)
            else:
                self.release()
        except Exception:  # the interpreter ends
            pass
