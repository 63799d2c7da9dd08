#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts the smallest program as launchers do, with their variables only: launchers_test.py PATH_OF_hello [TEST ...]"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
import uuid

PROGRAM = ""
TIMEOUT_S = 60
OURS = ("HIXL_", "OMPI_", "PMIX_", "PMI_", "SLURM_", "MASTER_", "TORCHELASTIC_")
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "MPI_LOCALNRANKS")


def environment(**variables):
    """Nothing of a launcher that this test itself may stand under."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS) and name not in NAMES}
    return kept | {name: str(value) for name, value in variables.items()}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Launchers(unittest.TestCase):
    def greet(self, ranks, variables_of):
        """Runs every rank at once; their exit codes and what they said."""
        runs = [subprocess.Popen([PROGRAM], env=environment(**variables_of(rank)), text=True, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT) for rank in range(ranks)]
        try:
            said = [run.communicate(timeout=TIMEOUT_S)[0] for run in runs]
        finally:
            for run in runs:
                run.kill()
        return [run.returncode for run in runs], "".join(said)

    def check(self, ranks, variables_of):
        codes, said = self.greet(ranks, variables_of)
        self.assertEqual(codes, [0] * ranks, said)
        for rank in range(ranks):
            self.assertIn(f"rank {rank} got: hello from rank {(rank - 1) % ranks}", said)

    def test_torchrun(self):
        for _ in range(3):  # the port was free a moment ago; somebody else may have it now
            port = free_port()
            codes, said = self.greet(3, lambda rank: {
                "RANK": rank, "WORLD_SIZE": 3, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": 3, "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port % 65535 + 1, "HIXL_PORT": port})
            if "ADDRESS_IN_USE" not in said:
                break
        self.assertEqual(codes, [0, 0, 0], said)
        self.assertIn("rank 0 got: hello from rank 2", said)

    def test_slurm_on_one_node(self):
        job = uuid.uuid4().hex
        self.check(3, lambda rank: {"SLURM_PROCID": rank, "SLURM_NTASKS": 3, "SLURM_STEP_NUM_NODES": 1,
                                    "SLURM_JOB_ID": job, "SLURM_STEP_ID": 0})

    def test_pmi_on_one_node(self):
        job = uuid.uuid4().hex
        self.check(2, lambda rank: {"PMI_RANK": rank, "PMI_SIZE": 2, "MPI_LOCALNRANKS": 2, "PMI_JOBID": job})

    def test_a_file_and_no_launcher(self):
        with tempfile.TemporaryDirectory() as folder:
            store = f"file://{folder}/ranks"
            self.check(4, lambda rank: {"HIXL_RANK": rank, "HIXL_WORLD_SIZE": 4, "HIXL_STORE": store})
            self.assertEqual(os.listdir(folder), [])

    def test_contradiction_is_named(self):
        codes, said = self.greet(1, lambda rank: {"RANK": 0, "WORLD_SIZE": 2, "PMI_RANK": 1, "PMI_SIZE": 2})
        self.assertEqual(codes, [1])
        self.assertRegex(said, r"RANK=0 \(torchrun\) contradicts PMI_RANK=1 \(PMI\)")

    def test_a_world_without_a_store_says_what_to_set(self):
        codes, said = self.greet(1, lambda rank: {"SLURM_PROCID": 0, "SLURM_NTASKS": 2})
        self.assertEqual(codes, [1])
        self.assertIn("HIXL_STORE or MASTER_ADDR", said)

    def test_mpirun(self):
        mpirun = shutil.which("mpirun")
        version = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False) if mpirun else None
        if version is None or "Open MPI" not in version.stdout:
            self.skipTest("Open MPI is not installed")
        run = subprocess.run([mpirun, "--oversubscribe", "-n", "4", PROGRAM], timeout=TIMEOUT_S, check=False, text=True,
                             env=environment(OMPI_ALLOW_RUN_AS_ROOT=1, OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1),
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(run.returncode, 0, run.stdout)
        for rank in range(4):
            self.assertIn(f"rank {rank} got: hello from rank {(rank - 1) % 4}", run.stdout)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
