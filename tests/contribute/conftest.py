# SPDX-License-Identifier: Apache-2.0
"""A job as its owner has it: a card, two ranks' traces with a secret planted in them, a script."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from helpers import trees
from helpers.contributed import CARD

from cclbench.contribute.package import PackageOptions, make_data_point

OWNER = "ada-lovelace"
"""Whom the traces, a script and the card name."""

OWN_CARD = CARD.replace("fp32", "bf16") + "contributor: {name: Example Lab}\n"


def _event(name: str, category: str, begin_us: float, length_us: float, **args: Any) -> dict[str, Any]:
    device = category == "kernel"
    place = {"pid": 0, "tid": 7} if device else {"pid": 4242, "tid": 4242}
    event = {"ph": "X", "cat": category, "name": name, "ts": begin_us, "dur": length_us, **place}
    return {**event, "args": args}


def trace(rank: int) -> dict[str, Any]:
    """Two steps of 100 µs: 40 µs of matrix product, 30 µs of all-reduce of which 20 are hidden."""
    events = []
    for step in (0, 1):
        at, launch = 1000.0 + 100 * step, 10 * step
        reduce = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        whole = {"In msg nelems": 1_000_000, "Out msg nelems": 1_000_000, "dtype": "Float", "Group size": 2}
        group = {"Process Group Name": "0", "Process Group Ranks": "[0, 1]", "Collective name": "allreduce"}
        events += [
            _event(f"ProfilerStep#{step}", "user_annotation", at, 95),
            _event("cudaLaunchKernel", "cuda_runtime", at + 1, 2, correlation=launch + 1),
            _event("cudaLaunchKernel", "cuda_runtime", at + 4, 2, correlation=launch + 2),
            _event("sgemm_128x64_nn", "kernel", at + 10, 40, correlation=launch + 1, grid=[54, 1, 1]),
            _event(reduce, "kernel", at + 30, 30, correlation=launch + 2, **whole, **group),
        ]
    return {
        "schemaVersion": 1,
        "deviceProperties": [
            {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85_000_000_000, "numSms": 108}
        ],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2},
        "owner": OWNER,
        "traceEvents": events,
    }


@dataclass(frozen=True)
class Job:
    """Where a contributor's own files lie, and the collection that they go to."""

    folder: Path
    collection: Path

    @property
    def card(self) -> Path:
        """The card, with gaps that the traces fill."""
        return self.folder / "my-job.yaml"

    @property
    def traces(self) -> Path:
        """Two ranks, and a file that is no trace."""
        return self.folder / "capture"

    @property
    def scripts(self) -> Path:
        """One script, and a hidden file."""
        return self.folder / "launch"

    def arguments(self, *more: object) -> list[str]:
        """Of `cclbench contribute`."""
        fixed = (self.card, "--traces", self.traces, "--scripts", self.scripts)
        where = ("--collection", self.collection, "--jobs", "1")
        return [str(word) for word in (*fixed, *where, *more)]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Two traces, one of them compressed, a card, a script and a hidden file."""
    return job_in(tmp_path)


@pytest.fixture(scope="session")
def contributed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collection with the job's data point, to be copied."""
    made = job_in(tmp_path_factory.mktemp("contributed"))
    wishes = PackageOptions(licence="Apache-2.0")
    make_data_point(made.card, made.traces, made.scripts, made.collection, wishes)
    return made.collection


def job_in(folder: Path) -> Job:
    """The job below a folder."""
    made = Job(folder / "job", folder / "collection")
    made.collection.mkdir()
    made.scripts.mkdir(parents=True)
    made.traces.mkdir()
    (made.traces / "rank0.json").write_text(json.dumps(trace(0)))
    (made.traces / "rank1.json.gz").write_bytes(gzip.compress(json.dumps(trace(1)).encode(), mtime=0))
    (made.traces / "notes.txt").write_text("no trace\n")
    made.card.write_text(OWN_CARD)
    (made.scripts / "run.sh").write_text("#!/bin/sh\n# by ada-lovelace\ntorchrun train.py\n")
    (made.scripts / "run.sh").chmod(0o755)
    (made.scripts / ".env").write_text("TOKEN=x\n")
    return made


@pytest.fixture
def files() -> Callable[[Path], dict[str, bytes]]:
    """Every file below a folder, by its path."""
    return trees.files
