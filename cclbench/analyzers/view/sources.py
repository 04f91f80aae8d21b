# SPDX-License-Identifier: Apache-2.0
"""Rows of one run from traces of several kinds, side by side and never mixed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from cclbench.ground.units import humanise
from cclbench.record.rows import Row


def side_by_side(preferred: list[Row], others: Mapping[str, list[Row]]) -> list[Row]:
    """A metric's rows from the preferred traces, with those from the `others`, by reader.

    Where both have a value, the other's is a row with its reader as `stat`, and the preferred row's reason
    states it. A metric without a value from the preferred traces has the rows of the first others with one.
    """
    preferred, later = _split_sources(preferred, others)
    for reader, other_rows in later.items():
        preferred = _with_other(preferred, reader, [row for row in other_rows if not row.narrowed])
    return preferred


def _split_sources(
    preferred: list[Row], others: Mapping[str, list[Row]]
) -> tuple[list[Row], dict[str, list[Row]]]:
    """A metric's rows from the first source with a measured value, and those of the later sources.

    Modelled values do not count.
    """
    if _is_measured(preferred[0]):
        return preferred, dict(others)
    for reader, other_rows in others.items():
        replacement = list(other_rows)
        if replacement and _is_measured(replacement[0]):
            why = f"by {reader}: {preferred[0].source} has no value"
            if not preferred[0].has_value:
                why += f" ({preferred[0].reason})"
            replacement[0] = replacement[0].noted(why)
            return replacement, {name: rows for name, rows in others.items() if name != reader}
    return preferred, {}


def _is_measured(row: Row) -> bool:
    return row.has_value and row.provenance != "modelled"


def _with_other(preferred: list[Row], reader: str, other_rows: Sequence[Row]) -> list[Row]:
    by_rank = {row.rank: row for row in other_rows if _is_measured(row)}
    rows: list[Row] = []
    for row in preferred:
        other = by_rank.get(row.rank) if not row.narrowed and row.has_value else None
        if other is None:
            rows.append(row)
            continue
        figure = humanise(other.number, other.unit)
        note = f"{row.source} is preferred; {reader} states {figure}"
        rows += [row.noted(note), msgspec.structs.replace(other, stat=reader)]
    return rows
