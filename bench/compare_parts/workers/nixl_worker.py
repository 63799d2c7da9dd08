# SPDX-License-Identifier: Apache-2.0
"""NIXL, back-end UCX: nixl_worker.py --rounds N --megabytes N QUESTION..."""

import base64

from nixl_cu12._api import nixl_agent, nixl_agent_config

import worker


def agent(name):
    return nixl_agent(name, nixl_agent_config(enable_prog_thread=True, backends=["UCX"]))


def register(one, memory):
    return one.register_memory([(memory.ctypes.data, memory.nbytes, 0, "")], "DRAM")


def target(memory, line):
    one = agent("target")
    kept = register(one, memory)
    line.say([base64.b64encode(one.get_agent_metadata()).decode(), memory.ctypes.data])
    return one, kept


def initiator(memory, line):
    one = agent("initiator")
    kept = register(one, memory)
    metadata, there = line.hear()
    peer = one.add_remote_agent(base64.b64decode(metadata))

    def handle(moves, size):
        local = one.get_xfer_descs([(memory.ctypes.data + at, size, 0) for at in moves], "DRAM")
        remote = one.get_xfer_descs([(there + at, size, 0) for at in moves], "DRAM")
        return one.initialize_xfer("WRITE", local, remote, peer)

    def round_of(ask):
        # A batch is one transfer of many descriptors; what is in flight together are transfers of their own.
        handles = [handle(ask.moves(), ask.size)] if ask.what == "batch" else \
            [handle([0], ask.size) for _ in range(ask.count)]

        def once():
            for each in handles:
                one.transfer(each)
            for each in handles:
                state = one.check_xfer_state(each)
                while state != "DONE":
                    if state == "ERR":
                        raise SystemExit("a NIXL transfer ended with an error")
                    state = one.check_xfer_state(each)
        once.kept = kept
        return once
    return round_of


if __name__ == "__main__":
    worker.main(target, initiator)
