#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Parts of bench/compare alone, with made contestants: compare_test.py BENCH_FOLDER [TEST ...]"""

import contextlib
import io
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

sys.dont_write_bytecode = True  # The sources may be read-only, and the tree stays clean.

HERE = os.path.dirname(os.path.abspath(__file__))
BENCH = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "..", "..", "bench")
sys.path.insert(0, BENCH)

from compare_parts import articles, child, field, goals, install, main, report, rounds, table  # noqa: E402
from compare_parts.contestant import LIMIT, OURS, PEER, Contestant, Tools  # noqa: E402

QUESTION = "put:8"


def python(code):
    return [sys.executable, "-c", code]


def made(name, kind, figures, missing=None):
    """Gives one of `figures` each time it is asked, over again; an exception is raised."""
    asked = []

    def ask(tools, questions):
        figure = figures[len(asked) % len(figures)]
        asked.append(questions)
        if isinstance(figure, Exception):
            raise figure
        return {question: {"us": figure} for question in questions}
    one = Contestant(name, kind, ask, lambda tools: missing)
    return one, asked


def section(*contestants):
    return field.Section("window-small", "made up", ((QUESTION, "us"),), (QUESTION,), contestants)


def tools():
    return Tools("/nowhere", "/nowhere", "/nowhere")


class Children(unittest.TestCase):
    def test_one_that_hangs_is_stopped_with_all_that_it_started(self):
        with tempfile.TemporaryDirectory() as folder:
            alive = os.path.join(folder, "alive")
            os.mkfifo(alive)
            reader = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)
            code = f"import os, signal; open({alive!r}, 'wb', 0).write(b'x') if os.fork() else None; " \
                   f"hold = open({alive!r}, 'wb', 0); print('so far', flush=True); signal.pause()"
            with self.assertRaisesRegex(child.Failed, "was stopped after its 1 s"):
                child.run(python(code), 1)
            self.assertIn(b"x", os.read(reader, 16))
            # Readable now only by its end, that is when nobody holds it any more.
            self.assertTrue(select.select([reader], [], [], 20)[0], "somebody still holds the pipe")
            self.assertEqual(os.read(reader, 16), b"")
            os.close(reader)

    def test_nobody_outlives_a_run_that_is_ended(self):
        begin = f"import sys; sys.path.insert(0, {BENCH!r}); sys.dont_write_bytecode = True; " \
            "from compare_parts import child, main; import signal; signal.signal(signal.SIGTERM, main._stop); "
        for number in signal.SIGTERM, signal.SIGKILL:
            with tempfile.TemporaryDirectory() as folder:
                alive = os.path.join(folder, "alive")
                os.mkfifo(alive)
                reader = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)
                hangs = f"import signal; held = open({alive!r}, 'wb', 0); held.write(b'x'); signal.pause()"
                run = subprocess.Popen(python(begin + f"child.run([sys.executable, '-c', {hangs!r}], 60)"))
                self.assertTrue(select.select([reader], [], [], 20)[0], "it does not begin")
                self.assertEqual(os.read(reader, 16), b"x")
                run.send_signal(number)
                run.wait(20)
                self.assertTrue(select.select([reader], [], [], 20)[0], "the program lives on")
                self.assertEqual(os.read(reader, 16), b"")
                os.close(reader)

    def test_one_that_crashes_says_how_and_its_last_words(self):
        with self.assertRaisesRegex(child.Failed, "signal 6.*the reason"):
            child.run(python("import os, sys; print('the reason', file=sys.stderr, flush=True); os.abort()"), 30)
        with self.assertRaisesRegex(child.Failed, "exit code 3: it said nothing"):
            child.run(python("raise SystemExit(3)"), 30)

    def test_one_that_is_not_there(self):
        with self.assertRaisesRegex(child.Failed, "cannot be started: No such file"):
            child.run(["/nowhere/program"], 1)

    def test_one_that_prints_without_end(self):
        with self.assertRaisesRegex(child.Failed, "more than"):
            child.run(python(f"print('x' * {child.OUTPUT_MAX + 1})"), 30)

    def test_one_that_found_wrong_bytes(self):
        with self.assertRaises(child.WrongBytes):
            child.run(python(f"raise SystemExit({child.WRONG_BYTES})"), 30)

    def test_a_server_that_ends_before_it_listens(self):
        with self.assertRaisesRegex(child.Failed, "ended with 4 before it listened"):
            with child.server(python("raise SystemExit(4)"), lambda: False, 30):
                self.fail("it was taken to listen")

    def test_a_server_that_never_listens(self):
        with self.assertRaisesRegex(child.Failed, "does not listen after 0.2 s"):
            with child.server(python("import signal; signal.pause()"), lambda: False, 0.2):
                self.fail("it was taken to listen")


