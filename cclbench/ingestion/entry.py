# SPDX-License-Identifier: Apache-2.0
"""A rank's entry in the manifest: what was found, what was left out, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from cclbench.ingestion.part import PartRead
from cclbench.readers import Cut
from cclbench.schema import TraceFacts


@dataclass(frozen=True, slots=True, eq=False)
class Account:
    """What became of one rank."""

    rank: int
    facts: TraceFacts
    rows: Counter[str]
    windows: Sequence[tuple[int | None, int, int, str]]
    left_out: Counter[str]
    calls: pa.Table
    ungrouped: dict[str, int]
    cut: Cut | None
    horizon_ns: int | None
    blind: bool
    """Whether the file is cut and no window can be told to be whole."""
    notes: Sequence[str] = ()


def entry(account: Account, parts: Sequence[PartRead]) -> dict[str, Any]:
    """The rank's entry, ready for JSON."""
    dropped: Counter[str] = sum((Counter(p.dropped) for p in parts), Counter())
    times: Counter[str] = sum((Counter(p.kernel_ns) for p in parts), Counter())
    total = times.pop("", 0)
    by_source = Counter(source for *_, source in account.windows)
    source = next((s for s in ("device", "module", "annotation") if by_source[s]), None)
    cut = account.cut
    return {
        "rank": account.rank,
        "facts": msgspec.to_builtins(msgspec.structs.replace(account.facts, groups=(), communicators=())),
        "span_ns": next(([w[1], w[2]] for w in account.windows if w[3] == "whole_trace"), None),
        "rows": dict(sorted(account.rows.items())),
        "dropped": dict(sorted(dropped.items())),
        "steps": {
            "found": by_source[source] if source else 0,
            "source": source,
            "left_out": dict(sorted(account.left_out.items())),
        },
        "unclassified": {
            "share": sum(times.values()) / total if total else None,
            "names": [name for name, ns in times.most_common(10) if ns],
        },
        "collectives": _collectives(account),
        "truncated": cut and {**msgspec.to_builtins(cut), "horizon_ns": account.horizon_ns},
        "notes": list(_notes(account)),
    }


def _collectives(account: Account) -> dict[str, Any]:
    calls = account.calls
    sources = Counter(calls["payload_source"].cast(pa.string()).to_pylist())
    libraries = Counter(calls["library"].cast(pa.string()).to_pylist())
    return {
        "count": len(calls),
        "without_bytes": sources.pop(None, 0),
        "payload_sources": dict(sorted(sources.items())),
        "without_group": calls["group"].null_count,
        "ungrouped": dict(sorted(account.ungrouped.items())),
        "libraries": dict(sorted(libraries.items())),
    }


def _notes(account: Account) -> list[str]:
    notes = list(account.notes)
    if (account.facts.rank_source or "").startswith("nothing"):
        notes.append("the trace does not say its rank: taken as rank 0")
    if account.facts.works_on is None and not account.facts.whole_graphs:
        notes.append("host rows only: the accelerator's rows are missing")
    if account.blind:
        notes.append("the file is cut and its rows are not in order of time: no window is known to be whole")
    return notes
