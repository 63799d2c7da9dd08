# SPDX-License-Identifier: Apache-2.0
"""Interfaces of inference engines over hixl. Nothing here imports an engine. docs/python.md explains them."""
