# SPDX-License-Identifier: Apache-2.0
"""Protocol: lines of JSON, each with the protocol's name and version, before ranks know each other."""

import json
import socket
import time

import hixl

from .place import host_and_port, url_at

LINE_MAX = 4096


def fail(code, text, **detail):
    """An exception in these packages' words."""
    return hixl.Error(hixl.ErrorCode[code], f"{code}: {text}", hixl.ErrorDetail(**detail))


def deadline_of(timeout_ms):
    if not 0 <= timeout_ms < 2**31:
        raise ValueError(f"timeout_ms is {timeout_ms!r}; it must be 0 ... 2**31 - 1")
    return time.monotonic() + timeout_ms / 1e3


def left(deadline):
    """Seconds until then; never 0, which would mean to a socket that it does not wait, and that nothing is wrong."""
    return max(0.001, deadline - time.monotonic())


def is_number(value, low, high):
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


class Protocol:
    """One for each package, with a version of its own: what is said after the first line is theirs."""

    def __init__(self, name, version):
        self.name, self.version = name, version

    def send(self, sock, deadline, **fields):
        sock.settimeout(left(deadline))
        sock.sendall(json.dumps({"protocol": self.name, "version": self.version, **fields}).encode() + b"\n")

    def receive(self, sock, deadline):
        """The next line as a dict. MALFORMED_FRAME, WRONG_PEER, VERSION_MISMATCH; socket.timeout, however the other
        side dribbles."""
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
            name, version = fields["protocol"], fields["version"]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise fail("MALFORMED_FRAME", f"something else than {self.name} answers there") from None
        if name != self.name:
            raise fail("WRONG_PEER", f"the other side speaks {name!r:.40}, and not {self.name}; check the port")
        if version != self.version:
            raise fail("VERSION_MISMATCH", f"the other side speaks version {version!r:.40} of {self.name}, and this "
                       f"one {self.version}; run the same release on both")
        return fields

    def answer(self, sock, deadline):
        """As receive(). HANDSHAKE_FAILED: the other side says that it failed, and why."""
        fields = self.receive(sock, deadline)
        if "error" in fields:
            raise fail("HANDSHAKE_FAILED", f"the other side says: {fields['error']}", stage=hixl.Stage.HANDSHAKE)
        return fields

    def ask(self, sock, deadline, **fields):
        self.send(sock, deadline, **fields)
        return self.answer(sock, deadline)

    def offer_world(self, sock, deadline, store, rank):
        """Asks the other side to be that rank of our world. `store`: its URL here, told as it is seen from there."""
        self.send(sock, deadline, store=url_at(sock.getsockname()[0], host_and_port(store)[1]), rank=rank)

    @staticmethod
    def world_offered(fields, sock):
        """(store, rank) that who connects asks us to be. MALFORMED_FRAME; WRONG_PEER: the store is not at its host."""
        store, rank = fields.get("store"), fields.get("rank")
        if not isinstance(store, str) or not is_number(rank, 1, 65535):
            raise fail("MALFORMED_FRAME", "no store, or no rank")
        if not store.startswith("tcp://") or host_and_port(store)[0] != sock.getpeername()[0]:
            raise fail("WRONG_PEER", "the store is not at the host that connects")
        return store, rank
