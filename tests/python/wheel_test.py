#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel, installs it into a clean environment, and tests it there and under every other version that is
found: wheel_test.py SOURCE_ROOT PATH_OF_libhixl.so

It is built by the oldest version that is found, since pip names a wheel of the stable ABI after the version that built
it. The library is the one that was built already; the extension is compiled anew, as one file and without optimizing,
since it is the packaging that is looked at. Skipped by name where pip has nowhere to take its build back-end from."""

import os
import subprocess
import sys
import tempfile
import zipfile

import run

HERE = os.path.dirname(os.path.abspath(__file__))
BACK_END = "meson-python>=0.16"
TESTS = ["test_errors", "test_transfer"]
EXPECTED = {"hixl/_core.abi3.so", "hixl/libhixl.so.0", "hixl/__init__.py", "hixl/py.typed", "hixl/_core.pyi",
            "hixl/kv.py", "hixl/integrations/vllm_connector.py", "hixl/integrations/mooncake.py",
            "ascend_hixl/__init__.py", "ascend_rt/__init__.py", "llm_datadist/__init__.py"}
IMPORTED = ["ascend_hixl", "llm_datadist", "hixl.integrations.vllm_connector", "hixl.integrations.mooncake"]
TIMEOUT_S = 240
SKIPPED = 77


def call(*command, **options):
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT_S,
                          check=False, **options)
    return done.returncode, done.stdout


def must(*command, **options):
    code, said = call(*command, **options)
    if code != 0:
        sys.exit(f"{' '.join(command)} ended with {code}:\n{said}")
    return said


def skip(reason):
    print("skipped:", reason)
    sys.exit(SKIPPED)


def main():
    source, library = map(os.path.abspath, sys.argv[1:])
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("PYTHONPATH", "LD_LIBRARY_PATH", "MESON_TEST_ITERATION")}
    with tempfile.TemporaryDirectory(prefix="hixl_wheel_") as folder:
        tools, clean = os.path.join(folder, "tools"), os.path.join(folder, "clean")
        versions = run.interpreters()
        oldest = min(versions)
        code, said = call(versions[oldest], "-m", "venv", tools)
        if code != 0:
            skip("no venv here (Debian: python3-venv)")
        pip = os.path.join(tools, "bin", "pip")
        code, said = call(pip, "install", "--quiet", "--disable-pip-version-check", "--retries", "1", "--timeout", "10",
                          "pip>=23.1", BACK_END)
        if code != 0:
            skip(f"pip found no {BACK_END}: {said.strip().splitlines()[-1]}")
        path = os.pathsep.join([os.path.join(tools, "bin"), os.environ["PATH"]])
        must(pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, source,
             f"-Csetup-args=-Dwheel_library={library}", "-Csetup-args=-Doptimization=0", "-Csetup-args=-Dunity=on",
             "-Csetup-args=-Dunity_size=100", env={**environment, "PATH": path})
        wheel, = (name for name in os.listdir(folder) if name.endswith(".whl"))
        print(wheel, flush=True)
        if "-cp{}{}-abi3-".format(*oldest) not in wheel:
            sys.exit(f"{wheel} is not for all versions from {oldest} on")
        with zipfile.ZipFile(os.path.join(folder, wheel)) as packed:
            missing = EXPECTED - set(packed.namelist())
        if missing:
            sys.exit(f"the wheel lacks {sorted(missing)}")
        must(sys.executable, "-m", "venv", "--without-pip", clean)
        python = os.path.join(clean, "bin", "python")
        must(pip, "--python", python, "install", "--quiet", "--no-deps", "--no-index", os.path.join(folder, wheel))
        place = must(python, "-c", f"import hixl, {', '.join(IMPORTED)}; print(hixl.__path__[0])",
                     env=environment).strip()
        if not place.startswith(os.path.realpath(folder)):
            sys.exit(f"another hixl was imported: {place}")
        for version, interpreter in sorted(versions.items()):
            if version == sys.version_info[:2]:
                interpreter = python
            print(must(interpreter, "-B", "-X", "faulthandler", os.path.join(HERE, "runner.py"), *TESTS, cwd=HERE,
                       env={**environment, "PYTHONPATH": os.pathsep.join([os.path.dirname(place), HERE])}), flush=True)


if __name__ == "__main__":
    main()
