# SPDX-License-Identifier: Apache-2.0
"""What a card can learn from traces."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from cclbench.card import CardFacts, TraceFile
from cclbench.engine import Progress
from cclbench.errors import InputError
from cclbench.hardware.catalog import by_device_name
from cclbench.pipeline import ingest
from cclbench.record.run import Run
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
) -> CardFacts:
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
    entries = ingested.record.ranks
    if not entries:
        raise InputError("holds no trace to learn a card from", where=str(source))
    facts = entries[0].facts
    framework = _FRAMEWORKS.get(facts.producer or "")
    device = facts.device_name
    known = by_device_name(device, facts.device_memory_bytes) if device else None
    ranks: dict[str, list[int]] = {}
    for run in (ingested, *ingested.sources):
        for entry in run.record.ranks:
            for file in (entry.files[0], *entry.beside):
                ranks.setdefault(file.name, []).append(entry.rank)
    groups = [
        (description, tuple(group["ranks"]))
        for group in ingested.groups().to_pylist()
        for description in group["descriptions"]
    ]
    library = max((library for entry in entries for library in entry.collectives.libraries), default=None)
    return CardFacts(
        traces=tuple(
            TraceFile(str(file.path), file.reader, tuple(ranks.get(file.name, ())), file.sha256, file.bytes)
            for file in (*found.files, *found.beside, *found.evidence)
        ),
        world_size=facts.world_size,
        accelerator=known.id if known else "generic-cpu" if facts.works_on == "host" else None,
        accelerator_name=device,
        per_node=facts.device_count or None,
        framework=framework,
        framework_version=facts.producer_version if framework else None,
        communication_library=library,
        communication_version=facts.library_version,
        groups=tuple(sorted(groups)),
        precision=_precision(ingested),
        steps=entries[0].steps.found or None,
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
