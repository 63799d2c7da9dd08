# SPDX-License-Identifier: Apache-2.0
"""Runtime: one rank. Puts bytes into and gets bytes from registered memory of other ranks, whose programs do nothing
for it.

Owner: the program; `with hixl.Runtime(...) as rank:` stops it at the end. Threads: any call from any thread.
Calls that wait give the GIL away; posts do not wait. Close: stop(); what the program forgets is stopped at the end of
the interpreter. Fork: the parent goes on; in the child every call raises FORKED."""

import atexit
import json
import os
import weakref

from . import _core, dispatch, errors, tensors

# How long the end of the interpreter waits for a runtime that nobody stopped: as long as the library's destructor.
END_TIMEOUT_S = 5.0
_open: "weakref.WeakSet[Runtime]" = weakref.WeakSet()


class PeerAddresses:
    """What exchange() learned of one rank."""

    __slots__ = ("rank", "error", "_regions")

    def __init__(self, rank, regions, error):
        self.rank = rank
        self.error = error
        self._regions = regions

    @property
    def regions(self):
        """RemoteRegions in the order in which that rank published them; raises what made it fail."""
        if self.error is not None:
            raise self.error
        return self._regions

    def __repr__(self):
        return f"PeerAddresses(rank={self.rank}, {self.error or self._regions!r})"


class Runtime(_core.Runtime):
    """Runtime(rank=0, world_size=2, store="tcp://host:port", ...): starts a rank and returns when it has joined.

    Options are those of the C++ RuntimeOptions by the same names; times are seconds. retry_count, retry_pause,
    retry_pause_max and degrade ("next_link", "tcp" or "fail") are its RetryPolicy, and rdma_devices, rdma_retry, ...
    its RdmaOptions (rdma_timeout is the card's number, no time)."""

    def __new__(cls, **options):
        return cls._made(options, False, False)

    @classmethod
    def from_environment(cls, **options):
        """With the options that the launcher's environment asks for (HIXL_RANK, RANK, ...), and these over them."""
        return cls._made(options, True, False)

    @classmethod
    def polled(cls, *, environment=False, **options):
        """Starts a rank that the program turns by hand: when fileno() is readable it calls poll(). Returns at once;
        joined() ends when the rank has joined. Blocking calls of the thread that polls turn it while they wait."""
        return cls._made(options, environment, True)

    @classmethod
    def _made(cls, options, environment, polled):
        runtime = _core.Runtime.__new__(cls, options, environment, polled)
        _open.add(runtime)
        return runtime

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def close(self):
        self.stop()

    @property
    def aio(self):
        """The same calls for asyncio: `await rank.aio.put(...)`. Of the event loop that runs now."""
        from . import aio

        return aio.of(self)

    def counters(self):
        """Numbers since the start, by name."""
        return json.loads(self._counters())

    def links(self):
        """For each peer every kind of link, the best first."""
        return json.loads(self._links())

    def dump_regions(self):
        """{"own": [...], "peers": [...]}"""
        return json.loads(self._dump_regions())

    def outstanding(self):
        """Operations that are open, oldest first."""
        return json.loads(self._outstanding())

    def __repr__(self):
        return f"Runtime(rank={self.rank}, world_size={self.world_size})"


class Store(_core.Store):
    """The rendezvous store as an object of its own: Store("tcp://127.0.0.1:0").url goes into Runtime(store=...)."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def options_from_environment():
    """What the environment asks for, as keyword arguments of Runtime."""
    return _core.options_from_environment()


def _end():
    """At the end of the interpreter. Threads that wait in a call get STOPPED; callbacks are told before the dispatcher
    ends."""
    for runtime in list(_open):
        try:
            runtime.stop(END_TIMEOUT_S)
        except errors.Error:  # stopped already, or a peer did not answer: the process ends all the same
            pass
    dispatch.stop()


def _deregister(region, timeout=None):
    """Runtime.deregister() of it."""
    region.runtime.deregister(region, timeout)


def _forget_in_child():
    _open.clear()


_core.connect(errors.from_core, tensors.lend, dispatch.book, dispatch.unbook, PeerAddresses)
_core.Region.array = tensors.as_array
_core.Region.deregister = _deregister
atexit.register(_end)
os.register_at_fork(after_in_child=_forget_in_child)
