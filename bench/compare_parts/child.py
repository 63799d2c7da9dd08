# SPDX-License-Identifier: Apache-2.0
"""Programs that are compared, as children: each in a process group of its own, with an end that comes in any case, and
with what they print kept in files, so that nobody waits for a full pipe."""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import tempfile

WRONG_BYTES = 65  # bench/measure.hpp, k_exit_wrong_bytes
OUTPUT_MAX = 1 << 20  # bytes; our rows take a few hundred each
TELL_MAX = 300  # characters of a program's own last words
LOOK_S = 0.01  # between two looks at a server that starts


class Failed(Exception):
    """One contestant did not do its work: it hung, ended with an error, or said what cannot be read."""


class WrongBytes(Exception):
    """Other bytes arrived than were sent. No figure of this run may be believed."""


_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def _die_with_us():
    """In the child, before its program: the kernel ends it when this process is gone, however that was."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end(process):
    """The whole group, so that what a launcher started ends with it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last_words(file):
    file.seek(0, os.SEEK_END)
    file.seek(max(0, file.tell() - 4096))
    lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    return " / ".join(lines)[-TELL_MAX:] or "it said nothing"


def run(argv, patience_s, env=None, cwd=None):
    """What the program printed. Failed or WrongBytes otherwise."""
    name = os.path.basename(argv[0])
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, cwd=cwd,
                                       env=dict(os.environ, **(env or {})), start_new_session=True,
                                       preexec_fn=_die_with_us)
        except OSError as error:
            raise Failed(f"{name} cannot be started: {error.strerror}") from error
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            _end(process)
            raise Failed(f"{name} was stopped after its {patience_s:g} s: {_last_words(errors)}") from None
        finally:
            _end(process)
        if process.returncode == WRONG_BYTES:
            raise WrongBytes(f"{name}: {_last_words(errors)}")
        if process.returncode != 0:
            how = f"signal {-process.returncode}" if process.returncode < 0 else f"exit code {process.returncode}"
            raise Failed(f"{name} ended with {how}: {_last_words(errors)}")
        if out.seek(0, os.SEEK_END) > OUTPUT_MAX:
            raise Failed(f"{name} printed more than {OUTPUT_MAX} bytes")
        out.seek(0)
        return out.read().decode(errors="replace")


def free_port():
    """Of 127.0.0.1. Somebody else may take it before it is used, so whoever uses it tries again with another."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listens(port):
    """Looks without connecting: some servers take one connection and no more."""
    for table in "/proc/net/tcp", "/proc/net/tcp6":
        with contextlib.suppress(OSError), open(table, encoding="ascii") as rows:
            for row in rows:
                cells = row.split()
                if len(cells) > 3 and cells[3] == "0A" and cells[1].endswith(f":{port:04X}"):
                    return True
    return False


@contextlib.contextmanager
def server(argv, ready, patience_s, env=None):
    """A program that runs beside others until the end of the block. `ready` says whether it can be spoken to."""
    name = os.path.basename(argv[0])
    with tempfile.TemporaryFile() as words:
        try:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=words, stderr=words,
                                       env=dict(os.environ, **(env or {})), start_new_session=True,
                                       preexec_fn=_die_with_us)
        except OSError as error:
            raise Failed(f"{name} cannot be started: {error.strerror}") from error
        try:
            looks = int(patience_s / LOOK_S)
            while not ready():
                looks -= 1
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(LOOK_S)
                    raise Failed(f"{name} ended with {process.returncode} before it listened: {_last_words(words)}")
                if looks <= 0:
                    raise Failed(f"{name} does not listen after {patience_s:g} s: {_last_words(words)}")
            yield process
        finally:
            _end(process)
