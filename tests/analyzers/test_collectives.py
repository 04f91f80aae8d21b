# SPDX-License-Identifier: Apache-2.0
"""Payload, kind, group size and labels of collectives, worked out by hand."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from helpers.hand_made import collective, collectives_table

from cclbench.analyzers.view.collectives import (
    Label,
    collective_durations,
    collective_kinds,
    collective_payloads,
    group_sizes,
    label_numbers,
    sum_by_wider_label,
)


@pytest.mark.parametrize(
    ("kind", "sides", "ranks", "expected"),
    [
        ("all_reduce", (30, 20), 4, (30, True)),
        ("all_reduce", (20, 30), 4, (30, True)),
        ("all_reduce", (30, None), 4, (30, True)),
        ("broadcast", (None, 30), 4, (30, True)),
        ("all_to_all", (None, None), 4, (0, False)),
        (None, (7, None), None, (7, True)),
        # One side alone does not tell whether it is the large one.
        ("all_gather", (10, 40), 4, (40, True)),
        ("all_gather", (10, None), 4, (10, False)),
        ("all_gather", (None, 40), 4, (40, False)),
        ("reduce_scatter", (40, 10), 4, (40, True)),
        ("reduce_scatter", (40, None), 4, (40, False)),
        ("reduce_scatter", (None, 10), 4, (10, False)),
        # What a rank hands in to a gather, and gets of a scatter, times the ranks.
        ("gather", (10, None), 4, (40, True)),
        ("gather", (10, 1), 1, (10, True)),
        ("gather", (None, 40), 4, (0, False)),
        ("gather", (10, 40), None, (0, False)),
        ("scatter", (None, 10), 4, (40, True)),
        ("scatter", (50, 10), 4, (40, True)),
        ("scatter", (40, None), 4, (0, False)),
        ("scatter", (40, 10), None, (0, False)),
    ],
)
def test_payload_is_the_larger_side_where_that_is_known(
    kind: str | None, sides: tuple[Any, Any], ranks: int | None, expected: tuple[int, bool]
) -> None:
    row = collective(kind, 0, 1, in_bytes=sides[0], out_bytes=sides[1], group_size=ranks)
    other = collective("all_reduce", 0, 1, in_bytes=1, group_size=2)
    size, known = collective_payloads(collectives_table(other, row))
    assert (size.tolist(), known.tolist()) == ([1, expected[0]], [True, expected[1]])


def test_kinds_sizes_and_durations_of_rows() -> None:
    rows = collectives_table(
        collective("send", 5, 9, group_size=3), collective(None, 9, 9), collective("recv", 2, 9)
    )
    assert collective_kinds(rows).tolist() == ["send", "", "recv"]
    assert group_sizes(rows).tolist() == [3, 0, 0]
    assert collective_durations(rows).tolist() == [4, 0, 7]


def test_a_collective_counts_under_its_kind_its_kind_and_group_and_its_dimension() -> None:
    of_group, whole = Label("send", "0-1"), Label("send", "0-1", "pp")
    assert list(whole.wider_labels()) == [Label("send"), of_group, Label(dimension="pp")]
    assert list(Label("send").wider_labels()) == [Label("send")]
    assert list(Label("send", "0-1").wider_labels()) == [Label("send"), Label("send", "0-1")]
    assert list(Label("send", None, "pp").wider_labels()) == [Label("send"), Label(dimension="pp")]
    # Amounts add up under every label.
    known = [Label("send", "0-1", "pp"), Label("send", "2-3", "pp"), Label("recv", "0-1")]
    assert sum_by_wider_label(known, [Fraction(1, 3), Fraction(2), Fraction(4)]) == {
        Label("send"): Fraction(7, 3),
        Label("send", "0-1"): Fraction(1, 3),
        Label("send", "2-3"): 2,
        Label(dimension="pp"): Fraction(7, 3),
        Label("recv"): 4,
        Label("recv", "0-1"): 4,
    }


def test_labels_are_sorted_by_kind_group_and_dimension_and_unknown_kinds_are_named() -> None:
    told = [("send", "2-3", "pp"), (None, None, None), ("all_reduce", "9", "tp"), ("send", "0-1", "tp")]
    told += [("send", "0-1", "pp"), ("unknown", None, None), ("send", None, "zz"), ("send", "0-1", None)]
    told.append(told[4])
    rows = [collective(k, 0, 1, group=g, dimension=d) for k, g, d in told]
    number, found = label_numbers(collectives_table(*rows))
    assert found == [
        *(Label("all_reduce", "9", "tp"), Label("send", None, "zz"), Label("send", "0-1", None)),
        *(Label("send", "0-1", "pp"), Label("send", "0-1", "tp"), Label("send", "2-3", "pp")),
        Label("unknown"),
    ]
    assert number.tolist() == [5, 6, 0, 4, 3, 6, 1, 2, 3]
