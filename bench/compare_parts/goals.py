# SPDX-License-Identifier: Apache-2.0
"""What the library must reach: ours divided by the other, in the same run, on the same verified bytes. The one table of
goals; docs/performance.md prints it."""

from dataclasses import dataclass

from . import sums
from .contestant import OURS, PEER

BEST_PEER = "best peer"
AT_MOST, AT_LEAST = "≤", "≥"
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class Goal:
    section: str
    question: str
    unit: str
    against: str  # a contestant, or BEST_PEER
    sense: str
    bound: float
    ours: str = "HIXL"

    @property
    def name(self):
        return f"{self.section}: {sums.question_name(self.question)}"


def _goals(section, unit, questions, against, sense, bound, ours="HIXL"):
    return [Goal(section, question, unit, against, sense, bound, ours) for question in questions]


GOALS = [
    *_goals("post", "us", ["post:8:1"], "a cache line there and back", AT_MOST, 0.7),
    *_goals("post", "us", ["post:8:64"], "a cache line there and back", AT_MOST, 0.45),
    *_goals("barrier", "us", ["barrier:12"], "MPI", AT_MOST, 1.5),
    *_goals("window-small", "us", ["put:8", "put:128", "put:4096"], BEST_PEER, AT_MOST, 1.0),
    *_goals("window-middle", "gbps", [f"put:{64 * KIB}", f"put:{MIB}"], BEST_PEER, AT_LEAST, 1.0),
    *_goals("window-large", "gbps", [f"put:{16 * MIB}", f"put:{256 * MIB}", f"put:{GIB}"], BEST_PEER, AT_LEAST, 1.5),
    *_goals("window-large", "gbps", [f"put:{16 * MIB}", f"put:{256 * MIB}", f"put:{GIB}"], "memcpy, two threads",
            AT_LEAST, 0.92),
    # Of times, so that 1.2 of the speed is 1 / 1.2 of the time.
    *_goals("window-batch", "us", ["batch:4096:128"], "UCX", AT_MOST, 1 / 1.2),
    *_goals("tcp-small", "us", ["put:8"], "raw socket", AT_MOST, 1.2, "HIXL, busy"),
    *_goals("tcp-small", "us", ["put:8"], "raw socket", AT_MOST, 1.8, "HIXL, event"),
    *_goals("tcp-large", "gbps", [f"put:{MIB}", f"put:{16 * MIB}", f"flight:{MIB}:8", f"flight:{16 * MIB}:8"],
            "raw socket", AT_LEAST, 0.95),
    *_goals("tcp-large", "gbps", [f"flight:{MIB}:8", f"flight:{16 * MIB}:8"], BEST_PEER, AT_LEAST, 1.5),
    *_goals("tcp-batch", "us", ["batch:4096:128"], "raw socket, each answered", AT_MOST, 1 / 8),
    *_goals("tcp-batch", "us", ["batch:4096:128"], "raw socket", AT_MOST, 1 / 2.5),
    *_goals("tcp-streams", "cpu_s_gb", ["streams:65536:32"], "two-sided, naive", AT_MOST, 0.8),
    *_goals("tcp-streams", "cpu_s_gb", ["streams:65536:32"], "two-sided, tuned", AT_MOST, 1.1),
]

# Goals that other programs measure, and how.
ELSEWHERE = [
    ("allocations of a post; an idle loop", "build/bench/hixl_bench all"),
    ("an idle loop with 11 peers", "build/bench/hixl_crowd_bench --peers 11 --seconds 10"),
    ("memory of a peer at rest", "build/bench/hixl_crowd_bench --peers 1000"),
    ("two capped links against their sum; gaps when a link breaks", "build/bench/failover_bench all"),
    ("checks of a frame against the frame", "build/tests/micro/fence_cost"),
    ("roce against perftest", "tools/test rdma"),
]

MET, MISSED, WITHIN, ABSENT = "met", "missed", "missed by less than the spread", "not measured"


@dataclass(frozen=True)
class Verdict:
    goal: Goal
    state: str
    ratio: float = 0.0
    spread: float = 0.0  # of the ratio, in its own unit
    against: str = ""  # who it was


def judge(goal, outcomes, kinds):
    """`outcomes`: section key -> Outcome. `kinds`: contestant -> kind."""
    outcome = outcomes.get(goal.section)
    if outcome is None:
        return Verdict(goal, ABSENT)
    ours = outcome.figures(goal.ours, goal.question, goal.unit)
    others = {name: figures for name, figures in outcome.of_question(goal.question, goal.unit).items()
              if kinds[name] == PEER} if goal.against == BEST_PEER else \
        {goal.against: outcome.figures(goal.against, goal.question, goal.unit)}
    against = sums.best(goal.unit, others)
    ratios = sums.ratios(ours, others[against]) if ours and against else []
    if not ratios:
        return Verdict(goal, ABSENT)
    ratio = sums.median(ratios)
    apart = sums.spread(ratios) * ratio
    beyond = ratio - goal.bound if goal.sense == AT_MOST else goal.bound - ratio
    state = MET if beyond <= 0 else WITHIN if beyond <= apart else MISSED
    return Verdict(goal, state, ratio, apart, against)


def judge_all(outcomes):
    kinds = {one.name: one.kind for outcome in outcomes.values() for one in outcome.section.contestants}
    return [judge(goal, outcomes, kinds) for goal in GOALS]


def unknown_names(sections):
    """Of contestants and questions in GOALS that no section has: a goal that nobody would ever judge."""
    by_key = {section.key: section for section in sections}
    for goal in GOALS:
        section = by_key.get(goal.section)
        names = {one.name: one.kind for one in section.contestants} if section else {}
        if (goal.question, goal.unit) not in (section.cells if section else ()) or names.get(goal.ours) != OURS or \
                (goal.against != BEST_PEER and goal.against not in names):
            yield goal


def rows():
    """The table of docs/performance.md."""
    for goal in GOALS:
        yield f"| {goal.section}: {sums.question_name(goal.question)} | {goal.ours} | {goal.against} | {goal.sense} " \
              f"{goal.bound:.3g} |"
