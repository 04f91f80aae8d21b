# SPDX-License-Identifier: Apache-2.0
"""A rank's rows as the replay reads them from a run."""

from __future__ import annotations

import json
from pathlib import Path

import cclbench
from cclbench.replay.tables import ranks


def test_of_host_rows_that_begin_together_the_outer_one_comes_first(tmp_path: Path) -> None:
    """An operator of 40 µs, one of 10 within it from its begin on, an annotation of 90 around both."""
    thread = {"ph": "X", "pid": 1, "tid": 1}
    events = [
        {**thread, "cat": "cpu_op", "name": "aten::view", "ts": 100, "dur": 10},
        {**thread, "cat": "user_annotation", "name": "forward", "ts": 100, "dur": 90},
        {**thread, "cat": "cpu_op", "name": "aten::linear", "ts": 100, "dur": 40},
        {**thread, "cat": "cpu_op", "name": "aten::relu", "ts": 50, "dur": 20},
    ]
    trace = {"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": events}
    (tmp_path / "rank0.json").write_text(json.dumps(trace))
    (one,) = ranks(cclbench.ingest(tmp_path / "rank0.json", store=tmp_path / "store"))
    names = [one.host.names[code] for code in one.host.name]
    assert names == ["aten::relu", "forward", "aten::linear", "aten::view"]
    assert one.annotation.tolist() == [False, True, False, False]
