# SPDX-License-Identifier: Apache-2.0
"""Callbacks. They run on one thread of this package, the dispatcher, which a completion queue feeds: the loop thread of
a runtime never takes the GIL, so a program that computes in Python does not hold up its transfers.

The dispatcher starts with the first callback and ends with the interpreter. A callback that raises is logged (logger
"hixl"), counted, and disturbs no other. A forked child starts one of its own."""

import itertools
import logging
import os
import select
import threading

from ._core import CompletionQueue

# Operations with a callback that are open at a time; beyond, a post answers BUSY. 200 bytes each.
CAPACITY = 16384
# How long the end of the interpreter waits for a callback that is under way.
STOP_TIMEOUT_S = 5

log = logging.getLogger("hixl")


class Dispatcher:
    def __init__(self):
        self.queue = CompletionQueue(CAPACITY)
        self.errors = 0
        self._booked = {}
        self._tickets = itertools.count(1)
        self._wake_read, self._wake_write = os.pipe()
        self._thread = threading.Thread(target=self._run, name="hixl-callbacks", daemon=True)
        self._thread.start()

    def book(self, callback, user_data):
        ticket = next(self._tickets)
        self._booked[ticket] = callback, user_data
        return self.queue, ticket

    def unbook(self, ticket):
        self._booked.pop(ticket, None)

    def stop(self):
        """Ends the thread, after the ends that are there already."""
        if self._wake_write < 0 or threading.current_thread() is self._thread:
            return
        os.close(self._wake_write)
        self._wake_write = -1
        # A callback that never returns must not keep the interpreter: the thread is a daemon.
        self._thread.join(STOP_TIMEOUT_S)

    def _run(self):
        poller = select.poll()
        poller.register(self.queue.fileno(), select.POLLIN)
        poller.register(self._wake_read, select.POLLIN)
        stopping = False
        while True:
            ends = self.queue.poll()
            for end in ends:
                self._tell(end)
            if ends:
                continue
            if stopping:
                break
            stopping = any(fd == self._wake_read for fd, _ in poller.poll())
        os.close(self._wake_read)

    def _tell(self, end):
        callback, user_data = self._booked.pop(end.user_data, (None, 0))
        if callback is None:
            return
        try:
            callback(type(end)((end.error, user_data, *end[2:])))
        except BaseException:  # whatever it is, the next callback has to be called
            self.errors += 1
            log.exception("a callback raised; its operation ended with %s", end.error or "success")


_lock = threading.Lock()
_dispatcher = None


def book(callback, user_data):
    """(queue, ticket) for a post with this callback. Called by the extension."""
    if not callable(callback):
        raise TypeError(f"callback must be callable, not {type(callback).__name__}")
    global _dispatcher
    if _dispatcher is None:
        with _lock:
            if _dispatcher is None:
                _dispatcher = Dispatcher()
    return _dispatcher.book(callback, user_data)


def unbook(ticket):
    if _dispatcher is not None:
        _dispatcher.unbook(ticket)


def callback_errors():
    """How many callbacks have raised."""
    return 0 if _dispatcher is None else _dispatcher.errors


def stop():
    global _dispatcher
    if _dispatcher is not None:
        _dispatcher.stop()
        _dispatcher = None


def _forget_in_child():
    """The parent's thread is not here, and its queue is the parent's."""
    global _dispatcher, _lock
    _dispatcher = None
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_in_child)
