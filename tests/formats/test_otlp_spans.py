# SPDX-License-Identifier: Apache-2.0
"""OpenTelemetry spans of requests: exact times, what is no request, damage by line, what is published."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import redact_planted as planted
from helpers.changed_bytes import read_or_refused
from helpers.refused import refused

from cclbench.contribute.redaction import redact_evidence
from cclbench.formats import Evidence, recognise_format
from cclbench.formats.otlp_spans import OtlpSpans
from cclbench.ground.errors import InputError
from cclbench.ground.evidence_schema import REQUESTS

BEGIN = 1_700_000_000_000_000_000
MS = 10**6
LATENCIES = {"time_to_first_token": 0.5, "e2e": 2.25, "time_in_queue": 0.3, "time_in_model_prefill": 0.125}
LATENCIES |= {"time_in_model_decode": 1.75, "time_in_model_inference": 1.875}


def span(number: int = 1, tokens: int = 8, **changes: Any) -> dict[str, Any]:
    """A request as vLLM ends it; latencies in s by the last part of their names, None for none."""
    latencies = LATENCIES | {name: value for name, value in changes.items() if name in LATENCIES}
    stated = {name: value for name, value in latencies.items() if value is not None}
    attributes = [{"key": f"gen_ai.latency.{n}", "value": {"doubleValue": v}} for n, v in stated.items()]
    for name, value in (("prompt_tokens", "100"), ("completion_tokens", str(tokens))):
        attributes.append({"key": f"gen_ai.usage.{name}", "value": {"intValue": value}})
    attributes.append({"key": "gen_ai.request.id", "value": {"stringValue": f"cmpl-{number}"}})
    begin = BEGIN + number * 1000 * MS
    own = {"traceId": f"{number:032x}", "spanId": f"{number:016x}", "name": "llm_request", "kind": 2}
    own |= {"startTimeUnixNano": str(begin), "endTimeUnixNano": str(begin + 2250 * MS)}
    own |= {"attributes": attributes, "status": {}}
    return own | {name: value for name, value in changes.items() if name not in LATENCIES}


def line(*spans: dict[str, Any], **more: Any) -> str:
    """A batch of spans as the collector writes it."""
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "vllm"}}]}
    scopes = [{"scope": {"name": "vllm.llm_engine"}, "spans": [*spans]}]
    return json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": scopes} | more]})


SPANS = line(span(2), span(1, tokens=4, time_in_queue=0.1))


@pytest.fixture
def read(written: Callable[..., Path]) -> Callable[..., Evidence]:
    """Reads a file of those lines."""
    return lambda *lines: OtlpSpans().read(written("\n".join([*lines, ""]), "spans.jsonl"))


def test_requests_are_recognised_in_order_of_arrival(read: Callable[..., Evidence], tmp_path: Path) -> None:
    found = read(SPANS)
    assert found.requests.schema == REQUESTS
    first, second = found.requests.to_pylist()
    assert (first["request"], first["output_tokens"], second["output_tokens"]) == (0, 4, 8)
    assert (first["input_tokens"], first["success"], first["itl_ns"]) == (100, True, None)
    times = ("ttft_ns", "e2e_ns", "queue_ns", "prefill_ns", "decode_ns")
    assert [first[name] for name in times] == [500 * MS, 2250 * MS, 100 * MS, 125 * MS, 1750 * MS]
    # From the first arrival to the last end: 1 s and 2.25 s.
    assert [row["value"] for row in found.serving.to_pylist()] == [3.25]
    assert (found.left_out, found.notes) == ({}, [])
    path = tmp_path / "spans.json"
    for text in (SPANS, json.dumps(json.loads(SPANS), indent=2)):
        path.write_text(text + "\n")
        assert recognise_format(path, text.encode()).name == "otlp_spans"
        assert OtlpSpans().read(path).requests == found.requests


def test_other_spans_repeated_ones_and_other_signals_are_counted(read: Callable[..., Evidence]) -> None:
    other = span(3) | {"attributes": [{"key": "http.method", "value": {"stringValue": "POST"}}]}
    found = read(SPANS, line(other), SPANS, json.dumps({"resourceMetrics": []}))
    assert len(found.requests) == 2
    known: dict[str, Any] = {"spans of other work than a whole request": 1}
    known |= {"requests that the file states twice": 2, "lines of metrics or logs": 1}
    assert found.left_out == known


def test_what_did_not_happen_has_no_time(read: Callable[..., Evidence]) -> None:
    """An aborted request: vLLM's first token is 0 and its prefill negative; an error is a failure."""
    aborted = span(1, tokens=0, time_to_first_token=0.0, time_in_model_prefill=-5.0, time_in_queue="NaN")
    found = read(line(aborted, span(2, status={"code": 2}), span(3, status={"code": "STATUS_CODE_ERROR"})))
    rows = found.requests.to_pylist()
    assert [row["success"] for row in rows] == [None, False, False]
    assert [rows[0][name] for name in ("ttft_ns", "queue_ns", "prefill_ns")] == [None, None, None]
    assert found.left_out == {"times below 0 or endless, of what did not happen": 2}


