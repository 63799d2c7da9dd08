# SPDX-License-Identifier: Apache-2.0
"""Connection: the sending side. Messages go into the receiver's ring with one operation each, and are seen there in the
order of send(). After one has failed the connection is over, since those behind it are never seen."""

import collections
import json
import socket
import threading

import hixl
from hixl import _meeting as meeting

from . import wire


class Connection:
    def __init__(self, context, peer_ip, port, deadline):
        self._context, self._runtime = context, context.runtime
        self._lock = threading.Lock()
        self._broken = None
        self._rank = next(context._ranks)
        self._credit = self._staging = self._words = None
        self._socket = meeting.dial(peer_ip, port, deadline)
        try:
            self._credit = self._runtime.allocate(8, tag=wire.TAG_CREDIT)
            self._staging = self._runtime.allocate(wire.DEPTH * wire.SLOT_BYTES)
            wire.LINES.offer_world(self._socket, deadline, context._store.url, self._rank)
            wire.LINES.answer(self._socket, deadline)
            learned, = self._runtime.exchange(self._credit, [self._rank], meeting.left(deadline))
            of_tag = {one.tag: one for one in learned.regions}
            if not {wire.TAG_RING, wire.TAG_CONTROL} <= set(of_tag):
                raise meeting.fail("HANDSHAKE_FAILED", "the requester has no ring", stage=hixl.Stage.HANDSHAKE)
            self._ring, self._control = of_tag[wire.TAG_RING], of_tag[wire.TAG_CONTROL]
        except socket.timeout:
            self.close()
            raise meeting.fail("CONNECT_TIMEOUT", f"{peer_ip}:{port} is silent in the handshake",
                               stage=hixl.Stage.HANDSHAKE) from None
        except OSError as error:
            self.close()
            raise meeting.fail("HANDSHAKE_FAILED", f"{peer_ip}:{port}: {error}", stage=hixl.Stage.HANDSHAKE) from None
        except BaseException:
            self.close()
            raise
        self._sent = 0  # messages
        self._head = 0  # where the next one goes
        self._held = collections.deque()  # (number, start, size) of those not released, oldest first
        self._pending = []  # whose end has not been seen
        self._words = memoryview(self._credit).cast("Q")

    @property
    def message_max(self):
        """Bytes of the longest message."""
        return self._ring.length

    @property
    def transport(self):
        """Kind of link that new messages take: "hccs", "tcp", ..."""
        kind = "device_memory" if self._ring.kind == hixl.MemoryKind.HBM else "windows"
        for link in self._runtime.links():
            if link["rank"] == self._rank and link["up"] and link[kind]:
                return link["kind"]
        return None

    def _room(self, size, deadline):
        """Where `size` bytes fit, after waiting for the receiver to release what lies there."""
        start = self._head if self._head + size <= self._ring.length else 0
        while self._held:
            released = self._words[0]
            while self._held and self._held[0][0] <= released:
                self._held.popleft()
            if not self._held:
                break
            if len(self._held) < wire.DEPTH and not self._overlaps(start, size):
                return start
            self._runtime.wait_signal(self._credit, released + 1, compare=">=",
                                      timeout=meeting.left(deadline))
        return start

    def _overlaps(self, start, size):
        return any(begin < start + max(size, 1) and start < begin + max(length, 1)
                   for _, begin, length in self._held)

    def _local(self, local_buf, offset, size):
        """(what hixl takes, size, region to end afterwards or None)"""
        memory = getattr(local_buf, "region", local_buf)  # of a tensor of ascend_rt
        if isinstance(memory, hixl.Region):
            whole = memory.size
            own = memory.runtime is self._runtime
        else:
            memory = memory if hasattr(memory, "data_ptr") or hasattr(memory, "__dlpack__") else memoryview(memory)
            whole, own = (memory.nbytes if isinstance(memory, memoryview) else None), False
        region = None
        if whole == 0 and offset == 0 and not size:
            return 0, 0, None
        if not own:
            if isinstance(memory, hixl.Region) and memory.kind == hixl.MemoryKind.HBM:
                raise meeting.fail("NOT_REGISTERED", "the tensor is in device memory of another context; allocate it "
                                   "after init() of the context that sends it")
            region = self._runtime.register_memory(memory, rights=hixl.Rights.READ)
            memory, whole = region, region.size
        size = whole - offset if size is None else size
        if not meeting.is_number(offset, 0, whole) or not meeting.is_number(size, 0, whole - offset):
            if region is not None:
                region.deregister()
            raise meeting.fail("OUT_OF_RANGE", f"offset {offset!r} and size {size!r} do not lie within the {whole} "
                               "bytes")
        return memory.address + offset, size, region

    def _send(self, local_buf, offset, size, metadata, deadline):
        text = b"" if metadata is None else json.dumps(metadata).encode()
        if len(text) > wire.METADATA_MAX:
            raise meeting.fail("LIMIT_REACHED", f"metadata of {len(text)} bytes; the limit is {wire.METADATA_MAX}",
                               limit=wire.METADATA_MAX)
        if not self._lock.acquire(timeout=meeting.left(deadline)):
            raise meeting.fail("DEADLINE_EXCEEDED", "another thread waits for room on this connection")
        try:
            self._reap()
            if self._broken is not None:
                raise self._broken
            address, size, region = self._local(local_buf, offset, size)
            try:
                if size > self._ring.length:
                    raise meeting.fail("LIMIT_REACHED", f"a message of {size} bytes; this requester's buffer_size and "
                                       f"max_connections leave {self._ring.length} to a connection",
                                       length=size, limit=self._ring.length)
                start = self._room(size, deadline)
                request = self._post(address, size, start, text, meeting.left(deadline))
            except BaseException:
                if region is not None:
                    region.deregister()
                raise
            sent = Sent(self, request, region)
            self._pending.append(sent)
            return sent
        finally:
            self._lock.release()

    def _post(self, address, size, start, text, timeout_s):
        number = self._sent + 1
        slot = number % wire.DEPTH * wire.SLOT_BYTES
        here = memoryview(self._staging)
        here[slot + 8:slot + 32] = wire.SLOT.pack(start, size, len(text))
        here[slot + 32:slot + 32 + len(text)] = text
        here.release()
        batch = hixl.Batch()
        batch.put(self._staging.address + slot + 8, self._control.at(slot + 8), 24 + len(text))
        if size:
            batch.put(address, self._ring.at(start), size)
        request = self._runtime.batch_with_signal(batch, self._control.at(slot), value=number, timeout=timeout_s)
        self._sent = number
        self._held.append((number, start, size))
        self._head = start + (size + 63) // 64 * 64
        return request

    def _reap(self):
        self._pending = [sent for sent in self._pending if not sent.done()]

    def _break(self, error):
        self._broken = self._broken or error

    def close(self):
        """Ends it; what the receiver holds stays readable there."""
        self._socket.close()
        with self._context._lock:
            self._context._connections.discard(self)
        with self._lock:
            self._break(meeting.fail("STOPPED", "the connection has been closed"))
            if self._words is not None:
                self._words.release()
            try:
                for region in filter(None, (self._credit, self._staging)):
                    region.deregister(1)
            except (hixl.Error, BufferError):
                pass  # the runtime frees them when it ends
            self._credit = self._staging = self._words = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Sent:
    """A message under way. Its memory is the library's until it has ended."""

    def __init__(self, conn, request, region):
        self._conn, self._request, self._region = conn, request, region

    def done(self):
        if not self._request.done():
            return False
        try:
            self.wait(0)
        except hixl.Error:
            pass
        return True

    query = done

    def wait(self, timeout_ms=None):
        """Until the receiver can use it; raises what failed."""
        try:
            self._request.wait(None if timeout_ms is None else timeout_ms / 1e3)
        except hixl.Error as error:
            if self._request.done():
                self._conn._break(error)
                self._end()
            raise
        self._end()

    def _end(self):
        region, self._region = self._region, None
        if region is not None:
            region.deregister()
