# SPDX-License-Identifier: Apache-2.0
"""Predicted collectives as rows: the group, the algorithm, and the time by size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from cclbench.ground.errors import InputError, UsageError, near
from cclbench.hardware.calibration import read_calibration
from cclbench.hardware.collectives import NoPrice, SendSchedule, price_collective
from cclbench.hardware.system import System

COLUMNS: Final = (
    *("system", "collective", "ranks", "nodes", "bytes", "time_s", "low_s", "high_s", "algbw", "busbw"),
    *("algorithm", "protocol", "basis", "provenance", "reason", "marks"),
)


def predict_rows(
    kind: str,
    sizes: Sequence[int] | None,
    ranks: int,
    system: System,
    *,
    nodes: int | None = None,
    algorithm: str | None = None,
    protocol: str | None = None,
    transport: str | None = None,
    library_version: str | None = None,
    calibration: Path | None = None,
    schedule: SendSchedule | None = None,
) -> list[dict[str, Any]]:
    """Rows of `COLUMNS` by size, B; `sizes` is None for a barrier.

    The ranks are the first of each of `nodes` nodes, or fill as few nodes as possible.  `UsageError` for
    options that exclude each other, `InputError` with the reason and the missing field if there is no price.
    """
    members = system.group_members(ranks, nodes)
    check_transport(system, transport)
    priced_sizes = sizes or [0]
    common = {"library_version": library_version, "transport": transport}
    if calibration is None:
        narrowed = {"algorithm": algorithm, "protocol": protocol}
        prediction = price_collective(
            kind, priced_sizes, members, system, **common, **narrowed, plan=schedule
        )
    elif algorithm or protocol or kind == "barrier":
        what = "barriers" if kind == "barrier" else "one algorithm or protocol"
        raise UsageError(f"a calibration does not cover {what}", hint="leave out --calibration")
    else:
        prediction = read_calibration(calibration).price_collective(
            kind, priced_sizes, members, system, **common
        )
    if isinstance(prediction, NoPrice):
        field = prediction.field
        hint = None if field is None else f"state {field} in a hardware file of your own (--hardware)"
        raise InputError(prediction.reason, hint=hint)
    shared = {
        **dict.fromkeys(COLUMNS),
        "system": system.id,
        "collective": kind,
        "ranks": ranks,
        "nodes": len(system.ranks_by_node(members)),
        "basis": prediction.basis,
        "provenance": "modelled",
        "reason": prediction.reason,
    }
    figures = ("time_s", "low_s", "high_s", *(() if sizes is None else ("algbw", "busbw")))
    return [
        {
            **shared,
            "bytes": size,
            **{name: float(getattr(prediction, name)[at]) for name in figures},
            "algorithm": prediction.algorithm[at],
            "protocol": prediction.protocol[at],
            "marks": "; ".join(prediction.marks[at]) or None,
        }
        for at, size in enumerate(sizes or [None])
    ]


def check_transport(system: System, transport: str | None) -> None:
    """`UsageError` if the machine's network has no such transport."""
    if transport is None:
        return
    out = system.scale_out
    transports = set() if out is None else {*out.fabric.transports, *filter(None, [out.transport])}
    if transport not in transports:
        raise UsageError(f"{system.id} has no transport {transport!r}", hint=near(transport, transports))
