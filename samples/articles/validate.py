# SPDX-License-Identifier: Apache-2.0
"""The validation script of the article on hixl under Prefill/Decode, completed: half-precision numbers go from one
context to another and are compared. A constant alone would not show blocks that were swapped, so that a pattern follows
in which every value depends on its place.

    python3 validate.py [PORT]       buffers are emulated device memory; 9999 unless another port is named"""

import sys

import numpy

import ascend_hixl
import ascend_rt

port = int(sys.argv[1]) if len(sys.argv) > 1 else 9999

# Two contexts, as Prefill and Decode; the second one listens.
pref_ctx = ascend_hixl.init(role="responder", dev_id=0)
dec_ctx = ascend_hixl.init(role="requester", dev_id=1, port=port)

conn = pref_ctx.connect(peer_ip="127.0.0.1", port=port)

test_buf = ascend_rt.allocate(shape=(1024, 1024), dtype="float16")
ascend_rt.fill(test_buf, value=0.1234)
pref_ctx.send(conn=conn, local_buf=test_buf, size=test_buf.nbytes)
recv_buf = dec_ctx.recv(timeout_ms=5000)
assert ascend_rt.allclose(test_buf, recv_buf), "the data differ"
recv_buf.release()

rows, columns = numpy.indices((1024, 1024))
test_buf.copy_in((rows * 1024 + columns) % 2039 - 1000)
pref_ctx.send(conn=conn, local_buf=test_buf, size=test_buf.nbytes)
recv_buf = dec_ctx.recv(timeout_ms=5000)
assert ascend_rt.allclose(test_buf, recv_buf), "the data lie in other places"
recv_buf.release()

# What the article proves by counters: pieces that passed through a buffer on their way. Device memory of another
# process is reached over sockets here, which costs one at each end; host memory ("ddr") costs none.
copies = pref_ctx.runtime.counters()["copies"]
print(f"validated over {conn.transport}; {'no' if copies == 0 else copies} intermediate copies")
pref_ctx.close()
dec_ctx.close()
