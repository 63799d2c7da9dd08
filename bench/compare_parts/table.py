# SPDX-License-Identifier: Apache-2.0
"""The comparison as text."""

from . import goals, sums

HAVE_NOT = "–"


def grid(rows, left=1):
    """Columns side by side; the first `left` to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [cell.ljust(width) if column < left else cell.rjust(width)
                 for column, (cell, width) in enumerate(zip(row, widths))]
        yield "  " + "  ".join(cells).rstrip()


def cell_text(outcome, name, ours, question, unit):
    figures = outcome.figures(name, question, unit)
    if not figures:
        return HAVE_NOT
    text = sums.shown(sums.median(figures), unit)
    if len(figures) > 1:
        text += f" ±{sums.spread(figures) / 2:.0%}"
    if (name, question, unit) in outcome.noisy:
        text += " noisy"
    mine = outcome.figures(ours, question, unit)
    if name != ours and mine:
        ratio = sums.ratios(mine, figures)
        if ratio:
            text += f" ({sums.median(ratio):.3g})"
    return text


def section_lines(outcome):
    section = outcome.section
    names = [one.name for one in section.contestants if any(
        outcome.figures(one.name, question, unit) for question, unit in section.cells)]
    yield section.title
    if not names:
        yield "  nobody could be measured"
        return
    heads = [f"{sums.question_name(question)}, {sums.UNITS[unit]}" if unit not in ("us", "gbps")
             else sums.question_name(question) for question, unit in section.cells]
    rows = [["", *heads]]
    for name in names:
        rows.append([name] + [cell_text(outcome, name, "HIXL", question, unit) for question, unit in section.cells])
    yield from grid(rows)


def goal_lines(verdicts):
    rows = [["goal", "against", "wanted", "ratio", "", ""]]
    for verdict in verdicts:
        if verdict.state == goals.ABSENT:
            continue
        rows.append([verdict.goal.name + ("" if verdict.goal.ours == "HIXL" else f" ({verdict.goal.ours})"),
                     verdict.against, f"{verdict.goal.sense} {verdict.goal.bound:.3g}", f"{verdict.ratio:.3g}",
                     f"±{verdict.spread / 2:.2g}", verdict.state])
    if len(rows) > 1:
        yield from grid(rows)


def notes(report):
    """Who took part: version, flags, and what a figure of it means; who did not, and why."""
    for one in report.present:
        yield f"  {one.name}: {', '.join(part for part in (report.versions.get(one.name), one.flags) if part)}"
        yield f"    {one.meaning}"
    for name, why in report.skipped.items():
        yield f"  skipped: {name}: {why}"
    for name, why in report.failed.items():
        yield f"  failed: {name}: {why}"


def lines(report, judged):
    machine = report.machine
    yield f"HIXL {machine['commit']} on {machine['processor']}, {machine['cores']} cores, Linux {machine['kernel']}; " \
          f"{report.rounds} rounds, medians ± half of the spread; in brackets HIXL divided by that row"
    for outcome in report.outcomes.values():
        yield ""
        yield from section_lines(outcome)
    if judged:
        yield ""
        yield from goal_lines(report.verdicts)
    yield ""
    yield "who, and what its figures mean"
    yield from notes(report)
    if report.noisy:
        yield f"  noisy: {report.noisy} cells lay more than {report.noise:.0%} apart also when measured again"
