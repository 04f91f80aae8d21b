# SPDX-License-Identifier: Apache-2.0
"""Who holds an allocator's memory: rows by category, module or call site, and their names in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cclbench.analyzers.view.allocator import OLDER, History
from cclbench.analyzers.view.memory_groups import GROUPINGS, block_groups, group_levels

OLDER_WORDS: Final = "older than the recording"
NO_STACK: Final = "no stack recorded"
NO_MODULE: Final = "outside of modules"
UNKNOWN_SITE: Final = f"{OLDER_WORDS}, or {NO_STACK}"
GROUPING_WORDS: Final = {"category": "category", "module": "module", "call_site": "call site"}


def history_heading(history: History, among: Sequence[History]) -> str:
    """`rank 0, device 1`, with the file if ranks do not distinguish files."""
    rank = "" if history.rank is None else f"rank {history.rank}, "
    files = {entry.file for entry in among if entry.rank is None}
    return rank + history.device_label(with_file=history.rank is None and len(files) > 1)


def known_groupings(history: History) -> list[str]:
    """Those of `GROUPINGS` by which the history's blocks are known."""
    if history.owners is None or not history.recorded or not any(history.owners.call_sites):
        return []
    modules = any(block_groups(history.owners, "module").names)
    return [grouping for grouping in GROUPINGS if grouping != "module" or modules]


def owner_rows(history: History, grouping: str) -> list[dict[str, Any]]:
    """What each category, module or call site holds over time, the largest at the device's peak first.

    `bytes` are held at the device's peak, `peak` at the group's own one, `step_ends` at the ends of steps.
    """
    owners = history.owners
    if owners is None or not history.recorded:
        return []
    levels = group_levels(owners, block_groups(owners, grouping))
    held = levels.at(history.peak_moment)
    ends = None if history.step_ends is None else levels.over(history.step_ends)
    end = levels.at(len(history.allocated) - 1)
    times = history.time_ns
    rows = [
        {
            grouping: group_label(grouping, group, name),
            "bytes": int(held[group]),
            "share": int(held[group]) / max(history.peak_allocated, 1),
            "peak": int(levels.peak[group]),
            "peak_event": int(levels.peak_moment[group]),
            "peak_time_ns": None if times is None else int(times[levels.peak_moment[group]]),
            "step_ends": None if ends is None else ends[group].tolist(),
            "end": int(end[group]),
        }
        for group, name in enumerate(levels.names)
        if levels.peak[group]
    ]
    return sorted(rows, key=lambda row: (-row["bytes"], -row["peak"], row[grouping]))


def group_label(grouping: str, group: int, name: str | None) -> str:
    """A group's name in words, also of blocks outside of modules and without a stack."""
    if grouping == "call_site" and group == OLDER:
        return OLDER_WORDS
    return name or (NO_MODULE if grouping == "module" else NO_STACK)
