# SPDX-License-Identifier: Apache-2.0
"""What a card can learn from traces."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from cclbench.card import TraceFacts, TraceFile
from cclbench.engine import Progress
from cclbench.errors import InputError
from cclbench.machine import machine_of
from cclbench.pipeline import Run, ingest
from cclbench.source import find

_FRAMEWORKS = {"PyTorch Profiler": "pytorch", "JAX profiler": "jax"}
"""Framework by the profiler that only it has."""


def trace_facts(
    source: str | Path,
    *,
    store: str | Path | None = None,
    jobs: int = 1,
    allow_truncated: bool = False,
    step_annotation: str | None = None,
    inference: bool = True,
    progress: Progress | None = None,
) -> TraceFacts:
    """What a card can learn from traces: world size, accelerator, groups, library, precision, steps."""
    found = find(source)
    ingested = ingest(
        source,
        store=store,
        jobs=jobs,
        allow_truncated=allow_truncated,
        step_annotation=step_annotation,
        inference=inference,
        progress=progress,
    )
    entries = ingested.manifest["ranks"]
    if not entries:
        raise InputError("holds no trace to learn a card from", where=str(source))
    facts = entries[0]["facts"]
    framework = _FRAMEWORKS.get(facts.get("producer"))
    machine = machine_of(ingested._stored)
    accelerator = machine.accelerator.value
    ranks: dict[str, list[int]] = {}
    for run in (ingested._stored, *ingested._stored.sources):
        for entry in run.manifest["ranks"]:
            for file in (entry["files"][0], *entry["beside"]):
                ranks.setdefault(file["name"], []).append(entry["rank"])
    groups = [
        (description, tuple(group["ranks"]))
        for group in ingested.groups().to_pylist()
        for description in group["descriptions"]
    ]
    library = max(
        (library for entry in entries for library in entry["collectives"]["libraries"]), default=None
    )
    return TraceFacts(
        traces=tuple(
            TraceFile(str(file.path), file.reader, tuple(ranks.get(file.name, ())), file.sha256, file.bytes)
            for file in (*found.files, *found.beside, *found.evidence)
        ),
        world_size=facts.get("world_size"),
        accelerator=None if accelerator is None else accelerator.id,
        accelerator_name=facts.get("device_name"),
        per_node=machine.per_node.value,
        framework=framework,
        framework_version=facts.get("producer_version") if framework else None,
        communication_library=library,
        communication_version=facts.get("library_version"),
        groups=tuple(sorted(groups)),
        precision=_precision(ingested),
        steps=entries[0]["steps"]["found"] or None,
    )


def _precision(ingested: Run) -> str | None:
    """The element type of the collectives, where all have one that a card knows."""
    known = {"bfloat16": "bf16", "float": "fp32", "float32": "fp32", "half": "fp16", "float16": "fp16"}
    floats = {
        known[name]
        for dtype in ingested.collectives()["dtype"].cast(pa.string()).unique().to_pylist()
        if dtype and (name := dtype.lower().removeprefix("c10::")) in known
    }
    return floats.pop() if len(floats) == 1 else None
