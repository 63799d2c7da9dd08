# SPDX-License-Identifier: Apache-2.0
"""HIXL: moves bytes from one process straight into the memory of another, which does nothing for it.

    with hixl.Runtime.from_environment() as rank:
        inbox = rank.allocate(4096)
        theirs = rank.exchange(inbox, range(rank.world_size))
        rank.put_sync(b"hello", theirs[1].regions[0].at(0))

docs/python.md is the way in."""

from ._core import (Batch, Completion, CompletionQueue, Group, Region, RemoteAddress, RemoteRegion, Request, wait_all,
                    wait_any)
from .dispatch import callback_errors
from .errors import Cancelled, Error, ErrorDetail, FixCall, GiveUp, OutcomeUnknown, Reconnect, RetryLater
from .runtime import PeerAddresses, Runtime, Store, options_from_environment
from .words import ErrorCode, ErrorKind, LinkKind, MemoryKind, Rights, Stage
from . import aio, kv

Request.__await__ = aio._await_request

# Of the article's receiver and sender; see ascend_hixl.
FLAG_SYNC = 0
FLAG_ASYNC = 1

__all__ = ["Batch", "Cancelled", "Completion", "CompletionQueue", "Error", "ErrorCode", "ErrorDetail", "ErrorKind",
           "FLAG_ASYNC", "FLAG_SYNC", "FixCall", "GiveUp", "Group", "LinkKind", "MemoryKind", "OutcomeUnknown",
           "PeerAddresses", "Reconnect", "Region", "RemoteAddress", "RemoteRegion", "Request", "RetryLater", "Rights",
           "Runtime", "Stage", "Store", "aio", "callback_errors", "kv",
           "options_from_environment", "wait_all", "wait_any"]
