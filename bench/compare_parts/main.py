# SPDX-License-Identifier: Apache-2.0
"""The command line of bench/compare."""

import argparse
import os
import signal
import sys
import tempfile

from . import articles, child, field, goals, install, page, report, rounds, table
from .contestant import Tools

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
EXIT_MISSED, EXIT_USAGE, EXIT_BROKEN, EXIT_WRONG_BYTES = 1, 2, 3, 65
TEXT = """Runs the library beside others and beside what the machine gives: each in turn, five rounds, medians and
spread. Whoever is not installed is skipped, with the command that would help. Processes are not pinned: all may
use all cores. Exit code: 0; 1 with --check when a goal is missed beyond the spread; 2 for a wrong command line; 3 when
the library itself could not be measured; 65 when anybody found other bytes than were sent."""


def _contestants(text, names):
    """Those that `text` lists. A comma stands between them and within "UCX, best flags", so the longest name wins."""
    parts = [part.strip() for part in text.split(",")]
    found = []
    while parts:
        sizes = [size for size in range(len(parts), 0, -1) if ", ".join(parts[:size]) in names]
        size = sizes[0] if sizes else 1
        found.append(", ".join(parts[:size]))
        del parts[:size]
    return found


def _arguments(argv):
    keys = [section.key for section in field.sections()]
    parser = argparse.ArgumentParser(prog="bench/compare", description=TEXT)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="build directory; default build/")
    parser.add_argument("--venv", help="where the wheels of others are; default compare-venv in the build directory")
    parser.add_argument("--sections", default=",".join(keys), help=f"comma list of: {', '.join(keys)}")
    parser.add_argument("--only", help="comma list of contestants, beside the library itself")
    parser.add_argument("--rounds", type=int, default=5, help="of each contestant, 1 to 100")
    parser.add_argument("--patience", type=float, default=60, metavar="SECONDS", help="of one program of one round")
    parser.add_argument("--json", metavar="FILE", help="all rounds of all, and the goals; default "
                        "report/compare.json in the build directory")
    parser.add_argument("--page", metavar="FILE", help="the same to look at; default report/index.html in the build "
                        "directory")
    parser.add_argument("--articles", action="store_true", help="the rows of the articles instead of the sections")
    parser.add_argument("--install", action="store_true", help="make the environment of the wheels, and end")
    parser.add_argument("--quick", action="store_true", help="a smoke run: one short round, ratios are not judged")
    parser.add_argument("--check", action="store_true", help="exit code 1 when a goal is missed beyond the spread")
    arguments = parser.parse_args(argv)
    wanted = [key.strip() for key in arguments.sections.split(",")]
    unknown = [key for key in wanted if key not in keys]
    if unknown:
        parser.error(f"--sections {unknown[0]}: there is {', '.join(keys)}")
    names = {one.name for section in field.sections() for one in section.contestants}
    arguments.only = _contestants(arguments.only, names) if arguments.only is not None else []
    unknown = [name for name in arguments.only if name not in names]
    if unknown:
        parser.error(f"--only {unknown[0] or 'with an empty name'}: there is {'; '.join(sorted(names))}")
    if not 1 <= arguments.rounds <= 100:
        parser.error(f"--rounds {arguments.rounds}: 1 to 100")
    if not 0.1 <= arguments.patience <= 3600:
        parser.error(f"--patience {arguments.patience:g}: 0.1 to 3600 seconds")
    if arguments.quick and arguments.check:
        parser.error("--quick measures too little to judge; leave --check or --quick out")
    if arguments.articles and arguments.check:
        parser.error("--check judges the sections; leave --articles or --check out")
    return arguments, wanted


def _unwritable(path):
    """Why nothing can be written there; None: it can. A file that is there keeps what it has."""
    new = not os.path.exists(path)
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        with open(path, "a", encoding="utf-8"):
            pass
        if new:
            os.remove(path)
    except OSError as error:
        return error.strerror
    return None


def _write(path, text):
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text + "\n")


def _say(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def _say_section(section):
    """In a log a run of many minutes shows where it is."""
    if not sys.stderr.isatty():
        print(f"bench/compare: {section.key}", file=sys.stderr, flush=True)


def measure(sections, tools, count, say=_say, quick=False):
    """The report of all sections. WrongBytes when anybody found other bytes than were sent."""
    whole = report.Report(report.machine(tools), count)
    for section in sections:
        _say_section(section)
        outcome = rounds.run(section, list(section.contestants), tools, count,
                             lambda text, key=section.key: say(f"{key}: {text}"), 0 if quick else rounds.REPEATS)
        whole.add(outcome, tools)
    say("")
    return whole


def _stop(number, _):
    """As an exception, so that every program that runs is ended, and files are removed."""
    sys.exit(128 + number)


def main(argv):
    signal.signal(signal.SIGTERM, _stop)
    arguments, wanted = _arguments(argv)
    sections = [section for section in field.sections() if section.key in wanted]
    if arguments.articles:
        sections = articles.sections()
    elif arguments.quick:
        sections = [section for section in map(field.quick, sections) if section]
    if arguments.only:
        sections = [field.reduced(section, arguments.only) for section in sections]
    build = os.path.abspath(arguments.build)
    venv = os.path.abspath(arguments.venv or os.path.join(build, "compare-venv"))
    if arguments.install:
        return install.install(venv)
    page_path = arguments.page or os.path.join(build, "report", "index.html")
    json_path = arguments.json or os.path.join(build, "report", "compare.json")
    for option, path in (("--page", page_path), ("--json", json_path)):  # before minutes of measuring, not after
        why = _unwritable(path)
        if why is not None:
            print(f"bench/compare: {option} {path} cannot be written: {why}", file=sys.stderr)
            return EXIT_USAGE
    with tempfile.TemporaryDirectory(prefix="hixl-compare-") as scratch:
        tools = Tools(build, venv, scratch, patience_s=arguments.patience)
        count = arguments.rounds
        if arguments.quick:
            tools.rounds, tools.megabytes, count = 100, 4, 1
        try:
            whole = measure(sections, tools, count, quick=arguments.quick)
        except child.WrongBytes as error:
            print(f"bench/compare: wrong bytes, and so no figure of this run counts: {error}", file=sys.stderr)
            return EXIT_WRONG_BYTES
    judged = not arguments.quick and not arguments.articles
    rows = list(articles.lines(whole.outcomes, table.grid)) if arguments.articles else []
    print("\n".join([*table.lines(whole, judged), *([""] if rows else []), *rows]))
    _write(page_path, page.page(whole, judged, rows))
    _write(json_path, whole.json())
    lost = {name: why for name, why in {**whole.skipped, **whole.failed}.items() if name.startswith("HIXL")}
    if lost:
        print("bench/compare: the library itself could not be measured: " + "; ".join(lost.values()), file=sys.stderr)
        return EXIT_BROKEN
    missed = [verdict for verdict in whole.verdicts if verdict.state == goals.MISSED]
    if arguments.check and missed:
        print(f"bench/compare: {len(missed)} goals missed: " + "; ".join(verdict.goal.name for verdict in missed),
              file=sys.stderr)
        return EXIT_MISSED
    return 0
