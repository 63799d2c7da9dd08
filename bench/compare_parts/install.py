# SPDX-License-Identifier: Apache-2.0
"""Makes the environment of wheels that others' Python libraries need. Nothing outside of it is changed."""

import os
import sys
import venv

from . import child

# With --no-deps: what NIXL and Mooncake name beside themselves (torch among it) their engines do not need.
ALONE = ("nixl-cu12", "mooncake-transfer-engine-non-cuda")
WITH_NEEDS = ("numpy", "grpcio")
PATIENCE_S = 900  # 300 MB over a slow line
DEBIAN = "apt-get install ucx-utils openmpi-bin libopenmpi-dev redis-server memcached libnuma1 liburing2 librdmacm1"


def install(folder):
    """The exit code."""
    try:
        if not os.access(os.path.join(folder, "bin", "python"), os.X_OK):
            venv.create(folder, with_pip=True)
        pip = [os.path.join(folder, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        child.run([*pip, *WITH_NEEDS], PATIENCE_S)
        child.run([*pip, "--no-deps", *ALONE], PATIENCE_S)
    except (child.Failed, OSError) as error:
        print(f"bench/compare: {folder} cannot be made: {error}", file=sys.stderr)
        return 1
    print(f"{folder} has {', '.join(WITH_NEEDS + ALONE)}. Not made by this command, of Debian:\n  {DEBIAN}")
    return 0
