# SPDX-License-Identifier: Apache-2.0
"""A run made by hand: a manifest and result rows, as `cclbench.api` gives them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import Told, call, told  # noqa: F401 - fixtures
from helpers.compared_subjects import row as result_row
from helpers.typed import figures, record

from cclbench.ground.errors import InputError
from cclbench.ground.schema import LAYOUT, VERSION
from cclbench.record.manifest import Manifest
from cclbench.record.results import Results

Row = dict[str, Any]


def rank_entry(rank: int, **other: Any) -> dict[str, Any]:
    """One rank of a manifest: 1,000 kernels, three steps."""
    facts = {"rank": rank, "rank_source": "distributedInfo", "world_size": 4, "producer": "PyTorch Profiler"}
    facts |= {"producer_version": "2.13.0", "backend": "nccl", "vendor": "nvidia", "works_on": "device"}
    facts |= {"device_name": "NVIDIA H100 80GB HBM3", "sm_count": 132, "library_version": "2.27.3"}
    file = {"name": f"rank{rank}.json.gz", "bytes": 2_500_000, "sha256": "0" * 64, "reader": "kineto"}
    left_out = {"cut by the end of the capture": 1}
    entry: dict[str, Any] = {
        "rank": rank,
        "facts": facts,
        "files": [file],
        "rows": {"kernel": 1000, "copy": 12, "op": 20_000},
        "dropped": {"profiler overhead": 7},
        "steps": {"found": 3, "closed": 3, "source": "device", "left_out": left_out},
        "unclassified": {"share": 0.012, "names": ["my_kernel<float>[1]"]},
        "collectives": {"count": 21, "without_bytes": 0, "without_group": 0, "libraries": {"nccl": 21}},
        "truncated": None,
        "notes": [],
    }
    return entry | other


@pytest.fixture
def row() -> Callable[..., Row]:
    """Makes a result row."""
    return result_row


@pytest.fixture
def entry() -> Callable[..., dict[str, Any]]:
    """Makes a rank's entry of a manifest."""
    return rank_entry


@pytest.fixture
def manifest() -> dict[str, Any]:
    """Two of four ranks, no card."""
    matching: dict[str, Any] = {"rows": 42, "matched": 36, "instances": 18, "complete": 17, "partial": 1}
    matching |= {"unmatched": {"its peer is unknown": 2, "no other rank's trace has it": 4}}
    clocks = [
        {"rank": rank, "offset_ns": offset, "drift_ppm": drift, "applied": offset != 0}
        | {"residual_ns": 900.0 + rank, "uncertainty_ns": 900.0}
        for rank, offset, drift in ((0, 0.0, 0.0), (1, -250_000.0, 20.25))
    ]
    found = {"schema": VERSION, "tables": LAYOUT, "fingerprint": "0" * 64, "cclbench": "0.1.0"}
    found |= {"run": "tiny-0123abcd", "source": "traces/tiny", "card": None, "inference": None}
    return found | {
        "ingest": {"allow_truncated": False, "step_annotation": None, "inference": True},
        "ranks": [rank_entry(0), rank_entry(1, notes=["kernels without a launch: 3"])],
        "matching": matching | {"contradicted_instances": 0, "wait_beyond_duration_ns": 0},
        "clocks": {"reference_ns": 0, "ranks": clocks},
        **{key: [] for key in ("sources", "evidence", "notes")},
    }


@pytest.fixture
def rows() -> list[Row]:
    """Rank 0: 100 ms a step (40, 10, 20, 5, 25), rank 1: 50 ms (25, 5, 10, 0, 10); and some of each kind."""
    parts = {"compute_only": (0.040, 0.025), "overlapped": (0.010, 0.005), "exposed_comm": (0.020, 0.010)}
    parts |= {"exposed_copy": (0.005, 0.0), "idle": (0.025, 0.010)}
    found = [
        result_row("time.step", 0.1, better="lower"),
        result_row("time.step", 0.09, stat="p50"),
        result_row("time.step", 0.07, unit="1", stat="cv"),
        *(result_row("time.step", 0.1, step=step) for step in (3, 4, 5)),
        *(result_row("time.step", value, rank=rank) for rank, value in enumerate((0.1, 0.05))),
    ]
    for part, values in parts.items():
        found.append(result_row(f"time.{part}", sum(values) / 2))
        found += [result_row(f"time.{part}", value, rank=rank) for rank, value in enumerate(values)]
    modelled, no_card = {"provenance": "modelled"}, {"reason": "the run has no workload card"}
    return [
        *found,
        result_row("comm.volume", 7e9, "B"),
        result_row("comm.volume", 4e9, "B", collective="all_gather"),
        result_row("comm.volume", 3e9, "B", collective="all_reduce"),
        result_row("comm.volume", 2e9, "B", collective="all_gather", group="0-1"),
        *(result_row("compute.category_share", 0.01 * n, "1", category=f"c{n}") for n in range(1, 10)),
        result_row("memory.hbm_utilization", 0.5, "1", reason="from op shapes", **modelled),
        result_row("memory.hbm_utilization", 0.4, "1", stat="low", **modelled),
        result_row("memory.hbm_utilization", 0.6, "1", stat="high", **modelled),
        result_row("compute.mfu", None, "1", **no_card),
        result_row("throughput.tokens", None, "tokens/s", **no_card),
        result_row("serving.ttft", None, reason="a kernel trace alone cannot give it"),
        result_row("compute.achieved_flops", None, "FLOP/s", status="failed", reason="more than the peak"),
    ]


