# SPDX-License-Identifier: Apache-2.0
"""Parts of bench/compare. Standard library only; what needs more runs in an interpreter of its own (workers/)."""
