# SPDX-License-Identifier: Apache-2.0
"""Requests of servers as OpenTelemetry spans: OTLP as JSON lines, as the collector's file exporter writes it.

A request is a span with a latency among its attributes, in seconds: vLLM's `llm_request` (vllm/tracing) and
the request span of SGLang's API server (sglang/srt/observability).  Both count from the request's arrival at
the server.  vLLM's time in the queue ends with the first scheduling, its prefill with the first token; SGLang
states no time in the queue and a prefill that includes it, which is therefore not read.  A time of 0 to the
first token, and a negative time, are of requests that had no first token.  Only numbers are read: prompts,
ids, resources and events are not.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.files import open_output
from cclbench.formats.rewriting import CAPTURED, Redactor
from cclbench.formats.serving.figures import LONGEST_WAIT_S
from cclbench.formats.texts import damaged_error, read_whole, reason_of, strip_decoration
from cclbench.ground.evidence_schema import REQUESTS, SERVING

_MOST_BYTES: Final = 256 << 20
_NS_PER_S: Final = 10**9
_MOST_NS: Final = 1 << 63
_MOST_TOKENS: Final = 1 << 40
_TIMES: Final[Mapping[str, str]] = {
    "gen_ai.latency.time_to_first_token": "ttft_ns",
    "gen_ai.latency.e2e": "e2e_ns",
    "gen_ai.latency.time_in_queue": "queue_ns",
    "gen_ai.latency.time_in_model_prefill": "prefill_ns",
    "gen_ai.latency.time_in_model_decode": "decode_ns",
}
_TOKENS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("gen_ai.usage.prompt_tokens", "gen_ai.usage.input_tokens"), "input_tokens"),
    **dict.fromkeys(("gen_ai.usage.completion_tokens", "gen_ai.usage.output_tokens"), "output_tokens"),
}
_ENDLESS: Final = ("NaN", "Infinity", "-Infinity")
_FAILED: Final = (2, "STATUS_CODE_ERROR")
_NO_TIME: Final = "times below 0 or endless, of what did not happen"
_HINT: Final = "export it again, or remove this line"

_Number = float | int | str


class _Value(msgspec.Struct, rename="camel", omit_defaults=True):
    double_value: _Number | None = None
    int_value: int | str | None = None


class _Attribute(msgspec.Struct, omit_defaults=True):
    key: str
    value: _Value = msgspec.field(default_factory=_Value)


class _Status(msgspec.Struct, omit_defaults=True):
    code: int | str = 0


class _Span(msgspec.Struct, rename="camel", omit_defaults=True):
    trace_id: str = ""
    span_id: str = ""
    start_time_unix_nano: int | str = 0
    end_time_unix_nano: int | str = 0
    attributes: list[_Attribute] = []
    status: _Status | None = None


class _Scope(msgspec.Struct, omit_defaults=True):
    spans: list[_Span] = []


class _Resource(msgspec.Struct, rename="camel", omit_defaults=True):
    scope_spans: list[_Scope] = []


class _SpanLine(msgspec.Struct, rename="camel", omit_defaults=True):
    resource_spans: list[_Resource] | None = None


class OtlpSpans(EvidenceReader):
    """Reader of OTLP spans of servers' requests."""

    name = "otlp_spans"
    description = "OpenTelemetry spans of requests (OTLP JSON lines) of vLLM and SGLang"
    extensions: tuple[str, ...] = (".json", ".jsonl")
    capture = (
        "`vllm serve --otlp-traces-endpoint`, SGLang's `--enable-trace`, to a collector's `file` exporter"
    )
    versions = "OTLP 1 as JSON; attributes gen_ai.latency.* of vLLM 0.4 to 0.11 and SGLang 0.5"
    figures = re.compile(r"startTimeUnixNano|endTimeUnixNano|timeUnixNano|intValue")
    tested = "documentation: OTLP's file exporter, the sources of vLLM and SGLang; no file of a server"

    def sniff(self, head: bytes) -> float:
        """Sure of a line that begins with spans and has a latency of a request."""
        head = strip_decoration(head).lstrip()
        begins = head[:1] == b"{" and b'"resourceSpans"' in head[:200]
        return (0.9 if b"gen_ai.latency." in head else 0.5) if begins else 0.0

    def rewrite(self, path: Path, target: Path | None, redactor: Redactor) -> bool:
        """Requests alone, with the numbers that are read: no resource, event, name, text or id."""
        if redactor.learns:
            return super().rewrite(path, target, redactor)
        encoder, numbers = msgspec.json.Encoder(), dict[tuple[str, str], int]()
        with open_output(path, target) as write:
            for _, line in _decoded_lines(path):
                requests = [
                    _published_span(span, numbers.setdefault((span.trace_id, span.span_id), len(numbers) + 1))
                    for span in _spans(line)
                    if _is_request(span)
                ]
                published = _SpanLine([_Resource([_Scope(requests)])] if requests else [])
                redactor.count("lines", Counter({CAPTURED: 1}))
                write(encoder.encode(published) + b"\n")
        return True

    def read(self, path: Path) -> Evidence:
        """The requests in the order of their arrival, and the time from the first to the last."""
        rows, left_out, seen = list[dict[str, Any]](), Counter[str](), set[tuple[str, str]]()
        for number, line in _decoded_lines(path):
            if line.resource_spans is None:
                left_out["lines of metrics or logs"] += 1
            for span in _spans(line):
                if not _is_request(span):
                    left_out["spans of other work than a whole request"] += 1
                    continue
                if span.span_id and (identity := (span.trace_id, span.span_id)) in seen:
                    left_out["requests that the file states twice"] += 1
                    continue
                if span.span_id:
                    seen.add(identity)
                rows.append(_request_row(span, path, number, left_out))
        if not rows:
            hint = "a request's span has attributes gen_ai.latency.*, as vLLM and SGLang name them"
            raise damaged_error(path, "has no span of a request", hint=hint)
        return _evidence(rows, left_out)


