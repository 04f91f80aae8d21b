# SPDX-License-Identifier: Apache-2.0
"""Allocator memory for presentation: each device's figures, call sites at the peak, curves over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from cclbench.analyzers.view.allocator import OLDER, History, Site
from cclbench.analyzers.view.histories import run_histories
from cclbench.analyzers.view.leaks import LEAST_STEPS, growth_by_site
from cclbench.analyzers.view.memory_categories import CATEGORIES
from cclbench.analyzers.view.memory_groups import block_groups, group_levels
from cclbench.analyzers.view.memory_owners import group_label, known_groupings, owner_rows
from cclbench.analyzers.view.memory_scenarios import MemoryPrediction
from cclbench.analyzers.view.out_of_memory import OutOfMemory, failed_requests
from cclbench.ground.intervals import Int64
from cclbench.present.program_memory import peak_allocation
from cclbench.record.run import Run

COLUMNS: Final = ("source", "file", "rank", "device", "call_site", "bytes", "share", "blocks", "older")
PROGRAM_COLUMNS: Final = ("module", "buffers", "reason")
"""Columns that rows of compiled programs have in addition."""
NOTHING: Final = (
    "no allocations are recorded: record traces with profile_memory=True, or take memory snapshots"
)
MOST_POINTS: Final = 480
"""Most points of a curve; they include the maximum and minimum of each interval."""
_LAYERS: Final = 5
_OTHERS: Final = {"module": "all other modules", "call_site": "all other call sites"}
_STACKED: Final = (
    *("unknown", "parameters", "optimizer states", "gradients", "inputs", "communication"),
    *("activations", "autograd detail", "workspace"),
)
"""Categories from the bottom, those that change most at the top."""
_NS_PER_S: Final = 10**9


@dataclass(frozen=True, slots=True)
class MemoryLayer:
    """Allocated bytes of one category, module or call site, or of all others, over time."""

    label: str
    bytes: Int64


@dataclass(frozen=True, slots=True)
class MemoryCurves:
    """A device's allocated and reserved bytes, reduced to shape (points,).

    `at` is in seconds since the first event, or the number of the event if `timed` is false.
    """

    at: np.ndarray[Any, np.dtype[np.float64]]
    timed: bool
    allocated: Int64
    reserved: Int64 | None
    grouping: str
    layers: tuple[MemoryLayer, ...]
    """Layers sum to `allocated`; the first is at the bottom."""
    peak_at: float
    peak: int


def allocator_histories(run: Run, ranks: Sequence[int] | None = None) -> list[History]:
    """Allocator histories of all or some ranks; `UsageError` for a rank that does not exist.

    Snapshots that do not state a rank are always included.
    """
    histories = run_histories(run, ranks)
    if ranks is None:
        return histories
    for rank in set(ranks) - {history.rank for history in histories}:
        run.rank(rank)
    return [history for history in histories if history.rank is None or history.rank in ranks]


def device_numbers(history: History) -> dict[str, Any]:
    """A device's figures as a flat document, None if unknown."""
    end, peak = history.end, history.peak_moment
    recorded = history.recorded
    free = history.free_at(peak) if recorded else None
    return {
        "source": history.source,
        "file": history.file,
        "rank": history.rank,
        "device": history.device,
        "events": len(history.allocated) - (history.end is not None),
        "peak_allocated": history.peak_allocated if recorded else None,
        "peak_reserved": history.peak_reserved if recorded else None,
        "reserved_unused": history.reserved_unused if recorded else None,
        "fragmentation": None if free is None else free.fragmentation,
        "peak_time_ns": None if history.time_ns is None else int(history.time_ns[peak]),
        "end_allocated": int(history.allocated[-1]),
        "end_reserved": None if end is None else end.reserved,
        "end_inactive_share": None if end is None else end.inactive_share,
        "remark": history.qualifier_words,
    }


def peak_rows(history: History) -> list[dict[str, Any]]:
    """Bytes at the peak by call site, most first, then older allocations; shares sum to 1.

    Empty if the history has no call sites.
    """
    if history.owners is None or not history.recorded or not history.peak_allocated:
        return []
    older, sites = history.owners.owners_at(history.peak_moment)
    rows = [_site_row(history, site, older=False) for _, site in sites]
    return [*rows, _site_row(history, older, older=True)]


def _site_row(history: History, site: Site, *, older: bool) -> dict[str, Any]:
    return {
        "source": history.source,
        "file": history.file,
        "rank": history.rank,
        "device": history.device,
        "call_site": None if older else site.call_site,
        "bytes": site.bytes,
        "share": site.bytes / history.peak_allocated,
        "blocks": site.blocks,
        "older": older,
    }


def peak_categories(history: History) -> dict[str, int] | None:
    """Bytes at the peak by category, in the order of `CATEGORIES`; None without call sites."""
    if not known_groupings(history):
        return None
    held = {row["category"]: row["bytes"] for row in owner_rows(history, "category")}
    return {name: held[name] for name in CATEGORIES if held.get(name)}


