#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests beside this file: run.py own|others PATH_OF_THE_EXTENSION [TEST ...]

own: under an interpreter of the version that runs this. others: under one of each other version from 3.9 to 3.13 that
is found here, by the same binary; versions that are not found are named. Of two of one version the one with numpy is
taken. runner.py is what each of them runs."""

import glob
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
VERSIONS = [(3, minor) for minor in range(9, 14)]
# A version takes about 15 s; one that hangs is stopped well before the suite's own time is over.
TIMEOUT_S = 120
ASK = "import sys; print(*sys.version_info[:2]); import numpy"


def candidates():
    yield sys.executable
    for folder in ["/usr/bin", "/usr/local/bin", *os.environ.get("PATH", "").split(os.pathsep)]:
        for major, minor in VERSIONS:
            yield os.path.join(folder, f"python{major}.{minor}")
    root = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    yield from sorted(glob.glob(os.path.join(root, "versions", "*", "bin", "python3")))


def interpreters():
    """{version: path}; what does not run (the shim of a version manager, say) is none."""
    found, with_numpy = {}, set()
    for path in dict.fromkeys(os.path.abspath(path) for path in candidates()):
        if not os.access(path, os.X_OK):
            continue
        asked = subprocess.run([path, "-c", ASK], text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               timeout=TIMEOUT_S, check=False)
        version = tuple(int(word) for word in asked.stdout.split())
        if version in VERSIONS and (version not in found or (asked.returncode == 0 and version not in with_numpy)):
            found[version] = path
            if asked.returncode == 0:
                with_numpy.add(version)
    return found


def run(path, extension, tests):
    package = os.path.dirname(os.path.dirname(os.path.abspath(extension)))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([package, HERE]), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([path, "-X", "faulthandler", os.path.join(HERE, "runner.py"), *tests], env=environment,
                          cwd=HERE, timeout=TIMEOUT_S, check=False).returncode


def main():
    who, extension, *tests = sys.argv[1:]
    own = sys.version_info[:2]
    found = interpreters()
    found.setdefault(own, sys.executable)
    wanted = [own] if who == "own" else [version for version in VERSIONS if version != own]
    failed = []
    for version in wanted:
        name = "CPython " + ".".join(map(str, version))
        if version not in found:
            print(f"skipped: {name}: it is not here", flush=True)
        elif run(found[version], extension, tests) != 0:
            failed.append(name)
    if failed:
        sys.exit("failed under " + ", ".join(failed))
    if not set(wanted) & set(found):
        print("no interpreter of another version is here")
        sys.exit(77)  # how Meson knows that a test was skipped


if __name__ == "__main__":
    main()
