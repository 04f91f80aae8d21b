# SPDX-License-Identifier: Apache-2.0
"""Complete a rank's trace, which lacks groups or payloads, from the calls that a log lists.

A log has no times and covers more than the trace.  The rank's kernels, in launch order, are searched in it as
a sequence of calls of the same kinds; if several places fit, as in equal steps, a kernel gets what all of
them state.  The sends and receives between two collectives count as one, since one kernel may run several.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.classify import kind_of
from cclbench.formats import Payload, StatedPayloads
from cclbench.ground.intervals import Int64, Mask
from cclbench.ground.schema import COLLECTIVE_KINDS
from cclbench.normalize.collectives import NOTHING, CommunicationCalls, payload_bytes
from cclbench.record.facts import ProcessGroup

LIBRARIES: Final = ("nccl", "rccl")
_PAIRS: Final = ("send", "recv", "send_recv")
_BY_TRANSFERS: Final = (*_PAIRS, "all_to_all", "gather", "scatter")
"""Kinds that run as sends and receives."""
_TRANSFERS: Final = ord("t")
_COLUMNS: Final = ("kind", "group", "group_size", "dtype", "bytes", "src_rank", "dst_rank")
_UNKNOWN: Final = ord(".")
_NO_CALL: Final = ord("?")
"""A call of unknown kind, which may be any kernel of unknown kind."""


class ListedCalls(NamedTuple):
    """A rank's calls in order, as rows of `TIMINGS`; their source, and the ranks of its groups."""

    source: str
    table: pa.Table
    groups: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class _Turns:
    """A sequence of rows, in which the transfers between two collectives are one turn."""

    letters: bytes
    first: Int64
    rows: Int64
    """Number of rows in each turn."""


def lacks_group_or_payload(
    calls: CommunicationCalls,
    stated_payloads: StatedPayloads,
    owner: Int64,
    groups: Mapping[str, ProcessGroup],
) -> Mask:
    """Which calls of NCCL or RCCL have no group or no payload in their entries (`owner`, see `on_device`).

    `groups` are those that the trace lists, by name; shape (calls,).
    """
    payloads, code = _entries_of_calls(stated_payloads, owner)
    incomplete = np.array([not _is_complete(payload, groups) for payload in payloads], np.bool_)
    return np.asarray(incomplete[code] & _is_library_call(calls))


def _is_library_call(calls: CommunicationCalls) -> Mask:
    return np.array([name.library in LIBRARIES for name in calls.names] or [False])[calls.name]


def _entries_of_calls(stated_payloads: StatedPayloads, owner: Int64) -> tuple[list[Payload], Int64]:
    """The stated payloads, followed by `NOTHING`, and the index of each call's."""
    code = np.asarray([*stated_payloads.code, len(stated_payloads.payloads)], np.int64)
    return [*stated_payloads.payloads, NOTHING], code[owner]


