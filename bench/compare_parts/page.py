# SPDX-License-Identifier: Apache-2.0
"""The comparison as one page that stands alone: no scripts, no fonts, nothing from elsewhere."""

import math
from html import escape

from . import goals, sums
from .contestant import LIMIT, OURS, PEER

COLOURS = {OURS: "#0a7d5a", PEER: "#4467b0", LIMIT: "#8a8a8a"}
OTHER_COLOUR = "#b06a2c"
STATE_COLOURS = {goals.MET: "#0a7d5a", goals.MISSED: "#b3261e", goals.WITHIN: "#b06a2c"}
LABEL, BAR, ROW = 190, 420, 20  # pixels
STYLE = """body{font:14px/1.45 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}
h2{margin-top:2.2rem;font-size:1.1rem}h3{font-size:.95rem;margin:1rem 0 .2rem}table{border-collapse:collapse;width:100%}
td,th{padding:.15rem .6rem;text-align:right;border-bottom:1px solid #ddd}td:first-child,th:first-child{text-align:left}
pre{overflow-x:auto;font-size:11px}
svg{display:block;max-width:100%}svg text{font:12px system-ui,sans-serif}dt{font-weight:600}dd{margin:0 0 .4rem 1rem}
.key span{display:inline-block;width:.8rem;height:.8rem;margin:0 .3rem 0 1rem}"""


def bars(outcome, question, unit):
    """Medians as bars, with a line from the lowest to the highest round. Times on a logarithmic scale where the longest
    is more than 30 times the shortest, which is said."""
    rows = [(one, outcome.figures(one.name, question, unit)) for one in outcome.section.contestants]
    rows = [(one, figures) for one, figures in rows if figures and max(figures) > 0]
    if not rows:
        return ""
    low = min(min(figure for figure in figures if figure > 0) for _, figures in rows)
    high = max(max(figures) for _, figures in rows)
    logarithmic = high > 30 * low

    def x(figure):
        if logarithmic:
            return BAR * (math.log(max(figure, low) / low) + 0.3) / (math.log(high / low) + 0.3)
        return BAR * figure / high

    scale = ", logarithmic" if logarithmic else ""
    better = "more is better" if unit in sums.MORE_IS_BETTER else "less is better"
    title = f"{sums.question_name(question)}: {sums.UNITS[unit]}, {better}{scale}"
    height = ROW * len(rows) + 6
    parts = [f'<h3>{escape(title)}</h3><svg role="img" aria-label="{escape(title)}" width="{LABEL + BAR + 130}" '
             f'height="{height}" viewBox="0 0 {LABEL + BAR + 130} {height}">']
    for index, (one, figures) in enumerate(rows):
        top = index * ROW + 3
        middle = sums.median(figures)
        colour = COLOURS.get(one.kind, OTHER_COLOUR)
        mark = " noisy" if (one.name, question, unit) in outcome.noisy else ""
        parts.append(f'<text x="{LABEL - 8}" y="{top + 13}" text-anchor="end">{escape(one.name)}</text>'
                     f'<rect x="{LABEL}" y="{top}" width="{max(1.0, x(middle)):.1f}" height="{ROW - 5}" '
                     f'fill="{colour}"/>'
                     f'<line x1="{LABEL + x(min(figures)):.1f}" x2="{LABEL + x(max(figures)):.1f}" y1="{top + 7.5}" '
                     f'y2="{top + 7.5}" stroke="#000"/>'
                     f'<text x="{LABEL + max(x(middle), x(max(figures))) + 6:.1f}" y="{top + 13}">'
                     f'{escape(sums.shown(middle, unit) + mark)}</text>')
    return "".join(parts) + "</svg>"


def _goals(verdicts):
    rows = []
    for verdict in verdicts:
        if verdict.state == goals.ABSENT:
            continue
        rows.append(f"<tr><td>{escape(verdict.goal.name)}</td><td>{escape(verdict.goal.ours)}</td>"
                    f"<td>{escape(verdict.against)}</td><td>{verdict.goal.sense} {verdict.goal.bound:.3g}</td>"
                    f"<td>{verdict.ratio:.3g} ±{verdict.spread / 2:.2g}</td>"
                    f'<td style="color:{STATE_COLOURS[verdict.state]}">{escape(verdict.state)}</td></tr>')
    if not rows:
        return ""
    return "<h2>Goals</h2><p>Ours divided by the other, median of the ratios of each round.</p><table><tr>" \
           "<th>work</th><th>ours</th><th>against</th><th>wanted</th><th>ratio</th><th></th></tr>" + "".join(rows) + \
           "</table>"


def _notes(report):
    yield "<h2>Who, and what the figures mean</h2><dl>"
    for one in report.present:
        about = ", ".join(part for part in (report.versions.get(one.name), one.flags) if part)
        yield f"<dt>{escape(one.name)}</dt><dd>{escape(about)}<br>{escape(one.meaning)}</dd>"
    for what, list_of in (("skipped", report.skipped), ("failed", report.failed)):
        for name, why in list_of.items():
            yield f"<dt>{escape(name)}</dt><dd>{what}: {escape(why)}</dd>"
    yield "</dl>"


def page(report, judged, article_lines=()):
    machine = report.machine
    parts = ['<!doctype html><html lang="en"><meta charset="utf-8">'
             '<meta name="viewport" content="width=device-width, initial-scale=1"><title>HIXL beside others</title>'
             f"<style>{STYLE}</style><h1>HIXL beside others</h1>",
             f"<p>Commit {escape(machine['commit'])} on {escape(machine['processor'])}, {machine['cores']} cores, "
             f"Linux {escape(machine['kernel'])}. {report.rounds} rounds, each contestant in turn; bars are medians, "
             f"lines go from the lowest round to the highest. Pinning: {escape(machine.get('pinning', 'none'))}. "
             f"{report.noisy} cells lay more than {report.noise:.0%} apart.</p>",
             '<p class="key">', *(f'<span style="background:{colour}"></span>{kind}' for kind, colour in (
                 ("HIXL", COLOURS[OURS]), ("one-sided peers", COLOURS[PEER]), ("others", OTHER_COLOUR),
                 ("limits of the machine", COLOURS[LIMIT]))), "</p>"]
    if judged:
        parts.append(_goals(report.verdicts))
    if article_lines:
        parts.append("<h2>The articles</h2><pre>" + escape("\n".join(article_lines)) + "</pre>")
    for outcome in report.outcomes.values():
        parts.append(f"<h2>{escape(outcome.section.title)}</h2>")
        parts += [bars(outcome, question, unit) for question, unit in outcome.section.cells]
    parts += _notes(report)
    return "".join(parts) + "</html>"
