# SPDX-License-Identifier: Apache-2.0
"""Mooncake's names over hixl: an engine that only registers memory, in a process of its own, and one that reads and
writes there, in the order in which SGLang's disaggregation calls. All bytes of both are compared."""

import ctypes
import json
import subprocess
import sys
import unittest

from hixl.integrations import mooncake_link
from hixl.integrations.mooncake import TransferEngine, TransferOpcode
from support import TIMEOUT_S, pattern, run_program

SIZE = 8192


def memory(seed):
    """(buffer, address)"""
    buffer = (ctypes.c_char * SIZE).from_buffer_copy(pattern(SIZE, seed))
    return buffer, ctypes.addressof(buffer)


def serve():
    """The other process: registers two of three buffers; commands by its input, a line of JSON each way."""
    engine, buffers = TransferEngine(), [memory(100 + i) for i in range(3)]
    codes = [engine.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", ""),
             engine.batch_register_memory([address for _, address in buffers[:2]], [SIZE, SIZE])]
    answer = codes, f"127.0.0.1:{engine.get_rpc_port()}", [address for _, address in buffers]
    print(json.dumps(answer), flush=True)
    for line in sys.stdin:
        word, which = json.loads(line)
        if word == "register":
            answer = engine.register_memory(buffers[which][1], SIZE)
        elif word == "unregister":
            answer = engine.unregister_memory(buffers[which][1])
        else:
            answer = buffers[which][0].raw.hex()
        print(json.dumps(answer), flush=True)


