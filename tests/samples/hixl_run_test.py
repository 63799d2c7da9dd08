#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts ranks with hixl_run and looks at what became of them: hixl_run_test.py PATH_OF_hixl_run [TEST ...]"""

import os
import signal
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""
TIMEOUT_S = 60


class HixlRun(unittest.TestCase):
    def run_ranks(self, *arguments):
        return subprocess.run([PROGRAM, *arguments], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=TIMEOUT_S, check=False)

    def test_ranks_know_their_place_and_share_a_store(self):
        run = self.run_ranks("-n", "3", "sh", "-c", "echo $HIXL_RANK/$HIXL_WORLD_SIZE $HIXL_STORE $0", "-n")
        self.assertEqual(run.returncode, 0, run.stderr)
        lines = sorted(run.stdout.splitlines())
        self.assertEqual([line.split()[0] for line in lines], ["0/3", "1/3", "2/3"])
        self.assertEqual(len({line.split()[1] for line in lines}), 1)
        self.assertRegex(lines[0].split()[1], r"^tcp://127\.0\.0\.1:\d+$")
        self.assertEqual(lines[0].split()[2], "-n")  # what follows the program is the program's

    def test_the_first_failure_is_the_exit_code_and_is_named(self):
        run = self.run_ranks("-n", "3", "--grace", "0", "sh", "-c", 'test $HIXL_RANK = 1 && exit 7; exec sleep 1000')
        self.assertEqual(run.returncode, 7)
        self.assertIn("rank 1 ended with code 7", run.stderr)
        self.assertIn("rank 0 was ended by signal 15", run.stderr)

    def test_a_killed_rank_is_128_and_its_signal(self):
        run = self.run_ranks("-n", "2", "sh", "-c", 'test $HIXL_RANK = 1 && kill -9 $$; true')
        self.assertEqual(run.returncode, 128 + signal.SIGKILL)
        self.assertIn("rank 1 was ended by signal 9", run.stderr)

    def test_a_rank_that_ignores_sigterm_is_killed_in_the_end(self):
        script = """
            if [ $HIXL_RANK = 1 ]; then until [ -e $0/deaf ]; do sleep 0.05; done; exit 3; fi
            trap "" TERM; touch $0/deaf; while :; do sleep 1; done"""
        with tempfile.TemporaryDirectory() as folder:
            run = self.run_ranks("-n", "2", "--grace", "0", "sh", "-c", script, folder)
        self.assertEqual(run.returncode, 3)
        self.assertIn("rank 0 was ended by signal 9", run.stderr)

    def test_no_such_program(self):
        run = self.run_ranks("-n", "2", "--grace", "0", "/nonexistent/program")
        self.assertEqual(run.returncode, 127)
        self.assertIn("/nonexistent/program cannot be executed: No such file or directory (errno 2)", run.stderr)
        with tempfile.NamedTemporaryFile("w", suffix=".sh") as plain:  # no right to execute it
            run = self.run_ranks("-n", "1", plain.name)
        self.assertEqual(run.returncode, 127)
        self.assertIn(f"{plain.name} cannot be executed: Permission denied (errno 13)", run.stderr)

    def test_a_wrong_command_line_is_2(self):
        for arguments, words in ((("true",), "--ranks is required"), (("-n", "0", "true"), "--ranks"),
                                 (("-n", "1"), "no program given"), (("-n", "1", "--"), "no program given"),
                                 (("-n", "1", "--grace", "nan", "true"), '--grace: "nan" is not a number from 0 to')):
            with self.subTest(arguments=arguments):
                run = self.run_ranks(*arguments)
                self.assertEqual(run.returncode, 2, run)
                self.assertIn(words, run.stderr)

    def test_two_dashes_before_the_program(self):
        run = self.run_ranks("-n", "1", "--", "sh", "-c", "echo $0 $1", "--", "-n")
        self.assertEqual((run.returncode, run.stdout), (0, "-- -n\n"), run.stderr)

    def test_a_store_beyond_loopback_must_be_asked_for(self):
        run = self.run_ranks("-n", "1", "--store-host", "0.0.0.0", "true")
        self.assertEqual(run.returncode, 1)
        self.assertIn("SECURITY_REQUIRED", run.stderr)
        self.assertEqual(self.run_ranks("-n", "1", "--store-host", "0.0.0.0", "--insecure", "true").returncode, 0)

    def test_the_store_may_be_a_file_or_a_local_name(self):
        script = "echo $HIXL_STORE"
        name = f"unix:@hixl-run-test-{os.getpid()}"
        self.assertEqual(self.run_ranks("-n", "1", "--store", name, "sh", "-c", script).stdout, name + "\n")
        with tempfile.TemporaryDirectory() as folder:
            url = f"file://{folder}/ranks"
            self.assertEqual(self.run_ranks("-n", "1", "--store", url, "sh", "-c", script).stdout, url + "\n")
            self.assertEqual(os.listdir(folder), [])  # nobody of ours touched it
        run = self.run_ranks("-n", "1", "--store", "udp://nowhere", "true")
        self.assertEqual(run.returncode, 1)
        self.assertIn("udp://nowhere: INVALID_ARGUMENT", run.stderr)

    def start(self, script):
        process = subprocess.Popen([PROGRAM, "-n", "2", "--grace", "1000", "sh", "-c", script], text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        for _ in range(2):
            self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def test_signals_reach_the_ranks(self):
        process = self.start('trap "exit 5" TERM; echo ready; while :; do sleep 0.1; done')
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(TIMEOUT_S), 5)

    def test_ranks_die_with_the_launcher(self):
        process = self.start("echo ready; exec sleep 1000")
        process.kill()
        process.wait(TIMEOUT_S)
        # The pipe ends when the last process that holds it has ended: the launcher and both ranks.
        self.assertEqual(process.stdout.read(), "")


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
