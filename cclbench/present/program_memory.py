# SPDX-License-Identifier: Apache-2.0
"""Memory that compiled programs need, as their compiler assigned it, beside the measured peaks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from cclbench.analyzers.view.allocator import History
from cclbench.ground.evidence_schema import BUFFER_KINDS
from cclbench.record.run import Run

_GRANULE: Final = 256
"""XLA's allocator of a GPU rounds sizes up to these bytes."""
_HOST: Final = 5
"""Memory space of the host."""
_PLAIN_KINDS: Final = {
    "parameter": "parameters",
    "parameter_output": "parameters that outputs reuse",
    "constant": "constants",
    "output": "outputs",
    "temporary": "temporaries",
    "thread_local": "thread-local",
}
AS_COMPILED: Final = "as compiled, not measured"
_OWNER: Final = ("instruction", "framework_op", "call_site", "bytes")


def program_documents(run: Run) -> list[dict[str, Any]]:
    """Each compiled program of the run's XLA profiles, the largest first; those of several hosts once.

    `bytes` is Σ of its `buffers`; `peak` lists the buffers in its temporaries when most are live.
    """
    table = run.evidence("program_buffers")
    columns = [name for name in table.column_names if name not in ("source", "file", "program")]
    profiles: Counter[tuple[tuple[Any, ...], ...]] = Counter()
    for _, of_program in groupby(table.to_pylist(), key=lambda row: (row["file"], row["program"])):
        profiles[tuple(tuple(row[name] for name in columns) for row in of_program)] += 1
    documents = [
        _program_document([dict(zip(columns, row, strict=True)) for row in content], count)
        for content, count in profiles.items()
    ]
    return sorted(documents, key=lambda document: (-(document["bytes"] or 0), document["module"] or ""))


def _program_document(rows: Sequence[dict[str, Any]], profiles: int) -> dict[str, Any]:
    buffer_rows = [row for row in rows if row["kind"] is not None]
    buffers = []
    for kind in BUFFER_KINDS:
        for space in sorted({row["memory_space"] for row in buffer_rows if row["kind"] == kind}):
            chosen = [row for row in buffer_rows if (row["kind"], row["memory_space"]) == (kind, space)]
            allocations = len({row["allocation"] for row in chosen})
            size = sum(row["bytes"] for row in chosen)
            buffers.append({"kind": kind, "memory_space": space, "allocations": allocations, "bytes": size})
    parts = [row for row in buffer_rows if row["part"] != "whole"]
    live = sorted((row for row in parts if row["part"] == "live"), key=lambda row: -row["bytes"])
    return {
        "module": rows[0]["module"],
        "provenance": "compiler",
        "profiles": profiles,
        "bytes": sum(row["bytes"] for row in buffer_rows) if buffer_rows else None,
        "reasons": list(dict.fromkeys(row["reason"] for row in rows if row["reason"])),
        "buffers": buffers,
        "largest": _largest_allocations(buffer_rows),
        "peak": {
            "live": [{name: row[name] for name in _OWNER} for row in live],
            "untraced": sum(row["bytes"] for row in parts if row["part"] == "untraced"),
            "unused": sum(row["bytes"] for row in parts if row["part"] == "unused"),
        }
        if parts
        else None,
    }


def buffer_words(kind: str, memory_space: int = 0) -> str:
    """`temporaries`, `parameters, host memory`."""
    space = ", host memory" if memory_space == _HOST else f", memory space {memory_space}"
    return _PLAIN_KINDS[kind] + (space if memory_space else "")


def program_rows(programs: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows of a table beside those of measured peaks: what each program's buffers take, by kind.

    `source` is `compiler`: their sizes are assigned, not measured.  A program of unknown size has a reason.
    """
    for program in programs:
        common = {"source": program["provenance"], "module": program["module"]}
        if program["bytes"] is None:
            yield common | {"reason": "; ".join(program["reasons"])}
        for row in program["buffers"]:
            yield common | {
                "buffers": buffer_words(row["kind"], row["memory_space"]),
                "bytes": row["bytes"],
                "share": row["bytes"] / max(program["bytes"], 1),
                "blocks": row["allocations"],
            }


def peak_owners(program: dict[str, Any]) -> list[tuple[str, int, int | None]]:
    """What holds a program's temporaries at their peak, most first: its name, bytes, number of buffers.

    Buffers are named by framework op and line, without either by instruction.  The last two, if any, are
    those without a heap trace, and unused bytes.
    """
    peak = program["peak"]
    owners: dict[str, list[int]] = {}
    for row in peak["live"]:
        stated = [part for part in (row["framework_op"] or row["instruction"], row["call_site"]) if part]
        owners.setdefault(" at ".join(stated) or "no instruction stated", []).append(row["bytes"])
    named = [(owner, sum(sizes), len(sizes)) for owner, sizes in owners.items()]
    rest = [("buffers without a heap trace", peak["untraced"], None), ("unused", peak["unused"], None)]
    return [*sorted(named, key=lambda owner: -owner[1]), *(owner for owner in rest if owner[1])]


def _largest_allocations(rows: Iterable[dict[str, Any]]) -> dict[str, int]:
    """Bytes of the largest allocation of each kind in the device's main memory."""
    sizes: Counter[tuple[str, int]] = Counter()
    for row in rows:
        if row["memory_space"] == 0:
            sizes[row["kind"], row["allocation"]] += row["bytes"]
    return {
        kind: max(size for (buffer_kind, _), size in sizes.items() if buffer_kind == kind)
        for kind in BUFFER_KINDS
        if any(buffer_kind == kind for buffer_kind, _ in sizes)
    }


def peak_allocation(history: History, programs: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The program whose temporaries or output are the measured allocation that made the device's peak.

    Its size must be that of the largest such allocation of one program alone; None otherwise.
    """
    peak = history.peak_moment
    if history.source != "xplane" or not history.recorded or peak == 0:
        return None
    rise = int(history.allocated[peak] - history.allocated[peak - 1])
    matches = [
        {"module": program["module"], "kind": kind, "bytes": rise, "assigned": size}
        for program in programs
        for kind, size in program["largest"].items()
        if kind in ("temporary", "output")
        and size > _GRANULE
        and rise in (size, -(-size // _GRANULE) * _GRANULE)
    ]
    return matches[0] if len(matches) == 1 else None