def _decoded_lines(path: Path) -> Iterator[tuple[int, _SpanLine]]:
    decoder = msgspec.json.Decoder(_SpanLine)
    for number, text in enumerate(read_whole(path, _MOST_BYTES).split(b"\n"), 1):
        if text.strip():
            try:
                yield number, decoder.decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                what = f"is no line of OTLP's JSON: {reason_of(error)}"
                raise damaged_error(path, what, line=number, hint=_HINT) from None


def _spans(line: _SpanLine) -> Iterator[_Span]:
    for resource in line.resource_spans or ():
        for scope in resource.scope_spans:
            yield from scope.spans


def _is_request(span: _Span) -> bool:
    return any(attribute.key in _TIMES for attribute in span.attributes)


def _published_span(span: _Span, number: int) -> _Span:
    """The span with its numbers alone, and a number as its ids."""
    known = [one for one in span.attributes if one.key in _TIMES or one.key in _TOKENS]
    status = _Status(2) if span.status is not None and span.status.code in _FAILED else None
    start, end = (_plain_integer(time) for time in (span.start_time_unix_nano, span.end_time_unix_nano))
    numbers = (
        _Value(
            one.value.double_value if _is_plain(one.value.double_value) else None,
            _plain_integer(one.value.int_value),
        )
        for one in known
    )
    attributes = [_Attribute(one.key, value) for one, value in zip(known, numbers, strict=True)]
    identity = (f"{number:032x}", f"{number:016x}") if span.span_id else ("", "")
    return _Span(*identity, start or 0, end or 0, attributes, status)


def _is_plain(value: _Number | None) -> bool:
    """Whether it is a number, as ProtoJSON writes it."""
    return not isinstance(value, str) or value in _ENDLESS


def _plain_integer(value: int | str | None) -> int | None:
    """An integer, as OTLP writes it: a number, or digits as text."""
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() and len(value) < 20 else None
    return value


def _request_row(span: _Span, path: Path, number: int, left_out: Counter[str]) -> dict[str, Any]:
    """A row of `REQUESTS`, with begin and end."""
    row: dict[str, Any] = {"benchmark": 0}
    for name, time in (("start", span.start_time_unix_nano), ("end", span.end_time_unix_nano)):
        row[name] = _plain_integer(time)
        if row[name] is None or not 0 <= row[name] < _MOST_NS:
            raise damaged_error(path, f"has a request whose {name} is no time in ns", line=number, hint=_HINT)
    for one in span.attributes:
        if (column := _TIMES.get(one.key)) is not None:
            row[column] = _nanoseconds(one, path, number, left_out)
        elif (column := _TOKENS.get(one.key)) is not None:
            tokens = _plain_integer(one.value.int_value)
            if tokens is None or not 0 <= tokens < _MOST_TOKENS:
                what = f"has a {one.key} that is no number of tokens"
                raise damaged_error(path, what, line=number, hint=_HINT)
            row[column] = tokens
    row["ttft_ns"] = row.get("ttft_ns") or None
    failed = span.status is not None and span.status.code in _FAILED
    answered = row["ttft_ns"] is not None or bool(row.get("output_tokens"))
    row["success"] = False if failed else True if answered else None
    return row


def _nanoseconds(one: _Attribute, path: Path, number: int, left_out: Counter[str]) -> int | None:
    value = one.value.double_value
    if value is None:
        value = _plain_integer(one.value.int_value)
    if value is None or (not _is_plain(value)):
        raise damaged_error(path, f"has a {one.key} that is no number", line=number, hint=_HINT)
    if isinstance(value, str) or not 0 <= value <= LONGEST_WAIT_S:
        left_out[_NO_TIME] += 1
        return None
    return round(value * _NS_PER_S)


def _evidence(rows: list[dict[str, Any]], left_out: Counter[str]) -> Evidence:
    rows.sort(key=lambda row: row["start"])
    notes = []
    for place, row in enumerate(rows):
        row["request"] = place
        if row.get("queue_ns") is None:
            row["prefill_ns"] = None
    if without_queue := sum(row.get("queue_ns") is None for row in rows):
        notes.append(f"{without_queue:,} requests state no time in the queue, so no prefill without it")
    seconds = (max(row["end"] for row in rows) - rows[0]["start"]) / _NS_PER_S
    duration = {"benchmark": 0, "figure": "duration", "unit": "s", "value": seconds}
    return Evidence(
        requests=pa.Table.from_pylist(rows, schema=REQUESTS),
        serving=pa.Table.from_pylist([duration] if seconds > 0 else [], schema=SERVING),
        left_out=dict(left_out),
        notes=notes,
    )


READERS.add(OtlpSpans.name, OtlpSpans(), origin=__name__)
