# SPDX-License-Identifier: Apache-2.0
"""How two programs meet by address, for the packages over hixl: one listens at a door, the other one dials; they speak
in lines, and who dials offers a world in which who listens becomes a rank. Private: programs do not import it."""

from .dial import dial
from .door import Door, until_gone
from .lines import Protocol, deadline_of, fail, is_number, left
from .place import host_and_port, options_at, url_at

__all__ = ["Door", "Protocol", "deadline_of", "dial", "fail", "host_and_port", "is_number", "left", "options_at",
           "until_gone", "url_at"]