class Other:
    def __init__(self):
        self.process = subprocess.Popen([sys.executable, "-c", "import test_mooncake as t; t.serve()"],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.codes, self.session, self.addresses = json.loads(self.process.stdout.readline())

    def tell(self, word, which):
        self.process.stdin.write(json.dumps([word, which]) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def bytes(self, which):
        return bytes.fromhex(self.tell("show", which))

    def close(self):
        self.process.stdin.close()
        code = self.process.wait(TIMEOUT_S)
        self.process.stdout.close()
        return code


class Meeting(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.other = Other()
        cls.addClassCleanup(cls.other.close)

    def setUp(self):
        self.engine = TransferEngine()
        self.addCleanup(self.engine.close)
        self.assertEqual(self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "mlx5_0"), 0)
        self.buffer, self.local = memory(1)
        self.assertEqual(self.engine.register_memory(self.local, SIZE), 0)

    def refused(self, text, call, *arguments):
        """The call answers a negative number, and the log says why."""
        with self.assertLogs("hixl", "WARNING") as logged:
            code = call(*arguments)
        self.assertLess(code, 0)
        self.assertIn(text, "".join(logged.output))


class Transfers(Meeting):
    def test_what_sglang_calls(self):
        self.assertEqual(self.other.codes, [0, 0])
        session, (first, second, _) = self.other.session, self.other.addresses
        expected = [bytearray(self.other.bytes(i)) for i in range(2)]
        self.assertEqual(self.engine.transfer_sync_write(session, self.local + 8, first + 100, 1000), 0)
        expected[0][100:1100] = self.buffer.raw[8:1008]
        pieces = [(self.local + 2000, first + 4096, 77), (self.local, second, 1),
                  (self.local + 100, second + 8000, 192)]
        self.assertEqual(self.engine.batch_transfer_sync_write(session, *map(list, zip(*pieces))), 0)
        expected[0][4096:4173] = self.buffer.raw[2000:2077]
        expected[1][0:1], expected[1][8000:8192] = self.buffer.raw[:1], self.buffer.raw[100:292]
        self.assertEqual([self.other.bytes(i) for i in range(2)], expected)
        self.assertEqual(self.engine.batch_unregister_memory([self.local]), 0)
        self.refused("NOT_REGISTERED", self.engine.transfer_sync_write, session, self.local, first, 8)

    def test_reads(self):
        session, (first, second, _) = self.other.session, self.other.addresses
        expected = bytearray(self.buffer.raw)
        theirs = [self.other.bytes(i) for i in range(2)]
        self.assertEqual(self.engine.transfer_sync_read(session, self.local, first + 5, 50), 0)
        self.assertEqual(self.engine.batch_transfer_sync_read(session, [self.local + 100, self.local + 200],
                                                              [second, first], [10, 20]), 0)
        self.assertEqual(self.engine.transfer_sync(session, self.local + 300, second + 8, 8, TransferOpcode.Read), 0)
        expected[:50], expected[100:110], expected[200:220] = theirs[0][5:55], theirs[1][:10], theirs[0][:20]
        expected[300:308] = theirs[1][8:16]
        self.assertEqual(self.buffer.raw, expected)

    def test_without_waiting(self):
        session, (first, *_) = self.other.session, self.other.addresses
        number, code = self.engine.transfer_submit_write(session, self.local, first + 7000, 100), 0
        self.assertGreater(number, 0)
        while code == 0:
            code = self.engine.transfer_check_status(number)
        self.assertEqual((code, self.engine.transfer_check_status(number)), (1, -1))
        numbers = [self.engine.batch_transfer_async_write(session, [self.local + 50], [first + 7200], [60]),
                   self.engine.batch_transfer_async_read(session, [self.local + 500], [first], [20])]
        self.assertEqual(self.engine.get_batch_transfer_status(numbers), 0)
        theirs = self.other.bytes(0)
        self.assertEqual((theirs[7000:7100], theirs[7200:7260], self.buffer.raw[500:520]),
                         (self.buffer.raw[:100], self.buffer.raw[50:110], theirs[:20]))
        with self.assertLogs("hixl", "WARNING"):
            self.assertEqual(self.engine.transfer_submit_write(session, self.local, 4096, 8), -1)
            self.assertEqual(self.engine.batch_transfer_async_write(session, [self.local], [4096], [8]), 0)

    def test_memory_that_comes_and_goes(self):
        session, (first, _, third) = self.other.session, self.other.addresses
        self.assertEqual(self.engine.get_first_buffer_address(session), first)
        before = self.other.bytes(2)
        self.refused("NOT_REGISTERED", self.engine.transfer_sync_write, session, self.local, third, 8)
        self.assertEqual(self.other.tell("register", 2), 0)
        self.assertEqual(self.engine.transfer_sync_write(session, self.local, third, 8), 0)
        self.assertEqual(self.other.tell("unregister", 2), 0)
        self.refused("mooncake: transfer: ", self.engine.transfer_sync_write, session, self.local + 100, third, 8)
        self.assertEqual(self.other.bytes(2), self.buffer.raw[:8] + before[8:])
        self.assertEqual(self.other.tell("register", 2), 0)
        self.assertEqual(self.engine.transfer_sync_write(session, self.local + 100, third, 8), 0)
        self.assertEqual(self.other.bytes(2), self.buffer.raw[100:108] + before[8:])
        self.assertEqual(self.other.tell("unregister", 2), 0)

    def test_what_is_refused(self):
        session, (first, second, _) = self.other.session, self.other.addresses
        theirs, engine = [self.other.bytes(i) for i in range(2)], self.engine
        self.refused("OUT_OF_RANGE", engine.transfer_sync_write, session, self.local, first + SIZE - 4, 8)
        self.refused("OUT_OF_RANGE", engine.transfer_sync_write, session, self.local + SIZE - 4, first, 8)
        self.refused("INVALID_ARGUMENT", engine.batch_transfer_sync_write, session, [self.local], [first, second], [8])
        self.refused("INVALID_ARGUMENT", engine.transfer_sync_write, "nowhere", self.local, first, 8)
        self.refused("CONNECT_REFUSED", engine.transfer_sync_write, "127.0.0.1:1", self.local, first, 8)
        self.refused("ALREADY_EXISTS", engine.register_memory, self.local, SIZE)
        self.refused("NOT_REGISTERED", engine.unregister_memory, first)
        self.refused("ALREADY_EXISTS", engine.initialize, "127.0.0.1", "P2PHANDSHAKE", "tcp", "")
        self.refused("P2PHANDSHAKE", TransferEngine().initialize, "127.0.0.1", "etcd://127.0.0.1:1", "tcp", "")
        self.refused("STOPPED", TransferEngine().register_memory, self.local, SIZE)
        self.assertEqual(TransferEngine().get_rpc_port(), -1)
        other, address = memory(5)
        self.refused("INVALID_ARGUMENT", engine.batch_register_memory, [address], [])
        self.refused("ALREADY_EXISTS", engine.batch_register_memory, [address, self.local], [SIZE, SIZE])
        self.assertEqual(engine.register_memory(address, SIZE), 0)  # of a batch that failed nothing is left
        with self.assertLogs("hixl", "WARNING"):
            self.assertEqual(engine.get_first_buffer_address("127.0.0.1:1"), 0)
        self.assertEqual([self.other.bytes(i) for i in range(2)], theirs)

    def test_managed_buffers(self):
        address = self.engine.allocate_managed_buffer(4096)
        self.assertEqual(self.engine.write_bytes_to_buffer(address + 96, b"hello", 5), 0)
        self.assertEqual(self.engine.read_bytes_from_buffer(address + 95, 6), b"\0hello")
        self.assertEqual(self.engine.transfer_sync_read(self.other.session, address, self.other.addresses[0], 50), 0)
        self.assertEqual(self.engine.read_bytes_from_buffer(address, 50), self.other.bytes(0)[:50])
        self.assertEqual(self.engine.write_bytes_to_buffer(address + 4094, b"hello", 5), -1)
        with self.assertRaises(ValueError):
            self.engine.read_bytes_from_buffer(address + 4094, 5)
        self.assertEqual([self.engine.free_managed_buffer(address, 4096) for _ in range(2)], [0, -1])

    def test_its_own_session(self):
        session = f"127.0.0.1:{self.engine.get_rpc_port()}"
        self.assertEqual(self.engine.transfer_sync_write(session, self.local, self.local + 4096, 500), 0)
        self.assertEqual(self.buffer.raw[4096:4596], self.buffer.raw[:500])


class Deaths(Meeting):
    def test_an_engine_that_stands_still_holds_no_memory(self):
        shown = TransferEngine()
        self.addCleanup(shown.close)
        shown.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "")
        (buffer, address), session = memory(7), f"127.0.0.1:{shown.get_rpc_port()}"
        shown.register_memory(address, SIZE)
        self.assertEqual(self.engine.transfer_sync_write(session, self.local, address, 8), 0)
        guest, = shown._guests
        self.addCleanup(setattr, mooncake_link, "TELL_S", mooncake_link.TELL_S)
        mooncake_link.TELL_S = 0.01
        with guest._telling:  # as if the engine were asking, and then did nothing more
            self.assertEqual(shown.unregister_memory(address), 0)
        self.refused("mooncake: transfer: ", self.engine.transfer_sync_write, session, self.local + 8, address, 8)
        self.assertEqual(buffer.raw[:8], self.buffer.raw[:8])
        self.assertEqual(shown.register_memory(address, SIZE), 0)
        self.assertEqual(self.engine.transfer_sync_write(session, self.local + 8, address, 8), 0)

    def test_an_engine_that_dies(self):
        other = Other()
        self.assertEqual(self.engine.transfer_sync_write(other.session, self.local, other.addresses[0], 8), 0)
        other.process.kill()
        other.close()
        for _ in range(2):
            self.refused("mooncake: transfer: ", self.engine.transfer_sync_write, other.session, self.local,
                         other.addresses[0], 8)
        self.assertEqual(self.engine.transfer_sync_write(self.other.session, self.local, self.other.addresses[0], 8), 0)

    def test_the_interpreter_ends_with_an_open_one(self):
        run = run_program("""
import ctypes
from hixl.integrations import mooncake_link
from hixl.integrations.mooncake import TransferEngine
memory = ctypes.create_string_buffer(b"hello", 64)
engines = [TransferEngine() for _ in range(2)]
for engine in engines:
    engine.initialize("localhost", "P2PHANDSHAKE", "tcp", "")
    engine.register_memory(ctypes.addressof(memory), 64)
session = "127.0.0.1:%d" % engines[1].get_rpc_port()
here = ctypes.addressof(memory)
print(engines[0].transfer_sync_write(session, here, here + 8, 5), memory.raw[8:13])
""")
        self.assertEqual((run.returncode, run.stdout, run.stderr), (0, "0 b'hello'\n", ""))


if __name__ == "__main__":
    unittest.main()
