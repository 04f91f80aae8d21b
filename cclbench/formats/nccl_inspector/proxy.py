# SPDX-License-Identifier: Apache-2.0
"""Operations of NCCL's proxy threads, which move data over the network, as counters of their connections.

An operation moves chunks in steps; the callbacks of each step tell what the connection waited for (README,
*Proxy Trace Output*): a send for the GPU's data, then for the peer's buffer, then for the network; a receive
for the network, then for the flush, then until the GPU has read.  Times are µs of the host's clock.  Steps
come as records of their own before their operation, or within the records of the operation.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any, Final, Literal

import msgspec
import pyarrow as pa

from cclbench.formats.timing_rows import MOST_BYTES
from cclbench.ground.evidence_schema import COUNTERS

_NS_PER_US: Final = 1000
_US_PER_S: Final = 10**6
_MOST_OPEN: Final = 1 << 16
"""Most operations whose steps are kept until their own record."""
_STATES: Final = {
    "send": ("send_gpu_wait", "send_peer_wait", "send_wait", "proxy_step_stop"),
    "recv": ("recv_wait", "recv_flush_wait", "recv_gpu_wait", "proxy_step_stop"),
}
_WAITS: Final = {
    "send": ("gpu_wait", "peer_wait", "network"),
    "recv": ("network", "flush", "gpu_wait"),
}
"""What a step does between consecutive states."""
_TIMES: Final = ("gpu_wait", "peer_wait", "flush", "network")

Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_BYTES)]
Micros = Annotated[int, msgspec.Meta(ge=0, lt=10**16)]
Times = dict[str, Micros]
Direction = Literal["send", "recv"]


class _ProxyStep(msgspec.Struct):
    event_trace_ts: Times = {}


class ProxyRecord(msgspec.Struct):
    """A `proxy_trace`: an operation, a part of one, or a step."""

    record_type: str
    proxy_op_sn: Count
    channel_id: Count
    peer: Annotated[int, msgspec.Meta(ge=-1, le=1 << 20)]
    direction: Direction
    trans_size_bytes: Count = 0
    n_steps: Count | None = None
    n_steps_completed: Count = 0
    n_steps_dropped: Count = 0
    event_trace_ts: Times = {}
    steps: list[_ProxyStep] = []


@dataclass(slots=True)
class ProxyOperations:
    """Counters of the operations added so far."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    waits: dict[tuple[str, int], Counter[str]] = field(default_factory=dict)
    """µs of the steps by what they waited for, by communicator and operation that is not complete."""

    def add_record(self, communicator: str, ranks: int, record: ProxyRecord) -> None:
        """Add a step's times to its operation; of an operation's last record, its counters."""
        key = (communicator, record.proxy_op_sn)
        if key not in self.waits and len(self.waits) == _MOST_OPEN:
            self.left_out["proxy records of operations without an end"] += 1
            return
        waits = self.waits.setdefault(key, Counter())
        steps = [record.event_trace_ts] if record.record_type == "proxy_step" else []
        for times in (*steps, *(step.event_trace_ts for step in record.steps)):
            _add_waits(waits, record.direction, times)
        if record.record_type == "proxy_op":
            del self.waits[key]
            self._add_operation(ranks, record, waits)

    def _add_operation(self, ranks: int, record: ProxyRecord, waits: Counter[str]) -> None:
        begin, end = (record.event_trace_ts.get(f"proxy_op_{at}_ts") for at in ("start", "stop"))
        if not begin or end is None or end < begin:
            self.left_out["proxy operations without a time"] += 1
            return
        preposition, way = ("to", "tx") if record.direction == "send" else ("from", "rx")
        about = {
            "port": f"channel {record.channel_id} {preposition} rank {record.peer} of {ranks}",
            "start_ns": begin * _NS_PER_US,
            "end_ns": end * _NS_PER_US,
        }
        if record.n_steps_dropped or (record.n_steps or 0) > record.n_steps_completed:
            self.left_out["sizes of proxy operations whose steps were not all recorded"] += 1
        else:
            size = float(record.trans_size_bytes)
            self.rows.append({**about, "counter": f"nccl_proxy_{way}_bytes", "unit": "B", "value": size})
        for what in _TIMES:
            if what in waits:
                seconds = waits[what] / _US_PER_S
                counter = f"nccl_proxy_{way}_{what}"
                self.rows.append({**about, "counter": counter, "unit": "s", "value": seconds})

    def counters(self) -> pa.Table | None:
        """The rows; None without any. Records of operations that never ended are counted as left out."""
        if self.waits:
            self.left_out["proxy operations without an end"] += len(self.waits)
        return pa.Table.from_pylist(self.rows, COUNTERS) if self.rows else None


def _add_waits(waits: Counter[str], direction: Direction, times: Times) -> None:
    """Add what a step waited for, where both callbacks came in order."""
    states = [times.get(f"{state}_ts") for state in _STATES[direction]]
    for what, (begin, end) in zip(_WAITS[direction], pairwise(states), strict=True):
        if begin is not None and end is not None and end >= begin:
            waits[what] += end - begin
