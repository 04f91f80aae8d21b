# SPDX-License-Identifier: Apache-2.0
"""CCL-Bench's three claims, and the figures of its paper, re-examined on the runs of a store.

Source: CCL-Bench 1.0, arXiv 2605.06544.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.errors import InputError, UsageError, near
from cclbench.record.store import Store
from cclbench.studies.claims.bandwidth import examine_bandwidth
from cclbench.studies.claims.claim import UNITS, Claim
from cclbench.studies.claims.figures import examine_figures
from cclbench.studies.claims.frameworks import examine_frameworks
from cclbench.studies.claims.overlap import examine_overlap
from cclbench.workspace import store_at

__all__ = ["CLAIMS", "UNITS", "Claim", "Examined", "examine_claims"]

CLAIMS: Final = {
    "overlap": examine_overlap,
    "bandwidth": examine_bandwidth,
    "frameworks": examine_frameworks,
    "figures": examine_figures,
}


@dataclass(frozen=True, slots=True)
class Examined:
    """The claims, and the runs they were examined on."""

    claims: tuple[Claim, ...]
    published: int
    computed: int
    left_out: Mapping[str, str]
    """Runs without results, with the reason."""


def examine_claims(store: str | Path | None = None, claims: Sequence[str] = ()) -> Examined:
    """Examine the named claims (default: all) on the runs of the store.

    Raises `UsageError` for an unknown name, or if the store has no results.
    """
    for name in claims:
        if name not in CLAIMS:
            raise UsageError(f"unknown claim {name!r}", hint=near(name, CLAIMS))
    runs_store = store_at(store)
    runs, left_out = subjects_with_results(runs_store)
    if not runs:
        run, reason = next(iter(left_out.items()), ("", ""))
        state = f"has no results to examine: run {run} {reason}" if run else "is empty"
        raise UsageError(
            f"{runs_store.place}: the store {state}",
            hint="import published results: cclbench import ccl-bench benchmark_data.json",
        )
    published = sum(run.is_published for run in runs)
    return Examined(
        claims=tuple(CLAIMS[name](runs) for name in dict.fromkeys(claims or CLAIMS)),
        published=published,
        computed=len(runs) - published,
        left_out=left_out,
    )


def subjects_with_results(store: Store) -> tuple[list[ComparisonSubject], dict[str, str]]:
    """The store's runs with results, and the reason for each run left out, by id."""
    subjects, left_out = [], {}
    for stored in store.runs():
        try:
            results, card = stored.saved_results, stored.card
            if results is None:
                left_out[stored.id] = f"has no results yet: cclbench metrics {stored.id}"
                continue
            subject = ComparisonSubject("", stored, results, None if card is None else card.raw)
            _ = subject.workload  # read it now, so that a damaged manifest leaves the run out
            subjects.append(subject)
        except InputError as error:
            left_out[stored.id] = f"cannot be read: {error.what}"
    return subjects, left_out
