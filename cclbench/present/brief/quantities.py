# SPDX-License-Identifier: Apache-2.0
"""Numbers of brief answers as texts with their units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cclbench.ground.units import humanise

Document = Mapping[str, Any]
"""What a command prints with `--json`."""
Brief = dict[str, Any]


def quantity(value: float | None, unit: str) -> str | None:
    """The value with its unit, None if it is missing."""
    return None if value is None else humanise(value, unit)


def quantities(row: Document, units: Mapping[str, str]) -> Brief:
    """The row's fields named in `units`, by name without the unit: a unit of "" leaves the value as it is."""
    return {
        name.removesuffix("_s"): quantity(row.get(name), unit) if unit else row.get(name)
        for name, unit in units.items()
    }
