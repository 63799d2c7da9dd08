#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs the build into a temporary folder and uses it as a stranger would: pkg-config, headers, library.

    install_test.py BUILD_ROOT CONSUMER.cpp COMPILER...

Every installed header must compile alone, as C++20, without warnings, those of the C interfaces as C99 and as C++11
too; the consumer must link and run.
"""

import os
import subprocess
import sys
import tempfile

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
FLAGS = ["-std=c++20"] + WARNINGS


def run(command, **more):
    print("+", " ".join(command), flush=True)
    return subprocess.run(command, check=True, text=True, **more)


def find(root, name):
    for folder, _, files in os.walk(root):
        if name in files:
            return folder
    sys.exit(f"{name} was not installed below {root}")


def compile_headers_alone(include, compiler):
    """Those of third parties, one folder further down, come with their includers."""
    folder = os.path.join(include, "hixl")
    headers = sorted(name for name in os.listdir(folder) + ["kv/" + name for name in os.listdir(folder + "/kv")]
                     if name.endswith(".hpp"))
    for name in headers:
        run(compiler + FLAGS + ["-fsyntax-only", "-I", include, "-x", "c++", "-"],
            input=f"#include <hixl/{name}>\n#include <hixl/{name}>\nint main() {{}}\n")
    c_headers = sorted(name for name in os.listdir(folder) if name.endswith(".h"))
    for name in c_headers:
        for language, standard in (("c", "c99"), ("c++", "c++11"), ("c++", "c++20")):
            if language == "c" and name == "ascend_compat.h":
                continue
            run(compiler + ["-std=" + standard, "-fsyntax-only", "-I", include, "-x", language, "-"] + WARNINGS,
                input=f"#include <hixl/{name}>\n#include <hixl/{name}>\nint main(void) {{ return 0; }}\n")
    print(f"{len(headers)} C++ and {len(c_headers)} C headers compile alone")


def main():
    build_root, consumer, *compiler = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="hixl_install_") as root:
        run(["meson", "install", "-C", build_root, "--destdir", root, "--no-rebuild", "--quiet"])
        environment = dict(
            os.environ,
            PKG_CONFIG_PATH=find(root, "hixl.pc"),
            PKG_CONFIG_SYSROOT_DIR=root,
            # The prefix may be one that pkg-config takes for the system's own and leaves out.
            PKG_CONFIG_ALLOW_SYSTEM_CFLAGS="1",
            PKG_CONFIG_ALLOW_SYSTEM_LIBS="1",
            LD_LIBRARY_PATH=find(root, "libhixl.so"))
        pkg_config = run(["pkg-config", "--cflags", "--libs", "hixl"], stdout=subprocess.PIPE, env=environment)
        flags = pkg_config.stdout.split()
        compile_headers_alone(os.path.dirname(find(root, "runtime.hpp")), compiler)
        program = os.path.join(root, "consumer")
        run(compiler + FLAGS + [consumer, "-o", program] + flags)
        # Ten seconds are a hundred times what it takes; a program that hangs must not hold up the suite.
        run([program], env=environment, timeout=10)


if __name__ == "__main__":
    try:
        main()
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        sys.exit(str(error))