def test_a_prefill_that_includes_the_queue_is_not_one(read: Callable[..., Evidence]) -> None:
    """SGLang's API server states no time in the queue."""
    found = read(line(span(1, time_in_queue=None)))
    assert found.requests["prefill_ns"].to_pylist() == [None]
    (note,) = found.notes
    assert note.startswith("1 requests state no time in the queue")


BAD: dict[str, tuple[str, str]] = {
    "cut": (SPANS[:-30], "line 2: is no line of OTLP's JSON"),
    "a list": ("[]", "line 2: is no line"),
    "spans as text": ('{"resourceSpans": "spans"}', "line 2: is no line"),
    "a latency of text": (line(span(3, e2e="soon")), "line 2: has a gen_ai.latency.e2e that is no number"),
    "a latency without value": (
        line(span(3) | {"attributes": [{"key": "gen_ai.latency.e2e"}]}),
        "line 2: has a gen_ai.latency.e2e that is no number",
    ),
    "negative tokens": (line(span(3, tokens=-1)), "line 2: has a gen_ai.usage.completion_tokens"),
    "endless tokens": (line(span(3, tokens=1 << 60)), "line 2: has a gen_ai.usage.completion_tokens"),
    "a begin of text": (line(span(3, startTimeUnixNano="noon")), "line 2: has a request whose start"),
    "an endless end": (line(span(3, endTimeUnixNano=1 << 80)), "line 2: "),
    "deep": ('{"resourceSpans": ' + "[" * 100_000, "line 2: is no line"),
}


@pytest.mark.parametrize("case", BAD)
def test_damage_is_an_error_that_says_where(read: Callable[..., Evidence], tmp_path: Path, case: str) -> None:
    text, says = BAD[case]
    refused(lambda _: read(SPANS, text), tmp_path / "spans.jsonl", says)


@pytest.mark.parametrize("text", ["", line(), '{"resourceMetrics": []}'])
def test_a_file_without_requests_is_an_error(read: Callable[..., Evidence], text: str) -> None:
    with pytest.raises(InputError, match="no span of a request"):
        read(text)


def test_mutated_files_are_read_or_refused(tmp_path: Path) -> None:
    def rows(path: Path) -> None:
        assert OtlpSpans().read(path).requests is not None

    read_or_refused(rows, tmp_path / "spans.jsonl", f"{SPANS}\n{line(span(3))}\n".encode(), 1000)


SECRETS = [secret for secret in planted.SECRETS if "\n" not in secret]


def secret_spans() -> str:
    """Secrets as resource, names, keys, values, events, states and ids of requests."""
    texts = [{"key": secret, "value": {"stringValue": secret}} for secret in SECRETS]
    own, prompt = span(1), {"key": "gen_ai.prompt", "value": {"stringValue": planted.TEXT}}
    whole = own | {"name": SECRETS[0], "traceState": SECRETS[1], "links": [{"attributes": texts}]}
    whole |= {"attributes": [*own["attributes"], *texts, prompt]}
    whole |= {"events": [{"name": "gen_ai.user.message", "attributes": texts}]}
    whole |= {"status": {"message": planted.TEXT, "code": 2}}
    other = span(2) | {"attributes": texts}
    return line(whole, other, span(3), resource={"attributes": texts}) + "\n"


def test_no_planted_secret_is_left_and_every_figure_stays(tmp_path: Path) -> None:
    for folder in ("own", "copy"):
        (tmp_path / folder).mkdir()
    source, target = tmp_path / "own" / "spans.jsonl", tmp_path / "copy" / "spans.jsonl"
    source.write_text(secret_spans())
    redact_evidence(source, target)
    assert planted.left_in(target) == []
    assert not any(secret in target.read_text() for secret in SECRETS)
    assert "cmpl-" not in target.read_text()
    before, after = (OtlpSpans().read(path) for path in (source, target))
    assert after.requests.equals(before.requests)
    assert after.serving.equals(before.serving)
