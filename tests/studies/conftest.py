# SPDX-License-Identifier: Apache-2.0
"""The command line, and the helpers of comparisons and replays, which studies stand on."""

from __future__ import annotations

import sys
from pathlib import Path

from helpers.command_line import call  # noqa: F401 - a fixture

TESTS = Path(__file__).resolve().parents[1]
sys.path += [str(TESTS / "comparison"), str(TESTS / "replay")]
