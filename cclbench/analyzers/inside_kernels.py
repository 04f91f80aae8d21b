# SPDX-License-Identifier: Apache-2.0
"""Overlap inside kernels that compute and communicate at once, by counters sampled while they run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import pyarrow as pa

from cclbench.analyzers.metric import NotApplicable, Value, no_value, run_metric
from cclbench.analyzers.view.categories import kernels_by_category
from cclbench.analyzers.view.columns import has_values, with_words
from cclbench.analyzers.view.run_view import RunView
from cclbench.ground import intervals
from cclbench.ground.intervals import Intervals
from cclbench.ground.units import humanise

_LINKS: Final = tuple(
    f"{link}_{way}_{unit}"
    for link in ("nvlink", "pcie")
    for way in ("tx", "rx")
    for unit in ("utilization", "bytes")
)
_TENSOR_CORES: Final = ("tensor_active",)
NO_SAMPLES: Final = (
    "overlap inside one kernel is not visible in a trace: needs NVLink or PCIe and tensor cores sampled while"
    " it runs (nsys profile --gpu-metrics-devices=all)"
)
NO_FUSED: Final = "no kernel computes and communicates at once"


class _Sampled(NamedTuple):
    """Times in fused kernels, ns: of all, of samples, and of samples with both or only one active."""

    kernels: int
    sampled: int
    both: int
    communicating: int
    computing: int


@run_metric(
    "overlap.inside_kernels",
    definition="Kernels that compute and communicate at once (category fused: FlashMoE, products with an"
    " all-gather or reduce-scatter inside): share of their sampled time in which links and tensor cores are"
    " both active; by category communicating, computing: only one is; neither. Of samples only those within"
    " one such kernel, or several without a gap, count, and a sample with any activity is active throughout:"
    " shorter alternation looks like overlap, so the share is an upper bound. Stat covered: share of the"
    " kernels' time that is sampled. Links are NVLink and PCIe, both ways; other traffic of them counts.",
    formula="|∪ link samples > 0 ∩ ∪ tensor samples > 0| / |sampled ∩ fused|",
    unit="1",
    better="higher",
    inputs=("counters", "events"),
    not_applicable=f"{NO_FUSED}, or counters were not sampled",
)
def inside_kernels(run: RunView) -> Iterator[Value]:
    """Share of the fused kernels' time in which both links and tensor cores are active."""
    counters = run.table("counters")
    timed = counters.filter(pa.array(has_values(counters, "start_ns", "end_ns")))
    if not run.ranks or not all(
        len(with_words(timed, "counter", names)) for names in (_LINKS, _TENSOR_CORES)
    ):
        raise NotApplicable(NO_SAMPLES)
    ranks = [rank_sample for rank in run.ranks if (rank_sample := _sampled_kernels(run, rank, timed))]
    if not ranks:
        raise NotApplicable(NO_FUSED)
    total = _Sampled(*map(sum, zip(*ranks, strict=True)))
    duration = humanise(total.kernels / 1e9, "s")
    if not total.sampled:
        yield no_value(f"no sample lies within the {duration} of such kernels: {NO_SAMPLES}")
        return
    words = f"samples within {duration} of kernels that compute and communicate at once"
    yield Value(value=total.both / total.sampled, provenance="derived", reason=words)
    yield Value(value=total.sampled / total.kernels, stat="covered", provenance="derived")
    neither = total.sampled - total.both - total.communicating - total.computing
    for category, part in (
        ("communicating", total.communicating),
        ("computing", total.computing),
        ("neither", neither),
    ):
        yield Value(value=part / total.sampled, category=category, provenance="derived")


def _sampled_kernels(run: RunView, rank: int, counters: pa.Table) -> _Sampled | None:
    view = run.rank(rank)
    if view.on_host or "fused" not in (by_category := kernels_by_category(view)):
        return None
    fused = by_category["fused"]
    sample_rank = counters["rank"].fill_null(rank if len(run.ranks) == 1 else -1).to_numpy()
    rank_counters = counters.filter(pa.array(sample_rank == rank))
    links, tensor_cores = (_samples_within(rank_counters, names, fused) for names in (_LINKS, _TENSOR_CORES))
    sampled = intervals.intersect(links.all, tensor_cores.all)
    communicating, computing = (intervals.intersect(each.active, sampled) for each in (links, tensor_cores))
    both = intervals.intersect(communicating, computing).length
    return _Sampled(fused.length, sampled.length, both, communicating.length - both, computing.length - both)


class _Samples(NamedTuple):
    all: Intervals
    active: Intervals


def _samples_within(counters: pa.Table, names: tuple[str, ...], kernels: Intervals) -> _Samples:
    """Intervals of samples that lie within the kernels, and of those above 0."""
    rows = with_words(counters, "counter", names)
    starts, ends = (rows[name].to_numpy() for name in ("start_ns", "end_ns"))
    inside = (ends > starts) & (intervals.within(kernels, starts, ends) == ends - starts)
    active = inside & (rows["value"].to_numpy() > 0)
    return _Samples(*(intervals.union(starts[mask], ends[mask]) for mask in (inside, active)))
