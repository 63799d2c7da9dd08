# SPDX-License-Identifier: Apache-2.0
"""One-sided libraries of others, as Debian and PyPI have them: UCX, MPI, NIXL, Mooncake."""

import functools
import os
import shutil

from . import child, read
from .contestant import OTHER, PEER, Contestant

TRIES = 3  # a port that was free may be taken a moment later
WORKERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "workers")
# mpirun refuses root without these; containers and CI run as root.
MPI_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
GATHER_RANKS = 12  # of the articles' 4 Prefill and 8 Decode
IMPORT_S = 60  # of a wheel, on a busy machine
UCX_BYTES_MAX = 256 << 20  # its two processes take several times as much


def installed(program, package):
    return lambda tools: None if shutil.which(program) else f"no {program}: apt-get install {package}"


def _perftest(tools, arguments, env):
    for attempt in range(TRIES):
        port = child.free_port()
        argv = ["ucx_perftest", "-p", str(port)]
        try:
            with child.server(argv, lambda: child.listens(port), tools.patience_s, env):
                client = ["ucx_perftest", "127.0.0.1", *argv[1:], *arguments, "-f", "-v"]
                return child.run(client, tools.patience_s, env)
        except child.Failed as error:
            if attempt + 1 == TRIES or "before it listened" not in str(error):
                raise
    raise AssertionError("the last try returns or raises")


