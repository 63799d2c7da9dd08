# SPDX-License-Identifier: Apache-2.0
"""The library under asyncio, without a thread: the event loop watches the descriptor of a completion queue.

    await rank.aio.put(array, remote.at(0))
    await rank.put(array, remote.at(0))        # any Request can be awaited
    await rank.aio.barrier()

An await that is cancelled cancels its operation and waits for its end before it raises CancelledError: afterwards the
memory is the program's, as after every other end."""

import asyncio
import itertools
import weakref

from . import _core, errors

# Operations that one event loop may have open by rank.aio; beyond, a post answers BUSY. 200 bytes each.
CAPACITY = 16384

# By event loop: a weak reference. The loop's readers hold the watcher, until it is closed; the watcher's futures hold
# the loop, so that one that was held here would keep both for ever.
_watchers = weakref.WeakKeyDictionary()


class Watcher:
    """What one event loop waits with: a queue for transfers, a doorbell for the rest."""

    def __init__(self, loop):
        self.queue = _core.CompletionQueue(CAPACITY)
        self.bell = _core.Doorbell()
        self._tickets = itertools.count(1)
        self._waiting = {}
        loop.add_reader(self.queue.fileno(), self._drain_queue)
        loop.add_reader(self.bell.fileno(), self._drain_bell)

    def open(self):
        ticket = next(self._tickets)
        self._waiting[ticket] = asyncio.get_running_loop().create_future()
        return ticket

    def drop(self, ticket):
        self._waiting.pop(ticket, None)

    def _end(self, ticket, outcome):
        future = self._waiting.pop(ticket, None)
        if future is not None:
            future.set_result(outcome)

    def _drain_queue(self):
        while True:
            ends = self.queue.poll()
            for end in ends:
                self._end(end.user_data, end)
            if not ends:
                return

    def _drain_bell(self):
        for ticket, outcome in self.bell.take():
            self._end(ticket, outcome)

    async def outcome(self, ticket, cancel=None):
        """(outcome, None), or (outcome, CancelledError): a task that is cancelled meanwhile waits all the same."""
        # One future, which nobody but _end() touches: what cancels the task cancels the shield.
        future, cancelled = self._waiting[ticket], None
        while not future.done():
            try:
                await asyncio.shield(future)
            except asyncio.CancelledError as error:
                cancelled = error
                if cancel is not None and not future.done():
                    _cancel(asyncio.get_running_loop(), cancel)
        return future.result(), cancelled


def _cancel(loop, cancel):
    try:
        cancel()
    except errors.RetryLater:  # the loop of the runtime has no room for the question: ask again
        loop.call_later(0.001, _cancel, loop, cancel)
    except errors.Error:  # it has ended; the outcome is on its way
        pass


def _raise(error):
    if error is not None:
        raise error


def watcher():
    loop = asyncio.get_running_loop()
    found = _watchers.get(loop, lambda: None)()
    if found is None:
        found = Watcher(loop)
        _watchers[loop] = weakref.ref(found)
    return found


async def ended(request):
    """Waits for a Request. `await request` is the same."""
    watch = watcher()
    ticket = watch.open()
    try:
        begun = request._then(watch.bell, ticket)
    except BaseException:
        watch.drop(ticket)
        raise
    if not begun:  # it has ended already
        watch.drop(ticket)
        request.query()
        return None
    end, cancelled = await watch.outcome(ticket, request.cancel)
    _raise(cancelled or end.error)


def _await_request(self):
    return ended(self).__await__()


class Runtime:
    """Calls of a hixl.Runtime as coroutines. Made by Runtime.aio."""

    def __init__(self, runtime, watch):
        self._runtime = runtime
        self._watch = watch

    async def _post(self, function, arguments, options):
        watch = self._watch
        ticket = watch.open()
        try:
            request = function(*arguments, queue=watch.queue, user_data=ticket, **options)
        except BaseException:
            watch.drop(ticket)
            raise
        end, cancelled = await watch.outcome(ticket, request.cancel)
        request.done()  # frees the slot, also when a traceback holds this frame
        _raise(cancelled or end.error)
        return end

    async def _begin(self, function, *arguments, **options):
        outcome, cancelled = await self._ended(function, arguments, options)
        _raise(cancelled or (outcome if isinstance(outcome, errors.Error) else None))
        return outcome

    async def _ended(self, function, arguments, options):
        ticket = self._watch.open()
        try:
            function(self._watch.bell, ticket, *arguments, **options)
        except BaseException:
            self._watch.drop(ticket)
            raise
        return await self._watch.outcome(ticket)

    async def deregister(self, region, timeout=None):
        error, cancelled = await self._ended(self._runtime._deregister_async, (region, timeout), {})
        self._runtime._deregistered(region, error is None)
        _raise(cancelled or error)

    async def exchange(self, regions, ranks, timeout=None):
        return await self._begin(self._runtime._exchange_async, regions, ranks, timeout)

    async def prewarm(self, ranks, timeout=None):
        await self._begin(self._runtime._prewarm_async, ranks, timeout)

    async def barrier(self, ranks=None, timeout=None):
        await self._begin(self._runtime._barrier_async, ranks, timeout)

    async def barrier_of(self, group, timeout=None):
        """Group.barrier() of a group."""
        await self._begin(group._barrier_async, timeout)

    async def quiet(self, timeout=None):
        await self._begin(self._runtime._quiet_async, timeout)

    async def stop(self, timeout=None):
        await self._begin(self._runtime._stop_async, timeout)

    async def create_group(self, ranks, **options):
        return await self._begin(self._runtime._create_group_async, ranks, **options)

    async def joined(self):
        await ended(self._runtime.joined())


def _posting(name, value=False):
    async def call(self, *arguments, **options):
        end = await self._post(getattr(self._runtime, name), arguments, options)
        return end.value if value else None

    call.__name__ = name
    call.__qualname__ = f"Runtime.{name}"
    call.__doc__ = f"Runtime.{name}() to its end."
    return call


for _name in ("put", "get", "put_with_signal", "batch", "batch_with_signal", "put_gathered", "get_scattered",
              "put_strided", "get_strided", "atomic_add", "fence"):
    setattr(Runtime, _name, _posting(_name))
for _name in ("fetch_add", "swap", "compare_swap"):
    setattr(Runtime, _name, _posting(_name, value=True))


async def _flush(self, rank, **options):
    """Runtime.flush() to its end."""
    await self._post(self._runtime.flush_async, (rank,), options)


Runtime.flush = _flush


def of(runtime):
    return Runtime(runtime, watcher())
