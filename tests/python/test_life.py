# SPDX-License-Identifier: Apache-2.0
"""The end of the interpreter with open runtimes, forked children, subinterpreters, and objects in a wrong order."""

import gc
import sys
import unittest

import hixl
from support import Pair, run_program

PAIR = """
import sys, threading, os, signal
sys.path[:0] = %r
import hixl
from support import Pair, at_once
pair = Pair(size=1 << 16)
""" % sys.path


class Life(unittest.TestCase):
    def check(self, text, expected="", **environment):
        run = run_program(text, **environment)
        self.assertEqual((run.returncode, run.stdout, run.stderr), (0, expected, ""))

    def test_the_interpreter_ends_with_open_runtimes(self):
        self.check(PAIR + """
import atexit
@atexit.register
def last():
    print("ends")
for _ in range(100):
    pair.a.put(pair.window_a, pair.remote_b, callback=lambda end: None)
request = pair.a.put(pair.window_a, pair.remote_b)
view = memoryview(pair.window_a)
""", "ends\n")

    def test_f78_failures_at_which_nobody_looked_are_told_at_the_end(self):
        run = run_program(PAIR + """
requests = [pair.a.put(pair.window_a, pair.remote_b, timeout=0) for _ in range(3)]
seen = requests.pop()
try:
    seen.wait()
except hixl.Error as error:
    print(error.code.name)
del requests
pair.a.stop()
pair.b.stop()
""", HIXL_LOG="warn")
        self.assertEqual((run.returncode, run.stdout), (0, "DEADLINE_EXCEEDED\n"), run.stderr)
        told = [line for line in run.stderr.splitlines() if "nobody looked" in line]
        self.assertEqual(len(told), 1, run.stderr)
        self.assertIn("2 operations failed and nobody looked at their results", told[0])

    def test_the_interpreter_ends_while_threads_wait(self):
        self.check(PAIR + """
told = []
def wait(call):
    inside.release()
    try:
        call()
    except hixl.Error as error:
        told.append(error.code.name)
inside = threading.Semaphore(0)
queue = hixl.CompletionQueue(4)
for call in (lambda: pair.a.wait_signal(pair.window_a, 7), pair.a.barrier, lambda: queue.wait(1000)):
    threading.Thread(target=wait, args=(call,), daemon=True).start()
for _ in range(3):
    inside.acquire()
""")

    def test_the_interpreter_ends_in_a_callback_that_never_does(self):
        self.check(PAIR + """
import hixl.dispatch
hixl.dispatch.STOP_TIMEOUT_S = 0.1
stuck = threading.Event()
inside = threading.Event()
def never(end):
    inside.set()
    stuck.wait()
pair.a.put(pair.window_a, pair.remote_b, callback=never)
inside.wait()
""")

    def test_a_forked_child_is_told_and_may_begin_anew(self):
        self.check(PAIR + """
told = threading.Event()
pair.a.put(pair.window_a, pair.remote_b, callback=lambda end: told.set())
told.wait()
request = pair.a.put(pair.window_a, pair.remote_b)
child = os.fork()
if child == 0:
    codes = set()
    for call in (lambda: pair.a.put(pair.window_a, pair.remote_b), lambda: pair.a.allocate(10), pair.a.barrier,
                 lambda: pair.a.deregister(pair.window_a), pair.a.links, request.wait, pair.a.dump_regions,
                 lambda: pair.a.put(pair.window_a, pair.remote_b, callback=print)):
        try:
            call()
            codes.add("nothing")
        except hixl.Error as error:
            codes.add(error.code.name)
    fresh = Pair(size=4096)
    heard = threading.Event()
    fresh.a.put(fresh.window_a, fresh.remote_b, callback=lambda end: heard.set())
    heard.wait()
    fresh.stop()
    os._exit(0 if codes - {"nothing"} == {"FORKED"} else 1)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
pair.a.put_sync(b"the parent goes on", pair.remote_b)
print(code, bytes(memoryview(pair.window_b)[:18]))
pair.stop()
""", "0 b'the parent goes on'\n")

    def test_a_forked_child_that_ends_by_itself(self):
        self.check(PAIR + """
child = os.fork()
if child == 0:
    sys.exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
pair.a.put_sync(b"x", pair.remote_b)
""", "0\n")

    def test_subinterpreters_are_refused(self):
        run = run_program("""
import sys
import hixl
try:
    import _interpreters as interpreters
    create = lambda: interpreters.create("legacy")
except ImportError:
    import _xxsubinterpreters as interpreters
    create = interpreters.create
code = '''
try:
    import hixl
except ImportError as error:
    print(str(error), flush=True)
'''
answer = interpreters.run_string(create(), "import sys; sys.path[:0] = %r\\n" % sys.path + code)
""")
        # From 3.12 on the interpreter itself may refuse first.
        self.assertRegex(run.stdout, "main interpreter only|does not support loading in subinterpreters", run.stderr)
        self.assertEqual(run.returncode, 0, run.stderr)

    def test_objects_may_go_in_any_order(self):
        pair = Pair(size=4096)
        region, remote, request = pair.window_a, pair.remote_b, pair.a.put(pair.window_a, pair.remote_b)
        queue = hixl.CompletionQueue(8)
        pair.a.put(region, remote, queue=queue)
        a, b = pair.a, pair.b
        del pair
        a.stop()
        a.stop()  # the same answer
        for call in (lambda: a.put(region, remote), lambda: a.allocate(1), a.barrier, a.quiet, a.dump_regions):
            with self.assertRaises(hixl.FixCall) as caught:
                call()
            self.assertEqual(caught.exception.code, hixl.ErrorCode.STOPPED)
        self.assertEqual(a.links(), [])
        a.counters()
        del a, region
        gc.collect()
        self.assertTrue(request.done())
        queue.poll()
        del b
        gc.collect()

    def test_many_runtimes_leave_nothing_behind(self):
        import os
        hixl.Runtime().stop()
        gc.collect()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(30):
            with hixl.Runtime() as rank:
                rank.allocate(4096)
            del rank
        gc.collect()
        self.assertLessEqual(len(os.listdir("/proc/self/fd")), before)


class FromEnvironment(unittest.TestCase):
    def test_options(self):
        run = run_program("""
import hixl
options = hixl.options_from_environment()
print(options["rank"], options["world_size"], options["links"], options["tcp_links"], options["default_timeout"])
print(*(options["rdma_" + name] for name in ("devices", "timeout", "retry", "visibility")))
with hixl.Runtime(**{**options, "rank": 0, "world_size": 1, "store": ""}) as rank:
    print(rank)
""", HIXL_RANK="3", HIXL_WORLD_SIZE="5", HIXL_STORE="tcp://127.0.0.1:4", HIXL_LINKS="tcp,hccs", HIXL_TCP_LINKS="2",
                          HIXL_RDMA_DEVICES="mlx5_0:2", HIXL_RDMA_TIMEOUT="9", HIXL_RDMA_VISIBILITY="ack")
        self.assertEqual(run.stdout, "3 5 ['tcp', 'hccs'] 2 30.0\nmlx5_0:2 9 7 ack\nRuntime(rank=0, world_size=1)\n",
                         run.stderr)

    def test_a_rank_of_the_environment(self):
        run = run_program("""
import hixl
with hixl.Runtime.from_environment(max_inline=0, poll="event") as rank:
    print(rank)
""", HIXL_RANK="0", HIXL_WORLD_SIZE="1")
        self.assertEqual(run.stdout, "Runtime(rank=0, world_size=1)\n", run.stderr)


if __name__ == "__main__":
    unittest.main()
