# SPDX-License-Identifier: Apache-2.0
"""Two engines that move KV: a Prefill holds blocks of requests until a Decode has them. They meet by address.

A decode's runtime is rank 0 of a world of its own; each prefill that it meets joins that world with a runtime made for
it. A connection between them stands for the link, and one for each request: as long as that is open the prefill holds
the request's blocks. When it ends without a word, the prefill ends the whole link before it gives the blocks back, so
that a decode that lives all the same cannot read what the blocks hold next."""

import collections
import contextlib
import itertools
import logging
import secrets
import select
import threading
import time

import hixl
from hixl import _meeting as meeting
from hixl import kv

LINES = meeting.Protocol("hixl_vllm", 1)
WORLD_SIZE = 65536
LINKS_MAX = 1024  # that one life of an engine makes; a prefill that is met anew counts anew
KEY = kv.CacheKey(name=1)
# Blocks that move at a time for one request, and requests at a time of one link. A block is a transfer of its own, so
# that each is known to have arrived or not.
STEP, REQUESTS = 16, 4
# How long transfers of other links are let end when they have all slots of the runtime.
PAUSE_S = 0.001
# Requests whose blocks are not held any more, and which a decode that comes late is told of at once.
GONE_MAX = 1024
# How much longer than its transfers the answer about them may take.
GRACE_S = 5.0

log = logging.getLogger("hixl")


class Rank:
    """A runtime with the engine's cache. Owner: Prefill or Decode. Threads: any."""

    def __init__(self, role, cache, **options):
        self.runtime = hixl.Runtime(world_size=WORLD_SIZE, **options)
        try:
            self.dist = kv.DataDist(self.runtime, role, 1, len(cache.tensors), LINKS_MAX)
            regions = [self.runtime.register_memory(*region) for region in cache.regions]
            self.cache = self.dist.register_cache(KEY, cache.layout, cache.blocks,
                                                  [(regions[i], offset) for i, offset in cache.tensors])
        except BaseException:
            self.runtime.stop()
            raise
        self._held = cache.holds
        self._ending = threading.Lock()

    def close(self):
        """Afterwards nobody touches the cache by this runtime. Raises what kept the runtime from its end."""
        with self._ending:
            try:
                self.dist.close()
            except hixl.Error:  # somebody does not answer: the runtime ends all the same
                pass
            self.runtime.stop()


def move(verb, cache, there, pairs, timeout_s):
    """Moves each pair (source, target): (targets that are whole now, the first error or None). Nothing is under way
    afterwards."""
    left, whole, first, until = list(pairs), [], None, time.monotonic() + timeout_s
    while left and first is None:
        begun = []
        try:
            for source, target in left:
                begun.append((target, verb(cache, there, [source], [target], timeout=timeout_s)))
        except hixl.Error as error:
            if error.code != hixl.ErrorCode.BUSY or time.monotonic() >= until:
                first = error
        for target, transfer in begun:
            error = _end_of(transfer)
            if error is None:
                whole.append(target)
            first = first or error
        left = left[len(begun):]
        if not begun and first is None:
            time.sleep(PAUSE_S)
    return whole, first


def _end_of(transfer):
    """None or its error. A transfer ends by its own deadline, however long one wait may be."""
    while True:
        try:
            return transfer.wait()
        except hixl.Error as error:
            if transfer.done():
                return error


class Hold:
    def __init__(self, blocks, deadline):
        self.blocks, self.deadline, self.taken = frozenset(blocks), deadline, False


