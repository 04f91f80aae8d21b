# SPDX-License-Identifier: Apache-2.0
"""CCL-Bench's three claims, re-examined on whatever runs a store holds.

Source: CCL-Bench 1.0, arXiv 2605.06544.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cclbench.comparison.claims.bandwidth import examine_bandwidth
from cclbench.comparison.claims.claim import UNITS, Claim
from cclbench.comparison.claims.evidence import collect
from cclbench.comparison.claims.frameworks import examine_frameworks
from cclbench.comparison.claims.overlap import examine_overlap
from cclbench.errors import UsageError, near
from cclbench.record.store import Store

__all__ = ["CLAIMS", "UNITS", "Claim", "Examined", "examine"]

CLAIMS: Final = {
    "overlap": examine_overlap,
    "bandwidth": examine_bandwidth,
    "frameworks": examine_frameworks,
}


@dataclass(frozen=True, slots=True)
class Examined:
    """The claims, and the runs they were examined on."""

    claims: tuple[Claim, ...]
    published: int
    computed: int
    left_out: Mapping[str, str]
    """Runs without results, with the reason."""


def examine(store: str | Path | None = None, claims: Sequence[str] = ()) -> Examined:
    """The claims of those names, all where there are none, on the runs of the store.

    Raises `UsageError` where the store holds no results, or for an unknown name.
    """
    for name in claims:
        if name not in CLAIMS:
            raise UsageError(f"no claim is {name!r}", hint=near(name, CLAIMS))
    into = Store(store)
    collected = collect(into)
    runs = collected.runs
    if not runs:
        run, why = next(iter(collected.left_out.items()), ("", ""))
        what = f"has no results to examine: run {run} {why}" if run else "is empty"
        raise UsageError(
            f"{into.folder}: the store {what}",
            hint="bring published ones in: cclbench import ccl-bench benchmark_data.json",
        )
    published = sum(run.published for run in runs)
    return Examined(
        claims=tuple(CLAIMS[name](runs) for name in dict.fromkeys(claims or CLAIMS)),
        published=published,
        computed=len(runs) - published,
        left_out=collected.left_out,
    )
