# SPDX-License-Identifier: Apache-2.0
"""InferenceX's published results: one run for each point, comparable where model and lengths are equal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from cclbench.formats.inferencex import InferenceResult, inference_results
from cclbench.ground.errors import InputError
from cclbench.record.metric_name import metric_name
from cclbench.record.rows import Row
from cclbench.studies.published.importing import Entry, Imported, import_publication
from cclbench.studies.published.leaderboard import Publication, PublishedRow
from cclbench.studies.published.results import published_row

SOURCE: Final = "inferencex"
_OUTPUT: Final = metric_name("serving.output_throughput")
_PER_DEVICE: Final = metric_name("serving.output_tokens_per_device")
_TOTAL_PER_DEVICE: Final = metric_name("serving.total_tokens_per_device")
_LOAD: Final = metric_name("serving.load")
_CONTRADICTS: Final = "its rates per GPU contradict its number of GPUs"
_DISAGGREGATED: Final = "over all GPUs; published over those that decode"


def import_inferencex(path: str | Path, store: str | Path | None = None) -> Imported:
    """Import InferenceX's `agg_*.json`, an object or an array, as published runs.

    Results without `tput_per_gpu`, as those of agents, are left out.  `InputError` if the file is invalid.
    """
    path = Path(path)
    all_results = list(inference_results(path))
    results = [(number, result) for number, result in enumerate(all_results, 1) if result is not None]
    if not results:
        raise InputError("has no result with tput_per_gpu", where=str(path), hint="pass agg_*.json")
    entries = [_entry(number, result) for number, result in results]
    digest = sha256("".join(entry.row.sha256 for entry in entries).encode()).hexdigest()
    others = {"results of agents": len(all_results) - len(results)} if len(all_results) > len(results) else {}
    return import_publication(
        Publication(SOURCE, path, digest, None, tuple(e.row for e in entries)),
        entries,
        store,
        unknown_columns=others,
    )


def _entry(number: int, result: InferenceResult) -> Entry:
    metadata = _metadata(result)
    figures = list(_figures(result))
    content = json.dumps([metadata, [(f.metric, f.stat, f.value) for f in figures]], sort_keys=True)
    row = PublishedRow(number, metadata, {}, sha256(content.encode()).hexdigest())
    numbers = sum(figure.value is not None for figure in figures)
    return Entry(row, figures, numbers, numbers if result.contradicts else 0)


def _metadata(result: InferenceResult) -> dict[str, Any]:
    names = result.names
    words = (names.get("hw"), result.model, names.get("framework"), names.get("precision"))
    lengths = f"{result.input_length}-{result.output_length}" if result.input_length else None
    metadata = {
        "workload_name": " ".join(
            filter(None, (*words, lengths, f"{result.devices}gpu", f"c{result.concurrency}"))
        ),
        "phase": "inference",
        "model_family": result.model,
        "precision": names.get("precision"),
        "input_len": result.input_length,
        "output_len": result.output_length,
        "hardware_model": names.get("hw"),
        "total_count": result.devices,
        "framework": names.get("framework"),
        "speculative_decoding": names.get("spec_decoding"),
        "concurrency": result.concurrency,
    }
    return {key: value for key, value in metadata.items() if value is not None}


def _figures(result: InferenceResult) -> Iterator[Row]:
    reason = _CONTRADICTS if result.contradicts else None
    output, per_device = result.output_per_s, None
    if output is not None:
        per_device = output / result.devices
    reasons = "; ".join(filter(None, (_DISAGGREGATED if result.is_disaggregated else None, reason))) or None
    missing = "not published: output_tput_per_gpu"
    yield published_row(SOURCE, _OUTPUT, output, reason if output else missing)
    yield published_row(SOURCE, _PER_DEVICE, per_device, reasons if output else missing)
    total = result.total_per_s / result.devices
    yield published_row(SOURCE, _TOTAL_PER_DEVICE, total, reason)
    yield published_row(SOURCE, _LOAD, float(result.concurrency), result.workload)
    for (figure, stat), seconds in result.latencies.items():
        shown = None if stat == "mean" else stat
        yield published_row(SOURCE, f"serving.{figure}", seconds, stat=shown)
