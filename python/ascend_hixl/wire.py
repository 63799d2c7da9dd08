# SPDX-License-Identifier: Apache-2.0
"""What a responder and a requester agree on: a line each way when they connect (hixl._meeting), and the shape of the
ring.

A requester makes a rank for each connection, in the responder's world: so the responder sends from one runtime, in
whose device memory its cache lies. Its ring is memory for messages, and DEPTH slots in a control region, one a message:

    word 0      number of the message that is there whole; the signal behind its bytes
    words 1-3   where in the ring, its bytes, bytes of its metadata
    from 32     metadata, JSON

The responder's control region is one word: how many messages have been released, in order.

It is no hixl Channel, in whose ring the heads of messages lie among the bytes, where the CPU reads them: here the bytes
may lie in device memory, which it cannot read, so the heads and the metadata are in a region of their own."""

import struct

from hixl import _meeting as meeting

LINES = meeting.Protocol("ascend_hixl", 1)
DEPTH = 64
SLOT_BYTES = 1024
METADATA_MAX = SLOT_BYTES - 32
SLOT = struct.Struct("<QQQ")
TAG_RING, TAG_CONTROL, TAG_CREDIT = 0x48584C01, 0x48584C02, 0x48584C03
