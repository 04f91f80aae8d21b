# SPDX-License-Identifier: Apache-2.0
"""Kernels of a rank put where a log lists their calls: what each then has, and where nothing is taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from cclbench.classify import CollectiveName
from cclbench.formats import Payload, StatedPayloads
from cclbench.ground.evidence_schema import TIMINGS
from cclbench.normalize.collectives import CommunicationCalls
from cclbench.normalize.logged_calls import ListedCalls, lacks_group_or_payload, place_calls

NAMES = [CollectiveName(k, "nccl") for k in ("all_reduce", "all_gather", "reduce_scatter", "send_recv", None)]
REDUCE, GATHER, SCATTER, TRANSFER, UNKNOWN = range(5)
GROUPS = {"0-1": (0, 1), "0-3": (0, 1, 2, 3)}
Log = Sequence[tuple[str, str, int] | tuple[str, str, int, int, int]]
"""Kind, group, bytes, and of a transfer its ends."""


def calls(*names: int) -> CommunicationCalls:
    """Kernels of these names, launched one after another."""
    count = np.arange(len(names))
    one, none = np.full(len(names), 7), np.full(len(names), -1)
    times = {"start_ns": 100 * count, "end_ns": 100 * count + 50, "launch_ns": 100 * count - 10}
    places = {"row": count, "track": one, "step": none, "launch_track": one}
    return CommunicationCalls(**times, **places, name=np.array(names, np.int64), names=NAMES)


def listed(log: Log) -> ListedCalls:
    rows = [
        {"kind": kind, "group": group, "group_size": len(GROUPS[group]), "dtype": "float32", "bytes": size}
        | dict(zip(("src_rank", "dst_rank"), ends, strict=False))
        for kind, group, size, *ends in log
    ]
    return ListedCalls("nccl_log", pa.Table.from_pylist(rows, TIMINGS), GROUPS)


def placed(
    kernels: CommunicationCalls, log: Log, told: dict[int, Payload] | None = None
) -> tuple[list[Any], str]:
    """Of each kernel its group, bytes in and out, and ends; and what was said."""
    stated, owner = StatedPayloads(), np.full(len(kernels), -1)
    for row, payload in (told or {}).items():
        owner[row] = len(stated)
        stated.add_payload(payload, row=row)
    lacking = lacks_group_or_payload(kernels, stated, owner, {})
    owner, note = place_calls(kernels, stated, owner, lacking, listed(log), {})
    payloads = list(stated.payloads)
    found: list[Any] = []
    for entry in owner.tolist():
        p = payloads[stated.code[entry]] if entry >= 0 else None
        found.append(p and (p.ranks, p.in_bytes, p.out_bytes, p.src_rank, p.dst_rank))
    return found, note


STEP: Log = [("all_gather", "0-1", 80), ("all_reduce", "0-3", 40), ("reduce_scatter", "0-1", 160)]


def test_kernels_have_what_all_steps_of_the_log_say() -> None:
    found, note = placed(calls(GATHER, REDUCE, UNKNOWN), [("broadcast", "0-3", 8), *STEP, *STEP])
    known = ((0, 1), 40, 80), ((0, 1, 2, 3), 40, 40), ((0, 1), 160, 80)
    assert found == [(*one, None, None) for one in known]
    assert note == ("nccl_log completes 3 of 3 collectives of which the trace does not tell group or payload")
    # What steps say differently is left.
    other = [STEP[0], ("all_reduce", "0-1", 40), STEP[2]]
    found, note = placed(calls(GATHER, REDUCE, SCATTER), [*STEP, *other])
    assert found[:2] == [((0, 1), 40, 80, None, None), None]
    assert note.startswith("nccl_log completes 2 of 3 ")


def test_a_size_of_the_trace_chooses_the_step() -> None:
    """A group that the trace states otherwise refuses the log."""
    kernels = calls(GATHER, REDUCE, SCATTER)
    other = [("all_gather", "0-3", 80), ("all_reduce", "0-1", 48), ("reduce_scatter", "0-3", 160)]
    told = {1: Payload(source="annotation", collective="all_reduce", in_bytes=48)}
    found, _ = placed(kernels, [*STEP, *other], told)
    assert [one and one[0] for one in found] == [(0, 1, 2, 3), (0, 1), (0, 1, 2, 3)]
    found, note = placed(kernels, STEP, told)
    assert found == [None, (None, 48, None, None, None), None]
    assert "nowhere among them" in note
    told = {0: Payload(source="host_op", collective="all_gather", ranks=(0, 2), in_bytes=40, out_bytes=80)}
    found, note = placed(kernels, STEP, told)
    assert found[1:] == [None, None]
    assert note == (
        "the calls that nccl_log lists are not used: its 3 kernels are nowhere among them, in that order and"
        " of these groups and sizes"
    )


def test_transfers() -> None:
    """One kernel for one call has its ends; a kernel that runs several calls has none of theirs."""
    one: Log = [STEP[0], ("send", "0-3", 16, 0, 1), STEP[1], ("recv", "0-3", 16, 1, 0), STEP[2]]
    kernels = calls(GATHER, TRANSFER, REDUCE, TRANSFER, SCATTER)
    found, _ = placed(kernels, one)
    assert (found[1], found[3]) == (((0, 1, 2, 3), 16, None, 0, 1), ((0, 1, 2, 3), None, 16, 1, 0))
    found, note = placed(kernels, [*one[:2], one[3], *one[2:]])
    assert found[1] is None
    assert found[3] == ((0, 1, 2, 3), None, 16, 1, 0)
    assert note.startswith("nccl_log completes 4 of 5 ")


def test_a_collective_of_transfers_has_their_group() -> None:
    """All-to-all runs as sends and receives, by one kernel or several."""
    log: Log = [STEP[0], *[(kind, "0-3", 16, 0, 1) for kind in ("send", "recv", "send", "recv")], STEP[1]]
    told = {1: Payload(source="annotation", collective="all_to_all", in_bytes=64)}
    found, _ = placed(calls(GATHER, TRANSFER, REDUCE), log, told)
    assert found[1] == ((0, 1, 2, 3), 64, None, None, None)


def test_a_trace_that_says_all_takes_nothing() -> None:
    stated, kernels = StatedPayloads(), calls(REDUCE)
    told = Payload(source="host_op", collective="all_reduce", ranks=(0, 1), in_bytes=4, out_bytes=4)
    stated.add_payload(told, row=0)
    assert lacks_group_or_payload(kernels, stated, np.array([0]), {}).tolist() == [False]
    assert lacks_group_or_payload(kernels, stated, np.array([-1]), {}).tolist() == [True]
