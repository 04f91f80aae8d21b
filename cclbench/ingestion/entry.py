# SPDX-License-Identifier: Apache-2.0
"""Parts of a rank's entry in the manifest: what was found, what was left out, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from cclbench.ground.units import humanise
from cclbench.ingestion.part_file import PartRead
from cclbench.ingestion.source import SourceFile
from cclbench.normalize.steps import Periods, Window
from cclbench.record import manifest
from cclbench.record.facts import TraceFacts, ran_no_kernel

PURE: Final = 0.9
"""A note is written if less of a window's kernel time than this share was launched by its own step."""
SAME_PERIOD: Final = 0.005
"""Relative difference of the device's and the host's step periods above which a note is written."""


def manifest_file(file: SourceFile) -> manifest.File:
    """The manifest's record of a source file."""
    return manifest.File(file.name, file.bytes, file.sha256, file.reader)


def unclassified_kernels(parts: Sequence[PartRead]) -> manifest.Unclassified:
    """Kernels that the taxonomy does not classify: their share of kernel time and ten longest names."""
    times: Counter[str] = sum((p.kernel_ns for p in parts), Counter())
    total = times.pop("", 0)
    names = [name for name, ns in times.most_common(10) if ns]
    return manifest.Unclassified(share=sum(times.values()) / total if total else None, names=names)


def without_kernels(entries: Sequence[manifest.RankEntry]) -> list[manifest.RankEntry]:
    """Ranks whose device ran no kernel, if the device of another rank did."""
    device = [entry for entry in entries if entry.facts.works_on == "device"]
    idle_ranks = [entry for entry in device if ran_no_kernel(entry.facts, entry.rows)]
    return idle_ranks if len(idle_ranks) < len(device) else []


def step_entries(
    windows: Sequence[Window], periods: Periods | None, left_out: Counter[str]
) -> manifest.Steps:
    """The manifest's record of a rank's steps; `periods` are those of device windows and host steps."""
    step_windows = _step_windows(windows)
    return manifest.Steps(
        found=len(step_windows),
        closed=sum(1 for w in step_windows if not w.open),
        source=step_windows[0].source if step_windows else None,
        left_out=dict(sorted(left_out.items())),
        least_purity=_least_purity(step_windows),
        least_host_purity=_least_purity(_host_windows(windows)),
        device_period_ns=None if periods is None else periods.device_ns,
        host_period_ns=None if periods is None else periods.host_ns,
        host_before_ns=_host_before(windows),
    )


def _host_before(windows: Sequence[Window]) -> int | None:
    """Time from a single step's annotation to its first kernel, ns; later steps have it in a window."""
    of_device = [w for w in windows if w.source == "device"]
    if not of_device or not all(w.open for w in of_device):
        return None
    begun = (w.start_ns for w in windows if w.source == "annotation" and w.step == of_device[0].step)
    before_ns = of_device[0].start_ns - next(begun, of_device[0].start_ns)
    return before_ns if before_ns > SAME_PERIOD * (of_device[0].end_ns - of_device[0].start_ns) else None


def _step_windows(windows: Sequence[Window]) -> list[Window]:
    """Step windows from the best source that the rank has."""
    for source in ("device", "module", "graph", "annotation"):
        if source_windows := [w for w in windows if w.source == source]:
            return source_windows
    return []


def _host_windows(windows: Sequence[Window]) -> list[Window]:
    """The host's annotations of the steps whose device windows are closed."""
    closed = {w.step for w in windows if w.source == "device" and not w.open}
    return [w for w in windows if w.source == "annotation" and w.step in closed]


def _least_purity(windows: Sequence[Window]) -> float | None:
    return min((w.purity for w in windows if w.purity is not None), default=None)


def collectives_entry(rows: pa.Table, ungrouped: dict[str, int]) -> manifest.Collectives:
    """The manifest's record of `schema.COLLECTIVES` rows; `ungrouped` counts rows without a group."""
    sources, libraries = (
        {entry["values"]: entry["counts"] for entry in pc.value_counts(words.drop_null()).to_pylist()}
        for words in (rows[name].cast(pa.string()) for name in ("payload_source", "library"))
    )
    return manifest.Collectives(
        count=len(rows),
        without_bytes=len(rows) - sum(sources.values()),
        payload_sources=dict(sorted(sources.items())),
        without_group=rows["group"].null_count,
        ungrouped=dict(sorted(ungrouped.items())),
        libraries=dict(sorted(libraries.items())),
    )


def rank_notes(
    facts: TraceFacts,
    rows: Mapping[str, int],
    windows: Sequence[Window],
    periods: Periods | None,
    *,
    blind: bool,
) -> Iterator[str]:
    """Notes on the rank; `rows` counts its rows by kind; `blind`: the file is cut and no window is known to
    be complete.

    A device window may differ from the time of its step: it may hold kernels of other steps, or the host's
    period may differ.  If the device keeps up with the host, it runs a step's kernels while the host is in
    that step, and the mean window equals the host's mean period.
    """
    if (facts.rank_source or "").startswith("nothing"):
        yield "the trace does not say its rank: taken as rank 0"
    if facts.works_on is None and not facts.whole_graphs:
        yield "host rows only: the accelerator's rows are missing"
    if ran_no_kernel(facts, rows):
        copies, sets = (rows.get(kind, 0) for kind in ("copy", "memset"))
        yield f"the device ran no kernel: {copies:,} copies and {sets:,} memsets are all that it did"
    if blind:
        yield "the file is cut and its rows are not in order of time: no window is known to be whole"
    of_device = [w for w in _step_windows(windows) if w.source == "device"]
    impure = [w for w in of_device if w.purity is not None and w.purity < PURE]
    if impure:
        least = min(impure, key=lambda w: w.purity or 0.0)
        least_share = humanise(least.purity or 0.0, "1")
        yield (
            f"{len(impure)} of {len(of_device)} step windows hold kernels that other steps launched: of the"
            f" kernel time in step {least.step}'s window its own launches make up {least_share}"
        )
    if periods is None or abs(periods.device_ns / periods.host_ns - 1) <= SAME_PERIOD:
        return
    both = (
        f"the device takes {humanise(periods.device_ns / 1e9, 's')} a step, the host begins one every"
        f" {humanise(periods.host_ns / 1e9, 's')}"
    )
    behind = _least_purity(_host_windows(windows))
    if behind is not None and behind < PURE:
        share = humanise(behind, "1")
        yield f"{both}: the device runs behind, in some host step only {share} of its time is that step's"
    else:
        yield f"{both}, though it runs each step's kernels while the host is in it"
