# SPDX-License-Identifier: Apache-2.0
"""What the tests of hixl_diag share: running it, the answering side, and hosts with networks of their own."""

import json
import os
import re
import subprocess
import sys
import unittest

TIMEOUT_S = 60
PROGRAM = os.path.abspath(sys.argv[1])
LAUNCHER = os.path.abspath(sys.argv[2])
QUIET = {name: value for name, value in os.environ.items() if not name.startswith("HIXL_")}


def main():
    del sys.argv[1:3]
    unittest.main(verbosity=2)


class Ended:
    def __init__(self, run):
        self.code, self.out, self.err = run.returncode, run.stdout, run.stderr

    @property
    def json(self):
        return json.loads(self.out)

    def __repr__(self):
        return f"code {self.code}\n{self.out}\n{self.err}"


class Host:
    """This host, or, with `own`, a network of its own that vanishes with the process that keeps it."""

    def __init__(self, own=False):
        self.keeper = None
        if own:
            script = "ip link set lo up && echo ready; exec cat"
            self.keeper = subprocess.Popen(["unshare", "-n", "-m", "sh", "-c", script], stdin=subprocess.PIPE,
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            if self.keeper.stdout.readline() != "ready\n":
                why = self.keeper.communicate()[1].strip()
                raise unittest.SkipTest(f"networks of their own are not permitted here: {why}")

    def close(self):
        if self.keeper is not None:
            self.keeper.communicate()

    def inside(self, command):
        return command if self.keeper is None else ["nsenter", "-t", str(self.keeper.pid), "-n", "-m", *command]

    def run(self, script):
        return Ended(subprocess.run(self.inside(["sh", "-ec", script]), text=True, stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, timeout=TIMEOUT_S, check=False))

    def sh(self, script):
        """A part of the set-up."""
        ended = self.run(script)
        if ended.code != 0:
            raise unittest.SkipTest(f"not permitted here: {script}: {ended}")

    def connect(self, other, interface):
        """A cable; interfaces of one name at both ends."""
        self.sh(f"ip link add name {interface} type veth peer name {interface} netns {other.keeper.pid}")
        for end in (self, other):
            end.sh(f"ip link set {interface} up")


class DiagTest(unittest.TestCase):
    def host(self, own=True):
        host = Host(own)
        self.addCleanup(host.close)
        return host

    def diag(self, *arguments, on=None, env=None, prefix=()):
        command = [*prefix, PROGRAM, *map(str, arguments)]
        run = subprocess.run((on or Host()).inside(command), text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, timeout=TIMEOUT_S, check=False, env={**QUIET, **(env or {})})
        return Ended(run)

    def fails(self, stage, code, *arguments, **more):
        """It fails at this stage in both forms; the JSON one."""
        text = self.diag(*arguments, **more)
        self.assertEqual(text.code, code, text)
        self.assertIn(f"hixl_diag: {stage}: ", text.err)
        self.assertEqual(text.out, "")
        ended = self.diag(*arguments, "--json", **more)
        self.assertEqual(ended.code, code, ended)
        self.assertEqual((ended.json["ok"], ended.json["stage"]), (False, stage))
        self.assertTrue(ended.json["message"] and ended.json["remedy"])
        return ended.json

    def serve(self, *arguments, on=None, port=0, env=None):
        """An answering side; its port, and the process."""
        command = [PROGRAM, "serve", "--port", str(port), *map(str, arguments)]
        process = subprocess.Popen((on or Host()).inside(command), text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env={**QUIET, **(env or {})})
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        line = process.stdout.readline()
        found = re.search(r"answers at \S+:(\d+) ", line)
        self.assertTrue(found, line or process.stderr.read())
        return int(found.group(1)), process
