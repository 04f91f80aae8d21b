# SPDX-License-Identifier: Apache-2.0
"""Sweeps: bandwidth measured by benchmarks of collectives, without a workload."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from statistics import fmean
from typing import Any, Final

from cclbench.analyzers.metric import NotApplicable, Value, no_value, run_metric
from cclbench.analyzers.view.collectives import UNKNOWN
from cclbench.analyzers.view.columns import with_words
from cclbench.analyzers.view.run_view import RunView
from cclbench.formats import READERS
from cclbench.ground.units import binary_text

_NONE: Final = "the run has no sweep of nccl-tests or rccl-tests: add its output"
_SETTING: Final = {
    "file": "{}",
    "library": "{}",
    "group_size": "{} ranks",
    "nodes": "{} nodes",
    "dtype": "{}",
}
"""Settings that distinguish the sweeps of one kind, in words."""


@dataclass(slots=True)
class _Sweep:
    """Stated bus bandwidths of one sweep, by size and in place or not."""

    setting: tuple[Any, ...]
    source: str
    stated: dict[tuple[int, bool], list[float]] = field(default_factory=dict)
    rounded: int = 0
    """Number of figures that are printed as 0.00 GB/s."""

    @property
    def group_words(self) -> str:
        """`16 ranks on 2 nodes`, as far as known."""
        _, _, ranks, nodes, _ = self.setting
        return group_size_words(ranks, nodes)


def group_size_words(ranks: int | None, nodes: int | None) -> str:
    """`16 ranks on 2 nodes`, as far as known."""
    words = [f"{ranks} ranks" if ranks else "", f"on {nodes} node{'s'[: nodes > 1]}" if nodes else ""]
    return " ".join(filter(None, words)) or "ranks not stated"


@run_metric(
    "comm.measured_busbw",
    definition="Bus bandwidth stated by a collective benchmark (nccl-tests, rccl-tests), by kind and size;"
    " the value of a kind is that of its largest size. Out of place; stat in_place: in place. Repeated"
    " measurements of a size are averaged; sweeps of different files, group sizes or element types are never"
    " mixed and have a category each. 1 GB = 1e9 bytes.",
    formula="busbw as stated",
    unit="B/s",
    better="higher",
    inputs=("timings",),
    not_applicable=_NONE,
)
def measured_busbw(run: RunView) -> Iterator[Value]:
    """Bus bandwidth by kind, and by kind and size."""
    benchmarks = [name for name in READERS if READERS.get(name).benchmark]
    rows = with_words(run.table("timings"), "source", benchmarks).to_pylist()
    if not rows:
        raise NotApplicable(_NONE)
    for kind, sweeps in sorted(_stated_sweeps(rows).items()):
        if len(sweeps) == 1:
            yield from _sweep_values(kind, sweeps[0])
            continue
        reason = f"{len(sweeps)} sweeps: see their rows"
        source = sweeps[0].source if len({sweep.source for sweep in sweeps}) == 1 else None
        yield no_value(reason, collective=kind, source=source)
        for label, sweep in zip(_sweep_labels(sweeps), sweeps, strict=True):
            for value in _sweep_values(kind, sweep):
                yield replace(value, category=", ".join(filter(None, (label, value.category))))


def _stated_sweeps(rows: list[dict[str, Any]]) -> dict[str, list[_Sweep]]:
    by_kind: dict[str, dict[tuple[Any, ...], _Sweep]] = {}
    for row in rows:
        setting = tuple(row[name] for name in _SETTING)
        sweep = by_kind.setdefault(row["kind"] or UNKNOWN, {}).setdefault(
            setting, _Sweep(setting, row["source"])
        )
        if row["busbw"]:
            sweep.stated.setdefault((row["bytes"], bool(row["in_place"])), []).append(row["busbw"])
        else:
            sweep.rounded += 1
    return {kind: list(sweeps.values()) for kind, sweeps in by_kind.items()}


def _sweep_labels(sweeps: Sequence[_Sweep]) -> list[str]:
    """The settings in which each sweep differs from others: `a.txt`, `16 ranks half`."""
    differs = [len(set(values)) > 1 for values in zip(*(sweep.setting for sweep in sweeps), strict=True)]
    return [
        " ".join(
            words.format(value or "unknown")
            for words, value in compress(zip(_SETTING.values(), sweep.setting, strict=True), differs)
        )
        for sweep in sweeps
    ]


def _sweep_values(kind: str, sweep: _Sweep) -> Iterator[Value]:
    left_out = {"whose stated bandwidth is 0.00 GB/s": sweep.rounded}
    if not sweep.stated:
        why = "the sweep states no bandwidth above 0.00 GB/s"
        yield no_value(why, collective=kind, source=sweep.source, left_out=left_out)
    for in_place in (False, True):
        sizes = sorted(size for size, placement in sweep.stated if placement == in_place)
        for size in sizes:
            figures = sweep.stated[size, in_place]
            repeated = f"mean of {len(figures)} measurements" if len(figures) > 1 else None
            figure = Value(
                value=fmean(figures),
                collective=kind,
                category=binary_text(size),
                stat="in_place" if in_place else None,
                source=sweep.source,
                reason=repeated,
            )
            yield figure
            if size == sizes[-1]:
                reason = "; ".join(filter(None, [f"{sweep.group_words}, at {binary_text(size)}", repeated]))
                yield replace(figure, category=None, reason=reason, left_out={} if in_place else left_out)
