# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of rounds: medians, spreads, ratios."""

import statistics

MORE_IS_BETTER = ("gbps",)
UNITS = {"us": "µs", "p99_us": "µs, 99 of 100", "p999_us": "µs, 999 of 1000", "held_us": "µs, sender held",
         "gbps": "GB/s", "cpu_s_gb": "CPU s/GB", "staging_bytes": "bytes"}


def median(figures):
    return statistics.median(figures)


def spread(figures):
    """How far apart rounds lie, as a share of their median: the range without the lowest and the highest of five or
    more, since one round in five meets somebody else's work. 0 for one round, of which nothing is known."""
    ordered = sorted(figures)
    if len(ordered) >= 5:
        ordered = ordered[1:-1]
    middle = statistics.median(ordered)
    return (ordered[-1] - ordered[0]) / middle if middle > 0 else 0.0


def ratios(ours, others):
    """Round by round, since both met the same machine in the same round."""
    return [mine / theirs for mine, theirs in zip(ours, others) if theirs > 0]


def best(unit, results):
    """The name whose median is best, or None. results: name -> figures."""
    known = {name: median(figures) for name, figures in results.items() if figures}
    if not known:
        return None
    return (max if unit in MORE_IS_BETTER else min)(known, key=known.get)


def shown(figure, unit):
    """A figure with three digits that count."""
    if unit == "staging_bytes":
        for name, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
            if figure >= size:
                return f"{figure / size:.3g} {name}"
        return f"{figure:.0f} B"
    if unit.endswith("us") and figure >= 1000:
        return f"{figure / 1000:.3g} ms" if figure < 1e6 else f"{figure / 1e6:.3g} s"
    if unit == "gbps" and 0 < figure < 0.1:
        return f"{figure * 1000:.3g} MB/s"
    digits = f"{figure:.3g}" if figure < 1000 else f"{figure:.0f}"
    return f"{digits} {UNITS[unit].partition(',')[0]}"


def size_name(size):
    for name, unit in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def question_name(question):
    what, *numbers = question.split(":")
    size = size_name(int(numbers[0])) if numbers else ""
    count = numbers[1] if len(numbers) > 1 else ""
    return {"put": size, "flight": f"{size}, {count} in flight", "batch": f"{count} × {size}",
            "streams": f"{count} streams of {size}", "gather": f"gather {size}", "post": f"{size}, one of {count}",
            "barrier": f"{''.join(numbers[:1])} ranks"}.get(what, question)