class Rounds(unittest.TestCase):
    def test_contestants_take_turns(self):
        order = []
        names = ["a", "b", "c"]

        def asked(name):
            return lambda tools, questions: order.append(name) or {question: {"us": 1} for question in questions}
        contestants = [Contestant(name, OURS, asked(name), lambda tools: None) for name in names]
        rounds.run(section(*contestants), contestants, tools(), 3)
        self.assertEqual(order, ["a", "b", "c", "b", "c", "a", "c", "a", "b"])

    def test_who_is_absent_is_named_with_what_would_help(self):
        one, asked = made("a", PEER, [1], missing="no a: apt-get install a")
        outcome = rounds.run(section(one), [one], tools(), 5)
        self.assertEqual(outcome.skipped, {"a": "no a: apt-get install a"})
        self.assertEqual(asked, [])

    def test_who_fails_is_reported_and_the_others_go_on(self):
        bad, asked = made("bad", PEER, [1, child.Failed("it hung")])
        good, _ = made("good", OURS, [2])
        outcome = rounds.run(section(bad, good), [bad, good], tools(), 5)
        self.assertEqual(outcome.failed, {"bad": "it hung"})
        self.assertEqual(len(asked), 2)
        self.assertEqual(outcome.figures("bad", QUESTION, "us"), [])
        self.assertEqual(outcome.figures("good", QUESTION, "us"), [2] * 5)

    def test_a_noisy_run_is_repeated_with_all(self):
        noisy, _ = made("noisy", PEER, [1, 2, 3, 4, 5, 7, 7, 7, 7, 7])
        calm, asked = made("calm", OURS, [1])
        said = []
        outcome = rounds.run(section(noisy, calm), [noisy, calm], tools(), 5, said.append)
        self.assertEqual(outcome.figures("noisy", QUESTION, "us"), [7] * 5)
        self.assertEqual(len(asked), 10)
        self.assertEqual(outcome.noisy, [])
        self.assertEqual(len(outcome.discarded), 2)
        self.assertTrue(any("noisy" in text and "measured again" in text for text in said))

    def test_what_stays_noisy_is_said(self):
        noisy, asked = made("HIXL", OURS, [1, 2, 3, 4, 5])
        outcome = rounds.run(section(noisy), [noisy], tools(), 5)
        self.assertEqual(len(asked), 5 * (1 + rounds.REPEATS))
        self.assertEqual(outcome.noisy, [("HIXL", QUESTION, "us")])
        self.assertIn("noisy", "\n".join(table.section_lines(outcome)))

    def test_wrong_bytes_of_anybody_end_the_whole_run(self):
        wrong, _ = made("wrong", PEER, [child.WrongBytes("put:8")])
        good, _ = made("good", OURS, [1])
        with self.assertRaises(child.WrongBytes):
            rounds.run(section(good, wrong), [good, wrong], tools(), 5)


