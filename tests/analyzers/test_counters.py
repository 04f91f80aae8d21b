# SPDX-License-Identifier: Apache-2.0
"""Bytes by hardware counters: sums by hand, which tool is preferred, and what counters cannot tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hand_made import a_rank, compute, window

from cclbench.analyzers.metric import METRICS, Value
from cclbench.analyzers.rows import run_values
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.run_view import RunView
from cclbench.schema import COUNTERS, EVIDENCE

Rows = Sequence[dict[str, Any]]


class Evidence:
    """The run's counters in memory."""

    def __init__(self, rows: Rows) -> None:
        self._rows = [dict.fromkeys(COUNTERS.names) | row for row in rows]

    def evidence(self, name: str) -> pa.Table:
        rows = self._rows if name == "counters" else []
        return pa.Table.from_pylist(rows, schema=EVIDENCE[name])


def counted(counter: str, value: float, start: int | None = None, end: int | None = None, **more: Any) -> Any:
    """A row of a port's counter."""
    given = {"source": "fabric_counters", "file": "ib.txt", "port": "mlx5_0/1", "unit": "B"}
    return {**given, "counter": counter, "value": value, "start_ns": start, "end_ns": end, **more}


def steps_of(*bounds: tuple[int, int], rank: int = 0) -> RankView:
    """A rank with those steps, each busy throughout."""
    windows = [window(start, end, step) for step, (start, end) in enumerate(bounds)]
    return a_rank([compute(start, end) for start, end in bounds], windows, rank=rank)


def told(metric: str, rows: Rows, *ranks: RankView) -> list[Value]:
    """What the metric says of a run with those counters."""
    by_rank = {view.rank: view for view in ranks}
    run = RunView(Evidence(rows), ranks=list(by_rank), view=by_rank.__getitem__)
    return run_values(run, [METRICS.get(metric)])[metric]


def only(values: Sequence[Value], **key: Any) -> Value:
    """The one value whose keys are these and no others."""
    wanted = {"category": None, "stat": None, "rank": None, "step": None, **key}
    (found,) = [v for v in values if all(getattr(v, name) == value for name, value in wanted.items())]
    return found


IB = [
    counted("nic_tx_bytes", 100, 0, 10),
    counted("nic_rx_bytes", 7, 0, 10),
    counted("nic_tx_bytes", 300, 10, 20),
    counted("nic_tx_bytes", 1000, 0, 20, port="mlx5_1/1"),
    counted("rdma_read_bytes", 99, 0, 10),
    counted("nic_retransmits", 5, 0, 10, unit="count"),
]


def test_sent_and_received_over_all_ports() -> None:
    values = told("comm.nic_bytes", IB)
    assert only(values).value == 1400
    assert only(values).provenance == "measured"
    assert only(values).source == "fabric_counters"
    assert only(values).reason == "by fabric_counters: 3 intervals of 2 ports, that cover 20.0 ns"
    assert only(values, category="tx").value == 1400
    assert only(values, category="rx").value == 7


def test_per_step_takes_whole_intervals_only() -> None:
    """Steps [8, 18) and [18, 28): of the intervals only [10, 20) lies within [8, 28), half of it."""
    values = told("comm.nic_bytes", IB, steps_of((8, 18), (18, 28)))
    per_step = only(values, stat="per_step")
    assert per_step.value == 150
    assert per_step.provenance == "derived"
    assert per_step.reason == "whole intervals cover 50.0 % of 2 steps' time, the rest is left out"


@pytest.mark.parametrize(
    ("rows", "ranks", "says"),
    [
        (IB, [], "the run has no trace with steps"),
        (IB, [steps_of((3, 9))], "no interval of the counters lies wholly within the steps"),
        ([counted("nic_tx_bytes", 5)], [steps_of((3, 9))], "nobody states the counters' times"),
    ],
)
def test_per_step_says_why_there_is_none(rows: Rows, ranks: list[RankView], says: str) -> None:
    per_step = only(told("comm.nic_bytes", rows, *ranks), stat="per_step")
    assert (per_step.status, per_step.value, per_step.reason) == ("not_applicable", None, says)


def test_unknown_times_are_said() -> None:
    values = told("comm.nic_bytes", [counted("nic_tx_bytes", 5), counted("nic_tx_bytes", 6, 1, 2)])
    assert only(values).value == 11
    assert only(values).reason == "by fabric_counters: 2 intervals of 1 port, at times nobody states"


def test_the_trace_is_preferred_and_the_other_stands_beside_it() -> None:
    own = {"source": "nsys", "file": "a.sqlite", "port": "mlx5_0"}
    nsys = [
        counted("nic_tx_bytes", 40, 0, 5, **own, rank=0),
        counted("nic_tx_bytes", 60, 5, 10, **own, rank=0),
        counted("nic_tx_bytes", 3000, 0, 5, **{**own, "file": "b.sqlite"}, rank=1),
    ]
    values = told("comm.nic_bytes", [*IB, *nsys])
    assert only(values).value == 3100
    assert only(values).source == "nsys"
    assert (only(values).reason or "").endswith("; fabric_counters says 1.40 kB")
    other = only(values, stat="fabric_counters")
    assert (other.value, other.source) == (1400, "fabric_counters")
    assert (other.reason or "").endswith("nsys is preferred")
    assert [only(values, rank=rank).value for rank in (0, 1)] == [100, 3000]


