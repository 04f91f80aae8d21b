# SPDX-License-Identifier: Apache-2.0
"""Collectives of one rank: their rows, kinds, process groups and payload bytes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.classify import CollectiveName, element_bytes, kind_of
from cclbench.formats import Payload, StatedPayloads
from cclbench.ground import intervals
from cclbench.ground.intervals import Int64
from cclbench.ground.schema import COLLECTIVES, group_id
from cclbench.normalize.operators import Ranges
from cclbench.record.facts import ProcessGroup, TraceFacts

_ROWS_OWN = ("kernel", "hlo", "otf2")
"""Payload sources for which the row states its own payload."""

NOTHING = Payload(source="")
"""Payload of a call for which nothing is stated."""

RANK_SHIFT = 32
"""A collective's key before ranks are matched: rank << 32 | ordinal within the rank."""

_DIMENSIONS = (
    ("tp", r"(?:^|[_\W])tp(?:$|[_\W])|tensor"),
    ("pp", r"(?:^|[_\W])pp(?:$|[_\W])|pipeline"),
    ("ep", r"(?:^|[_\W])ep(?:$|[_\W])|expert"),
    ("cp", r"(?:^|[_\W])cp(?:$|[_\W])|context"),
    ("dp", r"(?:^|[_\W])(?:dp|hsdp|fsdp)(?:$|[_\W])|data"),
)


@dataclass(frozen=True, slots=True, eq=False)
class CommunicationCalls:
    """The communication rows of a rank, in the order written; arrays of shape (calls,).

    `row` is the ordinal among the rank's kernels (−1 for a call that the host executes itself), `launch_*`
    the thread and time of the launch (−1 if unknown), `name` a code into `names`, `step` the step number
    (−1 for none).
    """

    row: Int64
    start_ns: Int64
    end_ns: Int64
    track: Int64
    step: Int64
    launch_track: Int64
    launch_ns: Int64
    name: Int64
    names: Sequence[CollectiveName]

    def __len__(self) -> int:
        return len(self.row)


def dimension_of(description: str | None) -> str | None:
    """Parallel dimension in a group's description such as `mesh_tp` or `TENSOR_MODEL_PARALLEL_GROUP`."""
    text = (description or "").lower()
    dimensions = [dimension for dimension, pattern in _DIMENSIONS if re.search(pattern, text)]
    return dimensions[0] if len(dimensions) == 1 else None


def on_device(calls: CommunicationCalls, stated_payloads: StatedPayloads) -> Int64:
    """Index of the entry of `stated_payloads` for each call of a rank with an accelerator, −1 for none.

    In order of preference: the kernel's own metadata, then the host op, execution trace or annotation on
    whose thread and within whose time the kernel was launched; of several, the one that began last.
    """
    row, code = (np.asarray(column, np.int64) for column in (stated_payloads.row, stated_payloads.code))
    first = pc.index_in(pa.array(calls.row), pa.array(row)).cast(pa.int64()).fill_null(-1).to_numpy()
    owner = np.where(calls.row < 0, _own_entries(calls, stated_payloads), first)
    for source in ("host_op", "execution_trace", "annotation"):
        tells = np.array([*(payload.source == source for payload in stated_payloads.payloads), False])
        of_source = tells[code] & (row < 0)
        open_calls = np.flatnonzero((owner < 0) & (calls.launch_ns >= 0))
        owner[open_calls] = _entries_around(
            np.flatnonzero(of_source),
            stated_payloads,
            calls.launch_track[open_calls],
            calls.launch_ns[open_calls],
        )
    return owner


def _entries_around(entries: Int64, stated_payloads: StatedPayloads, track: Int64, at: Int64) -> Int64:
    """The innermost of the entries around each instant on each thread, −1 for none."""
    columns = (
        np.asarray(column, np.int64)[entries]
        for column in (stated_payloads.track, stated_payloads.start_ns, stated_payloads.end_ns)
    )
    thread, start, end = columns
    number = np.arange(len(entries))
    order = np.lexsort((number, start, thread))
    index = Ranges(thread[order], start[order], end[order]).innermost_at(track, at)
    return np.append(entries[order], -1)[index]


def _own_entries(calls: CommunicationCalls, stated_payloads: StatedPayloads) -> Int64:
    """The entry stated by each call's own row, if it is not a kernel; −1 for none."""
    is_row_stated = np.array([*(payload.source in _ROWS_OWN for payload in stated_payloads.payloads), False])
    code, row = (np.asarray(column, np.int64) for column in (stated_payloads.code, stated_payloads.row))
    return _at_place(calls, stated_payloads, np.flatnonzero(is_row_stated[code] & (row < 0)))


