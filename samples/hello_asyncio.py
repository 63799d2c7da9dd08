# SPDX-License-Identifier: Apache-2.0
"""An asyncio program: rank 0 serves numbers from its memory, the others fetch and change them, all in one thread each.

    hixl_run -n 3 python3 hello_asyncio.py"""

import asyncio

import hixl

NUMBERS = 1000


async def work(rank):
    table = rank.allocate(8 * (NUMBERS + 1))
    words = memoryview(table).cast("Q")
    if rank.rank == 0:
        for i in range(NUMBERS):
            words[i] = i * i
    everybody = range(rank.world_size)
    answers = await rank.aio.exchange(table, everybody if rank.rank == 0 else [0])
    await rank.aio.barrier()
    if rank.rank != 0:
        remote = answers[0].regions[0]
        # A hundred gets side by side; the event loop is free meanwhile.
        size = 8 * NUMBERS // 100
        await asyncio.gather(*(rank.aio.get(memoryview(table)[i * size:(i + 1) * size], remote.at(i * size))
                               for i in range(100)))
        total = sum(words[:NUMBERS])
        before = await rank.aio.fetch_add(remote.at(8 * NUMBERS), total)
        print(f"rank {rank.rank} added {total} to a multiple of it: {before % total == 0}", flush=True)
    await rank.aio.barrier()
    if rank.rank == 0:
        print(f"together: {words[NUMBERS]}", flush=True)
    words.release()


with hixl.Runtime.from_environment() as this_rank:
    asyncio.run(work(this_rank))