def ucx(name, transports):
    env = {"UCX_TLS": transports} if transports else {}

    def ask(tools, questions):
        rows = {}
        for question in questions:
            what, size, *count = question.split(":")
            size, count = int(size), int(count[0]) if count else 1
            puts = max(5, min(tools.rounds * count, (tools.megabytes << 20) // size))
            # One put at a time is its ping-pong of puts, half of there and back. Its streaming puts are the rest.
            test = "ucp_put_lat" if what == "put" else "ucp_put_bw"
            arguments = ["-t", test, "-s", str(size), "-n", str(puts), "-w", str(puts // 10 + 1)]
            printed = _perftest(tools, arguments, env)
            rows[question] = read.ucx_latency(printed, size) if what == "put" else read.ucx_stream(printed, size, count)
        return rows
    return Contestant(name, PEER, ask, installed("ucx_perftest", "ucx-utils"),
                      " ".join(f"{key}={value}" for key, value in env.items()) or "as it chooses itself",
                      "one at a time: half of a ping-pong of puts that both sides poll for; groups: its streaming puts "
                      "of one buffer, flushed at the end alone; ucx_perftest compares no bytes",
                      lambda tools: read.first_version(child.run(["ucx_info", "-v"], 10)), UCX_BYTES_MAX)


def _no_mpi(tools):
    if not shutil.which("mpirun"):
        return "no mpirun: apt-get install openmpi-bin libopenmpi-dev, then build again"
    if not os.access(tools.program("bench/mpi_put"), os.X_OK):
        return f"mpi_put is not built: apt-get install libopenmpi-dev; meson setup --reconfigure {tools.build}"
    return None


def _mpi_rows(tools, ranks, options, questions, name):
    argv = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), *options,
            tools.program("bench/mpi_put"), str(tools.rounds), str(tools.megabytes), *questions]
    return read.json_rows(child.run(argv, tools.patience_s, MPI_AS_ROOT), questions, name)


def _mpi_version(tools):
    return read.first_version(child.run(["mpirun", "--version"], 10, MPI_AS_ROOT))


def gathering():
    """An AllGather by 12 ranks, of which a put takes the place that brings one rank what it needs."""
    def ask(tools, questions):
        name = "MPI AllGather"
        gathers = {question.replace("put:", "gather:"): question for question in questions}
        rows = _mpi_rows(tools, GATHER_RANKS, [], list(gathers), name)
        return {gathers[gather]: row for gather, row in rows.items()}
    return Contestant("MPI AllGather", OTHER, ask, _no_mpi, f"{GATHER_RANKS} ranks",
                      "all ranks have what each had; each byte compared by all", _mpi_version)


def barrier():
    def missing(tools):
        if not shutil.which("mpirun") or os.access(tools.program("bench/mpi_barrier"), os.X_OK):
            return _no_mpi(tools)
        return f"mpi_barrier is not built: apt-get install libopenmpi-dev; meson setup --reconfigure {tools.build}"

    def ask(tools, questions):
        rows = {}
        for question in questions:
            argv = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", question.split(":")[1],
                    tools.program("bench/mpi_barrier"), str(tools.rounds)]
            rows[question] = read.barrier_us(child.run(argv, tools.patience_s, MPI_AS_ROOT))
        return rows
    return Contestant("MPI", PEER, ask, missing, "as it chooses itself", "MPI_Barrier", _mpi_version)


def mpi(name, options):
    return Contestant(name, PEER, lambda tools, questions: _mpi_rows(tools, 2, options, questions, name), _no_mpi,
                      " ".join(options) or "as it chooses itself",
                      "MPI_Put and MPI_Win_flush, the target inside MPI_Barrier; each byte compared by the target",
                      _mpi_version)


@functools.lru_cache
def _cannot_import(python, module):
    try:
        child.run([python, "-c", f"import {module}"], IMPORT_S)
    except child.Failed as error:
        return f"{module}: {error}"
    return None


def wheel(name, module, worker, env, flags, meaning, package, size_max=1 << 30, kind=PEER):
    def version(tools):
        code = f"import importlib.metadata as m; print(m.version('{package}'))"
        return child.run([tools.python, "-c", code], 30).strip()

    def missing(tools):
        why = _cannot_import(tools.python, module)
        return f"{why}: bench/compare --install makes {tools.venv} with it" if why else None

    def ask(tools, questions):
        argv = [tools.python, os.path.join(WORKERS, worker), *tools.counts, *questions]
        return read.json_rows(child.run(argv, tools.patience_s, env), questions, name)
    return Contestant(name, kind, ask, missing, flags, meaning, version, size_max)


NIXL_MEANING = ("transfer() of a handle made before, check_xfer_state() until DONE, from Python, the target's progress "
                "thread on; each byte compared by the target")
MOONCAKE_MEANING = "transfer_sync_write() from Python, the target's own threads; each byte compared by the target"
SHARED_MEMORY = {"UCX_TLS": "posix,sysv,cma,self,tcp", "UCX_POSIX_ERROR_HANDLING": "y", "UCX_SYSV_ERROR_HANDLING": "y",
                 "UCX_CMA_ERROR_HANDLING": "y"}


def text(env):
    return " ".join(f"{key}={value}" for key, value in env.items())


def window_peers():
    return [ucx("UCX", ""), ucx("UCX, best flags", "posix,cma,self"), mpi("MPI", []),
            mpi("MPI, osc rdma", ["--mca", "osc", "rdma", "--mca", "btl", "vader,self"]),
            wheel("NIXL", "nixl_cu12", "nixl_worker.py", {}, "back-end UCX as it chooses itself", NIXL_MEANING,
                  "nixl-cu12", UCX_BYTES_MAX),
            wheel("NIXL, best flags", "nixl_cu12", "nixl_worker.py", SHARED_MEMORY, text(SHARED_MEMORY), NIXL_MEANING,
                  "nixl-cu12", UCX_BYTES_MAX)]


def tcp_peers():
    pool = {"MC_FORCE_TCP": "1", "MC_TCP_ENABLE_CONNECTION_POOL": "1"}
    default = {"MC_FORCE_TCP": "1"}
    package = "mooncake-transfer-engine-non-cuda"
    return [ucx("UCX", "tcp"), mpi("MPI", ["--mca", "btl", "tcp,self", "--mca", "pml", "ob1", "--mca", "osc", "pt2pt"]),
            wheel("NIXL", "nixl_cu12", "nixl_worker.py", {"UCX_TLS": "tcp"}, "UCX_TLS=tcp", NIXL_MEANING, "nixl-cu12"),
            wheel("Mooncake", "mooncake.engine", "mooncake_worker.py", default, text(default), MOONCAKE_MEANING,
                  package),
            wheel("Mooncake, best flags", "mooncake.engine", "mooncake_worker.py", pool, text(pool), MOONCAKE_MEANING,
                  package)]
