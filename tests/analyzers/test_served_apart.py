# SPDX-License-Identifier: Apache-2.0
"""Time to first token of requests that two instances serve: exact parts, bounds of unknown clocks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from formats.test_otlp_spans import line, span
from helpers.hand_made import Evidence as Given
from helpers.hand_made import job_values
from hypothesis import given, settings
from hypothesis import strategies as st

import cclbench
from cclbench.analyzers.view.served_apart import PARTS, UNATTRIBUTED, first_tokens
from cclbench.contribute.redaction import redact_evidence
from cclbench.formats import Evidence
from cclbench.formats.otlp_spans import OtlpSpans
from cclbench.record.selection import Selection
from cclbench.results import full_results
from cclbench.source_summaries import source_summaries

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


MS = 10**6
# Queue 0 to 5, prefill 5 to 25 in two chunks; the first chunk is sent 15 to 21 while the second is computed,
# the second 25 to 31; then 2 ms of queue and 4 of the first step: 37 ms.
LAYERED = Served(0, 5 * MS, (10 * MS, 10 * MS), (6 * MS, 6 * MS), 0, 2 * MS, 4 * MS)
# One chunk of 8 ms, sent 10 ms long; no wait: 1 + 8 + 10 + 3 = 22 ms.
PLAIN = Served(50 * MS, 1 * MS, (8 * MS,), (10 * MS,), 0, 0, 3 * MS, routed=1 * MS)


def read(folder: Path, lines: list[str], name: str = "spans.jsonl") -> Evidence:
    path = folder / name
    path.write_text("\n".join([*lines, ""]))
    return OtlpSpans().read(path)


def values(found: Evidence) -> dict[tuple[str | None, str | None], float | None]:
    assert found.request_stages is not None
    rows = job_values("serving.first_token", Given(request_stages=found.request_stages))
    return {(row.category, row.stat): row.value for row in rows}


def test_parts_add_up_and_layers_sent_during_the_prefill_are_hidden(tmp_path: Path) -> None:
    found = read(tmp_path, list(sglang_lines([LAYERED, PLAIN])))
    split = values(found)
    assert split[None, None] == pytest.approx(29.5e-3)
    expected = {"queue": 4e-3, "prefill": 14e-3, "transfer": 8e-3, "first_token": 3.5e-3}
    expected |= {"kv_wait": 0.0, "unattributed": 0.0, "hidden_transfer": 3e-3}
    assert {part: split[part, None] for part in expected} == pytest.approx(expected)
    assert (split["transfer", "p50"], split["transfer", "p99"]) == pytest.approx((8e-3, 9.96e-3))
    # The decode instance's span is the request: the other one's would count it twice.
    assert found.requests is not None
    assert len(found.requests) == 2
    assert found.left_out["requests of instances that prefill for others"] == 2


def test_two_files_join_and_the_first_screen_says_the_parts(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    lines = list(sglang_lines([LAYERED, PLAIN]))
    for name, own in (("prefill", lines[::2]), ("decode", lines[1::2])):
        read(tmp_path / "job", own, f"{name}.jsonl")
    run = cclbench.run(tmp_path / "job", store=tmp_path / "store")
    (summary,) = (
        one for one in source_summaries(run, full_results(run, Selection())) if one.kind == "served_apart"
    )
    assert summary.heading == "2 requests prefilled and decoded by two instances"
    assert summary.sentences == [
        "Time to first token 29.5 ms in the mean: queue 4.00 ms, prefill 14.0 ms, transfer 8.00 ms,"
        " first token 3.50 ms."
    ]
    parts, slowest = summary.tables
    names = ["in all", "queue", "prefill", "transfer", "first token", "hidden transfer"]
    assert [row[0] for row in parts.rows] == names
    assert [row[1] for row in slowest.rows] == [0.037, 0.022]


TIMES = st.integers(1, 10**10)
REQUEST = st.builds(
    lambda arrival, chunks, *rest: Served(
        arrival, rest[0], [chunk for chunk, _ in chunks], [send for _, send in chunks], *rest[1:]
    ),
    st.integers(0, 10**12),
    st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=4),
    *(TIMES for _ in range(4)),
)


@settings(max_examples=30)
@given(st.lists(REQUEST, min_size=1, max_size=5))
def test_requests_are_exact_to_ns(tmp_path_factory: pytest.TempPathFactory, requests: list[Served]) -> None:
    found = read(tmp_path_factory.mktemp("spans"), list(sglang_lines(requests)))
    assert found.request_stages is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cclbench.analyzers.view.served_apart._BLOCK", 2)
        split = first_tokens(found.request_stages)
    assert (sum(split.parts[part] for part in (*PARTS, UNATTRIBUTED)) == split.ttft).all()
    true = [(one.first, *one.true_parts.values()) for one in requests]
    parts = (split.parts[part].tolist() for part in requests[0].true_parts)
    assert sorted(zip(split.ttft.tolist(), *parts, strict=True)) == sorted(true)


@settings(max_examples=20)
@given(REQUEST, st.integers(-(10**12), 10**12), st.sampled_from([("a", "b"), (None, None), ("a", None)]))
def test_without_a_common_clock_transfer_is_a_bound(
    tmp_path_factory: pytest.TempPathFactory, one: Served, offset: int, hosts: tuple[str | None, str | None]
) -> None:
    """Whatever the offset: the prefill is exact, and transfer no more than the bound."""
    found = read(tmp_path_factory.mktemp("spans"), list(sglang_lines([one], hosts=hosts, offset=offset)))
    assert found.request_stages is not None
    split = first_tokens(found.request_stages)
    assert not len(split.ttft)
    assert split.prefill.tolist() == [one.true_parts["prefill"]]
    assert split.most_transfer[0] >= one.true_parts["transfer"]
    whole, *rows = job_values("serving.first_token", Given(request_stages=found.request_stages))
    reason = "do not state the host" if None in hosts else "clocks differ by an unknown offset"
    assert (whole.value, reason in (whole.reason or "")) == (None, True)
    known = {(row.category, row.stat) for row in rows if row.has_value}
    assert known >= {("prefill", None), ("transfer", "max_mean")}
    assert not known & {("queue", None), ("transfer", None), ("unattributed", None)}


def vllm(role: str, start_ms: int, **latencies: float) -> dict[str, object]:
    """A request of one instance, by an id that both state; its span begins after `start_ms`."""
    own = span(1, **latencies)
    own |= {"spanId": f"{role:>016}", "startTimeUnixNano": str(1_700_000_000_000_000_000 + start_ms * MS)}
    return own


def resource(role: str, host: str) -> dict[str, object]:
    texts = {"service.name": f"vllm-{role}", "host.name": host}
    return {"attributes": [{"key": key, "value": {"stringValue": text}} for key, text in texts.items()]}


def test_vllms_transfer_is_within_the_wait_for_the_cache(tmp_path: Path) -> None:
    """Prefill instance: 10 ms of queue, 40 of prefill. Decode, 60 ms later: waits 25 ms, first step 5 ms."""
    prefill = vllm("prefill", 0, time_in_queue=0.01, time_in_model_prefill=0.04, time_to_first_token=0.05)
    decode = vllm("decode", 60, time_in_queue=0.025, time_in_model_prefill=0.005, time_to_first_token=0.03)
    lines = [
        line(one, resource=resource(role, "n1")) for one, role in ((prefill, "prefill"), (decode, "decode"))
    ]
    split = values(read(tmp_path, lines))
    expected = {None: 0.09, "queue": 0.01, "prefill": 0.04, "kv_wait": 0.025, "first_token": 0.005}
    expected |= {"transfer": 0.0, "unattributed": 0.01}
    assert {part: split[part, None] for part in expected} == pytest.approx(expected)
    lines[1] = line(decode, resource=resource("decode", "n2"))
    split = values(read(tmp_path, lines))
    assert (split["prefill", None], split["transfer", "max_mean"]) == pytest.approx((0.04, 0.025))


def test_one_instance_alone_is_not_served_apart(tmp_path: Path) -> None:
    lines = list(sglang_lines([LAYERED]))
    for own in (lines[:1], lines[1:]):
        assert values(read(tmp_path, own)) == {(None, None): None}


def test_published_spans_keep_the_split_and_no_id(tmp_path: Path) -> None:
    source, target = tmp_path / "spans.jsonl", tmp_path / "copy.jsonl"
    before = read(tmp_path, list(sglang_lines([LAYERED, PLAIN], hosts=("acme-node-7", "acme-node-7"))))
    redact_evidence(source, target)
    text = target.read_text()
    assert not any(word in text for word in ("acme", "decode-1", "Req", "Scheduler"))
    after = OtlpSpans().read(target)
    assert before.request_stages is not None
    assert after.request_stages is not None
    first, second = (first_tokens(one.request_stages) for one in (before, after))
    assert all(np.array_equal(first.parts[part], second.parts[part]) for part in first.parts)
