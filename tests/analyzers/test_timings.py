# SPDX-License-Identifier: Apache-2.0
"""Bus bandwidth of sweeps, on hand-made rows and on a published one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.hand_made import Evidence, job_values
from helpers.hand_values import told

from cclbench.analyzers.metric import Value
from cclbench.formats.nccl_tests import NcclTests
from cclbench.ground.evidence_schema import TIMINGS

GB = 1e9


def row(size: int, busbw: float | None, **changes: Any) -> dict[str, Any]:
    told = {"source": "nccl_tests", "file": "a.txt", "kind": "all_reduce", "group_size": 8, "nodes": 1}
    told |= {"dtype": "float", "in_place": False, "bytes": size, "busbw": busbw}
    return told | changes


def values(*rows: dict[str, Any]) -> list[Value]:
    return job_values("comm.measured_busbw", Evidence(timings=rows))


def numbers(found: list[Value]) -> dict[Any, Any]:
    assert all(value.status == "ok" and value.source == "nccl_tests" for value in found)
    return told(found)


LEFT_OUT = "whose stated bandwidth is 0.00 GB/s"


def test_by_kind_and_size() -> None:
    """A kind's own figure is that of its largest size."""
    sweep = [row(1 << 30, 300 * GB), row(1 << 20, 50 * GB), row(1 << 20, 60 * GB, in_place=True)]
    found = values(*sweep, row(1000, 1 * GB, kind="broadcast"))
    expected = {"all_reduce": 300 * GB, ("all_reduce", "1GiB"): 300 * GB, ("all_reduce", "1MiB"): 50 * GB}
    expected |= {("all_reduce", "in_place"): 60 * GB, ("all_reduce", "1MiB", "in_place"): 60 * GB}
    expected |= {**dict.fromkeys(["broadcast", ("broadcast", "1000B")], 1 * GB)}
    assert numbers(found) == expected
    own = {value.collective: value.words for value in found if not value.category and not value.stat}
    assert own == {"all_reduce": "8 ranks on 1 node, at 1GiB", "broadcast": "8 ranks on 1 node, at 1000B"}
    # Repeated sizes have the mean.
    found = values(row(1024, 10 * GB), row(1024, 14 * GB))
    assert numbers(found)["all_reduce", "1KiB"] == 12 * GB
    mean = "mean of 2 measurements"
    assert {value.words for value in found} == {mean, f"8 ranks on 1 node, at 1KiB; {mean}"}


def test_what_is_printed_as_nothing_is_left_out() -> None:
    """0.00 GB/s is a rounded figure, not a bandwidth of zero; it is told once of either placement."""
    none = [row(8, 0.0), row(16, 0.0, in_place=True), row(32, None)]
    found = values(*none, row(1024, 2 * GB, nodes=2))
    assert {value.category: value.value for value in found} == {
        None: None,  # two sweeps: nodes differ
        "1 nodes": None,
        **dict.fromkeys(["2 nodes", "2 nodes, 1KiB"], 2 * GB),
    }
    (own,) = [value for value in values(*none, row(1024, 2 * GB)) if value.category is None]
    assert own.words == f"8 ranks on 1 node, at 1KiB; left out: 3 {LEFT_OUT}"
    found = values(row(8, 0.0), row(1024, 2 * GB), row(1024, 3 * GB, in_place=True))
    assert {(v.category, v.stat): v.left_out for v in found if v.left_out} == {(None, None): {LEFT_OUT: 1}}
    (nothing,) = values(row(8, 0.0), row(16, None))
    assert (nothing.value, nothing.status) == (None, "not_applicable")
    assert nothing.words == f"the sweep states no bandwidth above 0.00 GB/s; left out: 2 {LEFT_OUT}"
    assert (nothing.collective, nothing.source) == ("all_reduce", "nccl_tests")


@pytest.mark.parametrize(
    ("change", "first", "second"),
    [
        ({"file": "b.txt"}, "a.txt", "b.txt"),
        ({"group_size": 16}, "8 ranks", "16 ranks"),
        ({"nodes": 2}, "1 nodes", "2 nodes"),
        ({"nodes": None, "dtype": "half"}, "1 nodes float", "unknown nodes half"),
    ],
)
def test_sweeps_are_never_mixed(change: dict[str, Any], first: str, second: str) -> None:
    several, *rest = values(row(1024, 1 * GB), row(2048, 2 * GB, **change), row(8, 3 * GB, kind="reduce"))
    assert (several.value, several.status, several.collective) == (None, "not_applicable", "all_reduce")
    assert several.reason == "2 sweeps: see their rows"
    assert numbers(rest) == {
        **dict.fromkeys([("all_reduce", first), ("all_reduce", f"{first}, 1KiB")], 1 * GB),
        **dict.fromkeys([("all_reduce", second), ("all_reduce", f"{second}, 2KiB")], 2 * GB),
        **dict.fromkeys(["reduce", ("reduce", "8B")], 3 * GB),
    }


def test_what_is_unknown_is_called_so() -> None:
    unknown = values(row(1024, 1 * GB, kind=None, group_size=None, nodes=None))
    (own, _) = sorted(unknown, key=lambda v: v.category or "")
    assert (own.collective, own.words) == ("unknown", "ranks not stated, at 1KiB")
    # A sweep on an unknown number of nodes says the rest.
    found = values(row(1024, 1 * GB, nodes=None), row(2048, 2 * GB, nodes=2))
    assert [v.category for v in found] == [
        *(None, "unknown nodes, 1KiB", "unknown nodes", "2 nodes, 2KiB", "2 nodes")
    ]
    assert {v.source for v in found} == {"nccl_tests"}
    assert (found[2].words, found[4].words) == ("8 ranks, at 1KiB", "8 ranks on 2 nodes, at 2KiB")


def test_other_timings_are_no_sweep() -> None:
    """Collectives of a workload have their own metric."""
    for rows in ([], [row(1024, 1 * GB, source="nccl_inspector")]):
        (nothing,) = values(*rows)
        assert nothing.status == "not_applicable"
        assert nothing.reason == "the run has no sweep of nccl-tests or rccl-tests: add its output"


def test_a_published_sweep(test_data: Path) -> None:
    """Its source states 672.38 GB/s at 16 GiB."""
    timings = NcclTests().read(test_data / "nccl_tests" / "vultr_b200_1n8_allgather.csv").timings
    named = timings.set_column(
        0, TIMINGS.field("source"), pa.array(["nccl_tests"] * 28, TIMINGS.field("source").type)
    )
    found = job_values("comm.measured_busbw", Evidence(timings=named))
    assert numbers(found)["all_gather"] == pytest.approx(672.38 * GB, rel=1e-4)
    assert len(found) == 29
