# SPDX-License-Identifier: Apache-2.0
"""Results of DLIO, the benchmark of MLPerf Storage: its summary, its epochs, and the steps of each rank.

DLIO reads a data set as training does and sleeps where training computes.  What it calls MB and GB are MiB
and GiB (dlio_benchmark/utils/statscounter.py).  Its rate of bytes is that of samples times the record length
that was set: what the samples hold, not what the storage delivered.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.rewriting import HOST, SYSTEM
from cclbench.formats.serving.lines import WrittenResult, is_number, listed_results
from cclbench.formats.texts import strip_decoration
from cclbench.ground.evidence_schema import LOG_STEPS, STORAGE
from cclbench.ground.units import GIB, MIB

_SUMMARY: Final = re.compile(
    rb'"(?:(?:train|eval)_au_percentage|(?:(?:save|load)_)?checkpoint_io_mean_GB_per_second)"'
)
_STEPS: Final = re.compile(rb'"load"\s*:\s*\{\s*"(?:block1|eval)"\s*:\s*\[')
_EPOCHS: Final = re.compile(rb'\s*\{\s*"\d+"\s*:\s*\{\s*"start"\s*:\s*"[^"]{10,40}"\s*,\s*"(?:block1|eval)"')
_RANK: Final = re.compile(r"(\d{1,7})_output\.json", re.ASCII)
_MOST_STEPS: Final = 1 << 24
_LONGEST_S: Final = 10**7
_FASTEST: Final = 10**12
_FIGURES: Final = {
    "{phase}_au_percentage": ("accelerator_utilization", "1", Decimal("0.01")),
    "{phase}_throughput_samples_per_second": ("samples_per_s", "1/s", Decimal(1)),
    "{phase}_io_mean_MB_per_second": ("bytes_per_s", "B/s", Decimal(MIB)),
    "{phase}_checkpoint_io_mean_GB_per_second": ("bytes_per_s", "B/s", Decimal(GIB)),
    "{phase}_checkpoint_duration_mean_seconds": ("time", "s", Decimal(1)),
}
"""Figure, unit, and units in one of DLIO's, by DLIO's name."""
_PHASES: Final = ("train", "eval", "save", "load")
_CACHED: Final = "its data set fits into the memory of a host, which may have cached it after the first epoch"
_EVALUATION: Final = "steps of evaluation"


class Dlio(EvidenceReader):
    """Reader of DLIO's files."""

    name = "dlio"
    description = "results of DLIO and MLPerf Storage (JSON): summary, epochs, steps of each rank"
    extensions: tuple[str, ...] = (".json",)
    capture = "the output folder of `dlio_benchmark`: `summary.json`, `per_epoch_stats.json`, `*_output.json`"
    versions = "DLIO 1 and 2, MLPerf Storage v1 and v2"
    figures = re.compile(r"start|end")
    tested = "real: DLIO on two ranks, a submission to MLPerf Storage v1.0; documentation: checkpoints"
    withheld: Mapping[str, str] = {
        "hostname": HOST,
        **dict.fromkeys(("host_cpuinfo", "host_meminfo", "host_processor_name"), SYSTEM),
    }

    def sniff(self, head: bytes) -> float:
        """Sure of the keys of one of its three files."""
        head = strip_decoration(head)
        is_summary = b'"metric"' in head and b'"num_accelerators"' in head and _SUMMARY.search(head)
        return 0.9 if is_summary or _STEPS.search(head) or _EPOCHS.match(head) else 0.0

    def read(self, path: Path) -> Evidence:
        """Figures of a summary or of epochs; steps of a rank."""
        (report,) = listed_results(path)
        if "metric" in report.entries:
            return _summary(report)
        epochs = [name for name in report.entries if name.isascii() and name.isdigit() and len(name) < 8]
        parts = [(int(name), report.object_of(name)) for name in sorted(epochs, key=int)]
        if parts and all("load" in epoch.entries for _, epoch in parts):
            rank = _RANK.fullmatch(path.name)
            return _rank_steps(parts, None if rank is None else int(rank[1]))
        rows = [_epoch_row(number, epoch) for number, epoch in parts]
        if not rows:
            raise report.entry_error("has no epoch")
        return Evidence(storage=pa.Table.from_pylist(rows, schema=STORAGE), facts={"epochs": len(rows)})


