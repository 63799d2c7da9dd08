# SPDX-License-Identifier: Apache-2.0
"""The smallest program: every rank puts a greeting into the memory of the next one, with three calls.

    hixl_run -n 2 python3 hello.py"""

import hixl

with hixl.Runtime.from_environment() as rank:  # rank, world size and store, as hixl_run sets them
    after, before = (rank.rank + 1) % rank.world_size, (rank.rank - 1) % rank.world_size

    inbox = rank.allocate(4096)  # 1. memory that others may put into
    remote = rank.exchange(inbox, [after, before])[0].regions[0]  # 2. tell where it is, learn where theirs is
    # 3. put, and change the first word when all is there; an operation need not be waited for
    rank.put_with_signal(b"hello from rank %d" % rank.rank, remote.at(8), remote.at(0))

    rank.wait_signal(inbox, 1)  # asleep until the text is there
    text = bytes(memoryview(inbox)[8:]).rstrip(b"\0").decode()
    print(f"rank {rank.rank} got: {text}", flush=True)
    rank.barrier()