def test_what_was_counted_is_preferred_to_what_rates_suggest() -> None:
    """DCGM comes before nvidia-smi, but its instants of rates are an estimate: 2 B/s held for 3 s."""
    s = 10**9
    dcgm = {"source": "dcgm", "port": None, "device": 0, "unit": "B/s"}
    rates = [counted("nvlink_tx_rate", value, at * s, at * s, **dcgm) for value, at in ((9, 1), (2, 4))]
    alone = told("comm.nvlink_bytes", rates)
    assert (only(alone).value, only(alone).provenance) == (6, "derived")
    assert "by rates, each held since the sample before" in (only(alone).reason or "")
    smi = {"source": "nvidia_smi", "port": "nvlink 0", "device": 0}
    both = told("comm.nvlink_bytes", [*rates, counted("nvlink_tx_bytes", 50, **smi)])
    assert (only(both).value, only(both).source) == (50, "nvidia_smi")
    assert only(both, stat="dcgm").value == 6


def test_rates_are_held_gpu_by_gpu() -> None:
    """GPU 0: 5 B/s for 2 s; GPU 1: 7 B/s for 1 s; a first sample has nothing before it."""
    s = 10**9
    samples = [(0, 100, 1), (1, 100, 2), (0, 5, 3), (1, 7, 3)]
    rows = [
        counted("nvlink_tx_rate", value, at * s, at * s, source="dcgm", port=None, device=gpu)
        for gpu, value, at in samples
    ]
    assert only(told("comm.nvlink_bytes", rows)).value == 17


def links(file: str, *totals: float, time: int | None = None) -> Rows:
    """One dump of a GPU's links: their totals sent."""
    more = {"source": "nvidia_smi", "file": file, "device": 0}
    return [
        counted("nvlink_tx_total", total, time, time, **{**more, "port": f"nvlink {link}"})
        for link, total in enumerate(totals)
    ]


def test_totals_of_two_files_are_subtracted() -> None:
    rows = [
        *links("n0/nvlink_before.txt", 10, 20, time=5),
        *links("n0/nvlink_after.txt", 15, 120, time=9),
        *links("n1/nvlink-start-77", 0),
        *links("n1/nvlink-end-77", 1000),
        *links("job/Before/n2.txt", 1),
        *links("job/After/n2.txt", 3),
    ]
    values = told("comm.nvlink_bytes", rows, steps_of((5, 9)))
    assert only(values).value == 1107
    assert only(values).left_out == {}
    assert only(values, stat="per_step").value == 105


def test_totals_that_make_no_pair_are_counted() -> None:
    rows = [
        *links("a_before.txt", 10, 99),
        *links("a_after.txt", 15, 1),
        *links("b_after.txt", 7),
        *links("before/after.txt", 7),
        *links("pretext.txt", 7),
        *links("c_before.txt", 1),
        *links("c_start.txt", 1),
        *links("c_end.txt", 1),
    ]
    values = told("comm.nvlink_bytes", rows)
    assert only(values).value == 5
    assert only(values).left_out == {
        "totals without one `before` and one `after`": 6,
        "totals that went back: reset": 1,
    }


def test_all_links_together_are_not_added_to_each() -> None:
    smi = {"source": "nvidia_smi", "device": 0}
    rows = [
        counted("nvlink_tx_bytes", 10, **{**smi, "port": "nvlink 0"}),
        counted("nvlink_tx_bytes", 10, **{**smi, "port": "nvlink 1"}),
        counted("nvlink_tx_bytes", 21, **{**smi, "port": None}),
    ]
    value = only(told("comm.nvlink_bytes", rows))
    assert value.value == 20
    assert value.left_out == {"intervals of all ports together": 1}


def test_every_way_a_tool_counts_is_added_and_what_is_beside_is_counted() -> None:
    """A file of differences, two files of totals, a file with links and their sum, rates of a fourth."""
    smi = {"source": "nvidia_smi", "device": 0}
    counts = "nvlink_tx_bytes"
    rows = [
        counted(counts, 1, **smi, file="series.txt", port="nvlink 0"),
        counted(counts, 1, **smi, file="series.txt", port=None),
        counted(counts, 20, **smi, file="dmon.csv", port=None),
        counted("nvlink_tx_total", 100, file="before.txt", **smi),
        counted("nvlink_tx_total", 400, file="after.txt", **smi),
        counted("nvlink_tx_rate", 9, **smi, file="dmon.csv", port=None, unit="B/s"),
    ]
    value = only(told("comm.nvlink_bytes", rows))
    assert value.value == 321
    assert value.left_out == {"intervals of all ports together": 1, "rates, beside counted bytes": 1}


@pytest.mark.parametrize(
    ("metric", "rows", "says"),
    [
        ("comm.nic_bytes", [], "the run holds no NIC counters: add snapshots of /sys/class/infiniband"),
        ("comm.nvlink_bytes", IB, "the run holds no NVLink counters: add `nvidia-smi nvlink -gt d`"),
        (
            "comm.nvlink_bytes",
            [counted("nvlink_tx_utilization", 0.5, 0, 1, source="nsys", unit="1")],
            "the run's NVLink counters are shares of the links' peak, which are no bytes: add",
        ),
        (
            "comm.nvlink_bytes",
            [counted("nvlink_tx_rate", 5, source="dcgm", unit="B/s")],
            "the run's NVLink counters are rates without their times: add",
        ),
        (
            "comm.nvlink_bytes",
            links("dump.txt", 5),
            "the run's NVLink counters are totals of one moment only",
        ),
    ],
)
def test_no_bytes_say_why(metric: str, rows: Rows, says: str) -> None:
    (value,) = told(metric, rows)
    assert (value.status, value.value) == ("not_applicable", None)
    assert (value.reason or "").startswith(says)


def test_zero_bytes_are_an_answer() -> None:
    assert only(told("comm.nic_bytes", [counted("nic_tx_bytes", 0, 0, 10)])).value == 0
