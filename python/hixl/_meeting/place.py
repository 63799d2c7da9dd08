# SPDX-License-Identifier: Apache-2.0
"""Where a program is found, and with which options it begins there."""

import hixl


def url_at(host, port):
    """Of a store, say: IPv6 hosts in brackets."""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def host_and_port(url):
    host, _, port = url[len("tcp://"):].rpartition(":")
    return host.strip("[]"), port


def options_at(host):
    """Options of hixl.Runtime: the environment's, bound to that host. Which rank of which world is not the
    environment's matter, since these packages make worlds of their own, several in a process: so the one address at
    which hixl_diag is answered is not for them either."""
    options = {**hixl.options_from_environment(), "bind": host}
    for name in ("rank", "world_size", "store", "host_store", "diagnosis"):
        options.pop(name, None)
    return options
