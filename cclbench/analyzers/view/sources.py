# SPDX-License-Identifier: Apache-2.0
"""Figures of one run by traces of several kinds: side by side, never mixed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from cclbench.ground.units import humanise
from cclbench.record.rows import Row


def side_by_side(own: list[Row], others: Mapping[str, list[Row]]) -> list[Row]:
    """A metric's rows by the preferred traces, and beside the plain ones those by the `others`, by reader.

    Where both have a number, the other's is a row with its reader as `stat`, and the preferred row's reason
    tells it.  A metric that the preferred traces cannot give has the rows of the first that can.
    """
    own, rest = _first_that_answers(own, others)
    for reader, theirs in rest.items():
        own = _with_other(own, reader, [row for row in theirs if not row.narrowed])
    return own


def _first_that_answers(
    own: list[Row], others: Mapping[str, list[Row]]
) -> tuple[list[Row], dict[str, list[Row]]]:
    """A metric's rows of the first source that measured a number, and those of the sources after it.

    What is modelled is not measured.
    """
    if _is_measured(own[0]):
        return own, dict(others)
    for reader, theirs in others.items():
        found = list(theirs)
        if found and _is_measured(found[0]):
            why = f"by {reader}: {own[0].source} does not tell"
            if not own[0].has_value:
                why += f" ({own[0].reason})"
            found[0] = found[0].noted(why)
            return found, {name: rows for name, rows in others.items() if name != reader}
    return own, {}


def _is_measured(row: Row) -> bool:
    return row.has_value and row.provenance != "modelled"


def _with_other(own: list[Row], reader: str, theirs: Sequence[Row]) -> list[Row]:
    by_rank = {row.rank: row for row in theirs if _is_measured(row)}
    told: list[Row] = []
    for row in own:
        other = by_rank.get(row.rank) if not row.narrowed and row.has_value else None
        if other is None:
            told.append(row)
            continue
        figure = humanise(other.number, other.unit)
        says = f"{row.source} is preferred; {reader} says {figure}"
        told += [row.noted(says), msgspec.structs.replace(other, stat=reader)]
    return told
