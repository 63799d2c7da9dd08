# SPDX-License-Identifier: Apache-2.0
"""Send and receive over hixl, in the words of the article "CANN hixl zero-copy": a responder (Prefill) connects and
sends, a requester (Decode) listens and receives where the bytes arrived.

    decode = ascend_hixl.init(role="requester", buffer_size=1 << 28, buffer_type="ddr")
    listener = decode.listen(port=9999)
    prefill = ascend_hixl.init(role="responder", buffer_size=1 << 28, buffer_type="ddr")
    conn = prefill.connect(peer_ip="127.0.0.1", port=9999, timeout_ms=5000)
    prefill.send(conn=conn, local_buf=prefill.buffer, offset=0, size=4096, flags=ascend_hixl.FLAG_SYNC)
    with decode.recv(listener, timeout_ms=100) as data:
        use(data.view)

buffer_type "hbm" is emulated device memory, which the CPU reaches by copies only; "ddr" is host memory. All errors are
hixl.Error; docs/python.md says which."""

from hixl import FLAG_ASYNC, FLAG_SYNC

from .context import Context, init
from .listener import Listener, Received
from .connection import Connection, Sent
from .pool import HixlPool

__all__ = ["Connection", "Context", "FLAG_ASYNC", "FLAG_SYNC", "HixlPool", "Listener", "Received", "Sent", "init"]