class Prefill:
    """Holds blocks that others fetch or ask for. Owner: a worker. Threads: any."""

    def __init__(self, cache, options, port, timeout_s, hold_s):
        self._cache, self._options, self._timeout_s, self._hold_s = cache, options, timeout_s, hold_s
        self._changed = threading.Condition()
        self._holds, self._released, self._guests = {}, set(), {}
        self._gone, self._closed = collections.deque(maxlen=GONE_MAX), False
        self._door = meeting.Door(LINES, options["bind"], port, self._enter, lambda guest, sock: guest.stay(sock))
        self.address = options["bind"], self._door.port

    def hold(self, request, blocks):
        with self._changed:
            self._holds[request] = Hold(blocks, time.monotonic() + self._hold_s)
            self._changed.notify_all()

    def take_released(self):
        """Requests whose blocks nobody uses any more, since the last call: fetched, or given up, or never fetched."""
        now = time.monotonic()
        with self._changed:
            for request in [one for one, hold in self._holds.items() if not hold.taken and hold.deadline <= now]:
                log.warning("request %s: no decode has fetched its blocks in %g s", request, self._hold_s)
                self._release(request)
            released, self._released = self._released, set()
        return released

    def _release(self, request):
        del self._holds[request]
        self._released.add(request)
        self._gone.append(request)

    def _take(self, request, deadline):
        """Its Hold. A decode may hear of a request before this worker does: one of the engine's next steps tells it."""
        self._changed.wait_for(lambda: request in self._holds or request in self._gone, meeting.left(deadline) / 2)
        hold = self._holds.get(request)
        if hold is None or hold.taken:
            raise meeting.fail("LEASE_ENDED", f"the blocks of request {request} are not held here")
        hold.taken = True
        return hold

    def _enter(self, sock, deadline):
        fields = LINES.receive(sock, deadline)
        if "request" not in fields:
            return Guest(self, *LINES.world_offered(fields, sock), sock, deadline)
        with self._changed:
            guest = self._guests.get(fields.get("link"))
            if guest is not None and guest.leaving:
                guest = None
            if guest is not None:
                hold = self._take(fields["request"], deadline)
        if guest is None:
            LINES.send(sock, deadline, linked=False)
            return None
        return Fetch(self, guest, fields["request"], hold, sock, deadline)

    def close(self):
        self._door.close()
        with self._changed:
            self._closed, guests = True, list(self._guests.values())
        with contextlib.ExitStack() as ends:  # each ends, whatever becomes of others
            for guest in guests:
                ends.callback(guest.close)


class Guest(Rank):
    """In the world of a decode, until that is gone."""

    def __init__(self, prefill, store, rank, sock, deadline):
        super().__init__(kv.Role.PREFILL, prefill._cache, rank=rank, store=store,
                         **{**prefill._options, "connect_timeout": meeting.left(deadline)})
        self._prefill, self._name, self.leaving = prefill, secrets.token_hex(8), False
        try:
            LINES.send(sock, deadline, link=self._name)
            failed, = self.dist.link([0], meeting.left(deadline))
            if failed is not None:
                raise failed
            self.there = self.dist.find(0, KEY, meeting.left(deadline))
            with prefill._changed:
                if prefill._closed:
                    raise meeting.fail("STOPPED", "the engine has been shut down")
                prefill._guests[self._name] = self
            LINES.send(sock, deadline)  # neither side is done before the other one is
        except BaseException:
            self.close()
            raise

    def stay(self, sock):
        meeting.until_gone(self, sock)

    def close(self):
        self.leaving = True
        super().close()  # until then it counts: who ends the prefill waits for it
        with self._prefill._changed:
            self._prefill._guests.pop(self._name, None)


class Fetch:
    """A decode fetches a request's blocks, or has them pushed."""

    def __init__(self, prefill, guest, request, hold, sock, deadline):
        self._prefill, self._guest, self._request, self._hold = prefill, guest, request, hold
        self._left_well = False
        try:
            LINES.send(sock, deadline, linked=True)
        except BaseException:
            self.close()
            raise

    def stay(self, sock):
        try:
            while not self._left_well:
                fields = LINES.receive(sock, time.monotonic() + self._prefill._hold_s)
                if fields.get("done"):
                    self._left_well = True
                else:
                    self._push(sock, fields)
        except hixl.Error as error:
            log.warning("request %s: its decode has gone: %s", self._request, error)

    def _push(self, sock, fields):
        pairs = fields.get("pairs")
        if not isinstance(pairs, list) or not all(
                isinstance(pair, list) and len(pair) == 2
                and all(meeting.is_number(block, 0, 2**32 - 1) for block in pair) and pair[0] in self._hold.blocks
                for pair in pairs):
            raise meeting.fail("MALFORMED_FRAME", "no blocks of this request")
        whole, error = move(self._guest.dist.push, self._guest.cache, self._guest.there, pairs,
                            self._prefill._timeout_s)
        LINES.send(sock, time.monotonic() + GRACE_S, whole=whole, failed=None if error is None else str(error))

    def close(self):
        if not self._left_well:
            self._guest.close()  # if that fails somebody may still read the blocks: they are never given back
        with self._prefill._changed:
            self._prefill._release(self._request)


