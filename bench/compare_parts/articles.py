# SPDX-License-Identifier: Apache-2.0
"""The rows of the articles that this project answers: what they claim, as a factor, and what this machine gives. Their
own figures are of other hardware, and are never shown as measured here."""

from dataclasses import dataclass

from . import peers, programs, stores, sums
from .contestant import LIMIT
from .field import GIB, KIB, MIB, Section

NEAR, FAR = "HIXL", "HIXL, tcp"
NAIVE, TUNED, REDIS = "two-sided, naive", "two-sided, tuned", "Redis"
# Of the article's own arithmetic (F170): a millisecond of latency is half a millisecond a token.
TOKEN_SHARE, TOKENS = 0.5, 1000


@dataclass(frozen=True)
class Row:
    number: str  # of docs/features.md
    what: str
    claim: str
    factor: float  # of the claim; 0 where it is none
    section: str
    question: str
    unit: str
    against: tuple  # contestants


def sections():
    near, far = programs.library(NEAR, "hccs"), programs.library(FAR, "tcp")
    both = (near, far, *programs.framed(), *stores.all_stores()[:2], stores.grpc(), *programs.copies(),
            *programs.sockets())
    flows = (near, far, *programs.framed())
    gather = (near, far, peers.gathering(), *programs.copies(), *programs.sockets())

    def one(key, title, cells, contestants=both):
        return Section(key, title, cells, (), contestants)
    return [
        one("small", "128 B", (("put:128", "us"), ("put:128", "p99_us"), ("put:128", "p999_us"))),
        one("block", "128 KiB of KV cache", ((f"put:{128 * KIB}", "us"),)),
        one("rate", "16 MiB", ((f"put:{16 * MIB}", "gbps"),)),
        one("prompt", "4096 tokens, 256 MiB: until it is there, and for how long the sender is held",
            ((f"flight:{256 * MIB}:1", "us"), (f"flight:{256 * MIB}:1", "held_us")), flows + tuple(
                programs.copies() + programs.sockets())),
        one("gigabyte", "1 GiB", ((f"put:{GIB}", "us"),)),
        one("batch", "128 blocks of 4 KiB", (("batch:4096:128", "us"),), (*both, *programs.answered())),
        one("gather", "1 MiB to the one rank that needs it, beside an AllGather of 12 ranks",
            ((f"put:{MIB}", "us"),), gather),
        one("streams", "flows side by side", (("streams:65536:32", "cpu_s_gb"), ("streams:1048576:8", "staging_bytes"),
                                              ("streams:1048576:64", "staging_bytes")), flows),
    ]


ROWS = [
    Row("F60", "KV ready, beside AllGather", "70 to 80 % less time", 1 / 0.3, "gather", f"put:{MIB}", "us",
        ("MPI AllGather",)),
    Row("F102", "128 × 4 KiB", "30 times", 30, "batch", "batch:4096:128", "us",
        (NAIVE, TUNED, "raw socket, each answered")),
    Row("F137", "128 KiB of KV cache", "87 % less time", 1 / 0.13, "block", f"put:{128 * KIB}", "us", (NAIVE, TUNED)),
    Row("F138", "1 GiB", "900 times", 900, "gigabyte", f"put:{GIB}", "us", (NAIVE, TUNED)),
    Row("F139", "128 B", "93 % less time", 1 / 0.07, "small", "put:128", "us", (NAIVE, TUNED)),
    Row("F140", "4096 tokens, until Decode has it", "15 times", 15, "prompt", f"flight:{256 * MIB}:1", "us",
        (NAIVE, TUNED)),
    Row("F140", "4096 tokens, Prefill is held", "15 times", 15, "prompt", f"flight:{256 * MIB}:1", "held_us",
        (NAIVE, TUNED)),
    Row("F142", "memory in between, 8 flows of 1 MiB", "40 % less", 1 / 0.6, "streams", "streams:1048576:8",
        "staging_bytes", (NAIVE, TUNED)),
    Row("F142", "memory in between, 64 flows of 1 MiB", "40 % less", 1 / 0.6, "streams", "streams:1048576:64",
        "staging_bytes", (NAIVE, TUNED)),
    Row("F168", "latency, 128 B", "10 times", 10, "small", "put:128", "us", (TUNED, REDIS)),
    Row("F168", "throughput, 16 MiB", "7 times", 7, "rate", f"put:{16 * MIB}", "gbps", (TUNED, REDIS)),
    Row("F169", "99 of 100 within", "ms become µs", 0, "small", "put:128", "p99_us", (NAIVE, TUNED)),
    Row("F171", "processor time, 32 streams", "20 to 30 % become nearly 0", 0, "streams", "streams:65536:32",
        "cpu_s_gb", (NAIVE, TUNED)),
]