def place_calls(
    calls: CommunicationCalls,
    stated_payloads: StatedPayloads,
    owner: Int64,
    lacking: Mask,
    listed: ListedCalls,
    groups: Mapping[str, ProcessGroup],
) -> tuple[Int64, str]:
    """The entry of each call, with new ones for `lacking` calls that the log completes; and a note.

    The new entries are added to `stated_payloads`.  A log that contradicts the trace is not used.
    """
    if not len(listed.table):
        return owner, f"{listed.source} lists no call of the rank"
    rows = np.flatnonzero(_is_library_call(calls))
    payloads, code = _entries_of_calls(stated_payloads, owner)
    code = code[rows]
    launched = np.where(calls.launch_ns < 0, calls.start_ns, calls.launch_ns)
    order = np.lexsort((calls.start_ns[rows], launched[rows]))
    rows, code, lacking = rows[order], code[order], lacking[rows[order]]
    kinds = np.array([_kind_letter(name.kind, _UNKNOWN) for name in calls.names], np.uint8)
    traced = _split_turns(kinds[calls.name[rows]])
    words = listed.table["kind"].cast(pa.string()).to_pylist()
    logged = _split_turns(np.array([_kind_letter(word, _NO_CALL) for word in words], np.uint8))
    shape, shapes = _call_shapes(logged, listed)
    numbers = _payload_numbers(
        [(_group_ranks(payload, groups), payload_bytes(payload)[0]) for payload in [*payloads, *shapes]]
    )
    stated = numbers[code[traced.first]]
    stated[traced.rows > 1] = -1
    in_log = numbers[len(payloads) + shape]
    at = [
        begin
        for begin in _turn_places(traced.letters, logged.letters)
        if not _any_differs(stated, in_log[begin : begin + len(stated)])
    ]
    if not at:
        why = f"its {len(rows):,} kernels are nowhere among them, in that order and of these groups and sizes"
        return owner, f"the calls that {listed.source} lists are not used: {why}"
    agreed = shape[at[0] : at[0] + len(stated)].copy()
    for other in at[1:]:
        agreed[shape[other : other + len(agreed)] != agreed] = -1
    cut = np.zeros(len(agreed), np.bool_)
    cut[[0, -1]] = len(agreed) < len(shape)
    alone = (np.frombuffer(traced.letters, np.uint8) != _TRANSFERS) | (~cut & (traced.rows == 1))
    turn = np.repeat(np.arange(len(agreed)), traced.rows)
    chosen = np.flatnonzero(lacking & (agreed[turn] >= 0))
    about = np.stack([code[chosen], agreed[turn[chosen]], alone[turn[chosen]]], axis=1)
    pairs, pair = np.unique(about, axis=0, return_inverse=True)
    pair = pair.reshape(-1)
    completed = [
        _complete_entry(payloads[entry], shapes[call], bool(single), groups)
        for entry, call, single in pairs.tolist()
    ]
    useful = np.array([payload is not None for payload in completed] or [False])[pair]
    chosen, pair = chosen[useful], pair[useful]
    kernel = rows[chosen]
    former = owner[kernel]
    seq = np.asarray([*stated_payloads.seq, -1], np.int64)[former]
    owner = owner.copy()
    owner[kernel] = len(stated_payloads) + np.arange(len(kernel))
    stated_payloads.add_rows([payload or NOTHING for payload in completed], pair, calls.row[kernel], seq)
    return owner, (
        f"{listed.source} completes {len(kernel):,} of {int(lacking.sum()):,} collectives of which the trace"
        " does not tell group or payload"
    )


def _turn_places(traced: bytes, logged: bytes) -> Iterator[int]:
    """Places in a log at which the turns of a trace fit; an unknown kind matches any."""
    if _UNKNOWN in traced:
        pattern = b"".join(b"." if letter == _UNKNOWN else re.escape(bytes([letter])) for letter in traced)
        yield from (match.start() for match in re.finditer(b"(?=" + pattern + b")", logged, re.DOTALL))
        return
    at = logged.find(traced)
    while at >= 0:
        yield at
        at = logged.find(traced, at + 1)


def _payload_numbers(pairs: Sequence[tuple[tuple[int, ...] | None, int | None]]) -> Int64:
    """Ranks and bytes as numbers, −1 if unknown, shape (len(pairs), 2); equal groups have equal numbers."""
    numbers: dict[frozenset[int], int] = {}
    return np.array(
        [
            (
                numbers.setdefault(frozenset(ranks), len(numbers)) if ranks else -1,
                -1 if size is None else size,
            )
            for ranks, size in pairs
        ],
        np.int64,
    )


def _any_differs(a: Int64, b: Int64) -> bool:
    """Whether the arrays differ anywhere that both are known (not −1)."""
    return bool(((a >= 0) & (b >= 0) & (a != b)).any())


