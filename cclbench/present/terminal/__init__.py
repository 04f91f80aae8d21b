# SPDX-License-Identifier: Apache-2.0
"""What people read on a terminal: 80 columns, readable without colour."""

from typing import Final

QUIET: Final = -1
VERBOSE: Final = 1
"""Verbosities; 0 lies between them."""
RAW_CSV: Final = "raw csv"
"""The form of csv in which no text is kept from a spreadsheet."""