def factor(outcome, row, name, other):
    """How many times better `name` is than `other`, the median over rounds; None if either is missing. Memory that
    nobody takes counts as one page, lest a factor be infinite."""
    floor = 4096.0 if row.unit == "staging_bytes" else 0.0
    mine = [max(figure, floor) for figure in outcome.figures(name, row.question, row.unit)]
    theirs = [max(figure, floor) for figure in outcome.figures(other, row.question, row.unit)]
    pair = (mine, theirs) if row.unit in sums.MORE_IS_BETTER else (theirs, mine)
    ratios = sums.ratios(*pair)
    return sums.median(ratios) if ratios else None


def verdict(row, ours, limit):
    """What is to be said of the article's factor."""
    if not row.factor or ours is None:
        return ""
    if ours >= row.factor:
        return "reached"
    if limit is not None and limit < row.factor:
        return f"not on this machine: its limit gives {limit:.3g}"
    return "not reached"


def _limit(outcome, row, other):
    """The best factor of what the bare machine does."""
    names = [one.name for one in outcome.section.contestants if one.kind == LIMIT]
    found = [(factor(outcome, row, name, other), name) for name in names]
    return max([pair for pair in found if pair[0] is not None], default=(None, ""))


def rows_of(outcomes):
    """Cells of the table, and the same as data."""
    for row in ROWS:
        outcome = outcomes.get(row.section)
        if outcome is None:
            continue
        for other in row.against:
            near, far = (factor(outcome, row, name, other) for name in (NEAR, FAR))
            limit, name = _limit(outcome, row, other)
            if near is None and far is None:
                continue
            yield {"row": row.number, "what": row.what, "claim": row.claim, "against": other, "hccs": near, "tcp": far,
                   "limit": limit, "limit_name": name, "verdict": verdict(row, near, limit)}


def tokens(outcomes):
    """F170 by the article's arithmetic, from measured latencies."""
    outcome = outcomes.get("block")
    for name in (NEAR, FAR, TUNED, NAIVE):
        figures = outcome.figures(name, f"put:{128 * KIB}", "us") if outcome else []
        if figures:
            yield name, sums.median(figures) * TOKEN_SHARE * TOKENS


def lines(outcomes, grid):
    def times(value):
        return "–" if value is None else f"{value:.3g} ×"
    table = [["row", "what", "the article's claim", "better than", "hccs", "tcp", "the machine's limit", ""]]
    for cells in rows_of(outcomes):
        limit = times(cells["limit"]) + (f" {cells['limit_name']}" if cells["limit_name"] else "")
        table.append([cells["row"], cells["what"], cells["claim"], cells["against"], times(cells["hccs"]),
                      times(cells["tcp"]), limit, cells["verdict"]])
    yield "The articles' rows: factors measured here, beside what the articles claim for their hardware"
    yield from grid(table, 4)
    found = list(tokens(outcomes))
    if found:
        yield "  F170  what latency adds to 1 000 tokens, by the article's arithmetic (half of it a token, 128 KiB): " \
            + ", ".join(f"{name} {sums.shown(figure, 'us')}" for name, figure in found)
    yield "  F141  30 to 50 % less time to the first token is claimed. Not measured here: tools/demo prints ours, " \
          "and its simulator has no other path to compare with."
