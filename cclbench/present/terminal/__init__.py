# SPDX-License-Identifier: Apache-2.0
"""Terminal output: 80 columns, readable without colour."""

from typing import Final

QUIET: Final = -1
VERBOSE: Final = 1
"""Verbosity levels; the default is 0."""
RAW_CSV: Final = "raw csv"
"""CSV with texts unchanged, without protection from spreadsheet formulas."""
BRIEF: Final = "brief"
"""The form of `--json --brief`."""
DOCUMENTS: Final = ("json", BRIEF)
"""Forms that are made of a command's document."""
