# SPDX-License-Identifier: Apache-2.0
"""The programs of samples/, run as their headers say, and what they print."""

import os
import re
import socket
import subprocess
import sys
import tempfile
import unittest

from support import TIMEOUT_S, needs_numpy

SAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "samples")
PAGE = os.path.join(SAMPLES, "..", "docs", "python.md")
HIXL_RUN = os.environ.get("HIXL_RUN", "")


def run(*command):
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=TIMEOUT_S,
                          check=False)
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def run_ranks(ranks, name):
    return run(HIXL_RUN, "-n", str(ranks), sys.executable, os.path.join(SAMPLES, name))


@unittest.skipUnless(HIXL_RUN, "HIXL_RUN does not name the launcher")
class Ranks(unittest.TestCase):
    def test_hello(self):
        for ranks in (1, 2, 5):
            # Lines of ranks that print at the same time may lie in one another's end.
            said = re.findall(r"rank \d got: hello from rank \d", run_ranks(ranks, "hello.py"))
            self.assertEqual(sorted(said), [f"rank {rank} got: hello from rank {(rank - 1) % ranks}"
                                            for rank in range(ranks)])

    def test_asyncio(self):
        said = run_ranks(3, "hello_asyncio.py")
        total = sum(i * i for i in range(1000))
        for line in (f"rank 1 added {total} to a multiple of it: True",
                     f"rank 2 added {total} to a multiple of it: True", f"together: {2 * total}"):
            self.assertIn(line, said)

    def test_overlap(self):
        said = run_ranks(2, "overlap.py")
        self.assertIn("16 of 16 layers are right", said)
        self.assertRegex(said, r"computed \d+\.\d+ s, waited for transfers \d+\.\d+ s")


@unittest.skipUnless(HIXL_RUN, "HIXL_RUN does not name the launcher")
class Page(unittest.TestCase):
    def test_from_nothing_to_a_put(self):
        """The first program of docs/python.md, as it is written there."""
        with open(PAGE, encoding="utf-8") as page:
            program = re.search(r"## From nothing to a put\n\n```python\n(.*?)```", page.read(), re.S).group(1)
        with tempfile.NamedTemporaryFile("w", suffix=".py", encoding="utf-8") as file:
            file.write(program)
            file.flush()
            said = run(HIXL_RUN, "-n", "2", sys.executable, file.name)
        self.assertEqual(said.count("b'hello'"), 2, said)


class Articles(unittest.TestCase):
    @needs_numpy
    def test_validate(self):
        for attempt in range(3):  # the port was free a moment ago; somebody else may have it now
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            try:
                said = run(sys.executable, os.path.join(SAMPLES, "articles", "validate.py"), str(port))
                break
            except AssertionError:
                if attempt == 2:
                    raise
        self.assertRegex(said, r"^validated over tcp; \d+ intermediate copies\n$")

    def test_prefill_decode(self):
        said = run(sys.executable, os.path.join(SAMPLES, "articles", "prefill_decode.py"))
        lines = [f"layer {index}: 262144 bytes, right" for index in range(8)]
        self.assertEqual(said.splitlines(), lines + ["all layers have arrived"])


class Short(unittest.TestCase):
    def test_each_is_short(self):
        for folder in (SAMPLES, os.path.join(SAMPLES, "articles")):
            for name in os.listdir(folder):
                if name.endswith(".py"):
                    with open(os.path.join(folder, name), encoding="utf-8") as file:
                        text = file.read()
                    self.assertLess(text.count("\n"), 80, name)
                    self.assertTrue(re.match(r"# SPDX", text), name)


if __name__ == "__main__":
    unittest.main()
