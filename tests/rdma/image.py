# SPDX-License-Identifier: Apache-2.0
"""A kernel and an initramfs that start a small virtual machine with RDMA devices, made from Debian packages.

Nothing is installed: the kernel's package is downloaded and unpacked, and only the kernel and the initramfs stay, in a
cache folder that belongs to the user. What is there already is taken as it is and needs no network. Two runs at once
may ask for the same image: one makes it under a lock, and it appears whole by a rename.
"""

import fcntl
import glob
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile

# What the guest loads. Modules that these depend on come along. rxe computes its checksums by name through the kernel's
# crypto interface and declares no dependency: without crc32_generic, "rdma link add" ends with ENOENT.
MODULES = ("crc32_generic", "virtio_pci", "virtio_console", "9p", "9pnet_virtio", "overlay", "veth", "ib_uverbs",
           "ib_umad", "rdma_ucm", "rdma_rxe")
TOOLS = ("apt-get", "apt-cache", "dpkg-deb", "depmod", "modprobe", "cpio")
DOWNLOAD_LIMIT_S = 600  # 70 MB
HERE = os.path.dirname(os.path.abspath(__file__))


class Missing(Exception):
    """Something that a machine may lack, in words: the tests cannot run here, and have not failed."""


def find_tool(name):
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if not path:
        raise Missing(f"no {name} here; tools/packages lists what the RDMA tests need of Debian")
    return path


def call(*command, **options):
    """Output of a command; its last words as Missing if it fails, since what is called here comes from outside."""
    try:
        run = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True, errors="replace", timeout=DOWNLOAD_LIMIT_S, check=False, **options)
    except subprocess.TimeoutExpired:
        raise Missing(f"{command[0]} {command[1]} took more than {DOWNLOAD_LIMIT_S} s") from None
    if run.returncode != 0:
        words = (run.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise Missing(f"{' '.join(command[:3])} failed: {words}")
    return run.stdout


def kernel_package():
    """Name of the package with the newest kernel of this Debian."""
    pattern = r"^ *Depends: (linux-image-\d\S*)$"
    listed = call("apt-cache", "depends", "linux-image-amd64")
    if not re.search(pattern, listed, re.MULTILINE) and os.geteuid() == 0:
        call("apt-get", "-q", "update")  # a fresh container has no lists yet
        listed = call("apt-cache", "depends", "linux-image-amd64")
    found = re.search(pattern, listed, re.MULTILINE)
    if not found:
        raise Missing("apt knows no linux-image-amd64; run apt-get update as root, on Debian")
    return found.group(1)


def unpack_packages(folder):
    """Path of the kernel, and its version; busybox lies in bin/."""
    package = kernel_package()
    # apt drops its rights for the download, where it may, and must be able to write here.
    os.chmod(folder, 0o755)
    call("apt-get", "-q", "download", package, "busybox-static", cwd=folder)
    for archive in glob.glob(os.path.join(folder, "*.deb")):
        call("dpkg-deb", "-x", archive, folder)
        os.unlink(archive)
    (kernel,) = glob.glob(os.path.join(folder, "boot", "vmlinuz-*"))
    version = os.path.basename(kernel).removeprefix("vmlinuz-")
    call(find_tool("depmod"), "-b", folder, version)
    return kernel, version


def needed_modules(folder, version):
    """Paths of the modules, each after those that it needs."""
    paths = []
    for module in MODULES:
        listed = call(find_tool("modprobe"), "-d", folder, "-S", version, "--show-depends", module)
        for path in re.findall(r"^insmod (\S+)", listed, re.MULTILINE):
            if path not in paths:
                paths.append(path)
    return paths


def write_initramfs(folder, modules, target):
    root = os.path.join(folder, "initramfs")
    for name in ("bin", "modules", "proc", "sys", "dev", "host", "upper", "merged"):
        os.makedirs(os.path.join(root, name))
    shutil.copy(os.path.join(folder, "bin", "busybox"), os.path.join(root, "bin", "busybox"))
    shutil.copy(os.path.join(HERE, "init"), os.path.join(root, "init"))
    os.chmod(os.path.join(root, "init"), 0o755)
    for number, path in enumerate(modules):
        shutil.copy(path, os.path.join(root, "modules", f"{number:02}-{os.path.basename(path)}"))
    names = "\n".join(os.path.relpath(os.path.join(parent, name), root)
                      for parent, folders, files in os.walk(root) for name in folders + files)
    with open(target, "wb") as archive:
        subprocess.run([find_tool("cpio"), "--quiet", "-o", "-H", "newc"], input=names.encode(), stdout=archive,
                       cwd=root, check=True)


def recipe():
    """Changes whenever an image made before would not do."""
    digest = hashlib.sha256()
    for name in ("image.py", "init"):
        with open(os.path.join(HERE, name), "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()[:16]


def make(cache, target):
    for tool in TOOLS:
        find_tool(tool)
    print(f"making the image of the virtual machine in {target}", flush=True)
    with tempfile.TemporaryDirectory(prefix="making-", dir=cache) as folder:
        kernel, version = unpack_packages(folder)
        done = os.path.join(folder, "image")
        os.mkdir(done)
        shutil.copy(kernel, os.path.join(done, "vmlinuz"))
        write_initramfs(folder, needed_modules(folder, version), os.path.join(done, "initramfs"))
        with open(os.path.join(done, "version"), "w", encoding="utf-8") as file:
            file.write(version + "\n")
        os.rename(done, target)


def find_image(cache):
    """(kernel, initramfs), made first if need be. Raises Missing."""
    if platform.machine() != "x86_64":
        raise Missing(f"the virtual machine is x86-64, this machine is {platform.machine()}")
    target = os.path.join(cache, recipe())
    os.makedirs(cache, exist_ok=True)
    with open(os.path.join(cache, "lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.isdir(target):
            make(cache, target)
    return os.path.join(target, "vmlinuz"), os.path.join(target, "initramfs")