class Goals(unittest.TestCase):
    def verdict(self, ours, peer, sense, bound):
        one, _ = made("HIXL", OURS, ours)
        other, _ = made("other", PEER, peer)
        slow, _ = made("slow", PEER, [1000])
        limit, _ = made("limit", LIMIT, [0.001])
        all_of = section(one, other, slow, limit)
        outcome = rounds.run(all_of, list(all_of.contestants), tools(), 5, repeats=0)
        goal = goals.Goal("window-small", QUESTION, "us", goals.BEST_PEER, sense, bound)
        kinds = {contestant.name: contestant.kind for contestant in all_of.contestants}
        return goals.judge(goal, {"window-small": outcome}, kinds)

    def test_the_best_peer_is_neither_the_slow_one_nor_a_limit(self):
        verdict = self.verdict([1], [2], goals.AT_MOST, 1.0)
        self.assertEqual((verdict.against, verdict.ratio, verdict.state), ("other", 0.5, goals.MET))

    def test_a_goal_is_missed_only_beyond_the_spread(self):
        self.assertEqual(self.verdict([2], [1], goals.AT_MOST, 1.0).state, goals.MISSED)
        self.assertEqual(self.verdict([1], [2], goals.AT_LEAST, 1.0).state, goals.MISSED)
        self.assertEqual(self.verdict([2], [1], goals.AT_LEAST, 1.0).state, goals.MET)
        self.assertEqual(self.verdict([1.0, 1.1, 1.2, 1.3, 1.4], [1], goals.AT_MOST, 1.1).state, goals.WITHIN)

    def test_what_nobody_measured_is_not_met(self):
        goal = goals.Goal("window-small", QUESTION, "us", goals.BEST_PEER, goals.AT_MOST, 1)
        self.assertEqual(goals.judge(goal, {}, {}).state, goals.ABSENT)

    def test_the_page_has_the_goals_that_are_judged(self):
        with open(os.path.join(BENCH, "..", "docs", "performance.md"), encoding="utf-8") as file:
            page = file.read()
        table_of = page.partition("| work | ours | against | goal |\n|---|---|---|---|\n")[2].partition("\n\n")[0]
        self.assertEqual(table_of.split("\n"), list(goals.rows()))
        for what, command in goals.ELSEWHERE:
            self.assertIn(f"| {what} | `{command}` |", page)

    def test_every_goal_names_a_question_and_contestants_that_there_are(self):
        self.assertEqual(list(goals.unknown_names(field.sections())), [])
        for each in field.sections():
            names = [one.name for one in each.contestants]
            self.assertEqual(len(names), len(set(names)), each.key)
            self.assertTrue(set(each.quick) <= {question for question, _ in each.cells}, each.key)


class Articles(unittest.TestCase):
    def outcome(self, unit, **figures):
        """Of the first row with that unit."""
        row = next(row for row in articles.ROWS if row.unit == unit)
        contestants = [Contestant(name.replace("_", ", "), LIMIT if name.startswith("memcpy") else OURS, None, None)
                       for name in figures]
        cells = {(one.name, row.question): rounds.Cell({unit: figures[one.name.replace(", ", "_")]})
                 for one in contestants}
        return row, rounds.Outcome(field.Section(row.section, "", (), (), tuple(contestants)), cells)

    def test_factors_are_how_many_times_better(self):
        row, outcome = self.outcome("us", HIXL=[2, 4], other=[10, 40])
        self.assertEqual(articles.factor(outcome, row, "HIXL", "other"), 7.5)
        row, outcome = self.outcome("gbps", HIXL=[10], other=[4])
        self.assertEqual(articles.factor(outcome, row, "HIXL", "other"), 2.5)
        self.assertIsNone(articles.factor(outcome, row, "HIXL", "nobody"))

    def test_no_memory_in_between_is_no_infinite_factor(self):
        row, outcome = self.outcome("staging_bytes", HIXL=[0], other=[8192])
        self.assertEqual(articles.factor(outcome, row, "HIXL", "other"), 2)

    def test_a_factor_that_the_machine_forbids_is_told_from_one_that_we_miss(self):
        row, _ = self.outcome("us")
        self.assertEqual(articles.verdict(row, row.factor, 1), "reached")
        self.assertEqual(articles.verdict(row, row.factor / 2, row.factor * 2), "not reached")
        self.assertIn("its limit gives", articles.verdict(row, row.factor / 2, row.factor / 1.5))

    def test_the_limit_is_the_best_that_the_bare_machine_does(self):
        row = next(row for row in articles.ROWS if row.unit == "us")
        figures = {"HIXL": [2], "memcpy": [1], "memcpy_two": [4], row.against[0].replace(", ", "_"): [8]}
        _, outcome = self.outcome("us", **figures)
        (cells,) = articles.rows_of({row.section: outcome})
        self.assertEqual((cells["hccs"], cells["limit"], cells["limit_name"]), (4, 8, "memcpy"))
        self.assertIsNone(cells["tcp"])

    def test_every_row_names_what_is_measured(self):
        sections = {each.key: each for each in articles.sections()}
        for row in articles.ROWS:
            names = {one.name for one in sections[row.section].contestants}
            self.assertIn(row.question, [question for question, _ in sections[row.section].cells])
            self.assertTrue({articles.NEAR, articles.FAR, *row.against} <= names, row)


