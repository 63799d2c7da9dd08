# SPDX-License-Identifier: Apache-2.0
"""Rounds of one section: every contestant once a round, in turns, so that all meet the same machine; again when what
they say lies too far apart."""

from dataclasses import dataclass, field

from . import sums
from .child import Failed

# Above this spread (sums.spread) a cell is noisy: the goals that are nearest to their limits ask for 1.0 where 0.8 was
# seen, and a shared machine's rounds lie 5 to 15 % apart when nobody else works.
NOISE = 0.25
REPEATS = 2  # at most: what is noisy three times is noisy


@dataclass
class Cell:
    """Figures of one contestant for one question: unit -> one figure a round."""
    figures: dict = field(default_factory=dict)

    def add(self, row):
        for unit, figure in row.items():
            self.figures.setdefault(unit, []).append(figure)

    def noisy(self, unit):
        return sums.spread(self.figures.get(unit, [])) > NOISE if self.figures.get(unit) else False


@dataclass
class Outcome:
    """Of a section. cells: (contestant, question) -> Cell. skipped: contestant -> why and what would help. failed:
    contestant -> what it did. noisy: [(contestant, question, unit)] that stayed so. discarded: older cells."""
    section: object
    cells: dict = field(default_factory=dict)
    skipped: dict = field(default_factory=dict)
    failed: dict = field(default_factory=dict)
    noisy: list = field(default_factory=list)
    discarded: list = field(default_factory=list)

    def figures(self, name, question, unit):
        cell = self.cells.get((name, question))
        return cell.figures.get(unit, []) if cell else []

    def of_question(self, question, unit):
        return {name: cell.figures[unit] for (name, asked), cell in self.cells.items()
                if asked == question and cell.figures.get(unit)}


def _run(contestants, questions, tools, count, failed, say):
    """count rounds; the cells. A contestant that fails is asked no more in this section."""
    cells = {}
    for number in range(count):
        turn = number % max(1, len(contestants))
        for one in contestants[turn:] + contestants[:turn]:
            asked = [question for question in questions if one.can(question)]
            if one.name in failed or not asked:
                continue
            say(f"round {number + 1} of {count}: {one.name}")
            try:
                rows = one.ask(tools, asked)
            except Failed as error:
                failed[one.name] = str(error)
                for question in asked:  # rounds that others have and it has not cannot be compared
                    cells.pop((one.name, question), None)
                continue
            for question, row in rows.items():
                cells.setdefault((one.name, question), Cell()).add(row)
    return cells


def run(section, contestants, tools, count, say=lambda text: None, repeats=REPEATS):
    """Raises WrongBytes if anybody found other bytes than were sent."""
    outcome = Outcome(section)
    present = []
    for one in contestants:
        why = one.missing(tools)
        if why:
            outcome.skipped[one.name] = why
        else:
            present.append(one)
    questions = [question for question, _ in section.cells]
    questions = list(dict.fromkeys(questions))
    outcome.cells = _run(present, questions, tools, count, outcome.failed, say)

    def noisy():
        return [(name, question, unit) for (name, question), cell in outcome.cells.items()
                for asked, unit in section.cells if asked == question and cell.noisy(unit)]

    for _ in range(repeats):
        again = sorted({question for _, question, _ in noisy()}, key=questions.index)
        if not again:
            break
        say(f"noisy, more than {NOISE:.0%} apart: {', '.join(map(sums.question_name, again))}; measured again")
        newer = _run(present, again, tools, count, outcome.failed, say)
        for place, cell in newer.items():
            outcome.discarded.append((place, outcome.cells.get(place)))
            outcome.cells[place] = cell
        for name in outcome.failed:  # failed meanwhile
            for question in again:
                outcome.cells.pop((name, question), None)
    outcome.noisy = noisy()
    return outcome
