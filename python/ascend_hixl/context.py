# SPDX-License-Identifier: Apache-2.0
"""Context: one end of the article's interface. Owner: the program; close() or `with` ends it and its connections.
Threads: any call from any thread."""

import itertools
import os
import threading

import hixl
from hixl import _meeting as meeting

from .connection import Connection, Sent
from .listener import Listener

ROLES = ("responder", "requester")
KINDS = {"hbm": hixl.MemoryKind.HBM, "ddr": hixl.MemoryKind.HOST, "host": hixl.MemoryKind.HOST}
DEFAULT_PORT = 9999
DEFAULT_BUFFER_BYTES = 64 << 20
# What an emulated device holds unless HIXL_HBM_BYTES says otherwise; taken from the host's memory as it is allocated.
HBM_BYTES = int(os.environ.get("HIXL_HBM_BYTES", 4 << 30))
# Ranks of a responder's world: itself, and one for each connection that it ever makes.
WORLD_SIZE = 65536

devices = {}  # dev_id: runtime of the responder there, for ascend_rt


def init(role, dev_id=0, buffer_size=DEFAULT_BUFFER_BYTES, buffer_type="hbm", numa_node=None,
         allow_paging_to_ddr=False, *, port=DEFAULT_PORT, bind="127.0.0.1", insecure=False, max_connections=8,
         links=None):
    """A Context. ValueError for a role or type that is none; NO_MEMORY with what was needed and there was.

    A responder's buffer is allocated and registered here. A requester's is given to its connections as they come, in
    max_connections equal parts; here it is tried. A requester listens at `port` at once if that is free, as the
    article's validation script needs; listen() gives the same listener. Beyond loopback `bind` needs insecure=True.
    numa_node ("auto", or a number) is for buffer_type "ddr"."""
    return Context(role, dev_id, buffer_size, buffer_type, numa_node, allow_paging_to_ddr, port, bind, insecure,
                   max_connections, links)