def _at_place(
    calls: CommunicationCalls, stated_payloads: StatedPayloads, entries: Sequence[int] | Int64
) -> Int64:
    """The entry with the same thread, begin and end as each call; −1 for none."""
    places = {
        (stated_payloads.track[i], stated_payloads.start_ns[i], stated_payloads.end_ns[i]): int(i)
        for i in entries
    }
    if not places:
        return np.full(len(calls), -1)
    rows = (column.tolist() for column in (calls.track, calls.start_ns, calls.end_ns))
    return np.array([places.get(row, -1) for row in zip(*rows, strict=True)], np.int64)


def on_host(
    calls: CommunicationCalls, stated_payloads: StatedPayloads, facts: TraceFacts
) -> tuple[Int64, dict[str, int]]:
    """Index of the entry of `stated_payloads` for each row of a CPU's communication threads (−1 for none),
    and the number of rows without a process group by reason.

    The k-th annotated call of a process group owns the next rows of that group's threads.  The row of a send
    or receive is the first of its kind that begins inside its annotation, on its thread; it ends where the
    program waits for it, after the annotation if the call is asynchronous.  If a group's rows contradict its
    calls, all of them stay ungrouped.  Rows without a call keep their own entries.
    """
    owner = _own_entries(calls, stated_payloads)
    refused: dict[str, int] = defaultdict(int)
    payloads = list(stated_payloads.payloads)
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    rankless: list[int] = []
    transfers: list[int] = []
    for i, code in enumerate(stated_payloads.code):
        payload = payloads[code]
        if payload.source != "annotation":
            continue
        if payload.ranks is None:
            rankless.append(i)
        elif payload.collective in ("send", "recv"):
            transfers.append(i)
        else:
            groups[payload.ranks].append(i)
    around = _entries_around(np.array(transfers, np.int64), stated_payloads, calls.track, calls.start_ns)
    called = np.array([payloads[code].collective for code in stated_payloads.code] + [None], object)
    ran = np.array([name.kind for name in calls.names] + [None], object)
    fits = np.flatnonzero((around >= 0) & (called[around] == ran[calls.name]))
    fits = fits[np.argsort(calls.start_ns[fits], kind="stable")]
    firsts = fits[np.unique(around[fits], return_index=True)[1]]
    owner[firsts] = around[firsts]
    own_entry = _at_place(calls, stated_payloads, rankless)
    free = np.flatnonzero(owner < 0)
    threads = np.unique(calls.track[free])
    rows_of = {int(threads[at]): free[rows] for at, rows in intervals.by_code(calls.track[free], threads)}
    for entries in groups.values():
        entries.sort(key=lambda i: (stated_payloads.start_ns[i], stated_payloads.seq[i]))
        named = {
            thread for code in {stated_payloads.code[i] for i in entries} for thread in payloads[code].threads
        }
        if not named and len(groups) > 1:
            continue
        # A group's threads serve no other group, whether its calls fit or not.
        rows = _concatenate_rows(
            [rows_of.pop(thread) for thread in named or list(rows_of) if thread in rows_of]
        )
        rows = rows[np.argsort(calls.start_ns[rows], kind="stable")]
        owners = _in_turn(rows, entries, calls, stated_payloads, payloads, own_entry)
        if owners is not None:
            owner[rows] = owners
        else:
            refused["the group's annotated calls and its rows differ"] += len(rows)
    alone = owner < 0
    if _only_group(facts) is not None:
        refused.clear()
    elif missing := int(alone.sum()) - sum(refused.values()):
        refused["no annotation tells its process group"] += missing
    owner[alone] = own_entry[alone]
    return owner, dict(refused)


def _concatenate_rows(rows: Sequence[Int64]) -> Int64:
    return np.sort(np.concatenate([np.zeros(0, np.int64), *rows]))


def _in_turn(
    rows: Int64,
    entries: Sequence[int],
    calls: CommunicationCalls,
    stated_payloads: StatedPayloads,
    payloads: Sequence[Payload],
    own_entry: Int64,
) -> list[int] | None:
    """The entry of each row of a group, with calls and rows in order; None if they do not fit.

    Two rows that began at nearly the same time on two threads may be swapped.
    """
    if sum(payloads[stated_payloads.code[i]].rows for i in entries) != len(rows):
        return None
    owners = [i for i in entries for _ in range(payloads[stated_payloads.code[i]].rows)]
    ran = [calls.names[n].kind for n in calls.name[rows].tolist()]
    size = [
        payload_bytes(payloads[stated_payloads.code[i]])[0] if i >= 0 else None
        for i in own_entry[rows].tolist()
    ]

    def fits(k: int, entry: int) -> bool:
        call = payloads[stated_payloads.code[entry]]
        same_size = call.rows > 1 or None in (size[k], call.in_bytes) or size[k] == call.in_bytes
        return same_size and _runs_as(call.collective, ran[k])

    for k in range(len(owners) - 1):
        if not fits(k, owners[k]) and fits(k, owners[k + 1]) and fits(k + 1, owners[k]):
            owners[k : k + 2] = owners[k + 1], owners[k]
    return owners if all(map(fits, range(len(owners)), owners)) else None


