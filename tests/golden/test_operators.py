# SPDX-License-Identifier: Apache-2.0
"""Which operator launched a kernel: as most traces state it, and by the launch in those that do not."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cclbench
from cclbench.comparison.build import run_subject
from cclbench.normalize.operators import Ranges
from cclbench.operator_table import operator_costs
from cclbench.present.operators import operator_section

QUERY = """
    SELECT k.start_ns, k.operator, l.track, l.start_ns AS launched_ns
    FROM events k JOIN events l ON l.kind = 'launch' AND l.correlation = k.correlation
    WHERE k.kind IN ('kernel', 'copy', 'memset')
    AND k.operator IN (SELECT operator FROM events WHERE kind = 'op')
"""


def innermost(run: cclbench.Run, track: Any, at: Any) -> Any:
    """Id of the innermost call on each thread at each instant, −1 for none."""
    table = run.sql(
        "SELECT track, start_ns, start_ns + dur_ns, operator FROM events WHERE kind = 'op' AND operator > 0"
    )
    columns = [column.to_numpy() for column in table.columns]
    order = Ranges.order_of(*columns)
    *edges, number = (column[order] for column in columns)
    return np.append(number, -1)[Ranges(*edges).innermost_at(track, at)]


@pytest.mark.parametrize(
    ("trace", "stated"),
    [
        ("nccl_meta_a100", 3774),
        ("resnet_mi300x", 2685),
        ("h100_qwen", 1198),
        ("resnet50_2021/resnet50_num_workers_4_29dba6_worker0.pt.trace.json.gz", 8946),
    ],
)
def test_the_operator_around_the_launch_is_the_one_that_the_trace_states(
    test_data: Path, evidence_store: Path, trace: str, stated: int
) -> None:
    """`External id` of a device row, which nesting knows nothing of, names the innermost call each time."""
    run = cclbench.ingest(test_data / "kineto" / trace, store=evidence_store)
    rows = run.sql(QUERY)
    found = innermost(run, rows["track"].to_numpy(), rows["launched_ns"].to_numpy())
    assert np.array_equal(found, rows["operator"].to_numpy())
    assert len(rows) == stated


def smallest_around(events: list[dict[str, Any]], kernel: dict[str, Any]) -> str | None:
    """Input Dims of the shortest operator around a kernel's launch, found by looking at all of them."""
    link = kernel["args"]["correlation"]
    calls = (e for e in events if e.get("cat") == "cuda_runtime" and e["args"]["correlation"] == link)
    launch = next(calls, None)
    if launch is None:
        return None
    on_thread = (e for e in events if e.get("cat") == "cpu_op" and e["tid"] == launch["tid"])
    around = [e for e in on_thread if e["ts"] <= launch["ts"] < e["ts"] + e["dur"]]
    # Of equally long ones the one that was entered last.
    inner = min(around, key=lambda e: (e["dur"], -e["args"]["External id"]), default=None)
    return inner and json.dumps(inner["args"].get("Input Dims"), separators=(",", ":"))


@pytest.mark.parametrize(
    ("trace", "kernels"),
    [
        ("dlrm_8xv100/worker0_step_12.1694128201545.pt.trace.json.gz", 245),
        ("sampled_2of128/sampled_rank-0.json.gz", 1154),
    ],
)
def test_shapes_of_kernels_in_traces_that_repeat_the_correlation(
    test_data: Path, evidence_store: Path, trace: str, kernels: int
) -> None:
    path = test_data / "kineto" / trace
    run = cclbench.ingest(path, store=evidence_store)
    table = run.sql(
        "SELECT k.correlation, o.shapes FROM events k LEFT JOIN events o ON o.kind = 'op' AND"
        " o.operator = k.operator WHERE k.kind = 'kernel'"
    )
    ours = dict(zip(table["correlation"].to_pylist(), table["shapes"].to_pylist(), strict=True))
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    ran = [e for e in events if e.get("cat") == "kernel"]
    assert len(ours) == kernels
    assert ours == {e["args"]["correlation"]: smallest_around(events, e) for e in ran}
    assert sum(shapes is not None for shapes in ours.values()) >= 0.98 * kernels


def test_a_report_tells_what_the_table_of_operators_does(test_data: Path, evidence_store: Path) -> None:
    run = cclbench.ingest(test_data / "kineto" / "h100_qwen", store=evidence_store)
    found, by_op = operator_section(run_subject("", run)), operator_costs(run, "op")
    assert len({row.operator for row in found.rows}) == len(by_op.rows) == 20
    for row in by_op.rows:
        own = [one for one in found.rows if one.operator == row.key]
        assert sum(one.time_ns for one in own) == row.time_ns
        assert sum(one.calls for one in own) == row.calls
        assert sum(one.flops or 0 for one in own) == pytest.approx(row.flops or 0)
        assert sum(one.gap_s or 0 for one in own) == pytest.approx(row.gap_s or 0)
    assert {chart.key for chart in found.charts if chart.svg} == {"operator-roofline", "modules"}
