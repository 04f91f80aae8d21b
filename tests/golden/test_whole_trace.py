# SPDX-License-Identifier: Apache-2.0
"""Whole traces against an independent calculation, to the nanosecond; the exact partition of windows."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from cclbench.record.run import Run

from .conftest import Measure, Rows

PARTS = tuple(
    f"time.{part}" for part in ("compute_only", "overlapped", "exposed_comm", "exposed_copy", "idle")
)
COLUMNS = {f"{part.removeprefix('time.')}_ns": part for part in PARTS}
COLUMNS |= {"window_ns": "time.step", "comm_ns": "comm.time"}
CAUSES = ("time.idle_host", "time.idle_device", "time.idle_unknown")
CAPTURES = ("cpu_only", "cuda_sync_a100", "ddp_a100", "distributed_info_missing", "dlrm_8xv100")
CAPTURES += ("gpu_only_mi210", "h100_qwen", "nccl_meta_a100", "resnet50_2021", "resnet_mi300x")
CAPTURES += ("sampled_2of128", "sglang_decode_mi300x")


def sources(kineto: Path) -> list[Path]:
    """Every capture as a folder; two captures of one rank in one folder are two sources."""
    return [
        source
        for name in CAPTURES
        for source in (sorted((kineto / name).iterdir()) if name == "resnet50_2021" else [kineto / name])
    ]


def whole_trace(run: Run, rank: int) -> dict[str, str]:
    """One rank's figures as the independent table writes them; no communication is 0 ns and no ratio."""
    own = {
        row["metric"]: row["value"]
        for row in run.rows
        if row["rank"] == rank and all(row[key] is None for key in ("step", "stat", "category", "collective"))
    }
    figures = {
        column: "0" if own[metric] is None and metric == "comm.time" else str(round(own[metric] * 1e9))
        for column, metric in COLUMNS.items()
    }
    ratio = own["overlap.ratio"]
    return figures | {"overlap_ratio": "" if ratio is None else f"{ratio:.6f}"}


def expected(test_data: Path) -> dict[str, dict[str, str]]:
    """The independent calculation: by file its row."""
    with (test_data / "expected" / "kineto_whole_trace.csv").open() as table:
        return {row["file"]: row for row in csv.DictReader(table)}


def figures_of(row: dict[str, str]) -> dict[str, str]:
    """The columns compared, the ratio with the same number of decimals."""
    ratio = row["overlap_ratio"] and f"{float(row['overlap_ratio']):.6f}"
    return {column: row[column] for column in COLUMNS} | {"overlap_ratio": ratio}


def test_each_file_equals_an_independent_calculation(test_data: Path, kineto: Path, measure: Measure) -> None:
    rows = expected(test_data)
    assert len(rows) == 19
    paths = {path.name: path for path in kineto.glob("*/*.json.gz")}
    for name, row in rows.items():
        run = measure(paths[name], "trace")
        assert run.window == "trace"
        (entry,) = run.manifest["ranks"]
        assert entry["rank"] == int(row["rank"] or 0)
        assert whole_trace(run, entry["rank"]) == figures_of(row), name


@pytest.mark.parametrize(("capture", "ranks"), [("dlrm_8xv100", 8), ("sampled_2of128", 2)])
def test_a_folder_of_ranks_gives_each_rank_what_its_file_gives(test_data, kineto, measure, capture, ranks):
    run = measure(kineto / capture, "trace")
    rows = expected(test_data)
    files = {entry["rank"]: entry["files"][0]["name"] for entry in run.manifest["ranks"]}
    assert sorted(files) == list(range(ranks))
    for rank, name in files.items():
        assert whole_trace(run, rank) == figures_of(rows[name])


@pytest.mark.parametrize("window", ["steps", "annotations", "trace"])
def test_the_five_parts_sum_to_every_window(kineto: Path, measure: Measure, window: str) -> None:
    """And idle time is that of the host, the device and unknown cause, where it can be told apart."""
    windows = split = 0
    for source in sources(kineto):
        for values in _by_window(measure(source, window).rows):
            if "time.step" not in values:
                continue
            assert sum(values[part] for part in PARTS) == values["time.step"], (source, values)
            windows += 1
            if all(cause in values for cause in CAUSES):
                assert sum(values[cause] for cause in CAUSES) == values["time.idle"], (source, values)
                split += 1
    # steps of dlrm 8, ddp 6, nccl 3, resnet_mi300x 3, resnet50 12, sampled 4, h100 1, sglang 1, cpu_only 1;
    # cuda_sync and gpu_only have none, and are one window each
    assert windows == {"steps": 41, "annotations": 41, "trace": 20}[window]
    # On a CPU nothing is launched; seven open windows beside closed ones are shown with their parts only.
    assert split == windows - 1 - (7 if window == "steps" else 0)


def _by_window(rows: Iterable[dict[str, Any]]) -> list[dict[str, int]]:
    """The ns of each rank's metrics in each single window; means over several windows are left out."""
    found: dict[tuple[int, int | None], dict[str, int]] = defaultdict(dict)
    for row in rows:
        whole = row["category"] is None and row["rank"] is not None
        if row["metric"].startswith("time.") and whole and row["status"] == "ok":
            found[row["rank"], row["step"]][row["metric"]] = round(row["value"] * 1e9)
    with_steps = {rank for rank, step in found if step is not None}
    return [values for (rank, step), values in found.items() if step is not None or rank not in with_steps]


def test_every_annotated_step_is_a_window(kineto: Path, measure: Measure, complete_rows: Rows) -> None:
    """The steps are those that the JSON names ProfilerStep#N on the host, on each rank."""
    compared = 0
    for source in sources(kineto):
        run = measure(source, "annotations")
        steps = run.steps().to_pandas()
        for entry in run.manifest["ranks"]:
            file = source if source.is_file() else source / entry["files"][0]["name"]
            named = {
                int(match[1])
                for row in complete_rows(file)
                if row["cat"] in ("user_annotation", "Operator", "cpu_op")
                and (match := re.fullmatch(r"ProfilerStep#(\d+)", row["name"]))
            }
            if not named or entry["facts"].get("works_on") is None:
                continue
            own = steps[(steps["rank"] == entry["rank"]) & (steps["source"] == "annotation")]
            assert set(own["step"]) == named, file
            compared += len(named)
    # 41 windows of annotations, less two of captures without steps and one that sglang names itself
    assert compared == 38