def _kind_letter(kind: str | None, unknown: int) -> int:
    """A character for each kind; kinds that run as sends and receives share one."""
    if kind is None:
        return unknown
    return _TRANSFERS if kind in _BY_TRANSFERS else ord("A") + COLLECTIVE_KINDS.index(kind)


def _split_turns(letters: npt.NDArray[np.uint8]) -> _Turns:
    new = np.ones(len(letters), np.bool_)
    new[1:] = (letters[1:] != _TRANSFERS) | (letters[:-1] != _TRANSFERS)
    first = np.flatnonzero(new)
    return _Turns(letters[first].tobytes(), first, np.diff([*first.tolist(), len(letters)]))


def _is_complete(payload: Payload, groups: Mapping[str, ProcessGroup]) -> bool:
    return bool(_group_ranks(payload, groups)) and payload_bytes(payload) != (None, None)


def _group_ranks(payload: Payload, groups: Mapping[str, ProcessGroup]) -> tuple[int, ...] | None:
    """The ranks of its group, as it states them or as the trace lists them."""
    listed = groups.get(payload.group_name or "")
    return payload.ranks or (listed.ranks if listed is not None else None)


def _call_shapes(logged: _Turns, listed: ListedCalls) -> tuple[Int64, list[Payload]]:
    """Each turn's index into the distinct payloads, and these payloads; for several transfers the group
    only, if they share one."""
    table = listed.table.select(_COLUMNS)
    columns, words = [], []
    for name in _COLUMNS:
        coded = table[name].combine_chunks().dictionary_encode()
        values = coded.indices.cast(pa.int64()).fill_null(-1).to_numpy()
        low, high = (most.reduceat(values, logged.first) for most in (np.minimum, np.maximum))
        same = (low == high) & ((logged.rows == 1) | np.isin(name, ("group", "group_size")))
        columns.append(np.where(same, low, -1))
        words.append([*coded.dictionary.to_pylist(), None])
    rows, number = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    every = [[column_values[i] for column_values, i in zip(words, row, strict=True)] for row in rows.tolist()]
    return number.reshape(-1), [
        _logged_payload(dict(zip(_COLUMNS, row, strict=True)), listed) for row in every
    ]


def _logged_payload(call: dict[str, Any], listed: ListedCalls) -> Payload:
    """The payload in the log, sizes as in `TIMINGS`; for gather and scatter only the root has it."""
    kind, size, ranks = call["kind"], call["bytes"], call["group_size"]
    part = None if size is None or not ranks else size // ranks
    return Payload(
        source=listed.source,
        collective=kind,
        in_bytes={"all_gather": part, "gather": part, "recv": None, "scatter": None}.get(kind, size),
        out_bytes={"reduce_scatter": part, "scatter": part, "send": None, "gather": None}.get(kind, size),
        dtype=call["dtype"],
        group_size=ranks,
        ranks=listed.groups.get(call["group"] or ""),
        src_rank=call["src_rank"],
        dst_rank=call["dst_rank"],
    )


def _complete_entry(
    payload: Payload, logged: Payload, alone: bool, groups: Mapping[str, ProcessGroup]
) -> Payload | None:
    """The trace's payload completed from the log's; None if the log adds nothing.

    If a kernel is not `alone` in its turn, or its turn has several transfers, only the group is taken from
    the log, and only if the trace states that the kernel runs a collective.
    """
    ranks, size = _group_ranks(payload, groups), payload.group_size or logged.group_size
    several = not alone or logged.collective is None
    if several and kind_of(payload.collective or "") in (None, *_PAIRS):
        return None
    if several or payload_bytes(payload) != (None, None):
        if ranks or not logged.ranks:
            return None
        return msgspec.structs.replace(payload, ranks=logged.ranks, group_size=size)
    return msgspec.structs.replace(
        logged,
        ranks=ranks or logged.ranks,
        group_name=payload.group_name,
        group_description=payload.group_description,
    )
