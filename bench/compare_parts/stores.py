# SPDX-License-Identifier: Apache-2.0
"""What carries caches without a one-sided library: redis, memcached, gRPC. Their servers are children of this run."""

import contextlib
import os
import shutil
import tempfile

from . import child, peers, read
from .contestant import OTHER, Contestant

STORED = ("SET over one connection, then GET over another into its place, one client program in C++ for both; each "
          "byte compared")
GRPC_BYTES_MAX = 256 << 20  # a gigabyte takes it ten seconds
REDIS_PIECE = 256 << 20  # of its largest value, 512 MiB by default
MEMCACHED_PIECE = (1 << 20) - 512  # of its largest by default, 1 MiB with the item's head
MEMCACHED_BEST_PIECE = 64 << 20


@contextlib.contextmanager
def _served(argv_of, local, patience_s, scratch):
    """A server at a path or at a port; gives the address."""
    for attempt in range(peers.TRIES):
        with contextlib.ExitStack() as stack:
            try:
                if local:
                    folder = stack.enter_context(tempfile.TemporaryDirectory(dir=scratch))
                    address = os.path.join(folder, "s")
                    stack.enter_context(child.server(argv_of(address), lambda: os.path.exists(address), patience_s))
                else:
                    port = child.free_port()
                    address = str(port)
                    stack.enter_context(child.server(argv_of(address), lambda: child.listens(port), patience_s))
            except child.Failed as error:
                if attempt + 1 == peers.TRIES or "before it listened" not in str(error):
                    raise
                continue
            yield address
            return


def _redis(local):
    def argv_of(address):
        place = ["--port", "0", "--unixsocket", address] if local else ["--port", address]
        return ["redis-server", *place, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    return argv_of


def _memcached(local, best):
    def argv_of(address):
        place = ["-s", address] if local else ["-l", "127.0.0.1", "-p", address, "-U", "0"]
        user = ["-u", "root"] if os.geteuid() == 0 else []
        return ["memcached", *place, *user, "-m", "4096", *(["-I", "128m"] if best else [])]
    return argv_of


def _store(name, program, package, argv_of, local, piece, flags):
    what = "redis" if program == "redis-server" else program

    def ask(tools, questions):
        with _served(argv_of, local, tools.patience_s, tools.scratch) as address:
            argv = [tools.program("bench/hixl_rivals"), *tools.counts, what, "--address", address, "--piece",
                    str(piece)]
            return read.json_rows(child.run(argv + questions, tools.patience_s), questions, name)

    def missing(tools):
        if not shutil.which(program):
            return f"no {program}: apt-get install {package}"
        if not os.access(tools.program("bench/hixl_rivals"), os.X_OK):
            return f"hixl_rivals is not built: ninja -C {tools.build} bench/hixl_rivals"
        return None
    return Contestant(name, OTHER, ask, missing, flags, STORED,
                      lambda tools: read.first_version(child.run([program, "--version"], 10)))


def all_stores():
    return [
        _store("Redis", "redis-server", "redis-server", _redis(False), False, REDIS_PIECE, "port, nothing saved"),
        _store("Redis, best flags", "redis-server", "redis-server", _redis(True), True, REDIS_PIECE,
               "local socket, nothing saved"),
        _store("memcached", "memcached", "memcached", _memcached(False, False), False, MEMCACHED_PIECE,
               "port, values of 1 MiB"),
        _store("memcached, best flags", "memcached", "memcached", _memcached(True, True), True, MEMCACHED_BEST_PIECE,
               "local socket, -I 128m, values of 64 MiB"),
    ]


def grpc():
    return peers.wheel("gRPC", "grpc", "grpc_worker.py", {}, "unary calls, no limit of a message, pieces of 64 MiB",
                       "from Python: a call that carries the bytes, copied to their place by the server, answered; "
                       "each byte compared by the target", "grpcio", GRPC_BYTES_MAX, OTHER)
