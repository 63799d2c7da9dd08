# SPDX-License-Identifier: Apache-2.0
"""gRPC: grpc_worker.py --rounds N --megabytes N QUESTION..."""

import struct
from concurrent import futures

import grpc
import numpy

import worker

METHOD = "/kv.Store/Put"
PIECE = 64 << 20  # one message; gRPC takes less than 2 GiB
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
HEAD = struct.Struct("<Q")  # the place at the target


def target(memory, line):
    def put(message, _):
        (at,) = HEAD.unpack_from(message)
        data = numpy.frombuffer(message, numpy.uint8, offset=HEAD.size)
        memory[at:at + data.size] = data
        return b""

    class Handler(grpc.GenericRpcHandler):
        def service(self, call):
            return grpc.unary_unary_rpc_method_handler(put) if call.method == METHOD else None

    server = grpc.server(futures.ThreadPoolExecutor(4), handlers=[Handler()], options=OPTIONS)
    line.say(server.add_insecure_port("127.0.0.1:0"))
    server.start()
    return server


def initiator(memory, line):
    call = grpc.insecure_channel(f"127.0.0.1:{line.hear()}", options=OPTIONS).unary_unary(METHOD)

    def round_of(ask):
        pieces = [(at + begin, min(PIECE, ask.size - begin)) for at in ask.moves()
                  for begin in range(0, ask.size, PIECE)]

        def message(at, size):
            return HEAD.pack(at) + memory[at:at + size].tobytes()

        def once():
            if len(pieces) == 1:
                call(message(*pieces[0]), wait_for_ready=True)
                return
            for answer in [call.future(message(at, size), wait_for_ready=True) for at, size in pieces]:
                answer.result()
        return once
    return round_of


if __name__ == "__main__":
    worker.main(target, initiator)
