# SPDX-License-Identifier: Apache-2.0
"""A metric's figures by traces of several kinds, side by side."""

from __future__ import annotations

from typing import Any

from cclbench.analyzers.view.sources import side_by_side
from cclbench.record.rows import Row


def row(source: str, value: float | None, **columns: Any) -> Row:
    known = {"status": "not_applicable", "provenance": None} if value is None else {"status": "ok"}
    told = {"metric": "m.x", "unit": "s", "provenance": "measured", "window": "steps", "version": 1, **known}
    return Row(value=value, source=source, **(told | columns))


def told(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(one.value, one.rank, one.step, one.stat, one.source, one.reason) for one in rows]


def test_the_preferred_figures_stand_first_and_each_others_beside_the_plain_ones() -> None:
    """Of the others only plain measured rows of the same rank count."""
    own = [row("a", 2.0, reason="so"), row("a", 3.0, rank=0), row("a", None, rank=1, reason="none")]
    own += [row("a", 4.0, step=1), row("a", 5.0, rank=2)]
    second = [row("b", 6.0), row("b", 60.0, stat="max"), row("b", 7.0, rank=0), row("b", 8.0, rank=1)]
    second += [row("b", 9.0, rank=2, provenance="modelled"), row("b", 10.0, step=1)]
    third = [row("c", None, reason="unknown"), row("c", 0.5, rank=2)]
    assert told(side_by_side(own, {"b": second, "c": third})) == [
        (2, None, None, None, "a", "so; a is preferred; b states 6.00 s"),
        (6, None, None, "b", "b", None),
        (3, 0, None, None, "a", "a is preferred; b states 7.00 s"),
        (7, 0, None, "b", "b", None),
        *((None, 1, None, None, "a", "none"), (4, None, 1, None, "a", None)),
        (5, 2, None, None, "a", "a is preferred; c states 500 ms"),
        (0.5, 2, None, "c", "c", None),
    ]


def test_what_the_preferred_do_not_tell_the_first_that_measured_it_does() -> None:
    own = [row("a", None, reason="no bytes"), row("a", None, rank=0)]
    measured = [row("d", 2.0, reason="so"), row("d", 3.0, rank=0)]
    others = {"b": [row("b", 1.0, provenance="modelled")], "c": [], "d": measured, "e": [row("e", 4.0)]}
    assert told(side_by_side(own, others)) == [
        (2, None, None, None, "d", "so; by d: a has no value (no bytes); d is preferred; e states 4.00 s"),
        (4, None, None, "e", "e", None),
        (3, 0, None, None, "d", None),
    ]
    assert measured[0].reason == "so"
    # Without others the own rows stay.
    assert side_by_side(own[:1], {}) == own[:1]
    assert side_by_side([row("a", 1.0)], {"b": [row("b", None)]}) == [row("a", 1.0)]


def test_the_runs_own_figure_decides_which_source_is_preferred() -> None:
    """Whatever is known of its ranks."""
    own = [row("a", 2.0), row("a", None, rank=0, reason="none")]
    expected = [(2, None, None, None, "a", "a is preferred; b states 6.00 s")]
    expected += [(6, None, None, "b", "b", None), (None, 0, None, None, "a", "none")]
    assert told(side_by_side(own, {"b": [row("b", 6.0), row("b", 7.0, rank=0)]})) == expected
    lacking = [row("a", None, reason="no bytes"), row("a", 3.0, rank=0)]
    wanted = [(6, None, None, None, "b", "by b: a has no value (no bytes)"), (7, None, 1, None, "b", None)]
    assert told(side_by_side(lacking, {"b": [row("b", 6.0), row("b", 7.0, step=1)]})) == wanted