def _summary(report: WrittenResult) -> Evidence:
    metric = report.object_of("metric")
    rows = [row for phase in _PHASES for row in _figure_rows(metric, phase)]
    if not rows:
        raise metric.entry_error("has no figure of training, evaluation or checkpoints")
    facts: dict[str, str | int | float | list[str]] = {}
    for name, fact in (("num_accelerators", "devices"), ("num_hosts", "nodes"), ("epochs", "epochs")):
        if isinstance(count := report.entries.get(name), int) and 0 < count < _MOST_STEPS:
            facts[fact] = count
    cached = report.entries.get("potential_caching")
    may_be_cached = any(cached) if isinstance(cached, list) else bool(cached)
    return Evidence(
        storage=pa.Table.from_pylist(rows, schema=STORAGE),
        facts=facts,
        notes=[_CACHED] if may_be_cached else [],
    )


def _figure_rows(metric: WrittenResult, phase: str) -> Iterator[dict[str, Any]]:
    """A row of each epoch, or one of the whole run."""
    for key, (figure, unit, factor) in _FIGURES.items():
        name = key.format(phase=phase)
        if phase == "save" and name not in metric.entries:
            name = name.removeprefix("save_")  # before it loaded checkpoints, too
        stated = metric.entries.get(name)
        values = enumerate(stated, 1) if isinstance(stated, list) else [(None, stated)]
        for epoch, value in values:
            if value is None:
                continue
            number = metric.bounded_number(name, value, _FASTEST)
            scaled = float(value * factor) if isinstance(value, int | Decimal) else number
            yield {"phase": phase, "epoch": epoch, "figure": figure, "unit": unit, "value": scaled}


def _epoch_row(number: int, epoch: WrittenResult) -> dict[str, Any]:
    """The time of an epoch, by its stamps; what DLIO states beside them is rounded."""
    times = [_time(epoch, name) for name in ("start", "end")]
    seconds = (times[1] - times[0]) / timedelta(seconds=1)
    if not 0 <= seconds <= _LONGEST_S:
        raise epoch.entry_error("ends before it starts, or after months")
    return {"phase": "train", "epoch": number, "figure": "epoch_time", "unit": "s", "value": seconds}


def _time(owner: WrittenResult, name: str) -> datetime:
    try:
        return datetime.fromisoformat(owner.entries[name]).replace(tzinfo=None)
    except (KeyError, TypeError, ValueError):
        raise owner.entry_error(f"{name} is not a time") from None


def _rank_steps(epochs: list[tuple[int, WrittenResult]], rank: int | None) -> Evidence:
    """A row for each step of training; they are numbered through all epochs."""
    rows, left_out = list[dict[str, Any]](), Counter[str]()
    for _, epoch in epochs:
        load, proc = (epoch.object_of(name) if name in epoch.entries else epoch for name in ("load", "proc"))
        for block in load.entries:
            waits, times = load.list_of(block) or [], proc.list_of(block) or []
            if len(waits) != len(times):
                raise epoch.entry_error(
                    f"{block} has {len(waits):,} times of loading, {len(times):,} of steps"
                )
            if block == "eval":
                left_out[_EVALUATION] += len(times)
                continue
            for wait, time in zip(waits, times, strict=True):
                rows.append(
                    {
                        "rank": rank,
                        "restart": 0,
                        "step": len(rows) + 1,
                        "steps": 1,
                        "dur_ns": _nanoseconds(epoch, time),
                        "data_ns": _nanoseconds(epoch, wait),
                        "timed_by": "stated",
                    }
                )
    if not rows:
        raise epochs[0][1].entry_error("has no step of training")
    return Evidence(
        log_steps=pa.Table.from_pylist(rows, schema=LOG_STEPS),
        facts={"producer": "DLIO", "epochs": len(epochs)},
        left_out={what: count for what, count in left_out.items() if count},
    )


def _nanoseconds(owner: WrittenResult, seconds: object) -> int:
    if not is_number(seconds) or not 0 <= seconds <= _LONGEST_S:
        raise owner.entry_error("has a time that is not one in seconds")
    return round(seconds * 10**9)


READERS.add(Dlio.name, Dlio(), origin=__name__)
