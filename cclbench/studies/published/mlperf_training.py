# SPDX-License-Identifier: Apache-2.0
"""A result log of MLPerf Training: steps and tokens by the log's own lines, and the time to train."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from cclbench import api
from cclbench.ground.errors import InputError
from cclbench.ground.scratch import temporary_folder
from cclbench.ground.text import printable
from cclbench.record.metric_name import metric_name
from cclbench.record.rows import Row
from cclbench.studies.published.importing import Entry
from cclbench.studies.published.leaderboard import PublishedRow
from cclbench.studies.published.results import published_row

_SOURCE: Final = "mlperf"
_STEP: Final = metric_name("log.step")
_TOKENS: Final = metric_name("log.tokens")
_TIME: Final = metric_name("log.time_to_train")
_TIME_STEP: Final = metric_name("time.step")
_RATE: Final = metric_name("throughput.tokens")
_PER_DEVICE: Final = metric_name("throughput.tokens_per_device")
_SAMPLES: Final = metric_name("throughput.samples")
_MARK: Final = b":::MLLOG "
_TEXTS: Final = {
    "submission_benchmark": "benchmark",
    "submission_division": "division",
    "submission_org": "submitter",
    "submission_platform": "platform",
    "submission_status": "availability",
}
_COUNTS: Final = {"global_batch_size": "batch_size", "max_sequence_length": "seq_len"}
_RUN: Final = ("run_start", "run_stop")
_MOST_BYTES: Final = 1 << 30
_LARGEST: Final = 1 << 40


def training_entry(path: Path, number: int, place: dict[str, Any]) -> Entry:
    """The log as a published row; `place` is what its folders and its system's description state."""
    logged, seconds, digest = _logged_settings(path)
    where = printable(str(path))
    if not isinstance(logged.get("benchmark"), str):
        raise InputError("does not state submission_benchmark", where=where, hint="pass a result_*.txt")
    stated = {**place, **logged}
    metadata = {
        "workload_name": " ".join(map(str, (stated["benchmark"], stated.get("system", ""), path.stem))),
        "suite": "MLPerf Training",
        "phase": "training",
        "model_family": stated["benchmark"],
        **stated,
    }
    figures = list(_figures(path, metadata, seconds))
    content = json.dumps([metadata, digest], sort_keys=True, default=str)
    row = PublishedRow(number, metadata, {}, sha256(content.encode()).hexdigest())
    return Entry(row, figures, sum(figure.value is not None for figure in figures))


def _logged_settings(path: Path) -> tuple[dict[str, Any], float | None, str]:
    """What the log's lines state about the submission, the time to train, s, and the SHA-256 of its bytes."""
    settings: dict[str, Any] = {}
    begin, seconds, digest, size = None, None, sha256(), 0
    names = {**_TEXTS, **_COUNTS}
    marks = [f'"{key}"'.encode() for key in (*names, *_RUN)]
    try:
        with path.open("rb") as lines:
            for line in lines:
                digest.update(line)
                size += len(line)
                if size > _MOST_BYTES:
                    raise InputError("is over 1 GiB", where=printable(str(path)))
                if _MARK not in line or not any(mark in line for mark in marks):
                    continue
                key, value, time_ms, status = _logged_line(line)
                name = names.get(key)
                is_text = key in _TEXTS and isinstance(value, str) and value.isprintable()
                is_count = key in _COUNTS and type(value) is int and 0 < value < _LARGEST
                if name is not None and name not in settings and (is_text or is_count):
                    settings[name] = value
                elif key == "run_start" and begin is None:
                    begin = time_ms
                elif key == "run_stop" and status == "success" and begin is not None and seconds is None:
                    seconds = None if time_ms is None or time_ms < begin else (time_ms - begin) / 1000
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=printable(str(path))) from None
    return settings, seconds, digest.hexdigest()


def _logged_line(line: bytes) -> tuple[str, object, int | None, object]:
    """Key, value, time in ms and status of a line; an empty key where it is damaged."""
    try:
        entry = json.loads(line[line.index(_MARK) + len(_MARK) :])
    except (ValueError, RecursionError):
        return "", None, None, None
    if not isinstance(entry, dict) or not isinstance(entry.get("key"), str):
        return "", None, None, None
    metadata, time_ms = entry.get("metadata"), entry.get("time_ms")
    status = metadata.get("status") if isinstance(metadata, dict) else None
    is_time = type(time_ms) is int and 0 <= time_ms < _LARGEST << 8
    return entry["key"], entry.get("value"), time_ms if is_time else None, status


def _figures(path: Path, metadata: dict[str, Any], seconds: float | None) -> Iterator[Row]:
    step, tokens, problem = _logged_steps(path)
    batch, devices = metadata.get("batch_size"), metadata.get("total_count")
    reason = None if seconds is not None else "its log has no run_start and successful run_stop"
    yield published_row(_SOURCE, _TIME, seconds, reason)
    median = "the median step of the log"
    yield published_row(_SOURCE, _STEP, step, None if step else problem)
    yield published_row(_SOURCE, _TIME_STEP, step, median if step else problem)
    missing = problem or "not published: batch size or sequence length"
    yield published_row(_SOURCE, _RATE, tokens, f"from {median}" if tokens else missing)
    per_device = tokens / devices if tokens and devices else None
    without = "not published: the number of accelerators (systems/SYSTEM.json)" if tokens else missing
    device_reason = f"from {median}" if per_device else without
    yield published_row(_SOURCE, _PER_DEVICE, per_device, device_reason)
    samples = batch / step if batch and step else None
    yield published_row(_SOURCE, _SAMPLES, samples, f"from {median}" if samples else missing)


def _logged_steps(path: Path) -> tuple[float | None, float | None, str | None]:
    """Median step, s, and tokens per second by the log's lines about steps; or why there is no step."""
    try:
        with temporary_folder() as folder:
            results = api.run(path, metrics=["log.*"], store=folder).figures
    except InputError:
        return None, None, "its log has no line about a step that is read"
    step = results.value(_STEP)
    return step, results.value(_TOKENS), None if step else results.missing_reason(_STEP)