class Decode:
    """Brings blocks of requests here. Owner: a worker. Threads: any."""

    def __init__(self, cache, options, timeout_s, push):
        self._store = hixl.Store(meeting.url_at(options["bind"], 0), options.get("insecure", False))
        try:
            self.rank = Rank(kv.Role.DECODE, cache, rank=0, store=self._store.url, **options)
        except BaseException:
            self._store.close()
            raise
        self.timeout_s, self._push = timeout_s, push
        self._lock, self._links, self.ranks = threading.Lock(), {}, itertools.count(1)

    def load(self, address, request, pairs, whole, stopped):
        """Adds each target to `whole` when it is there; raises what failed. Nothing is under way afterwards. No pairs:
        the prefill need not hold them. `stopped` is looked at between steps."""
        with self._lock:
            if address not in self._links:
                for other in self._links.values():
                    other.leave_if_gone()
                self._links[address] = Link(self, address)
            link = self._links[address]
        sock, name, there = self._ask_for(request, link)
        with sock:
            for at in range(0, len(pairs), STEP):
                if stopped.is_set():
                    break
                with link.turn:
                    done, failed = self._step(sock, link, name, there, pairs[at:at + STEP])
                whole.update(done)
                if failed is not None:
                    LINES.send(sock, time.monotonic() + GRACE_S, done=True)
                    raise failed
            LINES.send(sock, time.monotonic() + GRACE_S, done=True)

    def _ask_for(self, request, link):
        """(connection, name of the link, the prefill's cache)"""
        for _ in range(2):  # the prefill may have ended a link that this side takes for one
            name, there = link.meet()
            sock = meeting.dial(*link.address, time.monotonic() + self.timeout_s)
            try:
                if LINES.ask(sock, time.monotonic() + self.timeout_s, request=request, link=name).get("linked"):
                    return sock, name, there
            except BaseException:
                sock.close()
                raise
            sock.close()
            link.fence(name)
        raise meeting.fail("NOT_LINKED", "the prefill ends every link")

    def _step(self, sock, link, name, there, pairs):
        if not self._push:
            return move(self.rank.dist.pull, self.rank.cache, there, pairs, self.timeout_s)
        try:
            fields = LINES.ask(sock, time.monotonic() + self.timeout_s + GRACE_S, pairs=pairs)
        except (OSError, hixl.Error):  # nobody knows what it still writes
            link.fence(name)
            raise
        failed = fields.get("failed")
        return fields["whole"], None if failed is None else meeting.fail("PEER_LOST", f"the prefill says: {failed}")

    def close(self):
        with contextlib.ExitStack() as ends:  # each ends, whatever becomes of others; from the last one on
            ends.callback(self._store.close)
            ends.callback(self.rank.close)
            for link in self._links.values():
                ends.callback(link.close)


class Link:
    """With one prefill. A prefill that has gone and come again is met anew."""

    def __init__(self, decode, address):
        self._decode, self.address, self._rank = decode, address, None
        self._lock, self.turn = threading.Lock(), threading.Semaphore(REQUESTS)
        self._socket = self._met = None

    def meet(self):
        """(name of the link, the prefill's cache)"""
        with self._lock:
            dist = self._decode.rank.dist
            if self._met is None or dist.link_state(self._rank) != kv.LinkState.LINKED:
                self.close()
                self._met = self._make(dist, time.monotonic() + self._decode.timeout_s)
            return self._met

    def _make(self, dist, deadline):
        self._socket, self._rank = meeting.dial(*self.address, deadline), next(self._decode.ranks)
        try:
            LINES.offer_world(self._socket, deadline, self._decode._store.url, self._rank)
            name = LINES.answer(self._socket, deadline).get("link")
            failed, = dist.link([self._rank], meeting.left(deadline))
            if failed is not None:
                raise failed
            LINES.answer(self._socket, deadline)
            return name, dist.find(self._rank, KEY, meeting.left(deadline))
        except BaseException:
            self.close()
            raise

    def leave_if_gone(self):
        """Lets go of the connection if the prefill has. The link stays: a prefill that ends may still write."""
        if self._lock.acquire(blocking=False):  # else it is being made, or ended
            try:
                if self._met is not None and self._socket is not None and select.select([self._socket], [], [], 0)[0]:
                    self._hang_up()  # it says nothing more: this is its end
            finally:
                self._lock.release()

    def fence(self, name):
        """Ends the link of that name. Returns when the prefill writes nothing here any more: at the latest when the
        session with it is lost."""
        with self._lock:
            while self._met is not None and self._met[0] == name:
                try:
                    self._decode.rank.dist.unlink(self._rank, self._decode.timeout_s)
                except hixl.RetryLater:  # it still writes
                    continue
                except hixl.Error as error:
                    log.warning("the link with %s:%d is over: %s", *self.address, error)
                self.close()

    def close(self):
        self._met = None
        self._hang_up()

    def _hang_up(self):
        if self._socket is not None:
            self._socket.close()
            self._socket = None
