# SPDX-License-Identifier: Apache-2.0
"""Door: where others connect. A thread accepts, and each that comes in has one, from its first line to its end."""

import logging
import socket
import threading
import time

import hixl

from .lines import fail

# From the first byte to the last, however many there are.
HANDSHAKE_S = 10.0
# Handshakes at a time, each with a thread; who comes beyond them waits in the kernel's backlog.
HANDSHAKES_MAX = 32
# How long the door lets others end something when it finds no descriptor or thread for a newcomer.
PAUSE_S = 0.1
# A host that has gone without a word is noticed after 10 + 3 * 5 s, and what it held is free again.
KEEPALIVE = ((socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
             (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5), (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3))

log = logging.getLogger("hixl")


def until_gone(_, sock):
    """Of a guest who says nothing more."""
    sock.settimeout(None)
    sock.recv(1)


class Door:
    def __init__(self, protocol, host, port, enter, stay=until_gone):
        """enter(sock, deadline) shakes hands in that protocol. stay(guest, sock) speaks with what it gives, whose
        close() is called when that returns: when the other side is gone. What enter() raises the other side is told."""
        self._protocol, self._enter, self._stay = protocol, enter, stay
        self._closed = threading.Event()
        self._handshakes = threading.Semaphore(HANDSHAKES_MAX)
        self._socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
            self._socket.listen(128)
        except (OSError, OverflowError) as error:
            self._socket.close()
            if isinstance(error, OverflowError):
                raise ValueError(f"port is {port}; it must be 0 ... 65535") from None
            code = "ADDRESS_IN_USE" if error.errno == 98 else "OS_ERROR"
            raise fail(code, f"{host}:{port}: {error.strerror}", os_error=error.errno or 0, port=port) from None
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, name=f"{protocol.name}-{self.port}", daemon=True).start()

    def _accept(self):
        while True:
            self._handshakes.acquire()
            sock = None
            try:
                sock, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()
            except (OSError, RuntimeError):  # closed; or there is no descriptor or no thread now
                if sock is not None:
                    sock.close()
                self._handshakes.release()
                if self._closed.wait(PAUSE_S):
                    return

    def _serve(self, sock):
        guest = None
        try:
            with sock:
                try:
                    guest = self._shake_hands(sock)
                finally:
                    self._handshakes.release()
                if guest is not None:
                    self._stay(guest, sock)
        except OSError:  # it has gone without a word
            pass
        finally:
            if guest is not None:
                self._let_go(guest)

    @staticmethod
    def _let_go(guest):
        try:
            guest.close()
        except hixl.Error as error:
            log.warning("a guest did not end: %s", error)

    def _shake_hands(self, sock):
        deadline = time.monotonic() + HANDSHAKE_S
        try:
            for option in KEEPALIVE:
                sock.setsockopt(*option)
            return self._enter(sock, deadline)
        except Exception as error:  # whatever it is, it is this connection's alone
            try:
                self._protocol.send(sock, deadline, error=str(error) or type(error).__name__)
            except OSError:
                pass
            return None

    def close(self):
        """Nobody comes in any more; who is inside stays."""
        self._closed.set()
        try:
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        except OSError:
            pass
        self._socket.close()
