# SPDX-License-Identifier: Apache-2.0
"""Exceptions: a class for each kind, the code and the detail in it, and never success."""

import pickle
import unittest

import hixl
from hixl import errors


class Errors(unittest.TestCase):
    def test_every_code_makes_the_class_of_its_kind(self):
        """P68: whatever the library answers is an exception that says what to do."""
        self.assertGreater(len(hixl.ErrorCode), 50)
        for code in hixl.ErrorCode:
            if code is hixl.ErrorCode.OK:
                continue
            error = hixl.Error(code)
            self.assertIs(type(error), errors.CLASS_OF[errors.KIND_OF[code]])
            self.assertEqual(error.code, code)
            self.assertEqual(error.kind, errors.KIND_OF[code])
            self.assertIn(code.name, str(error))
            self.assertIn(error.remedy, str(error))
        self.assertEqual({one.kind for one in errors.CLASS_OF.values()}, set(hixl.ErrorKind))

    def test_success_is_no_exception(self):
        for kind in (hixl.Error, hixl.FixCall, hixl.Cancelled):
            for nothing in (0, hixl.ErrorCode.OK):
                with self.assertRaisesRegex(ValueError, "success is no error"):
                    kind(nothing)

    def test_a_code_cannot_be_changed_to_success(self):
        error = hixl.Error(hixl.ErrorCode.BUSY)
        with self.assertRaises(AttributeError):
            error.code = hixl.ErrorCode.OK

    def test_class_and_code_belong_together(self):
        self.assertIs(type(hixl.FixCall(hixl.ErrorCode.STOPPED)), hixl.FixCall)
        with self.assertRaisesRegex(ValueError, "PEER_LOST is of kind RECONNECT: raise Reconnect, not FixCall"):
            hixl.FixCall(hixl.ErrorCode.PEER_LOST)

    def test_unknown_numbers_and_details(self):
        with self.assertRaises(ValueError):
            hixl.Error(31337)
        with self.assertRaises(TypeError):
            hixl.Error(hixl.ErrorCode.BUSY, "text", {"rank": 1})

    def test_pickled_it_is_the_same(self):
        error = hixl.Error(hixl.ErrorCode.PEER_LOST, "gone", hixl.ErrorDetail(rank=3, limit=7))
        copy = pickle.loads(pickle.dumps(error))
        self.assertIs(type(copy), hixl.Reconnect)
        self.assertEqual((copy.code, str(copy), copy.detail), (error.code, "gone", error.detail))

    def test_details_of_a_connection(self):
        with self.assertRaises(hixl.RetryLater) as caught:
            hixl.Runtime(rank=1, world_size=2, store="tcp://127.0.0.1:1", connect_timeout=0.05)
        self.assertIn(caught.exception.code.name, ("RENDEZVOUS_UNREACHABLE", "CONNECT_REFUSED"))
        self.assertEqual((str(caught.exception.detail.host), caught.exception.detail.port), ("127.0.0.1", 1))


if __name__ == "__main__":
    unittest.main()
