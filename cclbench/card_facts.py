# SPDX-License-Identifier: Apache-2.0
"""Facts for a card from traces."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa

from cclbench.analyzers.metric import resolve_metrics
from cclbench.card import CardFacts, CardTrace
from cclbench.engine import SERIAL, Engine, Progress
from cclbench.formats import READERS
from cclbench.ground.errors import InputError
from cclbench.ingestion import ingest
from cclbench.ingestion.source import find_source
from cclbench.machine import machine_of
from cclbench.record.manifest import Options
from cclbench.record.metric_name import metric_name
from cclbench.record.run import Run
from cclbench.record.selection import Selection
from cclbench.results import compute_metrics
from cclbench.source_summaries.job_logs import JOB_LOG
from cclbench.workspace import store_at

_DEFAULTS: Final = Options()
_PHASE: Final = metric_name("time.phase")
_LOGGED_BATCH: Final = {"global": "global_batch", "sequence_length": "sequence_length"}
_LOGGED_DEGREES: Final = {
    "pp": "pipeline_parallel",
    "dp_replicate": "replicate_parallel",
    "dp_shard": "shard_parallel",
    "cp": "context_parallel",
    "tp": "tensor_parallel",
}
"""Fields of a card, and the settings of job logs (`formats.job_log`)."""


def card_facts(
    source: str | Path,
    reading: Options = _DEFAULTS,
    *,
    store: str | Path | None = None,
    engine: Engine = SERIAL,
    progress: Progress | None = None,
) -> CardFacts:
    """Facts for a card from traces: world size, accelerator, groups, library, precision, steps."""
    located = find_source(source)
    ingested = ingest(located, store_at(store), reading, engine=engine, progress=progress)
    entries = ingested.record.ranks
    if not entries:
        raise InputError("contains no trace to create a card from", where=str(source))
    facts = entries[0].facts
    producer = facts.producer or ""
    framework = next(
        (
            by_producer[producer]
            for by_producer in (READERS.get(name).frameworks for name in READERS)
            if producer in by_producer
        ),
        None,
    )
    machine = machine_of(ingested)
    accelerator = machine.accelerator.value
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
            CardTrace(str(file.path), file.reader, tuple(ranks.get(file.name, ())), file.sha256, file.bytes)
            for file in (*located.files, *located.beside, *located.evidence)
        ),
        world_size=facts.world_size,
        accelerator=None if accelerator is None else accelerator.id,
        accelerator_name=facts.device_name,
        per_node=machine.per_node.value,
        framework=framework,
        framework_version=facts.producer_version if framework else None,
        communication_library=library,
        communication_version=facts.library_version,
        groups=tuple(sorted(groups)),
        precision=_collective_precision(ingested),
        phase=_phase(ingested),
        steps=entries[0].steps.found or None,
        batch=_logged_sizes(ingested, _LOGGED_BATCH),
        degrees=_logged_degrees(ingested),
    )


def _logged_sizes(ingested: Run, names: Mapping[str, str]) -> dict[str, int]:
    """Card fields by names of settings, as the job's logs state them; without those that logs contradict."""
    logs = [entry.facts for entry in ingested.record.evidence if entry.reader == JOB_LOG]
    stated = {field: {facts[key] for facts in logs if key in facts} for field, key in names.items()}
    return {
        field: number
        for field, numbers in stated.items()
        if len(numbers) == 1 and isinstance(number := next(iter(numbers)), int)
    }


def _logged_degrees(ingested: Run) -> dict[str, int]:
    """Parallel degrees of a log that states every dimension (torchtitan's mesh); empty otherwise."""
    degrees = _logged_sizes(ingested, _LOGGED_DEGREES)
    complete = degrees.keys() == _LOGGED_DEGREES.keys()
    return {name: degree for name, degree in degrees.items() if degree > 1} if complete else {}


def _phase(ingested: Run) -> str | None:
    """Training where device time is in a backward pass; of other traces the phase is not certain."""
    rows, _ = compute_metrics(ingested, resolve_metrics([_PHASE]), Selection())
    return "training" if any(row.category == "backward" and row.value for row in rows.rows) else None


def _collective_precision(ingested: Run) -> str | None:
    """The precision of the collectives, if it is the same for all and known to cards."""
    precisions = {"bfloat16": "bf16", "float": "fp32", "float32": "fp32", "half": "fp16", "float16": "fp16"}
    floats = {
        precisions[name]
        for dtype in ingested.collectives()["dtype"].cast(pa.string()).unique().to_pylist()
        if dtype and (name := dtype.lower().removeprefix("c10::")) in precisions
    }
    return floats.pop() if len(floats) == 1 else None