class Install(unittest.TestCase):
    def test_what_fails_is_said(self):
        errors = io.StringIO()
        with tempfile.NamedTemporaryFile() as file, contextlib.redirect_stderr(errors):
            self.assertEqual(install.install(os.path.join(file.name, "venv")), 1)
        self.assertIn("cannot be made", errors.getvalue())

    def test_what_is_asked_for(self):
        asked = []
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as out, \
                mock.patch.object(child, "run", lambda argv, patience: asked.append(argv)), \
                mock.patch.object(install.venv, "create", lambda place, with_pip: None):
            self.assertEqual(install.install(folder), 0)
        self.assertIn("nixl-cu12", asked[1])
        self.assertIn("--no-deps", asked[1])
        self.assertIn("apt-get install", out.getvalue())


class Command(unittest.TestCase):
    def run_main(self, *contestants, arguments=()):
        out, errors = io.StringIO(), io.StringIO()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "new", "rows.json")
            page = os.path.join(folder, "report", "index.html")
            with mock.patch.object(field, "sections", lambda: [section(*contestants)]), \
                    mock.patch.object(report, "machine", lambda tools: {
                        "commit": "c", "processor": "p", "cores": 2, "kernel": "k"}), \
                    contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
                code = main.main(["--json", path, "--build", folder, *arguments])
            written = None
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    written = json.load(file)
                with open(page, encoding="utf-8") as file:
                    self.page = file.read()
        return code, out.getvalue(), errors.getvalue(), written

    def test_a_table_with_ratios_and_a_file_with_all_rounds(self):
        ours, _ = made("HIXL", OURS, [1])
        other, _ = made("UCX", PEER, [2, 2, 2, 2, 3])
        absent, _ = made("NIXL <0>", PEER, [1], missing="no wheel")
        code, out, errors, written = self.run_main(ours, other, absent)
        self.assertEqual((code, errors), (0, "bench/compare: window-small\n"))
        self.assertIn("(0.5)", out)
        self.assertIn("skipped: NIXL <0>: no wheel", out)
        cells = {cell["contestant"]: cell["rounds"]["us"] for cell in written["sections"][0]["cells"]}
        self.assertEqual(cells, {"HIXL": [1] * 5, "UCX": [2, 2, 2, 2, 3]})
        self.assertEqual(next(goal for goal in written["goals"] if goal["state"] == goals.MET)["ratio"], 0.5)
        # The page stands alone, and what programs say of themselves is text in it.
        for part in ("<svg", "UCX", "2 µs", "NIXL &lt;0&gt;", "window-small: 8 B"):
            self.assertIn(part, self.page)
        for part in ("<script", "src=", "http", "@import", "url(", "NIXL <0>"):
            self.assertNotIn(part, self.page)

    def test_names_with_blanks_and_commas(self):
        names = {"HIXL", "UCX", "UCX, best flags", "MPI"}
        for text, found in (("UCX", ["UCX"]), (" UCX , MPI", ["UCX", "MPI"]),
                            ("UCX,best flags,MPI", ["UCX, best flags", "MPI"]),
                            ("MPI, UCX, best flags", ["MPI", "UCX, best flags"]), ("best flags", ["best flags"])):
            self.assertEqual(main._contestants(text, names), found)
        ours, _ = made("HIXL", OURS, [1])
        other, _ = made("UCX, best flags", PEER, [2])
        code, out, _, _ = self.run_main(ours, other, arguments=["--only", " UCX , best flags "])
        self.assertEqual(code, 0)
        self.assertIn("UCX", out)

    def test_what_cannot_be_written_is_found_before_anything_is_measured(self):
        with tempfile.TemporaryDirectory() as folder:
            ours, _ = made("HIXL", OURS, [1])
            for option in ("--page", "--json"):
                for path in (folder, "/dev/null/file"):
                    with mock.patch.object(main, "measure", lambda *_, **__: self.fail("measured")):
                        code, _, errors, _ = self.run_main(ours, arguments=[option, path])
                    self.assertEqual(code, main.EXIT_USAGE)
                    self.assertIn(f"{option} {path} cannot be written: ", errors)
            kept = os.path.join(folder, "kept")
            with open(kept, "w", encoding="utf-8") as file:
                file.write("old")
            self.assertIsNone(main._unwritable(kept))
            self.assertIsNone(main._unwritable(os.path.join(folder, "new")))
            self.assertEqual(os.listdir(folder), ["kept"])
            with open(kept, encoding="utf-8") as file:
                self.assertEqual(file.read(), "old")

    def test_check_fails_when_a_goal_is_missed(self):
        ours, _ = made("HIXL", OURS, [3])
        other, _ = made("UCX", PEER, [2])
        self.assertEqual(self.run_main(ours, other)[0], 0)
        code, _, errors, written = self.run_main(ours, other, arguments=["--check"])
        self.assertEqual(code, main.EXIT_MISSED)
        self.assertIn("1 goals missed: window-small: 8 B", errors)
        self.assertEqual(self.run_main(other, *[made("HIXL", OURS, [1])[0]], arguments=["--check"])[0], 0)

    def test_wrong_bytes_are_an_exit_code_of_their_own_and_no_table(self):
        ours, _ = made("HIXL", OURS, [1])
        wrong, _ = made("UCX", PEER, [child.WrongBytes("put:8 of UCX")])
        code, out, errors, written = self.run_main(ours, wrong)
        self.assertEqual((code, out, written), (main.EXIT_WRONG_BYTES, "", None))
        self.assertIn("put:8 of UCX", errors)

    def test_the_library_must_be_measured(self):
        ours, _ = made("HIXL", OURS, [1], missing="not built")
        code, _, errors, _ = self.run_main(ours)
        self.assertEqual(code, main.EXIT_BROKEN)
        self.assertIn("not built", errors)

    def test_a_wrong_command_line(self):
        ours, _ = made("HIXL", OURS, [1])
        for arguments, text in ((["--sections", "all"], "--sections all: there is window-small"),
                                (["--only", "UCX"], "--only UCX: there is HIXL"), (["--rounds", "0"], "1 to 100"),
                                (["--only", ","], "--only with an empty name: there is HIXL"),
                                (["--only", ""], "--only with an empty name"), (["--only", "HIXL,"], "an empty name"),
                                (["--sections", ","], "--sections : there is window-small"),
                                (["--patience", "0"], "0.1 to 3600"), (["--quick", "--check"], "too little to judge")):
            errors = io.StringIO()
            with self.assertRaises(SystemExit) as end, contextlib.redirect_stderr(errors), \
                    mock.patch.object(field, "sections", lambda: [section(ours)]):
                main.main(arguments)
            self.assertEqual(end.exception.code, main.EXIT_USAGE)
            self.assertIn(text, " ".join(errors.getvalue().split()))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
