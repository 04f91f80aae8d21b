# SPDX-License-Identifier: Apache-2.0
"""Storage as DLIO and MLPerf Storage measure it: how busy it keeps accelerators, and how fast it delivers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from statistics import fmean
from typing import Final

import pyarrow as pa

from cclbench.analyzers.metric import NotApplicable, Value, no_value, run_metric
from cclbench.analyzers.view.columns import with_words
from cclbench.analyzers.view.run_view import RunView

NO_BENCHMARK: Final = "needs a result of DLIO or MLPerf Storage (summary.json)"
_storage_metric = partial(run_metric, inputs=("storage",), not_applicable=NO_BENCHMARK)
_CATEGORY: Final = {
    "train": None,
    "eval": "evaluation",
    "save": "checkpoint saved",
    "load": "checkpoint loaded",
}

DLIO_PHASES: Final = tuple(_CATEGORY)


def _values(run: RunView, figure: str) -> Iterator[Value]:
    """The mean over epochs in each file and phase; least, most and first epoch where there are several."""
    table = run.table("storage")
    table = with_words(table, "phase", DLIO_PHASES)
    rows = with_words(table, "figure", (figure,))
    if not len(rows):
        raise NotApplicable("the benchmark's files do not state it" if len(table) else NO_BENCHMARK)
    files = sorted(filter(None, rows["file"].unique().to_pylist()))
    if len(files) > 1:
        yield no_value(f"{len(files)} results: see their rows", source="dlio")
    for file in files:
        for phase, words in _CATEGORY.items():
            label = ": ".join(filter(None, (file if len(files) > 1 else None, words))) or None
            yield from _phase_values(with_words(with_words(rows, "file", (file,)), "phase", (phase,)), label)


def _phase_values(rows: pa.Table, category: str | None) -> Iterator[Value]:
    values = rows["value"].to_pylist()
    if not values:
        return
    value = partial(Value, category=category, source="dlio")
    if len(values) == 1:
        yield value(value=values[0], reason=None if rows["epoch"].null_count else "one epoch")
        return
    yield value(value=fmean(values), reason=f"mean of {len(values)} epochs", provenance="derived")
    first = values[rows["epoch"].to_pylist().index(min(rows["epoch"].to_pylist()))]
    for stat, figure in (("min", min(values)), ("max", max(values)), ("first", first)):
        yield value(value=figure, stat=stat)


@_storage_metric(
    "storage.accelerator_utilization",
    definition="Share of the time in which the benchmark's accelerators compute, as DLIO states it"
    " (AU): time of computing over the time of the steps, without those that its settings exclude, by default"
    " the first of a block; mean over ranks and epochs. MLPerf Storage asks for 0.9 of most models.",
    formula="mean over epochs of Σ compute / time of the steps",
    unit="1",
    better="higher",
)
def accelerator_utilization(run: RunView) -> Iterator[Value]:
    """AU."""
    yield from _values(run, "accelerator_utilization")


@_storage_metric(
    "storage.samples",
    definition="Samples per second over all accelerators, as DLIO states it; mean over epochs.",
    formula="mean over epochs of Σ over ranks of samples / time",
    unit="1/s",
    better="higher",
)
def samples(run: RunView) -> Iterator[Value]:
    """Samples a second."""
    yield from _values(run, "samples_per_s")


@_storage_metric(
    "storage.read_rate",
    definition="Bytes per second of the samples that were read, as DLIO states it: samples per second times"
    " the record length of its settings. Caches make it more than the storage delivered. By category of"
    " checkpoints, their size over the time to save or load one, mean over checkpoints.",
    formula="samples per second · record length",
    unit="B/s",
    better="higher",
)
def read_rate(run: RunView) -> Iterator[Value]:
    """Bytes a second."""
    yield from _values(run, "bytes_per_s")


@_storage_metric(
    "storage.checkpoint_time",
    definition="Time to save or to load a checkpoint, by category, as DLIO states it; mean over checkpoints.",
    formula="mean over checkpoints of their time",
    unit="s",
    better="lower",
)
def checkpoint_time(run: RunView) -> Iterator[Value]:
    """Time of a checkpoint."""
    yield from _values(run, "time")


@_storage_metric(
    "storage.epoch_time",
    definition="Time of an epoch of training by DLIO's stamps; mean, and of the first, which finds caches"
    " empty.",
    formula="end − start",
    unit="s",
    better="lower",
    not_applicable="needs DLIO's per_epoch_stats.json",
)
def epoch_time(run: RunView) -> Iterator[Value]:
    """Time of an epoch."""
    yield from _values(run, "epoch_time")
