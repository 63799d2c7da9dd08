# SPDX-License-Identifier: Apache-2.0
"""TransferEngine by the names of Mooncake's, over hixl: a program written for that one says

    from hixl.integrations.mooncake import TransferEngine

and goes on as before. A session is "host:port" of another engine: the local_hostname and get_rpc_port() of that one.
Calls answer 0 or a negative number as Mooncake's do, and the log (logger "hixl") names the error.

Owner: the program; close(), or the end of the interpreter. Threads: any call from any thread. Memory is the program's,
and has to stay until unregister_memory() has answered 0."""

import contextlib
import ctypes
import enum
import itertools
import logging
import os
import socket
import threading

import hixl
from hixl import _meeting as meeting

from .mooncake_link import LINES, Guest, Link, Member

METADATA = "P2PHANDSHAKE"
TRANSFER_TIMEOUT_S, TRANSFER_TIMEOUT_MIN_S = 30, 5  # MC_TRANSFER_TIMEOUT says otherwise, but not less
DONE, PENDING, FAILED, TIMED_OUT = 1, 0, -1, -2  # of transfer_check_status()

log = logging.getLogger("hixl")


class TransferOpcode(enum.IntEnum):
    Read = 0
    Write = 1


VERBS = {TransferOpcode.Read: "get", TransferOpcode.Write: "put"}


