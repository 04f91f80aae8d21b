# SPDX-License-Identifier: Apache-2.0
"""Sweeps made of a run's own collectives: whose time counts, and what is left out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from cclbench.analyzers.swept import own_sweeps
from cclbench.ground.schema import COLLECTIVES
from cclbench.hardware import catalog

MEMBERS = {"0-15": tuple(range(16)), "0-7": tuple(range(8)), "0-8": tuple(range(9))}


def part(
    instance: int | None, rank: int, wait: int | None, transfer: int | None, **more: Any
) -> dict[str, Any]:
    """A rank's part in an all-reduce of 4 KiB among 16."""
    given = {"kind": "all_reduce", "group": "0-15", "group_size": 16, "in_bytes": 4096, "out_bytes": 4096}
    times = {"start_ns": 0, "end_ns": 10, "wait_ns": wait, "transfer_ns": transfer}
    whole = {"collective": 0, "instance": instance, "rank": rank, "library": "nccl", **given, **times, **more}
    return dict.fromkeys(COLLECTIVES.names) | whole


def swept(*parts: dict[str, Any]) -> tuple[list[Any], dict[str, int]]:
    """Their sweeps on machines of eight."""
    return own_sweeps(
        pa.Table.from_pylist(list(parts), COLLECTIVES), MEMBERS, catalog.system("aws-p5"), "2.23.4"
    )


def test_the_last_rank_tells_and_the_median_counts() -> None:
    """Three of one size: 10, 20 and 90 µs by the ranks that came last; of another size one of 30 µs."""
    found, left_out = swept(
        part(1, 0, 0, 10_000), part(1, 1, 500, 11_000),
        part(2, 0, 700, 5_000), part(2, 1, 0, 20_000),
        part(3, 1, 0, 90_000),
        part(4, 0, 0, 30_000, in_bytes=8192, out_bytes=8192),
    )  # fmt: skip
    (sweep,) = found
    assert (sweep.kind, sweep.ranks, sweep.nodes, sweep.library_version) == ("all_reduce", 16, 2, "2.23.4")
    assert (sweep.bytes, sweep.seconds) == ((4096, 8192), (20e-6, 30e-6))
    assert left_out == {}
    # A rank whose waiting nobody knows is not taken for the last.
    (sweep,), _ = swept(part(1, 0, None, 99_000), part(1, 1, 5, 20_000), part(1, 2, 700, 30_000))
    assert sweep.seconds == (20e-6,)
    # No collectives, no sweeps.
    assert swept() == ([], {})


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"instance": None}, "not matched across ranks"),
        ({"transfer_ns": None}, "not matched across ranks"),
        ({"kind": "send"}, "sends and receives"),
        ({"library": "gloo"}, "of libraries whose algorithms are not modelled"),
        ({"group": "0-8", "group_size": 9}, "of unknown groups, or groups spread unevenly over nodes"),
        ({"group": None}, "of unknown groups, or groups spread unevenly over nodes"),
        ({"kind": "all_gather", "out_bytes": None}, "of unknown size"),
        ({"kind": None}, "without collective, ranks, nodes, size or time"),
        ({"transfer_ns": 0}, "with zero bytes, zero time or a single rank"),
    ],
)
def test_what_is_in_no_sweep_is_counted(more: dict[str, Any], why: str) -> None:
    """Each for one reason, and the rest stays."""
    found, left_out = swept(part(1, 0, 0, 10_000), part(2, 0, 0, 99_000) | more)
    assert [sweep.seconds for sweep in found] == [(10e-6,)]
    assert left_out == {why: 1}


def test_what_fits_for_several_reasons_nowhere_is_counted_once() -> None:
    both = part(2, 0, 0, 99_000, kind="send", library="gloo", group=None)
    gloo = part(3, 0, 0, 99_000, library="gloo", group="0-8", group_size=9)
    _, left_out = swept(part(1, 0, 0, 10_000), both, gloo, part(None, 0, 0, 9_000), part(None, 1, 0, 9_000))
    assert left_out == {
        "not matched across ranks": 2,
        "sends and receives": 1,
        "of libraries whose algorithms are not modelled": 1,
    }
