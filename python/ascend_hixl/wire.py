# SPDX-License-Identifier: Apache-2.0
"""What a responder and a requester agree on: a line each way when they connect, and the shape of the ring.

A requester makes a rank for each connection, in the responder's world: so the responder sends from one runtime, in
whose device memory its cache lies. Its ring is memory for messages, and DEPTH slots in a control region, one a message:

    word 0      number of the message that is there whole; the signal behind its bytes
    words 1-3   where in the ring, its bytes, bytes of its metadata
    from 32     metadata, JSON

The responder's control region is one word: how many messages have been released, in order.

It is no hixl Channel, in whose ring the heads of messages lie among the bytes, where the CPU reads them: here the bytes
may lie in device memory, which it cannot read, so the heads and the metadata are in a region of their own."""

import json
import socket
import struct
import time

import hixl

VERSION = 1
DEPTH = 64
SLOT_BYTES = 1024
METADATA_MAX = SLOT_BYTES - 32
LINE_MAX = 4096
SLOT = struct.Struct("<QQQ")
TAG_RING, TAG_CONTROL, TAG_CREDIT = 0x48584C01, 0x48584C02, 0x48584C03


def fail(code, text, **detail):
    """An exception in this package's words."""
    return hixl.Error(hixl.ErrorCode[code], f"{code}: {text}", hixl.ErrorDetail(**detail))


def deadline_of(timeout_ms):
    if not 0 <= timeout_ms < 2**31:
        raise ValueError(f"timeout_ms is {timeout_ms!r}; it must be 0 ... 2**31 - 1")
    return time.monotonic() + timeout_ms / 1e3


def left(deadline):
    """Seconds until then; never 0, which would mean to a socket that it does not wait, and that nothing is wrong."""
    return max(0.001, deadline - time.monotonic())


def send_line(sock, deadline, **fields):
    sock.settimeout(left(deadline))
    sock.sendall(json.dumps({"hixl": VERSION, **fields}).encode() + b"\n")


def receive_line(sock, deadline):
    """The next line as a dict. MALFORMED_FRAME, VERSION_MISMATCH; socket.timeout, however the other side dribbles."""
    line = b""
    while not line.endswith(b"\n"):
        if time.monotonic() >= deadline:
            raise socket.timeout("the time is over")
        sock.settimeout(left(deadline))
        more = sock.recv(1) if len(line) < LINE_MAX else b""  # nothing of what follows the line
        if not more:
            raise fail("HANDSHAKE_FAILED" if not line else "MALFORMED_FRAME", "the other side ended the handshake")
        line += more
    try:
        fields = json.loads(line)
        version = fields["hixl"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise fail("MALFORMED_FRAME", "something else than ascend_hixl answers there") from None
    if version != VERSION:
        raise fail("VERSION_MISMATCH", f"the other side speaks version {version}, and this one {VERSION}")
    return fields


def world_offered(fields, sock):
    """(store, rank) that who connects asks us to be. MALFORMED_FRAME; WRONG_PEER: the store is not at its host."""
    store, rank = fields.get("store"), fields.get("rank")
    if not isinstance(store, str) or not is_number(rank, 1, 65535):
        raise fail("MALFORMED_FRAME", "no store, or no rank")
    if not store.startswith("tcp://") or host_and_port(store)[0] != sock.getpeername()[0]:
        raise fail("WRONG_PEER", "the store is not at the host that connects")
    return store, rank


def host_and_port(url):
    host, _, port = url[len("tcp://"):].rpartition(":")
    return host.strip("[]"), port


def seen_from_there(sock, url):
    """The store's address as the other side of this socket reaches it."""
    host = sock.getsockname()[0]
    return f"tcp://[{host}]:{host_and_port(url)[1]}" if ":" in host else f"tcp://{host}:{host_and_port(url)[1]}"


def is_number(value, low, high):
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
