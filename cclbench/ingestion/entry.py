# SPDX-License-Identifier: Apache-2.0
"""A rank's entry in the manifest: what was found, what was left out, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import pyarrow as pa

from cclbench.formats import Cut
from cclbench.ingestion.part import PartRead
from cclbench.normalize.steps import Periods, Window
from cclbench.record import manifest
from cclbench.record.facts import TraceFacts
from cclbench.record.manifest import RankEntry, Truncation
from cclbench.source import SourceFile
from cclbench.units import humanise

PURE: Final = 0.9
"""Least share of a window's kernel time that its own step launched, below which people are told."""
SAME_PERIOD: Final = 0.005
"""Relative difference of device windows and host steps from which on people are told."""


@dataclass(frozen=True, slots=True, eq=False)
class Account:
    """What became of one rank."""

    rank: int
    facts: TraceFacts
    rows: Counter[str]
    windows: Sequence[Window]
    periods: Periods | None
    """Of the device windows and of the same steps on the host."""
    left_out: Counter[str]
    calls: pa.Table
    ungrouped: dict[str, int]
    cut: Cut | None
    horizon_ns: int | None
    blind: bool
    """Whether the file is cut and no window can be told to be whole."""
    file: SourceFile
    beside: SourceFile | None
    """The execution trace of its process."""
    notes: Sequence[str] = ()


def entry(account: Account, parts: Sequence[PartRead]) -> RankEntry:
    """The rank's entry."""
    dropped: Counter[str] = sum((p.dropped for p in parts), Counter())
    times: Counter[str] = sum((Counter(p.kernel_ns) for p in parts), Counter())
    total = times.pop("", 0)
    cut = account.cut
    return RankEntry(
        rank=account.rank,
        facts=msgspec.structs.replace(account.facts, groups=(), communicators=()),
        span_ns=next(((w.start_ns, w.end_ns) for w in account.windows if w.source == "whole_trace"), None),
        rows=dict(sorted(account.rows.items())),
        dropped=dict(sorted(dropped.items())),
        steps=_steps(account),
        unclassified=manifest.Unclassified(
            share=sum(times.values()) / total if total else None,
            names=[name for name, ns in times.most_common(10) if ns],
        ),
        collectives=_collectives(account),
        truncated=None
        if cut is None
        else Truncation(**msgspec.structs.asdict(cut), horizon_ns=account.horizon_ns),
        notes=list(_notes(account)),
        files=[kept(account.file)],
        beside=[] if account.beside is None else [kept(account.beside)],
    )


def kept(file: SourceFile) -> manifest.File:
    """What the manifest keeps of a source file."""
    return manifest.File(file.name, file.bytes, file.sha256, file.reader)


def _steps(account: Account) -> manifest.Steps:
    windows, periods = _step_windows(account), account.periods
    return manifest.Steps(
        found=len(windows),
        closed=sum(1 for w in windows if not w.open),
        source=windows[0].source if windows else None,
        left_out=dict(sorted(account.left_out.items())),
        least_purity=_least_purity(windows),
        least_host_purity=_least_purity(_host_windows(account)),
        device_period_ns=None if periods is None else periods.device_ns,
        host_period_ns=None if periods is None else periods.host_ns,
    )


def _step_windows(account: Account) -> list[Window]:
    """The windows of steps, by the best source that the rank has."""
    for source in ("device", "module", "annotation"):
        if found := [w for w in account.windows if w.source == source]:
            return found
    return []


def _host_windows(account: Account) -> list[Window]:
    """The host's annotations of the steps whose device windows are closed."""
    closed = {w.step for w in account.windows if w.source == "device" and not w.open}
    return [w for w in account.windows if w.source == "annotation" and w.step in closed]


def _least_purity(windows: Sequence[Window]) -> float | None:
    return min((w.purity for w in windows if w.purity is not None), default=None)


def _collectives(account: Account) -> manifest.Collectives:
    calls = account.calls
    sources = Counter(calls["payload_source"].cast(pa.string()).to_pylist())
    libraries = Counter(calls["library"].cast(pa.string()).to_pylist())
    return manifest.Collectives(
        count=len(calls),
        without_bytes=sources.pop(None, 0),
        payload_sources=dict(sorted(sources.items())),
        without_group=calls["group"].null_count,
        ungrouped=dict(sorted(account.ungrouped.items())),
        libraries=dict(sorted(libraries.items())),
    )


def _notes(account: Account) -> list[str]:
    notes = list(account.notes)
    if (account.facts.rank_source or "").startswith("nothing"):
        notes.append("the trace does not say its rank: taken as rank 0")
    if account.facts.works_on is None and not account.facts.whole_graphs:
        notes.append("host rows only: the accelerator's rows are missing")
    if account.blind:
        notes.append("the file is cut and its rows are not in order of time: no window is known to be whole")
    return [*notes, *_doubts(account)]


def _doubts(account: Account) -> Iterator[str]:
    """Where device windows may not be what a step took: foreign kernels in them, or another host period.

    A device that keeps up with its host runs a step's kernels while the host is in that step: then the mean
    window is the host's mean period.
    """
    windows = [w for w in _step_windows(account) if w.source == "device"]
    impure = [w for w in windows if w.purity is not None and w.purity < PURE]
    if impure:
        least = min(impure, key=lambda w: w.purity or 0.0)
        own = humanise(least.purity or 0.0, "1")
        yield (
            f"{len(impure)} of {len(windows)} step windows hold kernels that other steps launched: of the"
            f" kernel time in step {least.step}'s window its own launches make up {own}"
        )
    periods = account.periods
    if periods is None or abs(periods.device_ns / periods.host_ns - 1) <= SAME_PERIOD:
        return
    both = (
        f"the device takes {humanise(periods.device_ns / 1e9, 's')} a step, the host begins one every"
        f" {humanise(periods.host_ns / 1e9, 's')}"
    )
    behind = _least_purity(_host_windows(account))
    if behind is not None and behind < PURE:
        share = humanise(behind, "1")
        yield f"{both}: the device runs behind, in some host step only {share} of its time is that step's"
    else:
        yield f"{both}, though it runs each step's kernels while the host is in it"