class TransferEngine:
    TransferOpcode = TransferOpcode

    def __init__(self):
        self._lock = threading.RLock()
        self._registering = threading.RLock()  # before _lock; held while others are waited for, as _lock never is
        self._own = self._door = self._store = None
        self._guests, self._links, self._memory, self._managed, self._transfers = set(), {}, {}, {}, {}
        self._ranks, self._numbers = itertools.count(1), itertools.count(1)
        self._timeout_s = max(TRANSFER_TIMEOUT_MIN_S, int(os.environ.get("MC_TRANSFER_TIMEOUT", TRANSFER_TIMEOUT_S)))

    def initialize(self, local_hostname, metadata_server, protocol, device_name):
        """metadata_server is "P2PHANDSHAKE". protocol and device_name mean nothing: the best link that works is taken,
        or what HIXL_LINKS says. local_hostname may have a port. Beyond loopback HIXL_INSECURE=1 is needed."""
        return self._code("initialize", lambda: self._start(local_hostname, metadata_server))

    def initialize_ext(self, local_hostname, metadata_server, protocol, device_name, metadata_type):
        return self.initialize(local_hostname, metadata_server, protocol, device_name)

    def _start(self, local_hostname, metadata_server):
        if metadata_server != METADATA:
            raise meeting.fail("INVALID_ARGUMENT", f"metadata_server is {metadata_server!r}; it can only be {METADATA}")
        host, colon, port = local_hostname.rpartition(":")
        if not colon or local_hostname.endswith("]") or ":" in host.strip("[]") and host[0] != "[":
            host, port = local_hostname, "0"
        *_, (ip, *_) = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)[0]
        options = meeting.options_at(ip)
        with self._lock:
            if self._own is not None:
                raise meeting.fail("ALREADY_EXISTS", "initialize() has been called already")
            self._options = options
            try:
                self._store = hixl.Store(meeting.url_at(ip, 0), options.get("insecure", False))
                self._own = Member(rank=0, store=self._store.url, **options)
                self._door = meeting.Door(LINES, ip, int(port), self._enter, lambda guest, sock: guest.stay(sock))
            except BaseException:
                self.close()
                raise

    def _enter(self, sock, deadline):
        store, rank = LINES.world_offered(LINES.receive(sock, deadline), sock)
        guest = Guest(self, rank=rank, store=store, **{**self._options, "connect_timeout": meeting.left(deadline)})
        try:
            with self._lock:
                self._started()
                for address, length in self._memory.items():
                    guest.add(address, length)
                self._guests.add(guest)
            LINES.send(sock, deadline)
        except BaseException:
            guest.close()
            raise
        return guest

    def _started(self):
        if self._own is None:
            raise meeting.fail("STOPPED", "initialize() has to be called before")
        return self._own

    def get_rpc_port(self):
        """Where others reach this engine; -1: nowhere."""
        return -1 if self._door is None else self._door.port

    @staticmethod
    def _code(name, call):
        try:
            call()
            return 0
        except (hixl.Error, OSError, OverflowError, ValueError) as error:
            log.warning("mooncake: %s: %s", name, error)
            return -1

    # ---- memory ----
    def register_memory(self, buffer_addr, capacity, location="*"):
        return self.batch_register_memory([buffer_addr], [capacity], location)

    def unregister_memory(self, buffer_addr):
        return self.batch_unregister_memory([buffer_addr])

    def batch_register_memory(self, buffer_addresses, capacities, location="*"):
        """All or none. `location` means nothing."""
        return self._code("register_memory", lambda: self._register(list(buffer_addresses), list(capacities)))

    def batch_unregister_memory(self, buffer_addresses):
        """After 0 nobody touches it any more."""
        return self._code("unregister_memory", lambda: self._unregister(list(buffer_addresses)))

    def _register(self, addresses, capacities):
        if len(addresses) != len(capacities):
            raise meeting.fail("INVALID_ARGUMENT", f"{len(capacities)} capacities for {len(addresses)} addresses")
        with self._registering:
            done = []
            try:
                for address, length in zip(addresses, capacities):
                    with self._lock:
                        own = self._started()
                        if address in self._memory:
                            raise meeting.fail("ALREADY_EXISTS", f"{address:#x} is registered already", address=address)
                        self._memory[address] = length
                        done.append(address)
                        own.add(address, length)
                        for guest in self._guests:
                            guest.add_unless_gone(address, length)
            except BaseException:
                self._unregister(done)
                raise

    def _unregister(self, addresses):
        with self._registering:
            for address in addresses:
                with self._lock:
                    own = self._started()
                    if address not in self._memory:
                        raise meeting.fail("NOT_REGISTERED", f"{address:#x} is not registered", address=address)
                    length = self._memory.pop(address)  # who comes from now on does not get it
                    members = own, *self._guests
                try:
                    for member in members:
                        member.remove(address)
                except BaseException:
                    with self._lock:
                        self._memory[address] = length
                    raise

    def allocate_managed_buffer(self, length):
        """The address of new memory, registered; 0: there is none."""
        try:
            memory = (ctypes.c_char * length)()
        except (MemoryError, ValueError, OverflowError):
            return 0
        address = ctypes.addressof(memory)
        if self.register_memory(address, length) != 0:
            return 0
        self._managed[address] = memory
        return address

    def free_managed_buffer(self, buffer_addr, length):
        if buffer_addr not in self._managed or self.unregister_memory(buffer_addr) != 0:
            return -1
        del self._managed[buffer_addr]
        return 0

    def write_bytes_to_buffer(self, dest_address, src_ptr, length):
        if length > len(src_ptr) or not self._covers(dest_address, length):
            return -1
        ctypes.memmove(dest_address, bytes(src_ptr), length)
        return 0

    def read_bytes_from_buffer(self, source_address, length):
        if not self._covers(source_address, length):
            raise ValueError(f"{length} bytes at {source_address:#x} are not registered here")
        return ctypes.string_at(source_address, length)

    def _covers(self, address, length):
        with self._lock:
            return length >= 0 and any(base <= address and address + length <= base + size
                                       for base, size in self._memory.items())

    def get_first_buffer_address(self, segment_name):
        """What that engine has registered first; 0: nothing, or it is not there."""
        found = []

        def ask():
            link = self._link(segment_name)
            link.learn(link.meet())
            found.extend(region.base for region in link.regions[:1])

        self._code("get_first_buffer_address", ask)
        return found[0] if found else 0

    # ---- transfers ----
    def transfer_sync_write(self, target_hostname, buffer, peer_buffer_address, length, transport_hint=""):
        return self.transfer_sync(target_hostname, buffer, peer_buffer_address, length, TransferOpcode.Write)

    def transfer_sync_read(self, target_hostname, buffer, peer_buffer_address, length, transport_hint=""):
        return self.transfer_sync(target_hostname, buffer, peer_buffer_address, length, TransferOpcode.Read)

    def transfer_sync(self, target_hostname, buffer, peer_buffer_address, length, opcode, notify=None,
                      transport_hint=""):
        return self.batch_transfer_sync(target_hostname, [buffer], [peer_buffer_address], [length], opcode, notify)

    def batch_transfer_sync_write(self, target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint=""):
        return self.batch_transfer_sync(target_hostname, buffers, peer_buffer_addresses, lengths, TransferOpcode.Write)

    def batch_transfer_sync_read(self, target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint=""):
        return self.batch_transfer_sync(target_hostname, buffers, peer_buffer_addresses, lengths, TransferOpcode.Read)

    def batch_transfer_sync(self, target_hostname, buffers, peer_buffer_addresses, lengths, opcode, notify=None,
                            transport_hint=""):
        """0: every byte is there. Negative: no byte moves any more, but some may have. `notify` is not here
        (ValueError), transport_hint means nothing."""
        if notify is not None:
            raise ValueError("there are no notifications here")
        return self._code("transfer", lambda: self._move(target_hostname, buffers, peer_buffer_addresses, lengths,
                                                         TransferOpcode(opcode)))

    def transfer_submit_write(self, target_hostname, buffer, peer_buffer_address, length, transport_hint=""):
        """A number for transfer_check_status(), or -1."""
        return self.batch_transfer_async(target_hostname, [buffer], [peer_buffer_address], [length],
                                         TransferOpcode.Write) or -1

    def batch_transfer_async_write(self, target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint=""):
        return self.batch_transfer_async(target_hostname, buffers, peer_buffer_addresses, lengths, TransferOpcode.Write)

    def batch_transfer_async_read(self, target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint=""):
        return self.batch_transfer_async(target_hostname, buffers, peer_buffer_addresses, lengths, TransferOpcode.Read)

    def batch_transfer_async(self, target_hostname, buffers, peer_buffer_addresses, lengths, opcode,
                             transport_hint=""):
        """A number for get_batch_transfer_status(); 0: it has not begun. The memory is the engine's until its end."""
        begun = []
        self._code("transfer", lambda: begun.append(self._begin(target_hostname, buffers, peer_buffer_addresses,
                                                                lengths, TransferOpcode(opcode))))
        if not begun:
            return 0
        number = next(self._numbers)
        self._transfers[number] = begun[0]
        return number

    def transfer_check_status(self, batch_id):
        """1: done, 0: not yet, -1: failed, -2: its time is over. It is forgotten with its end."""
        posted = self._transfers.get(batch_id)
        if posted is None:
            return FAILED
        if not posted.done():
            return PENDING
        self._transfers.pop(batch_id, None)
        error = posted.end()
        if error is None:
            return DONE
        log.warning("mooncake: transfer: %s", error)
        return TIMED_OUT if error.code == hixl.ErrorCode.DEADLINE_EXCEEDED else FAILED

    def get_batch_transfer_status(self, batch_ids):
        """Waits for their ends: 0, or -1 if one has failed. They are forgotten."""
        good = True
        for number in batch_ids:
            posted = self._transfers.get(number)
            if posted is not None:
                posted.end()
            good = self.transfer_check_status(number) == DONE and good
        return 0 if good else -1

    def _link(self, session):
        with self._lock:
            self._started()
            if session not in self._links:
                for other in self._links.values():
                    other.leave_if_gone()
                self._links[session] = Link(self, session)
            return self._links[session]

    def _begin(self, session, buffers, addresses, lengths, opcode):
        if not len(buffers) == len(addresses) == len(lengths):
            raise meeting.fail("INVALID_ARGUMENT", f"{len(buffers)} buffers, {len(addresses)} addresses of the peer, "
                               f"{len(lengths)} lengths")
        return self._link(session).post(VERBS[opcode], list(zip(buffers, addresses, lengths)))

    def _move(self, *what):
        posted = self._begin(*what)
        error = posted.end()
        if error is not None and error.code == hixl.ErrorCode.STALE:  # it has been registered anew, perhaps
            posted.learn()
            error = self._begin(*what).end()
        if error is not None:
            raise error

    def close(self):
        """Ends all. Nobody touches the memory afterwards."""
        with self._lock:
            own, door, store, guests = self._own, self._door, self._store, list(self._guests)
            links, self._links = self._links, {}
            self._own = self._door = self._store = None
        with contextlib.ExitStack() as ends:  # each ends, whatever becomes of others; from the last one on
            if store is not None:
                ends.callback(store.close)
            for member in (own, *guests):
                if member is not None:
                    ends.callback(member.close)
            for link in links.values():
                ends.callback(link.leave)
            if door is not None:
                ends.callback(door.close)
