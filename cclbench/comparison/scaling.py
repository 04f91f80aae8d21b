# SPDX-License-Identifier: Apache-2.0
"""Scaling efficiency: throughput per device on more devices / on fewer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, Literal

from cclbench.comparison.comparison import Line, MetricFigure, Scaling, Versus
from cclbench.comparison.fingerprint import Equality
from cclbench.comparison.interval import Captures, compare_captures
from cclbench.comparison.subject import ComparisonSubject
from cclbench.comparison.verdict import captures_of
from cclbench.comparison.work import GLOBAL_BATCH, differs_beyond_size, is_different
from cclbench.ground.units import humanise
from cclbench.record.metric_name import metric_name

METRIC: Final = metric_name("scaling.efficiency")
_RATE: Final = metric_name("throughput.tokens_per_device")


def _accelerator(subject: ComparisonSubject) -> str | None:
    return subject.workload.accelerator


def scaling_of(
    base: ComparisonSubject, other: ComparisonSubject, work: Equality, repeats: Sequence[Captures]
) -> Scaling | None:
    """Efficiency of the subject with more devices; None unless both run the same job at two sizes.

    `work`: whether their work is equal by their traces; `repeats`: captures of other jobs.
    """
    fewer, more = sorted((base, other), key=lambda subject: subject.device_count or 0)
    kind = _scaling_kind(fewer, more, work)
    rows = [subject.results.row(_RATE) for subject in (fewer, more)]
    if kind is None or not all(row is not None and row.value and row.status == "ok" for row in rows):
        return None
    interval = compare_captures(captures_of(fewer, _RATE), captures_of(more, _RATE), repeats)
    has_interval = not (fewer.all_open or more.all_open)
    assert fewer.device_count and more.device_count  # noqa: S101, PT018 - of a kind
    return Scaling(
        kind=kind,
        fewer=fewer.letter,
        more=more.letter,
        devices=(fewer.device_count, more.device_count),
        efficiency=interval.ratio,
        low=interval.low if has_interval else None,
        high=interval.high if has_interval else None,
    )


def _scaling_kind(
    fewer: ComparisonSubject, more: ComparisonSubject, work: Equality
) -> Literal["strong", "weak"] | None:
    """strong: the same global batch; weak: the same batch per device; None: neither."""
    if fewer.is_published and more.is_published and is_different(_accelerator, fewer, more):
        return None
    devices, batches = (
        [subject.device_count for subject in (fewer, more)],
        [GLOBAL_BATCH(subject) for subject in (fewer, more)],
    )
    if None in devices or None in batches or devices[0] == devices[1] or differs_beyond_size(fewer, more):
        return None
    if batches[0] == batches[1]:
        return None if work.status == "refuted" else "strong"
    same_share = batches[0] * devices[1] == batches[1] * devices[0]
    return "weak" if same_share and work.status != "proved" else None


def scaling_words(scaling: Scaling) -> str:
    """`Strong scaling from 2 to 8 devices: 91.2 % (95 % interval 88.0 % to 94.5 %).`"""
    fewer, more = scaling.devices
    words = f"{scaling.kind.capitalize()} scaling from {fewer:,} to {more:,} devices:"
    words += f" {humanise(scaling.efficiency, '1')} of the tokens per second and device"
    if scaling.low is None or scaling.high is None:
        return f"{words}."
    return f"{words} (95 % interval {humanise(scaling.low, '1')} to {humanise(scaling.high, '1')})."


def with_scaling(lines: Iterable[Line], versus: Sequence[Versus]) -> tuple[Line, ...]:
    """The lines, with each subject's scaling efficiency against the first filled in."""
    scalings = {verdict.other: verdict.scaling for verdict in versus if verdict.scaling is not None}
    figures = {
        letter: MetricFigure(
            scaling.efficiency, "ok", "derived", scaling_words(scaling), scaling.low, scaling.high
        )
        for letter, scaling in scalings.items()
    }
    return tuple(
        replace(line, figures={**line.figures, **figures}) if line.metric == METRIC else line
        for line in lines
    )
