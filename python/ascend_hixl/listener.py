# SPDX-License-Identifier: Apache-2.0
"""Listener: the receiving side. A door lets in those who connect, and a thread for each sleeps, without the GIL, until
its next message is there; recv() takes from all of them."""

import json
import logging
import queue
import threading

import hixl
from hixl import _meeting as meeting

from . import wire

# How often a sleeping thread looks whether its connection has been closed, and whether room has to be given back.
LOOK_S = 1.0
log = logging.getLogger("hixl")


class Listener:
    def __init__(self, context, port):
        self._context = context
        self._messages = queue.Queue()
        self._lock = threading.Lock()
        self._inlets, self._closed = set(), False
        self._door = meeting.Door(wire.LINES, context._options["bind"], port, self._enter)
        self.port = self._door.port

    def recv(self, timeout_s):
        try:
            return self._messages.get(timeout=timeout_s) if timeout_s > 0 else self._messages.get_nowait()
        except queue.Empty:
            return None

    @property
    def connections(self):
        """How many responders are connected."""
        return len(self._inlets)

    def _enter(self, sock, deadline):
        inlet = Inlet(self, *wire.LINES.world_offered(wire.LINES.receive(sock, deadline), sock), deadline)
        try:
            wire.LINES.send(sock, deadline)
            inlet.meet(deadline)
            threading.Thread(target=inlet.watch, args=(self._messages,), daemon=True).start()
        except BaseException:
            inlet.close()
            raise
        return inlet

    def close(self):
        with self._lock:
            self._closed, inlets = True, list(self._inlets)
        self._door.close()
        for inlet in inlets:
            inlet.close()


class Inlet:
    """The ring of one connection, in a rank of its own in the responder's world."""

    def __init__(self, listener, store, rank, deadline):
        context = listener._context
        # By one thread again and again: where Python collects its garbage a Received may be dropped.
        self._listener, self._lock = listener, threading.RLock()
        self._released, self._told, self._early, self._lingering = 0, 0, set(), []
        self.runtime, self.closed = None, False
        with listener._lock:
            if listener._closed or len(listener._inlets) >= context.max_connections:
                raise meeting.fail("LIMIT_REACHED", f"max_connections is {context.max_connections}")
            listener._inlets.add(self)
        try:
            runtime = hixl.Runtime(rank=rank, world_size=65536, store=store,
                                   connect_timeout=meeting.left(deadline), **context._options)
            with self._lock:
                self.runtime = runtime
                if self.closed:
                    raise meeting.fail("STOPPED", "the listener has been closed")
            share = context.buffer_size // context.max_connections // 4096 * 4096
            self.ring = self.runtime.allocate(share, tag=wire.TAG_RING, rights=hixl.Rights.WRITE, **context._memory)
            self.control = self.runtime.allocate(wire.DEPTH * wire.SLOT_BYTES, tag=wire.TAG_CONTROL)
        except BaseException:
            self.close()
            raise

    def meet(self, deadline):
        """Tells the sender where the ring is, and learns where it wants to hear of releases."""
        learned, = self.runtime.exchange([self.ring, self.control], [0], meeting.left(deadline))
        if not learned.regions:
            raise meeting.fail("HANDSHAKE_FAILED", "the responder has no word for releases")
        self._credit = learned.regions[0].at(0)

    def watch(self, messages):
        number = 1
        while not self.closed:
            self.sweep()
            try:
                self.runtime.wait_signal(self.control, number, offset=self._slot(number), timeout=LOOK_S)
                messages.put(self._message(number))
                number += 1
            except hixl.RetryLater:
                continue
            except hixl.Error:
                return  # stopped
            except (ValueError, RecursionError) as error:
                log.warning("ascend_hixl: a connection is ended, since its message %d is nonsense: %s", number, error)
                self.close()

    @staticmethod
    def _slot(number):
        return number % wire.DEPTH * wire.SLOT_BYTES

    def _message(self, number):
        """What the sender wrote, of which nothing is believed: ValueError."""
        here, slot = memoryview(self.control), self._slot(number)
        start, size, length = wire.SLOT.unpack_from(here, slot + 8)
        if start > self.ring.size or size > self.ring.size - start or length > wire.METADATA_MAX:
            raise ValueError(f"{size} bytes at {start}, with {length} of metadata")
        text = bytes(here[slot + 32:slot + 32 + length])
        return Received(self, number, start, size, json.loads(text) if text else None)

    def release(self, number):
        with self._lock:
            self._early.add(number)
            while self._released + 1 in self._early:
                self._released += 1
                self._early.discard(self._released)
            self._tell()

    def _tell(self):
        """Adds to the sender's word what has been released, in order, since it was told: puts may overtake each other,
        sums come out the same."""
        count = self._released - self._told
        if count == 0 or self.closed:
            return
        self._told += count
        try:
            self.runtime.put_with_signal(b"", self._credit, self._credit, value=count, op="add")
        except hixl.RetryLater:  # no room: the next release, or watch(), tells it
            self._told -= count
        except hixl.Error:
            pass  # the sender is gone

    def linger(self, part, number):
        """A message that was dropped while arrays over it live: its room goes back when they have gone."""
        with self._lock:
            self._lingering.append((part, number))

    def sweep(self):
        """What waits to be told, if it can be now."""
        with self._lock:
            lingering, self._lingering = self._lingering, []
            for part, number in lingering:
                if part.views > 0:
                    self._lingering.append((part, number))
                else:
                    self.release(number)
            self._tell()

    def close(self):
        with self._lock:
            self.closed, runtime = True, self.runtime
        with self._listener._lock:
            self._listener._inlets.discard(self)
        if runtime is not None:
            try:
                runtime.stop(1)
            except hixl.Error:
                pass


class Received:
    """A message where it arrived. `view` is the memory itself: nothing is copied, and the sender does not write there
    until release(). Who drops a message releases it; who holds a view or an array over it keeps its room."""

    def __init__(self, inlet, number, start, size, metadata):
        self._inlet, self._number, self._start, self.nbytes = inlet, number, start, size
        self._part = inlet.ring.part(start, size)
        self.metadata = metadata

    def _held(self):
        if self._part is None:
            raise meeting.fail("STALE", "the message has been released, and its room may hold another one")
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
        if there.nbytes < self.nbytes:
            raise ValueError(f"a message of {self.nbytes} bytes does not fit into {there.nbytes}")
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
