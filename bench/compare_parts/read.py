# SPDX-License-Identifier: Apache-2.0
"""What programs print, as rows: question -> {"us": …, "gbps": …}. Failed for what is not what was asked for."""

import json
import math

from .child import Failed, WrongBytes

FIGURES = ("us", "p99_us", "p999_us", "gbps", "cpu_s_gb", "staging_bytes", "held_us")


def figure(value, what):
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise Failed(f"{what} is {value!r}, and no figure")
    return float(value)


def json_rows(text, questions, who):
    """Our own programs: a JSON line a question. Other lines are passed over; a row that verified nothing is none."""
    rows = {}
    for line in text.splitlines():
        if not line.startswith("{"):
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise Failed(f"{who} printed a line that is cut short: {line[:80]}") from error
        question = row.get("question")
        if row.get("verified") is False:
            raise WrongBytes(f"{who}: {question}: the bytes at the target are not the bytes that were sent")
        if question in questions and row.get("verified"):
            rows[question] = {name: figure(row[name], f"{who}: {name} of {question}")
                              for name in FIGURES if name in row}
    missing = [question for question in questions if question not in rows]
    if missing:
        raise Failed(f"{who} gave no answer to {', '.join(missing)}")
    return rows


def bench_row(text, name):
    """The row of hixl_bench, whose figures have names of their own."""
    for line in text.splitlines():
        row = json.loads(line) if line.startswith("{") and line.endswith("}") else {}
        if row.get("bench") == name:
            if row.get("verified") is False:
                raise WrongBytes(f"hixl_bench: {name}")
            return {key: figure(value, f"hixl_bench: {key}") for key, value in row.items()
                    if key.endswith("_us") or key == "allocations"}
    raise Failed(f"hixl_bench gave no answer to {name}")


def barrier_us(text):
    """mpi_barrier: the median, in µs, alone on the last line."""
    try:
        return {"us": figure(float(text.split()[-1]), "mpi_barrier: the median")}
    except (IndexError, ValueError) as error:
        raise Failed(f"mpi_barrier printed {text.strip()[-80:]!r}") from error


def _ucx_cells(text):
    """ucx_perftest -f -v: a line of names, a line of figures."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for names, values in zip(lines, lines[1:]):
        if names.startswith("iterations,"):
            return dict(zip(names.split(","), values.split(",")))
    raise Failed(f"ucx_perftest printed no figures: {text[-200:].strip()}")


def _ucx_figure(cells, name):
    try:
        return figure(float(cells[name]), f"{name} of ucx_perftest")
    except (KeyError, ValueError) as error:
        raise Failed(f"ucx_perftest printed {cells.get(name)!r} for {name}") from error


def ucx_latency(text, size):
    """Of its tests of latency: µs."""
    latency = _ucx_figure(_ucx_cells(text), "50.0_percentile_lat")
    if latency <= 0:
        raise Failed("ucx_perftest printed a latency of 0")
    return {"us": latency, "gbps": size / (latency * 1000)}


def ucx_stream(text, size, count):
    """Of its tests of bandwidth, which do not know how long one put takes: a group of `count` takes what its bytes do.
    The bandwidth, in units of 2^20 bytes a second, has two digits behind the point: too few for small puts, of which
    the rate is precise."""
    cells = _ucx_cells(text)
    bandwidth, puts = _ucx_figure(cells, "overall_bw"), _ucx_figure(cells, "overall_mr")
    rate = bandwidth * (1 << 20) if bandwidth >= 1 else puts * size
    if rate <= 0:
        raise Failed("ucx_perftest printed a bandwidth of 0")
    return {"us": size * count / rate * 1e6, "gbps": rate * 1e-9}


def first_version(text):
    """The first word that looks like a version: Redis server v=7.0.15, memcached 1.6.18, # Version 1.13.1."""
    for word in text.replace("=", " ").split():
        digits = word.lstrip("v").rstrip(",)")
        if digits[:1].isdigit() and "." in digits:
            return digits
    return "version unknown"
