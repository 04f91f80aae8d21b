# SPDX-License-Identifier: Apache-2.0
"""The causes that are planted; importing a module registers its own."""

from __future__ import annotations

from cclbench.selftest.causes import balance, compute, host, memory, transfers

__all__ = ["balance", "compute", "host", "memory", "transfers"]
