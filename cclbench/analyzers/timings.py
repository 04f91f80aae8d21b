# SPDX-License-Identifier: Apache-2.0
"""Sweeps: the bandwidth that a benchmark of the collectives themselves measures, apart from any workload."""

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

_NONE: Final = "the run holds no sweep of nccl-tests or rccl-tests: add its output"
_SETTING: Final = {
    "file": "{}",
    "library": "{}",
    "group_size": "{} ranks",
    "nodes": "{} nodes",
    "dtype": "{}",
}
"""What tells the sweeps of one kind apart, in words."""


@dataclass(slots=True)
class _Sweep:
    """Bus bandwidths that one sweep states, by size and placement."""

    setting: tuple[Any, ...]
    source: str
    stated: dict[tuple[int, bool], list[float]] = field(default_factory=dict)
    rounded: int = 0
    """Figures that are printed as 0.00 GB/s."""

    @property
    def group_words(self) -> str:
        """`16 ranks on 2 nodes`, as far as it is known."""
        _, _, ranks, nodes, _ = self.setting
        told = [f"{ranks} ranks" if ranks else "", f"on {nodes} node{'s'[: nodes > 1]}" if nodes else ""]
        return " ".join(filter(None, told)) or "ranks not stated"


@run_metric(
    "comm.measured_busbw",
    definition="Bus bandwidth that a benchmark of the collective itself (nccl-tests, rccl-tests) states, by"
    " kind and size; a kind's own figure is that of its largest size. Out of place, and in place as stat"
    " in_place. A size that was measured more than once has the mean; sweeps of different files, group sizes"
    " or element types are never mixed: their rows say in category which is which. 1 GB = 1e9 bytes.",
    formula="busbw as stated",
    unit="B/s",
    better="higher",
    inputs=("timings",),
    not_applicable=_NONE,
)
def measured_busbw(run: RunView) -> Iterator[Value]:
    """By kind; by kind and size."""
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
    found: dict[str, dict[tuple[Any, ...], _Sweep]] = {}
    for row in rows:
        setting = tuple(row[name] for name in _SETTING)
        sweep = found.setdefault(row["kind"] or UNKNOWN, {}).setdefault(
            setting, _Sweep(setting, row["source"])
        )
        if row["busbw"]:
            sweep.stated.setdefault((row["bytes"], bool(row["in_place"])), []).append(row["busbw"])
        else:
            sweep.rounded += 1
    return {kind: list(of.values()) for kind, of in found.items()}


def _sweep_labels(sweeps: Sequence[_Sweep]) -> list[str]:
    """What tells each from the others: `a.txt`, `16 ranks half`."""
    apart = [len(set(values)) > 1 for values in zip(*(sweep.setting for sweep in sweeps), strict=True)]
    return [
        " ".join(
            words.format(value or "unknown")
            for words, value in compress(zip(_SETTING.values(), sweep.setting, strict=True), apart)
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
            one = Value(
                value=fmean(figures),
                collective=kind,
                category=binary_text(size),
                stat="in_place" if in_place else None,
                source=sweep.source,
                reason=repeated,
            )
            yield one
            if size == sizes[-1]:
                reason = "; ".join(filter(None, [f"{sweep.group_words}, at {binary_text(size)}", repeated]))
                yield replace(one, category=None, reason=reason, left_out={} if in_place else left_out)
