# SPDX-License-Identifier: Apache-2.0
"""A virtual machine with RDMA devices: boots in software emulation, runs one command at a time, ends with this process.

QEMU's own emulation is taken even where /dev/kvm exists: on machines that are virtual themselves it may be there and
not work. The guest sees the host's files read-only, so programs run as they were built.
"""

import ctypes
import os
import secrets
import signal
import socket
import subprocess
import tempfile
import time

from image import find_image, find_tool

HERE = os.path.dirname(os.path.abspath(__file__))
BOOT_LIMIT_S = 120  # 9 s on an idle machine
PR_SET_PDEATHSIG = 1
# A command is ended by the guest. This much later than that the guest itself must have stopped.
GRACE_S = 30


class Hung(Exception):
    """The guest does not answer any more; in words, with the end of its console."""


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Guest:
    """Context manager. Raises image.Missing where no virtual machine can be had, Hung when it does not answer."""

    def __init__(self, cache, deadline):
        self.deadline = deadline
        kernel, initramfs = find_image(cache)
        qemu = find_tool("qemu-system-x86_64")
        self.pending = b""
        self.console = tempfile.TemporaryFile()
        self.port, far = socket.socketpair()
        self.process = subprocess.Popen(
            [qemu, "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "3G", "-nodefaults", "-no-reboot",
             "-display", "none", "-serial", "stdio", "-kernel", kernel, "-initrd", initramfs, "-append",
             # Else the kernel takes the emulated HPET for its clock: each look at it costs a system call, as on no real
             # machine; programs that look often would be slow for that alone.
             f"console=ttyS0 quiet panic=-1 tsc=reliable clocksource=tsc hixl_agent={HERE}/agent",
             "-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap",
             "-device", "virtio-serial", "-chardev", f"socket,id=port,fd={far.fileno()}",
             "-device", "virtserialport,chardev=port,name=hixl"],
            stdin=subprocess.DEVNULL, stdout=self.console, stderr=subprocess.STDOUT, pass_fds=[far.fileno()],
            preexec_fn=die_with_parent)
        far.close()

    def __enter__(self):
        try:
            self.read_until(b"ready\n", time.monotonic() + BOOT_LIMIT_S, None)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.port.close()
        self.process.kill()
        self.process.wait()
        self.console.close()

    def console_text(self):
        # Not by this descriptor's own offset, which QEMU writes at.
        size = os.fstat(self.console.fileno()).st_size
        return os.pread(self.console.fileno(), size, 0).decode(errors="replace")

    def hung(self, what):
        """With what the command had said, and the kernel."""
        said = self.pending.decode(errors="replace").splitlines()[-40:]
        kernel = [f"console: {line}" for line in self.console_text().splitlines()[-40:]]
        return Hung("\n    ".join([what, *said, *kernel]))

    def read_until(self, mark, deadline, show):
        """What comes before the mark; each line is handed to `show` as it comes."""
        deadline = min(deadline, self.deadline)
        shown = 0
        while mark not in self.pending:
            end = self.pending.rfind(b"\n") + 1
            if show and end > shown:
                show(self.pending[shown:end].decode(errors="replace"))
                shown = end
            left = deadline - time.monotonic()
            if left <= 0:
                over = deadline == self.deadline
                raise self.hung("the time of the whole run is over" if over else "the virtual machine does not answer")
            self.port.settimeout(left)
            try:
                piece = self.port.recv(1 << 16)
            except TimeoutError:
                continue
            if not piece:
                raise self.hung("the virtual machine ended")
            self.pending += piece
        text, _, self.pending = self.pending.partition(mark)
        if show and len(text) > shown:
            show(text[shown:].decode(errors="replace") + "\n")
        return text.decode(errors="replace")

    def run(self, command, limit_s, show=None):
        """(exit code, output) of a shell command in fresh devices; 124 or 137 if it took longer than its limit."""
        assert "\n" not in command
        mark = secrets.token_hex(8)
        self.port.settimeout(GRACE_S)
        self.port.sendall(f"{mark} {limit_s} {command}\n".encode())
        deadline = time.monotonic() + limit_s + GRACE_S
        output = self.read_until(f"\n{mark} ".encode(), deadline, show)
        code = self.read_until(b"\n", deadline, None)
        return int(code), output
