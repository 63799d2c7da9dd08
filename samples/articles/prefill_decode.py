# SPDX-License-Identifier: Apache-2.0
"""The snippets of the article on hixl under Prefill/Decode, completed to one program: a Decode that listens, and a
Prefill that sends the cache layer by layer to it through a pool of connections made beforehand.

    python3 prefill_decode.py"""

import threading

import ascend_hixl
import hixl

LAYERS, LAYER_SIZE = 8, 256 * 1024


def decode(recv_ctx, listener, layers_done):
    while not layers_done.is_set():
        data = recv_ctx.recv(listener, timeout_ms=100)
        if data is None:
            continue  # nothing has come; the time was slept
        layer_index = data.metadata["layer"]
        right = data.view == bytes([layer_index]) * LAYER_SIZE  # "attention": it reads where the bytes arrived
        print(f"layer {layer_index}: {data.nbytes} bytes, {'right' if right else 'wrong'}", flush=True)
        data.release()
        if layer_index == LAYERS - 1:
            layers_done.set()


recv_ctx = ascend_hixl.init(role="requester", dev_id=0, buffer_size=64 << 20, buffer_type="ddr", port=None)
listener = recv_ctx.listen(port=0)  # the article's 9999 may be taken
done = threading.Event()
decoding = threading.Thread(target=decode, args=(recv_ctx, listener, done))
decoding.start()

pool = ascend_hixl.HixlPool([("127.0.0.1", listener.port)], dev_id=0, buffer_size=LAYERS * LAYER_SIZE,
                            buffer_type="ddr", numa_node="auto")
hixl_ctx, conn = pool.ctx, pool.connections["127.0.0.1", listener.port]
kv_cache_handle = hixl_ctx.buffer
for index in range(LAYERS):
    memoryview(kv_cache_handle)[index * LAYER_SIZE:(index + 1) * LAYER_SIZE] = bytes([index]) * LAYER_SIZE
for layer_index in range(LAYERS - 1):
    hixl_ctx.send(conn=conn, local_buf=kv_cache_handle, offset=layer_index * LAYER_SIZE, size=LAYER_SIZE,
                  flags=hixl.FLAG_ASYNC, metadata={"layer": layer_index})
# The last one at a point where both have to agree: it returns when everything up to it can be used there.
pool.send_to("127.0.0.1", listener.port, memoryview(kv_cache_handle)[(LAYERS - 1) * LAYER_SIZE:],
             flags=hixl.FLAG_SYNC, metadata={"layer": LAYERS - 1})
decoding.join()
pool.close()
recv_ctx.close()
print("all layers have arrived")
