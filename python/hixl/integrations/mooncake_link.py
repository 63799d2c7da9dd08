# SPDX-License-Identifier: Apache-2.0
"""How transfer engines meet by address, and what they know of each other's memory. An engine's own runtime is rank 0 of
a world of its own, from which it reads and writes; each engine that it meets joins that world with a runtime made for
it, in which its memory is registered."""

import logging
import select
import threading
import time

import hixl
from hixl import _meeting as meeting

LINES = meeting.Protocol("hixl_mooncake", 1)
WORLD_SIZE = 65536
# How long memory that is unregistered waits for an engine that is just learning of it. Then that one is left.
TELL_S = 1.0

log = logging.getLogger("hixl")


class Member:
    """A runtime in which the engine's memory is registered."""

    def __init__(self, **options):
        self.runtime, self._regions = hixl.Runtime(world_size=WORLD_SIZE, **options), {}
        self._ending = threading.Lock()

    def add(self, address, length):
        self._regions[address] = self.runtime.register_memory(address, length)

    def remove(self, address):
        """May be called again after a failure."""
        region = self._regions.get(address)
        if region is not None:
            try:
                region.deregister()
            except hixl.Error as error:
                if error.code != hixl.ErrorCode.STOPPED:
                    raise
                self.close()  # somebody ends it: when that is done nobody touches anything
            del self._regions[address]

    def close(self):
        """Afterwards nobody touches memory by this runtime. Raises what kept it from its end."""
        with self._ending:
            self.runtime.stop()


class Guest(Member):
    """In the world of an engine that has met ours, until that is gone."""

    def __init__(self, engine, **options):
        super().__init__(**options)
        self._engine, self._telling, self._over = engine, threading.Lock(), False

    def stay(self, sock):
        sock.settimeout(None)
        while sock.recv(1) and not self._over:  # each byte: it wants to learn
            sock.sendall(b"!")  # it is here, and the exchange is worth its time
            try:
                with self._telling:
                    answer, = self.runtime.exchange(list(self._regions.values()), [0], self._engine._timeout_s)
                answer.regions  # raises what failed
            except hixl.Error as error:
                if error.code == hixl.ErrorCode.STOPPED:
                    return
                log.warning("mooncake: an engine that has met this one cannot learn its memory: %s", error)

    def add_unless_gone(self, address, length):
        try:
            self.add(address, length)
        except hixl.Reconnect:  # that engine is gone, and this goes with it
            pass
        except hixl.Error as error:
            if error.code != hixl.ErrorCode.STOPPED:
                raise

    def remove(self, address):
        if not self._telling.acquire(timeout=TELL_S):
            self.close()
            return
        try:
            super().remove(address)
        finally:
            self._telling.release()

    def close(self):
        self._over = True
        super().close()  # until then it counts: who unregisters memory waits for it
        with self._engine._lock:
            self._engine._guests.discard(self)


class Link:
    """With the engine of one session. One that has gone and come again is met anew."""

    def __init__(self, engine, session):
        host, _, port = session.rpartition(":")
        if not host or not port.isdecimal():
            raise meeting.fail("INVALID_ARGUMENT", f"{session!r} is no session; it must be host:port")
        self._engine, self._address = engine, (host.strip("[]"), int(port))
        self._lock, self._socket, self._rank = threading.Lock(), None, None
        self.regions = []

    def meet(self):
        """Its rank."""
        with self._lock:
            if self._socket is None:
                deadline = time.monotonic() + self._engine._timeout_s
                self._socket, self._rank = meeting.dial(*self._address, deadline), next(self._engine._ranks)
                try:
                    LINES.offer_world(self._socket, deadline, self._engine._store.url, self._rank)
                    LINES.answer(self._socket, deadline)
                    self._learn(deadline)
                except BaseException:
                    self._close()
                    raise
            return self._rank

    def learn(self, rank):
        """Asks that rank what is registered there now. If it does not answer the link is over."""
        with self._lock:
            if self._socket is not None and self._rank == rank:
                try:
                    self._learn(time.monotonic() + self._engine._timeout_s)
                except (OSError, hixl.Error) as error:
                    log.warning("mooncake: %s:%d does not say what it has registered: %s", *self._address, error)
                    self._close()

    def _learn(self, deadline):
        self._socket.settimeout(meeting.left(deadline))
        self._socket.sendall(b"?")
        if not self._socket.recv(1):
            raise meeting.fail("PEER_LOST", "it is gone")
        answer, = self._engine._own.runtime.exchange([], [self._rank], meeting.left(deadline))
        self.regions = answer.regions

    def leave_if_gone(self):
        """Lets go of the connection if the other engine has."""
        if self._lock.acquire(blocking=False):  # else it is being used
            try:
                if self._socket is not None and select.select([self._socket], [], [], 0)[0]:
                    self._close()  # it says nothing but answers: this is its end
            finally:
                self._lock.release()

    def leave(self, rank=None):
        with self._lock:
            if self._socket is not None and rank in (None, self._rank):
                self._close()

    def _close(self):
        self._socket.close()
        self._socket, self.regions = None, []

    def post(self, verb, pieces):
        """A Posted. `pieces`: (local address, address there, bytes). What is not known there is asked for once, and an
        engine that has gone is met anew once."""
        own, last = self._engine._started().runtime, False
        while True:
            rank = self.meet()
            try:
                batch = hixl.Batch()
                for local, remote, length in pieces:
                    getattr(batch, verb)(local, hixl.RemoteAddress(rank, remote), length)
                return Posted(self, rank, own.batch(batch, timeout=self._engine._timeout_s) if pieces else None)
            except hixl.Error as error:
                if last or error.detail.rank != rank:
                    raise
                last = True
                self._heed(rank, error)

    def _heed(self, rank, error):
        if error.code == hixl.ErrorCode.STALE or error.kind == hixl.ErrorKind.FIX_CALL:
            self.learn(rank)
        else:
            self.leave(rank)


class Posted:
    """A transfer under way."""

    def __init__(self, link, rank, request):
        self._link, self._rank, self._request = link, rank, request

    def learn(self):
        """What the other engine has registered by now."""
        self._link.learn(self._rank)

    def done(self):
        return self._request is None or self._request.done()

    def end(self):
        """None or its error, when no byte of it moves any more."""
        while self._request is not None:
            try:
                return self._request.wait()
            except hixl.Error as error:
                if self._request.done():
                    if error.kind == hixl.ErrorKind.RECONNECT and error.code != hixl.ErrorCode.STALE:
                        self._link.leave(self._rank)
                    return error
        return None
