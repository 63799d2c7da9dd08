# SPDX-License-Identifier: Apache-2.0
"""HixlPool: connections to many requesters, made before the work begins. Threads: any number may send at once; each
peer has its own connection, so a slow one holds up nobody else."""

import concurrent.futures
import threading

import hixl

from .context import init


class HixlPool:
    def __init__(self, peer_list, timeout_ms=10000, **options):
        """peer_list: (ip, port) of each. `options` are those of init(). Raises the first failure, all were tried."""
        self.ctx = init(role="responder", **options)
        self.connections, self._locks, self._timeout_ms = {}, {}, timeout_ms
        peers = list(dict.fromkeys((ip, port) for ip, port in peer_list))
        self._locks = {peer: threading.Lock() for peer in peers}
        try:
            with concurrent.futures.ThreadPoolExecutor(max(1, min(16, len(peers)))) as threads:
                made = [threads.submit(self._connect, peer) for peer in peers]
            for one in made:
                one.result()
        except BaseException:
            self.close()
            raise

    def _connect(self, peer):
        self.connections[peer] = self.ctx.connect(peer_ip=peer[0], peer_port=peer[1], timeout_ms=self._timeout_ms)

    def send_to(self, peer_ip, peer_port, data, flags=hixl.FLAG_ASYNC, **message):
        """ctx.send() to that peer. A connection that is over is made again; what was under way on it has failed, as its
        Sent says. KeyError: not in the list."""
        peer = (peer_ip, peer_port)
        with self._locks[peer]:
            if self.connections[peer]._broken is not None:
                self.connections[peer].close()
                self._connect(peer)
            conn = self.connections[peer]
        return self.ctx.send(conn=conn, local_buf=data, flags=flags, **message)

    def close(self):
        self.ctx.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
