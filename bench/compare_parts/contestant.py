# SPDX-License-Identifier: Apache-2.0
"""Who takes part in a comparison, and what it needs."""

import os
from dataclasses import dataclass, field
from typing import Callable

OURS, PEER, OTHER, LIMIT = "ours", "peer", "other", "limit"


@dataclass
class Tools:
    """What a run works with. `patience_s` is the time of one program of one round."""
    build: str
    venv: str
    scratch: str
    rounds: int = 2000
    megabytes: int = 128
    patience_s: float = 60

    def program(self, name):
        return os.path.join(self.build, name)

    @property
    def python(self):
        return os.path.join(self.venv, "bin", "python")

    @property
    def counts(self):
        return ["--rounds", str(self.rounds), "--megabytes", str(self.megabytes)]


@dataclass(frozen=True)
class Contestant:
    """`ask(tools, questions)` gives rows by question. `missing(tools)`: why it cannot take part and the command that
    would help, or None. `kind`: ours, a peer (one-sided libraries, of which the best counts), other, or a limit of the
    machine. `meaning`: what is there when its figure ends, and whether bytes were compared."""
    name: str
    kind: str
    ask: Callable
    missing: Callable
    flags: str = ""
    meaning: str = ""
    version: Callable = field(default=lambda tools: "")
    size_max: int = 1 << 30

    def can(self, question):
        numbers = [int(number) for number in question.split(":")[1:]]
        return not numbers or numbers[0] <= self.size_max
