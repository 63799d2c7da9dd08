# SPDX-License-Identifier: Apache-2.0
"""dial: a socket to who listens."""

import errno
import socket

import hixl

from .lines import fail, is_number, left

CODES = {errno.ECONNREFUSED: "CONNECT_REFUSED", errno.EHOSTUNREACH: "NO_ROUTE", errno.ENETUNREACH: "NO_ROUTE",
         errno.ETIMEDOUT: "CONNECT_TIMEOUT"}


def dial(host, port, deadline):
    if not is_number(port, 1, 65535):
        raise ValueError(f"port is {port!r}; it must be 1 ... 65535")
    try:
        return dial_any(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM), deadline)
    except socket.gaierror as error:
        raise fail("HOST_UNRESOLVED", f"{host}: {error.strerror}", stage=hixl.Stage.RESOLVE) from None
    except socket.timeout:
        raise fail("CONNECT_TIMEOUT", f"{host}:{port} did not answer in time; check that the other side listens "
                   "there and no firewall drops the port", stage=hixl.Stage.CONNECT) from None
    except OSError as error:
        raise fail(CODES.get(error.errno, "OS_ERROR"), f"{host}:{port}: {error.strerror}",
                   stage=hixl.Stage.CONNECT, os_error=error.errno or 0, port=port) from None


def dial_any(places, deadline):
    """The first that answers. socket.create_connection() would give each of them the whole time."""
    failed = None
    for family, kind, protocol, _, address in places:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(left(deadline))
            sock.connect(address)
            return sock
        except OSError as error:
            sock.close()
            failed = error
    raise failed
