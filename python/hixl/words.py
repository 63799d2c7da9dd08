# SPDX-License-Identifier: Apache-2.0
"""Words of the library as Python enumerations. Every call takes their numbers as well, and most take the plain words:
links=["tcp"], kind="hbm", compare=">="."""

import enum
from typing import Any

from . import _core


class LinkKind(enum.IntEnum):
    """How bytes travel. HCCS is an emulation over shared memory here."""

    HCCS = 0
    PCIE = 1
    ROCE = 2
    UB = 3
    TCP = 4


class MemoryKind(enum.IntEnum):
    """What a region's bytes live on. The CPU may not use HBM: Runtime.copy_in() and copy_out() do."""

    HOST = 0
    HBM = 1


class Rights(enum.IntFlag):
    """What a region lets others do."""

    NONE = 0
    READ = 1
    WRITE = 2
    ATOMIC = 4
    ALL = 7


class ErrorKind(enum.IntEnum):
    """What the caller should do."""

    NONE = 0
    RETRY_LATER = 1
    RECONNECT = 2
    GIVE_UP = 3
    FIX_CALL = 4
    OUTCOME_UNKNOWN = 5


class Stage(enum.IntEnum):
    """Which step failed."""

    NONE = 0
    OPTIONS = 1
    RESOLVE = 2
    CONNECT = 3
    HANDSHAKE = 4
    RENDEZVOUS = 5
    EXCHANGE = 6
    LOCAL_CHECK = 7
    REMOTE_CHECK = 8
    TRANSFER = 9
    FENCE = 10
    MEMORY = 11
    BARRIER = 12
    BIND = 13
    SHUTDOWN = 14
    GROUP = 20

    @classmethod
    def _missing_(cls, value):
        return cls.NONE  # of a library that knows more stages than this file


_CODES = _core.error_codes()
# Any: a type checker cannot know names that the library brings.
ErrorCode: Any = enum.IntEnum("ErrorCode", {name: number for name, number, *_ in _CODES}, module=__name__)
ErrorCode.__doc__ = "What happened. Numbers are stable and never used twice."
KIND_OF = {ErrorCode(number): ErrorKind(kind) for _, number, kind, *_ in _CODES}
WHAT_OF = {ErrorCode(number): what for _, number, _, what, _ in _CODES}
REMEDY_OF = {ErrorCode(number): remedy for *_, number, _, _, remedy in _CODES}
