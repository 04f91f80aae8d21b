# SPDX-License-Identifier: Apache-2.0
"""Who holds memory: at a failed request, and at the ends of steps; from memory snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cclbench.analyzers.metric import Coverage, NotApplicable, Value, run_metric
from cclbench.analyzers.view.leaks import LEAST_STEPS, SiteGrowth, growth_by_site
from cclbench.analyzers.view.out_of_memory import OutOfMemory, failed_requests
from cclbench.analyzers.view.run_view import RunView

_INPUTS: Final = ("allocations", "memory_blocks", "allocator_annotations")
_NO_HISTORY: Final = "the run has no memory snapshot with a history"
_MOST_SITES: Final = 20
"""Most call sites that get a row."""
UNKNOWN_SITE: Final = "no call site recorded"


@run_metric(
    "memory.out_of_memory",
    definition="Requests that the allocator could not serve, in the recordings of memory snapshots. Of the"
    " last one, of the first device that has any, stats in bytes: `asked`; `device_free`, of the device;"
    " `reserved` by the allocator; `allocated`, as requested by the program; `unused`, in free blocks;"
    " `largest_free`, the largest free block of the request's stream and pool; `missing`, what had to be"
    " freed if those free blocks were one; `held` by call site (category): the largest.",
    formula="count of oom events",
    unit="count",
    better="lower",
    inputs=_INPUTS,
    not_applicable=_NO_HISTORY,
)
def out_of_memory(run: RunView) -> Iterator[Value]:
    recorded = [snapshot for snapshot in run.snapshots if snapshot.recorded]
    if not recorded:
        raise NotApplicable(_NO_HISTORY)
    failing = [snapshot for snapshot in recorded if snapshot.failures]
    source = (failing or recorded)[0].source
    last = failed_requests(failing[0])[-1] if failing else None
    yield Value(
        value=sum(len(snapshot.failures) for snapshot in failing),
        provenance="measured",
        source=source,
        reason=None if last is None else f"{last.verdict}; asked at {last.request.call_site or UNKNOWN_SITE}",
    )
    if last is not None:
        for stat, number in _numbers(last).items():
            if number is not None:
                yield Value(value=number, stat=stat, unit="B", provenance="derived", source=source)
        for site in last.sites[:_MOST_SITES]:
            yield Value(
                value=site.bytes,
                stat="held",
                category=site.call_site or UNKNOWN_SITE,
                unit="B",
                provenance="derived",
                source=source,
            )


def _numbers(failure: OutOfMemory) -> dict[str, int | None]:
    return {
        "asked": failure.request.bytes,
        "device_free": failure.request.device_free,
        "reserved": failure.reserved,
        "allocated": failure.allocated,
        "unused": None if failure.free is None else failure.free.bytes,
        "largest_free": None if failure.usable is None else failure.usable.largest,
        "missing": failure.missing,
    }


@run_metric(
    "memory.leak",
    definition="Bytes per step of the call sites that leak: their blocks of at least four steps remain until"
    " the last step end, none that lasted to a second step end is freed, and their births do not slow down."
    " Blocks from before the first step end are warm-up and left out; caches that saturate, buffers that"
    " rotate and what is collected now and then are none. By call site (category). Steps end where the"
    " snapshot's annotations end them.",
    formula="Σ bytes, of blocks allocated after the first step end, left at the last / (step ends − 1)",
    unit="B",
    better="lower",
    inputs=_INPUTS,
    not_applicable=f"no memory snapshot has a history in which annotations end at least {LEAST_STEPS} steps",
)
def leak(run: RunView) -> Iterator[Value]:
    judged = [
        (snapshot, growth)
        for snapshot in run.snapshots
        if snapshot.step_ends is not None
        and len(snapshot.step_ends) >= LEAST_STEPS
        and (growth := growth_by_site(snapshot)) is not None
    ]
    if not judged:
        raise NotApplicable(
            f"no memory snapshot has a history in which annotations end at least {LEAST_STEPS} steps"
        )
    worst, growth = max(judged, key=lambda pair: _leaked(pair[1]))
    yield Value(
        value=_leaked(growth),
        provenance="derived",
        source=worst.source,
        reason=worst.qualifier_words,
        coverage=Coverage(len(judged), len(run.snapshots)),
    )
    for site in growth[:_MOST_SITES]:
        if site.leaks:
            yield Value(
                value=site.bytes_per_step,
                category=site.call_site or UNKNOWN_SITE,
                provenance="derived",
                source=worst.source,
            )


def _leaked(growth: list[SiteGrowth]) -> float:
    return sum(site.bytes_per_step for site in growth if site.leaks)