@dataclass
class FakeRun:
    """What the commands use of a Run, as its manifest and rows say; it has neither card nor tables."""

    manifest: dict[str, Any]
    rows: list[Row]
    window: str = "steps"
    card: None = None

    @property
    def record(self) -> Manifest:
        return record(self.manifest)

    @property
    def figures(self) -> Results:
        return Results.from_rows(figures(self.rows))

    @property
    def id(self) -> str:
        return str(self.manifest["run"])

    @property
    def ranks(self) -> list[int]:
        return [entry.rank for entry in self.record.ranks]

    def rank(self, number: int) -> None:
        raise InputError(f"rank {number} has no tables")

    @property
    def path(self) -> Path:
        return Path("runs") / self.id


@pytest.fixture
def fake_run(manifest: dict[str, Any], rows: list[Row]) -> FakeRun:
    """The run made by hand."""
    return FakeRun(manifest, rows)


def _complete(name: str, category: str, begin_us: float, length_us: float, **args: Any) -> dict[str, Any]:
    place = {"pid": 0, "tid": 7} if category in ("kernel", "gpu_memcpy") else {"pid": 4242, "tid": 4242}
    return {"ph": "X", "cat": category, "name": name, "ts": begin_us, "dur": length_us, **place, "args": args}


REDUCED = {"Collective name": "allreduce", "In msg nelems": 1_000_000, "Out msg nelems": 1_000_000}
REDUCED |= {"dtype": "Float", "Group size": 2, "Process Group Name": "0", "Process Group Ranks": "[0, 1]"}
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def kineto_events() -> list[dict[str, Any]]:
    """Two steps: in each 40 µs of matrix product, 30 µs of all-reduce, 20 of them hidden, 5 µs of copy."""
    events = []
    for step in (0, 1):
        at, launch = 1000.0 + 100 * step, 10 * step
        copy = {"correlation": launch + 3, "bytes": 4096}
        events += [
            _complete(f"ProfilerStep#{step}", "user_annotation", at, 95),
            _complete("cudaLaunchKernel", "cuda_runtime", at + 1, 2, correlation=launch + 1),
            _complete("cudaLaunchKernel", "cuda_runtime", at + 4, 2, correlation=launch + 2),
            _complete("cudaMemcpyAsync", "cuda_runtime", at + 7, 2, correlation=launch + 3),
            _complete(
                "ampere_sgemm_128x64_nn", "kernel", at + 10, 40, correlation=launch + 1, grid=[54, 1, 1]
            ),
            _complete(NCCL, "kernel", at + 30, 30, correlation=launch + 2, **REDUCED),
            _complete("Memcpy DtoH (Device -> Pinned)", "gpu_memcpy", at + 70, 5, **copy),
        ]
    return events


def kineto_document() -> dict[str, Any]:
    """Rank 0 of 2, as PyTorch's profiler writes it."""
    device = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85_000_000_000, "numSms": 108}
    return {
        "schemaVersion": 1,
        "deviceProperties": [device],
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2},
        "traceEvents": kineto_events(),
        "traceName": "rank0.json",
    }


@pytest.fixture
def document() -> dict[str, Any]:
    """A small valid Kineto trace, to be changed."""
    return kineto_document()


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """The small valid Kineto trace as a file."""
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(kineto_document()))
    return path


@pytest.fixture
def stored(told: Told, trace: Path) -> str:  # noqa: F811 - the fixture
    """The id of the small trace's run in the store."""
    return str(told("ingest", trace)["runs"][0]["run"])


def words_of(text: str) -> str:
    """The text with one space for each break."""
    return " ".join(text.split())
