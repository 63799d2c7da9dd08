# SPDX-License-Identifier: Apache-2.0
"""All of one run: the machine, who took part, what was measured; as JSON too."""

import json
import os
import platform
from dataclasses import dataclass, field

from . import child, goals, programs, rounds


def machine(tools):
    processor = platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            names = [line.partition(":")[2].strip() for line in info if line.startswith("model name")]
        processor = names[0] if names else processor
    except OSError:
        pass
    return {"processor": processor, "cores": len(os.sched_getaffinity(0)), "kernel": platform.release(),
            "commit": programs.commit(tools), "load": os.getloadavg()[0], "pinning": "none"}


@dataclass
class Report:
    machine: dict
    rounds: int
    outcomes: dict = field(default_factory=dict)  # section key -> Outcome
    versions: dict = field(default_factory=dict)  # contestant -> version
    noise: float = rounds.NOISE

    def add(self, outcome, tools):
        self.outcomes[outcome.section.key] = outcome
        for one in outcome.section.contestants:
            if one.name in self.versions or one.name in outcome.skipped:
                continue
            try:
                self.versions[one.name] = one.version(tools)
            except child.Failed as error:
                self.versions[one.name] = str(error)

    def _first(self, of):
        found = {}
        for outcome in self.outcomes.values():
            for name, why in of(outcome).items():
                found.setdefault(name, why)
        return found

    @property
    def present(self):
        return list({(one.name, one.flags): one for outcome in self.outcomes.values()
                     for one in outcome.section.contestants if one.name not in outcome.skipped}.values())

    @property
    def skipped(self):
        return self._first(lambda outcome: outcome.skipped)

    @property
    def failed(self):
        return self._first(lambda outcome: {f"{name} ({outcome.section.key})": why
                                            for name, why in outcome.failed.items()})

    @property
    def noisy(self):
        return sum(len(outcome.noisy) for outcome in self.outcomes.values())

    @property
    def verdicts(self):
        return goals.judge_all(self.outcomes)

    def json(self):
        return json.dumps({
            "machine": self.machine, "rounds": self.rounds, "noise": self.noise,
            "contestants": [{"name": one.name, "kind": one.kind, "version": self.versions.get(one.name),
                             "flags": one.flags, "meaning": one.meaning} for one in self.present],
            "skipped": self.skipped, "failed": self.failed,
            "sections": [{
                "key": key, "title": outcome.section.title, "noisy": outcome.noisy,
                "cells": [{"contestant": name, "question": question, "rounds": cell.figures}
                          for (name, question), cell in outcome.cells.items()],
                "discarded": [{"contestant": place[0], "question": place[1], "rounds": cell.figures if cell else {}}
                              for place, cell in outcome.discarded],
            } for key, outcome in self.outcomes.items()],
            "goals": [{"goal": verdict.goal.name, "ours": verdict.goal.ours, "against": verdict.goal.against,
                       "measured_against": verdict.against, "sense": verdict.goal.sense, "bound": verdict.goal.bound,
                       "ratio": verdict.ratio, "spread": verdict.spread, "state": verdict.state}
                      for verdict in self.verdicts],
        }, indent=1, ensure_ascii=False)
