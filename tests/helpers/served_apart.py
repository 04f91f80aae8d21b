# SPDX-License-Identifier: Apache-2.0
"""A small simulated service of a prefill and a decode instance: spans as OTLP, and the true parts in ns.

A request waits at the prefill instance, its prompt is computed in chunks, each chunk's KV cache is sent when
it is ready, and the decode instance makes its first step after the last one has arrived, and a wait.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

BEGIN = 1_700_000_000_000_000_000


@dataclass(frozen=True)
class Served:
    """A request, all times in ns: `chunks` of compute, and `sends` of each after its compute."""

    arrival: int
    queue: int
    chunks: Sequence[int]
    sends: Sequence[int]
    notice: int
    """From the last chunk's arrival until the decode instance queues the request: no span covers it."""
    waiting: int
    step: int
    routed: int = 0
    """From the arrival at the prefill instance to the one at the decode instance."""

    @property
    def ready(self) -> Sequence[int]:
        """When the compute of each chunk ends, since the arrival."""
        return [self.queue + sum(self.chunks[: place + 1]) for place in range(len(self.chunks))]

    @property
    def sent(self) -> int:
        """When the last chunk has arrived, since the arrival."""
        return max(ready + send for ready, send in zip(self.ready, self.sends, strict=True))

    @property
    def first(self) -> int:
        """When the first token is there, since the arrival."""
        return self.sent + self.notice + self.waiting + self.step

    @property
    def true_parts(self) -> Mapping[str, int]:
        """Time by part: sends count from the end of the prefill, at which the last one begins."""
        return {
            "queue": self.queue + self.waiting,
            "prefill": sum(self.chunks),
            "transfer": self.sent - self.ready[-1],
            "first_token": self.step,
            "unattributed": self.notice,
        }


def sglang_lines(
    requests: Sequence[Served], *, hosts: tuple[str | None, str | None] = ("a", "a"), offset: int = 0
) -> Iterator[str]:
    """Spans of both instances as SGLang names them; the decode instance's clock is `offset` ahead."""
    for number, one in enumerate(requests, 1):
        origin = BEGIN + one.arrival
        spans = [("prefill_waiting", 0, one.queue), ("prefill_forward", one.queue, one.ready[-1])]
        for compute, send, ready in zip(one.chunks, one.sends, one.ready, strict=True):
            spans.append(("chunked_prefill", ready - compute, ready))
            spans.append(("mooncake_worker_send", ready, ready + send))
        yield _line(number, "prefill", origin, one.sent, spans, hosts[0])
        queued, since = one.sent + one.notice - one.routed, one.routed
        stepped = queued + one.waiting
        spans = [("decode_waiting", queued, stepped), ("decode_forward", stepped, one.first - since + 10**6)]
        yield _line(number, "decode", origin + offset + since, one.first - since, spans, hosts[1])


def _line(
    number: int, role: str, origin: int, first: int, stages: Sequence[tuple[str, int, int]], host: str | None
) -> str:
    trace = f"{number:031x}{'pd'.index(role[0]):x}"

    def span(place: int, name: str, begin: int, end: int, parent: int, **texts: str | None) -> dict[str, Any]:
        stated = [{"key": key, "value": {"stringValue": text}} for key, text in texts.items() if text]
        times = {"startTimeUnixNano": str(origin + begin), "endTimeUnixNano": str(origin + end)}
        ids = {
            "traceId": trace,
            "spanId": f"{place:016x}",
            "parentSpanId": f"{parent:016x}" if parent else "",
        }
        return ids | {"name": name, "attributes": stated} | times

    root = span(1, f"{role} Req abcd", 0, first, 0, rid=f"{role}-{number}", bootstrap_room=hex(number))
    for name, time in (("time_to_first_token", first), ("e2e", first)):
        root["attributes"].append({"key": f"gen_ai.latency.{name}", "value": {"doubleValue": time / 1e9}})
    thread = span(2, "Scheduler", 0, first, 1, host_id=host)
    spans = [span(place, *stage, 2) for place, stage in enumerate(stages, 3)]
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "sglang"}}]}
    # A child is exported before what is around it.
    scopes = [{"spans": [*spans, thread, root]}]
    return json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": scopes}]})