def failure_document(failure: OutOfMemory) -> dict[str, Any]:
    """A failed request as a document, None where unknown."""
    request = failure.request
    return {
        "asked": request.bytes,
        "call_site": request.call_site,
        "verdict": failure.verdict,
        "device_free": request.device_free,
        "reserved": failure.reserved,
        "allocated": failure.allocated,
        "unused": None if failure.free is None else failure.free.bytes,
        "usable": None if failure.usable is None else failure.usable.bytes,
        "usable_blocks": None if failure.usable is None else len(failure.usable.sizes),
        "largest_free": None if failure.usable is None else failure.usable.largest,
        "largest_served": failure.largest_served,
        "missing": failure.missing,
        "limit": failure.limit,
        "held": [_held_site(site) for site in failure.sites],
        "to_free": [_held_site(site) for site in failure.sites_to_free],
    }


def _held_site(site: Site) -> dict[str, Any]:
    return {"call_site": site.call_site, "bytes": site.bytes, "blocks": site.blocks}


def growth_document(history: History) -> dict[str, Any] | None:
    """Growth at the ends of steps by call site; None where no steps are marked or no call sites known."""
    sites = growth_by_site(history)
    if sites is None or history.step_ends is None:
        return None
    return {
        "step_ends": len(history.step_ends),
        "judged": len(history.step_ends) >= LEAST_STEPS,
        "bytes": [int(history.allocated[moment]) for moment in history.step_ends],
        "sites": [asdict(site) for site in sites],
    }


def memory_document(
    run: Run,
    histories: Sequence[History],
    rows: Sequence[dict[str, Any]],
    predictions: Sequence[MemoryPrediction],
    programs: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """The JSON document: figures by device, call sites at the peaks, modelled peaks, compiled programs."""
    return {
        "schema": "memory.v1",
        "run": run.id,
        "devices": [
            device_numbers(history)
            | {
                "peak_categories": peak_categories(history),
                "owners": {by: owner_rows(history, by) for by in known_groupings(history)},
                "timeline": {by: _timeline(memory_curves(history, by)) for by in known_groupings(history)},
                "out_of_memory": [failure_document(failure) for failure in failed_requests(history)],
                "growth": growth_document(history),
                "peak_allocation": peak_allocation(history, programs),
            }
            for history in histories
        ],
        "rows": rows,
        "modelled": [asdict(prediction) for prediction in predictions],
        "programs": programs,
    }


def _timeline(shown: MemoryCurves) -> dict[str, Any]:
    """Curves as a document: seconds since the first event, or numbers of events, and bytes."""
    return {
        "seconds" if shown.timed else "events": shown.at.tolist(),
        "allocated": shown.allocated.tolist(),
        "layers": [{"name": layer.label, "bytes": layer.bytes.tolist()} for layer in shown.layers],
    }


def memory_curves(history: History, grouping: str = "call_site") -> MemoryCurves:
    """The history as curves to draw, its blocks by one of `GROUPINGS`."""
    moments = len(history.allocated)
    kept = _drawn_moments(history.allocated, history.peak_moment)
    timed = history.time_ns is not None
    at = np.arange(moments) if history.time_ns is None else (history.time_ns - history.time_ns[0]) / _NS_PER_S
    return MemoryCurves(
        at=np.asarray(at[kept], np.float64),
        timed=timed,
        allocated=history.allocated[kept],
        reserved=None if history.reserved is None else history.reserved[kept],
        grouping=grouping,
        layers=tuple(_memory_layers(history, grouping, kept)),
        peak_at=float(at[history.peak_moment]),
        peak=history.peak_allocated,
    )


def _drawn_moments(allocated: Int64, peak: int) -> Int64:
    """Indices of the events to draw: first, minimum and maximum of each interval, the peak and the last."""
    if len(allocated) <= MOST_POINTS:
        return np.arange(len(allocated))
    edges = np.linspace(0, len(allocated), MOST_POINTS // 3 + 1).astype(np.int64)
    kept = {peak, len(allocated) - 1}
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        stretch = allocated[begin:end]
        kept |= {begin, begin + int(stretch.argmin()), begin + int(stretch.argmax())}
    return np.array(sorted(kept), np.int64)


def _memory_layers(history: History, grouping: str, kept: Int64) -> Iterator[MemoryLayer]:
    """Layers from the bottom, at the `kept` moments.

    All categories; or older allocations or those outside of modules, the groups with the most bytes at the
    peak, and all others.
    """
    owners = history.owners
    if owners is None:
        yield MemoryLayer("allocated", history.allocated[kept])
        return
    levels = group_levels(owners, block_groups(owners, grouping))
    over = levels.over(kept)
    if grouping == "category":
        yield from (MemoryLayer(name, over[CATEGORIES.index(name)]) for name in _STACKED)
        return
    held = levels.at(history.peak_moment)
    bottom = OLDER if grouping == "call_site" else levels.names.index(None)
    ranked = sorted(range(len(held)), key=lambda group: (-held[group], levels.names[group] or ""))
    others = [group for group in ranked if group != bottom]
    largest = [group for group in others[:_LAYERS] if held[group]]
    for group in (bottom, *largest):
        yield MemoryLayer(group_label(grouping, group, levels.names[group]), over[group])
    yield MemoryLayer(_OTHERS[grouping], over[others[len(largest) :]].sum(axis=0))
