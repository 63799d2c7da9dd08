# SPDX-License-Identifier: Apache-2.0
"""The sections of a comparison: what is asked, in which unit it is told, and who is asked."""

from dataclasses import dataclass, field

from . import peers, programs, stores
from .contestant import OURS

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class Section:
    """cells: (question, unit). `quick`: the questions of a smoke run."""
    key: str
    title: str
    cells: tuple
    quick: tuple
    contestants: tuple = field(repr=False, default=())


def _of(unit, *questions):
    return tuple((question, unit) for question in questions)


def sections():
    window = programs.library("HIXL", "hccs")
    event = programs.library("HIXL, event", "tcp", {"HIXL_POLL": "event"})
    tcp = programs.library("HIXL", "tcp")
    near = tuple([window, *peers.window_peers(), *programs.copies()])
    far = tuple([tcp, *peers.tcp_peers(), *programs.sockets()])
    return [
        Section("post", "What posting a put costs its caller, one at a time and each of a burst of 64",
                _of("us", "post:8:1", "post:8:64"), ("post:8:1",), tuple(programs.posting())),
        Section("barrier", "A barrier of ranks on one host, a process each", _of("us", "barrier:12"), ("barrier:12",),
                (programs.barrier(), peers.barrier())),
        Section("window-small", "Shared memory, one put at a time, until it is there",
                _of("us", "put:8", "put:128", "put:4096"), ("put:8",), near),
        Section("window-middle", "Shared memory, one put at a time",
                _of("gbps", f"put:{64 * KIB}", f"put:{128 * KIB}", f"put:{MIB}"), (f"put:{64 * KIB}",), near),
        Section("window-large", "Shared memory, one put at a time",
                _of("gbps", f"put:{16 * MIB}", f"put:{128 * MIB}", f"put:{256 * MIB}", f"put:{GIB}"), (), near),
        Section("window-batch", "Shared memory, 128 blocks of 4 KiB that do not touch",
                _of("us", "batch:4096:128"), ("batch:4096:128",), near),
        Section("tcp-small", "TCP over loopback, one put at a time, until it is there",
                _of("us", "put:8", "put:128"), ("put:8",),
                (programs.busy(), event, *far, *programs.framed(), *stores.all_stores(), stores.grpc())),
        Section("tcp-large", "TCP over loopback, large puts",
                _of("gbps", f"put:{128 * KIB}", f"put:{MIB}", f"put:{16 * MIB}", f"flight:{MIB}:8",
                    f"flight:{16 * MIB}:8"),
                (f"put:{128 * KIB}", f"flight:{MIB}:8"),
                (*far, *programs.framed(), *stores.all_stores(), stores.grpc())),
        Section("tcp-huge", "TCP over loopback, a cache of 4096 tokens and a gigabyte",
                _of("gbps", f"put:{256 * MIB}", f"put:{GIB}"), (),
                (tcp, *programs.sockets(), *programs.framed(), *stores.all_stores(), stores.grpc())),
        Section("tcp-batch", "TCP over loopback, 128 blocks of 4 KiB that do not touch",
                _of("us", "batch:4096:128"), ("batch:4096:128",),
                (*far, *programs.answered(), *programs.framed(), *stores.all_stores(), stores.grpc())),
        Section("tcp-streams", "TCP over loopback, flows side by side: processor time of both sides, and memory "
                "between source and target",
                (("streams:65536:32", "cpu_s_gb"), ("streams:65536:32", "gbps"), ("streams:1048576:8", "staging_bytes"),
                 ("streams:1048576:64", "staging_bytes")), ("streams:65536:32",),
                (tcp, event, *programs.framed())),
    ]


def quick(section):
    """Of a smoke run; None if it has nothing of this section."""
    cells = tuple(cell for cell in section.cells if cell[0] in section.quick)
    return Section(section.key, section.title, cells, section.quick, section.contestants) if cells else None


def reduced(section, names):
    """Without those that are not named; the library stays."""
    kept = tuple(one for one in section.contestants if one.kind == OURS or one.name in names)
    return Section(section.key, section.title, section.cells, section.quick, kept)
