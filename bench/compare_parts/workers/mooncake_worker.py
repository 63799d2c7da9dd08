# SPDX-License-Identifier: Apache-2.0
"""Mooncake's transfer engine over TCP: mooncake_worker.py --rounds N --megabytes N QUESTION..."""

from mooncake.engine import TransferEngine

import worker


def engine(memory):
    one = TransferEngine()
    if one.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") != 0:
        raise SystemExit("Mooncake's engine cannot be initialised")
    if one.register_memory(memory.ctypes.data, memory.nbytes) != 0:
        raise SystemExit("Mooncake's engine cannot register memory")
    return one


def target(memory, line):
    one = engine(memory)
    line.say([f"127.0.0.1:{one.get_rpc_port()}", memory.ctypes.data])
    return one


def initiator(memory, line):
    one = engine(memory)
    session, there = line.hear()
    here = memory.ctypes.data

    def round_of(ask):
        moves = ask.moves()

        def once():
            if ask.what == "put":
                result = one.transfer_sync_write(session, here, there, ask.size)
            else:
                sources, targets = [here + at for at in moves], [there + at for at in moves]
                result = one.batch_transfer_sync_write(session, sources, targets, [ask.size] * len(moves))
            if result != 0:
                raise SystemExit(f"a Mooncake transfer ended with {result}")
        return once
    return round_of


if __name__ == "__main__":
    worker.main(target, initiator)
