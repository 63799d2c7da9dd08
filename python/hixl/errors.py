# SPDX-License-Identifier: Apache-2.0
"""Exceptions: one class for each kind of error, which says what to do about it. `code` says what happened, `detail`
where.

A wrong type or a number that nothing could mean is Python's own TypeError, ValueError or BufferError, before the
library is asked."""

import ipaddress
from typing import NamedTuple, Optional, Tuple, Union

from .words import KIND_OF, REMEDY_OF, WHAT_OF, ErrorCode, ErrorKind, Stage


class ErrorDetail(NamedTuple):
    """Plain numbers about one failure. A field that does not apply is 0, or None where 0 would mean something."""

    rank: Optional[int] = None
    link: int = 0
    stage: Stage = Stage.NONE
    os_error: int = 0
    address: int = 0
    length: int = 0
    nearest_base: int = 0
    nearest_length: int = 0
    limit: int = 0
    missing_count: int = 0
    missing: Tuple[int, ...] = ()
    host: Union[ipaddress.IPv4Address, ipaddress.IPv6Address, None] = None
    port: int = 0
    entry: Optional[int] = None


class Error(Exception):
    """Base of all failures that the library reports. Error(code) makes one of the class that belongs to the code;
    success is not a failure: ErrorCode.OK is a ValueError."""

    kind = ErrorKind.NONE
    detail: ErrorDetail

    def __new__(cls, code, message=None, detail=ErrorDetail()):
        code = ErrorCode(code)
        if code is ErrorCode.OK:
            raise ValueError("success is no error: an exception cannot carry ErrorCode.OK")
        own = CLASS_OF[KIND_OF[code]]
        if not issubclass(own, cls):
            raise ValueError(f"{code.name} is of kind {KIND_OF[code].name}: raise {own.__name__}, not {cls.__name__}")
        return super().__new__(own, code, message, detail)

    def __init__(self, code, message=None, detail=ErrorDetail()):
        if not isinstance(detail, ErrorDetail):
            raise TypeError(f"detail must be an ErrorDetail, not {type(detail).__name__}")
        self._code = ErrorCode(code)
        self.detail = detail
        super().__init__(message or f"{self._code.name}: {WHAT_OF[self._code]}; {REMEDY_OF[self._code]}")

    @property
    def code(self):
        return self._code

    @property
    def remedy(self):
        return REMEDY_OF[self._code]

    def __reduce__(self):
        return Error, (int(self._code), self.args[0], self.detail)


class Cancelled(Error):
    """The operation was cancelled; nothing to do."""

    kind = ErrorKind.NONE


class RetryLater(Error):
    """Nothing is wrong; there was no room or no time. Try again."""

    kind = ErrorKind.RETRY_LATER


class Reconnect(Error):
    """The peer, its session or its region is over. The library connects again by itself; old handles are stale."""

    kind = ErrorKind.RECONNECT


class GiveUp(Error):
    """This machine or set-up does not allow it."""

    kind = ErrorKind.GIVE_UP


class FixCall(Error):
    """The call is wrong; nothing was begun."""

    kind = ErrorKind.FIX_CALL


class OutcomeUnknown(Error):
    """It may or may not have happened."""

    kind = ErrorKind.OUTCOME_UNKNOWN


CLASS_OF = {one.kind: one for one in (Cancelled, RetryLater, Reconnect, GiveUp, FixCall, OutcomeUnknown)}


def from_core(code, message, numbers):
    """Called by the extension. `numbers` in the order of ErrorDetail."""
    rank, link, stage, *middle, host, port, entry = numbers
    address = None
    if port or any(host):
        wide = ipaddress.IPv6Address(host)
        address = wide.ipv4_mapped or wide
    return Error(code, message, ErrorDetail(None if rank < 0 else rank, link, Stage(stage), *middle, address, port,
                                            None if entry < 0 else entry))