class Context:
    def __init__(self, role, dev_id, buffer_size, buffer_type, numa_node, allow_paging_to_ddr, port, bind, insecure,
                 max_connections, links):
        if role not in ROLES:
            raise ValueError(f"role is {role!r}; it must be 'responder' (sends) or 'requester' (receives)")
        if buffer_type not in KINDS:
            raise ValueError(f"buffer_type is {buffer_type!r}; it must be 'hbm' or 'ddr'")
        if not meeting.is_number(buffer_size, 4096, 1 << 50):
            raise ValueError(f"buffer_size is {buffer_size!r}; it must be 4096 or more bytes")
        if not meeting.is_number(max_connections, 1, 1024) or buffer_size // max_connections < 4096:
            raise ValueError(f"max_connections is {max_connections!r}; it must leave 4096 bytes to each")
        self.role, self.dev_id, self.buffer_type, self.buffer_size = role, dev_id, buffer_type, buffer_size
        self.max_connections = max_connections
        self._memory = {"kind": KINDS[buffer_type], "allow_paging_to_ddr": bool(allow_paging_to_ddr)}
        if KINDS[buffer_type] == hixl.MemoryKind.HOST:
            self._memory = {"numa_node": numa_node}
        self._options = {"bind": bind, "insecure": insecure, "links": links, "hbm_bytes": HBM_BYTES}
        self._lock = threading.Lock()
        self._listeners, self._connections, self._closed = {}, set(), False
        self.runtime = self.buffer = None
        if role == "responder":
            self._start_responder(bind, insecure)
        else:
            with hixl.Runtime(**self._options) as trial:
                trial.allocate(buffer_size, **self._memory)
            self._implicit(port)

    def _start_responder(self, bind, insecure):
        self._store = hixl.Store(meeting.url_at(bind, 0), insecure)
        self.runtime = hixl.Runtime(rank=0, world_size=WORLD_SIZE, store=self._store.url, **self._options)
        try:
            self.buffer = self.runtime.allocate(self.buffer_size, **self._memory)
        except BaseException:
            self.close()
            raise
        self._ranks = itertools.count(1)
        devices.setdefault(self.dev_id, self.runtime)

    def _implicit(self, port):
        self._default = None
        if port is None:
            return
        try:
            self._default = self.listen(port)
        except hixl.Error as error:
            if error.code != hixl.ErrorCode.ADDRESS_IN_USE:
                raise

    @property
    def spilled_bytes(self):
        """Of the responder's buffer: how much did not fit into device memory."""
        return self.buffer.spilled_bytes if self.buffer is not None else 0

    def _must_be(self, role, call):
        if self._closed:
            raise meeting.fail("STOPPED", "the context has been closed; init() a new one")
        if self.role != role:
            raise meeting.fail("INVALID_ARGUMENT", f"{call}() is for a {role}, and this context is a {self.role}")

    # ---- responder ----
    def connect(self, peer_ip, port=None, timeout_ms=5000, peer_port=None):
        """A Connection to a requester's listener. CONNECT_REFUSED, CONNECT_TIMEOUT, NO_ROUTE, HOST_UNRESOLVED,
        HANDSHAKE_FAILED: which stage failed."""
        self._must_be("responder", "connect")
        if (port is None) == (peer_port is None):
            raise TypeError("connect() takes port or peer_port, one of them")
        conn = Connection(self, peer_ip, port if peer_port is None else peer_port, meeting.deadline_of(timeout_ms))
        with self._lock:
            if not self._closed:
                self._connections.add(conn)
                return conn
        conn.close()
        return self._must_be("responder", "connect")

    def send(self, conn, local_buf, offset=0, size=None, flags=hixl.FLAG_SYNC, metadata=None, timeout_ms=30000):
        """Sends local_buf[offset:offset + size], without a size all from the offset. local_buf: the context's buffer, a
        tensor of ascend_rt, a hixl.Region, a numpy array, bytes, ... FLAG_SYNC: returns when the receiver can use it.
        FLAG_ASYNC: gives a Sent; the memory is the library's until it has ended."""
        self._must_be("responder", "send")
        if flags not in (hixl.FLAG_SYNC, hixl.FLAG_ASYNC):
            raise ValueError(f"flags is {flags!r}; it must be FLAG_SYNC or FLAG_ASYNC")
        if not isinstance(conn, Connection):
            raise TypeError(f"conn must be what connect() gave, not {type(conn).__name__}")
        sent = conn._send(local_buf, offset, size, metadata, meeting.deadline_of(timeout_ms))
        if flags == hixl.FLAG_ASYNC:
            return sent
        sent.wait()
        return None

    # ---- requester ----
    def listen(self, port=DEFAULT_PORT):
        """A Listener; the same one for the same port. Port 0: a free one, Listener.port. ADDRESS_IN_USE."""
        self._must_be("requester", "listen")
        with self._lock:
            if port not in self._listeners or port == 0:
                listener = Listener(self, port)
                self._listeners[listener.port] = listener
                return listener
            return self._listeners[port]

    def recv(self, listener=None, timeout_ms=5000):
        """The next message of a listener (of the one of init() if none is named) as a Received, or None when none came.
        Sleeps meanwhile. recv(100) is recv(timeout_ms=100)."""
        self._must_be("requester", "recv")
        if isinstance(listener, (int, float)):
            listener, timeout_ms = None, listener
        listener = listener or self._default
        if listener is None:
            raise meeting.fail("INVALID_ARGUMENT",
                               "nobody listens: another socket had the port of init(); call listen()")
        return listener.recv(timeout_ms / 1e3)

    def close(self):
        """Ends connections and listeners. Messages that are held stay readable."""
        with self._lock:
            self._closed, ends = True, [*self._connections, *self._listeners.values()]
            self._listeners = {}
        for one in ends:
            one.close()
        if self.runtime is not None:
            if devices.get(self.dev_id) is self.runtime:
                del devices[self.dev_id]
            self.runtime.stop()
            self._store.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