def _runs_as(called: str | None, ran: str | None) -> bool:
    """Whether a call of kind `called` may run as kind `ran`; gloo reduce-scatters by an all-reduce."""
    return called == ran or (called == "reduce_scatter" and ran == "all_reduce")


Groups = dict[str, tuple[int, ...]]
"""Sorted ranks of each process group, by its id."""


def collectives_table(
    rank: int, calls: CommunicationCalls, stated_payloads: StatedPayloads, owner: Int64, facts: TraceFacts
) -> tuple[pa.Table, Groups]:
    """Rows of `schema.COLLECTIVES`, one per call, in order, and their groups."""
    groups = {group.name: group for group in facts.groups}
    only = _only_group(facts)
    payloads = list(stated_payloads.payloads)
    code, seq = (_column_of_calls(column, owner) for column in (stated_payloads.code, stated_payloads.seq))
    pairs, of_call = np.unique(code * len(calls.names) + calls.name, return_inverse=True)
    described = []
    for pair in pairs.tolist():
        payload, name = divmod(pair, len(calls.names))
        described.append(
            _call_row(calls.names[name], payloads[payload] if payload >= 0 else NOTHING, groups, only)
        )
    members = {str(row["group"]): ranks for row in described if (ranks := row.pop("members", None))}
    step = calls.step.astype(np.int32)
    call_columns = {
        "collective": (rank << RANK_SHIFT) + np.arange(len(calls)),
        "rank": np.full(len(calls), rank, np.int32),
        "seq": pa.array(seq, mask=seq < 0),
        "step": pa.array(step, mask=step < 0),
        "start_ns": calls.start_ns,
        "end_ns": calls.end_ns,
    }
    columns = [
        pa.array(call_columns[field.name])
        if field.name in call_columns
        else _array_of([row.get(field.name) for row in described], field.type).take(pa.array(of_call))
        for field in COLLECTIVES
    ]
    return pa.table(columns, schema=COLLECTIVES), members


def _column_of_calls(column: Sequence[int], owner: Int64) -> Int64:
    """The column's value for each call's entry, −1 for a call without one."""
    values = np.asarray(column, np.int64)
    return np.where(owner >= 0, values[owner], -1) if len(values) else np.full(len(owner), -1)


def _array_of(values: list[object], kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, pa.string()).dictionary_encode().cast(kind)
    return pa.array(values, kind)


def _call_row(
    name: CollectiveName, p: Payload, groups: Mapping[str, ProcessGroup], only: ProcessGroup | None
) -> dict[str, Any]:
    """A payload as a row of the schema; kind and library default to those of the row's name."""
    kind = kind_of(p.collective or "") or name.kind
    # A call that names no group is of the only group listed; a call that names one must be of that group.
    listed = only if p.group_name is None else groups.get(p.group_name)
    ranks = p.ranks or (listed.ranks if listed else None)
    description = p.group_description or (listed.description if listed else None)
    size = p.group_size or (len(ranks) if ranks else None)
    row: dict[str, Any] = {
        "kind": kind,
        "library": p.library or name.library,
        "group_size": size,
        "dimension": dimension_of(description),
        "src_rank": p.src_rank,
        "dst_rank": p.dst_rank,
        "channel": p.channel,
        "dtype": p.dtype,
    }
    if ranks and len(set(ranks)) == size:
        row |= {"group": group_id(ranks), "members": tuple(sorted(ranks))}
    in_bytes, out_bytes = payload_bytes(p)
    if out_bytes is None and kind in ("all_reduce", "broadcast"):
        out_bytes = in_bytes
    if in_bytes is not None or out_bytes is not None:
        row |= {"in_bytes": in_bytes, "out_bytes": out_bytes, "payload_source": p.source}
    return row


def payload_bytes(p: Payload) -> tuple[int | None, int | None]:
    """Payload in and out: stated, or elements × the size of one."""
    element = element_bytes(p.dtype)
    if element is None:
        return p.in_bytes, p.out_bytes
    return (
        p.in_bytes if p.in_elements is None else p.in_elements * element,
        p.out_bytes if p.out_elements is None else p.out_elements * element,
    )


def _only_group(facts: TraceFacts) -> ProcessGroup | None:
    """The process group of several ranks, if the trace lists only one such set of ranks."""
    shared = [group for group in facts.groups if group.ranks and len(group.ranks) > 1]
    return shared[0] if len({frozenset(group.ranks or ()) for group in shared}) == 1 else None
