# SPDX-License-Identifier: Apache-2.0
"""Signals in the main thread."""

from __future__ import annotations

from typing import Final

WAIT_S: Final = 0.2
"""Longest wait of the main thread for a lock: Ctrl-C just before it is handled only when the wait ends."""
