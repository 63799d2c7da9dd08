# SPDX-License-Identifier: Apache-2.0
"""Words of LLM-DataDist: roles, placements, data types, status codes, and the exception that carries one."""

import contextlib
import enum

import hixl
from hixl import kv


class LLMRole(enum.IntEnum):
    PROMPT = 1
    DECODER = 2
    MIX = 3


class Placement(enum.IntEnum):
    """Where tensors lie. Addresses are the host's either way here: there is no device whose memory has others."""

    HOST = 0
    DEVICE = 1


class DataType(enum.IntEnum):
    DT_FLOAT = 0
    DT_FLOAT16 = 1
    DT_INT8 = 2
    DT_INT32 = 3
    DT_UINT8 = 4
    DT_INT16 = 6
    DT_UINT16 = 7
    DT_UINT32 = 8
    DT_INT64 = 9
    DT_UINT64 = 10
    DT_DOUBLE = 11
    DT_BOOL = 12
    DT_STRING = 13
    DT_BF16 = 27


BYTES_OF = {DataType.DT_FLOAT: 4, DataType.DT_FLOAT16: 2, DataType.DT_INT8: 1, DataType.DT_INT32: 4,
            DataType.DT_UINT8: 1, DataType.DT_INT16: 2, DataType.DT_UINT16: 2, DataType.DT_UINT32: 4,
            DataType.DT_INT64: 8, DataType.DT_UINT64: 8, DataType.DT_DOUBLE: 8, DataType.DT_BOOL: 1,
            DataType.DT_BF16: 2}  # a string has no size


class LLMStatusCode(enum.IntEnum):
    LLM_SUCCESS = 0
    LLM_WAIT_PROC_TIMEOUT = 0x5010B001
    LLM_KV_CACHE_NOT_EXIST = 0x5010B002
    LLM_PARAM_INVALID = 0x5010B005
    LLM_NOT_YET_LINK = 0x5010B007
    LLM_ALREADY_LINK = 0x5010B008
    LLM_LINK_FAILED = 0x5010B009
    LLM_UNLINK_FAILED = 0x5010B00A
    LLM_NOTIFY_PROMPT_UNLINK_FAILED = 0x5010B00B
    LLM_CLUSTER_NUM_EXCEED_LIMIT = 0x5010B00C
    LLM_PROCESSING_LINK = 0x5010B00D
    LLM_DEVICE_OUT_OF_MEMORY = 0x5010B00E
    LLM_EXIST_LINK = 0x5010B018
    LLM_FEATURE_NOT_ENABLED = 0x5010B019
    LLM_TIMEOUT = 0x5010B01A
    LLM_LINK_BUSY = 0x5010B01B
    LLM_OUT_OF_MEMORY = 0x5010B01C
    LLM_FAILED = 0xFFFFFFFF


class LLMException(RuntimeError):
    """A call failed at run time; status_code says how, and __cause__ is the hixl.Error behind it, if there is one."""

    def __init__(self, message, status_code=LLMStatusCode.LLM_FAILED):
        super().__init__(message)
        self._status_code = LLMStatusCode(status_code)
        if self._status_code is LLMStatusCode.LLM_SUCCESS:
            raise ValueError("success is no error: an exception cannot carry LLM_SUCCESS")

    @property
    def status_code(self):
        return self._status_code


_CODES = {"CACHE_UNKNOWN": "LLM_KV_CACHE_NOT_EXIST", "CACHE_STALE": "LLM_KV_CACHE_NOT_EXIST",
          "DEADLINE_EXCEEDED": "LLM_TIMEOUT", "NOT_LINKED": "LLM_NOT_YET_LINK", "NO_MEMORY": "LLM_OUT_OF_MEMORY",
          "WRONG_ROLE": "LLM_FEATURE_NOT_ENABLED"}
_KINDS = {hixl.ErrorKind.FIX_CALL: "LLM_PARAM_INVALID", hixl.ErrorKind.RECONNECT: "LLM_NOT_YET_LINK"}


def status_of(error):
    """Of a hixl.Error, or of None."""
    if error is None:
        return LLMStatusCode.LLM_SUCCESS
    return LLMStatusCode[_CODES.get(error.code.name) or _KINDS.get(error.kind, "LLM_FAILED")]


@contextlib.contextmanager
def told():
    """with told(): a hixl.Error leaves as an LLMException."""
    try:
        yield
    except hixl.Error as error:
        raise LLMException(str(error), status_of(error)) from error


ROLE_OF = {LLMRole.PROMPT: kv.Role.PREFILL, LLMRole.DECODER: kv.Role.DECODE, LLMRole.MIX: kv.Role.BOTH}


def checked(value, kind, name):
    """TypeError unless it is one, or one of several kinds."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        wanted = " or ".join(one.__name__ for one in (kind if isinstance(kind, tuple) else (kind,)))
        raise TypeError(f"{name} must be {wanted}, not {type(value).__name__}")
    return value
