# SPDX-License-Identifier: Apache-2.0
"""Requests of servers as OpenTelemetry spans: OTLP as JSON, one object or one a line, as the
collector's file exporter writes it.

A request is a span with a latency among its attributes, in seconds: vLLM's `llm_request` (vllm/tracing) and
the request span of SGLang's API server (sglang/srt/observability).  Both count from the request's arrival at
the server.  vLLM's time in the queue ends with the first scheduling, its prefill with the first token; SGLang
states no time in the queue and a prefill that includes it, which is therefore not read.  A time of 0 to the
first token, and a negative time, are of requests that had no first token.  Of a request that two instances
serve (`stages`), the prefill instance's span is no request of its own.  Prompts and events are not read; of
ids and hosts only numbers are kept.
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
from cclbench.formats.otlp_spans.stages import HOSTS, REQUEST_IDS, STAGES, SpanOrigin, SpanTree, number_of
from cclbench.formats.rewriting import CAPTURED, Redactor
from cclbench.formats.texts import damaged_error, read_whole, reason_of, strip_decoration
from cclbench.ground.evidence_schema import REQUEST_STAGES, REQUESTS, SERVING

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
    string_value: str | None = None
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
    parent_span_id: str = ""
    name: str = ""
    start_time_unix_nano: int | str = 0
    end_time_unix_nano: int | str = 0
    attributes: list[_Attribute] = []
    status: _Status | None = None


class _Scope(msgspec.Struct, omit_defaults=True):
    spans: list[_Span] = []


class _Attributes(msgspec.Struct, omit_defaults=True):
    attributes: list[_Attribute] = []


class _Resource(msgspec.Struct, rename="camel", omit_defaults=True):
    resource: _Attributes | None = None
    scope_spans: list[_Scope] = []


class _SpanLine(msgspec.Struct, rename="camel", omit_defaults=True):
    resource_spans: list[_Resource] | None = None


class OtlpSpans(EvidenceReader):
    """Reader of OTLP spans of servers' requests."""

    name = "otlp_spans"
    description = "OpenTelemetry spans of requests (OTLP JSON lines) of vLLM and SGLang"
    extensions: tuple[str, ...] = (".json", ".jsonl")
    capture = (
        "`vllm serve --otlp-traces-endpoint`, SGLang's `--enable-trace`, to a collector's `file` exporter;"
        " of a prefill and a decode instance with `OTEL_RESOURCE_ATTRIBUTES=host.name=...` and names of"
        " services such as `vllm-prefill`"
    )
    versions = "OTLP 1 as JSON; attributes gen_ai.latency.* of vLLM 0.4 to 0.11 and SGLang 0.5, its stages"
    figures = re.compile(r"startTimeUnixNano|endTimeUnixNano|timeUnixNano|intValue")
    tested = "documentation: OTLP's file exporter, the sources of vLLM and SGLang; no file of a server"

    def sniff(self, head: bytes) -> float:
        """Sure of a line that begins with spans and has a latency of a request."""
        head = strip_decoration(head).lstrip()
        begins = head[:1] == b"{" and b'"resourceSpans"' in head[:200]
        return (0.9 if b"gen_ai.latency." in head else 0.5) if begins else 0.0

    def rewrite(self, path: Path, target: Path | None, redactor: Redactor) -> bool:
        """Requests and their stages, with the numbers that are read: no event, name, text or id."""
        # Here and below: imports that are not needed to recognise a file.
        from cclbench.formats.files import open_output

        encoder, numbers, tree = msgspec.json.Encoder(), dict[tuple[str, str], int](), _span_tree(path)
        with open_output(path, target) as write:
            for _, line in _decoded_lines(path):
                published = []
                for span in _spans(line):
                    if _is_request(span) or span.name in STAGES:
                        identity = span.trace_id, span.span_id
                        number = numbers.setdefault(identity, len(numbers) + 1)
                        origin = _redacted_origin(tree.origin_of(identity), redactor)
                        published.append(_published_resource(_published_span(span, number), origin))
                redactor.count("lines", Counter({CAPTURED: 1}))
                write(encoder.encode(_SpanLine(published)) + b"\n")
        return True

    def read(self, path: Path) -> Evidence:
        """The requests in the order of their arrival, the time from the first to the last, and stages."""
        rows, stages, left_out = list[dict[str, Any]](), list[dict[str, Any]](), Counter[str]()
        identities, tree = set[tuple[str, str]](), _span_tree(path)
        for number, line in _decoded_lines(path):
            if line.resource_spans is None:
                left_out["lines of metrics or logs"] += 1
            for span in _spans(line):
                is_request = _is_request(span)
                if not is_request and span.name not in STAGES:
                    left_out["spans of other work than a whole request"] += 1
                    continue
                if span.span_id and (identity := (span.trace_id, span.span_id)) in identities:
                    left_out["requests that the file states twice"] += is_request
                    continue
                if span.span_id:
                    identities.add(identity)
                origin = tree.origin_of((span.trace_id, span.span_id))
                row = _request_row(span, path, number, left_out) if is_request else _times(span, path, number)
                if origin.request is None or origin.role is None:
                    left_out["stages of requests without an id or their instance's role"] += not is_request
                else:
                    stages += _stage_rows(span.name, row, origin, left_out)
                if not is_request:
                    continue
                if origin.role == "prefill":
                    left_out["requests of instances that prefill for others"] += 1
                else:
                    rows.append(row)
        if not rows and not stages:
            hint = "a request's span has attributes gen_ai.latency.*, as vLLM and SGLang name them"
            raise damaged_error(path, "has no span of a request", hint=hint)
        return _evidence(rows, stages, left_out)


def _span_tree(path: Path) -> SpanTree:
    """All spans of the file, by which each finds its request, role and host."""
    tree = SpanTree()
    for _, line in _decoded_lines(path):
        for resource in line.resource_spans or ():
            shared = _texts(resource.resource.attributes) if resource.resource else {}
            for scope in resource.scope_spans:
                for span in scope.spans:
                    texts = {**shared, **_texts(span.attributes)}
                    if span.span_id:
                        tree.add_span(
                            (span.trace_id, span.span_id),
                            span.parent_span_id,
                            span.name,
                            shared.get("service.name"),
                            texts,
                        )
    return tree


def _texts(attributes: list[_Attribute]) -> dict[str, str]:
    keys = ("service.name", *REQUEST_IDS, *HOSTS)
    return {
        attribute.key: attribute.value.string_value
        for attribute in attributes
        if attribute.key in keys and attribute.value.string_value
    }


def _decoded_lines(path: Path) -> Iterator[tuple[int, _SpanLine]]:
    """Each line, or the whole file if it is one document over several lines."""
    decoder, content = msgspec.json.Decoder(_SpanLine), read_whole(path, _MOST_BYTES)
    first = content.lstrip().split(b"\n", 1)[0]
    for number, text in enumerate(content.split(b"\n") if first.rstrip().endswith(b"}") else [content], 1):
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
    number_attributes = [
        attribute for attribute in span.attributes if attribute.key in _TIMES or attribute.key in _TOKENS
    ]
    status = _Status(2) if span.status is not None and span.status.code in _FAILED else None
    start, end = (_plain_integer(time) for time in (span.start_time_unix_nano, span.end_time_unix_nano))
    numbers = (
        _Value(
            double_value=attribute.value.double_value if _is_plain(attribute.value.double_value) else None,
            int_value=_plain_integer(attribute.value.int_value),
        )
        for attribute in number_attributes
    )
    attributes = [
        _Attribute(attribute.key, value) for attribute, value in zip(number_attributes, numbers, strict=True)
    ]
    identity = (f"{number:032x}", f"{number:016x}") if span.span_id else ("", "")
    name = span.name if span.name in STAGES else ""
    return _Span(*identity, "", name, start or 0, end or 0, attributes, status)


def _redacted_origin(origin: SpanOrigin, redactor: Redactor) -> SpanOrigin:
    """The origin with a token for the request's id, and the host's name in all files of the data point."""
    request = origin.request and redactor.text(origin.request)[0]
    return SpanOrigin(request, origin.role, origin.host and redactor.text(origin.host)[0])


def _published_resource(span: _Span, origin: SpanOrigin) -> _Resource:
    """The span alone, and its origin as its resource's attributes."""
    texts = {"service.name": origin.role, REQUEST_IDS[0]: origin.request, HOSTS[0]: origin.host}
    stated = [_Attribute(key, _Value(string_value=text)) for key, text in texts.items() if text]
    return _Resource(_Attributes(stated), [_Scope([span])])


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
    row: dict[str, Any] = {"benchmark": 0, **_times(span, path, number)}
    for attribute in span.attributes:
        if (column := _TIMES.get(attribute.key)) is not None:
            row[column] = _nanoseconds(attribute, path, number, left_out)
        elif (column := _TOKENS.get(attribute.key)) is not None:
            tokens = _plain_integer(attribute.value.int_value)
            if tokens is None or not 0 <= tokens < _MOST_TOKENS:
                what = f"has a {attribute.key} that is no number of tokens"
                raise damaged_error(path, what, line=number, hint=_HINT)
            row[column] = tokens
    row["ttft_ns"] = row.get("ttft_ns") or None
    failed = span.status is not None and span.status.code in _FAILED
    answered = row["ttft_ns"] is not None or bool(row.get("output_tokens"))
    row["success"] = False if failed else True if answered else None
    return row


def _times(span: _Span, path: Path, number: int) -> dict[str, Any]:
    row = dict[str, Any]()
    for name, time in (("start", span.start_time_unix_nano), ("end", span.end_time_unix_nano)):
        row[name] = _plain_integer(time)
        if row[name] is None or not 0 <= row[name] < _MOST_NS:
            raise damaged_error(path, f"has a request whose {name} is no time in ns", line=number, hint=_HINT)
    return row


def _stage_rows(
    name: str, row: Mapping[str, Any], origin: SpanOrigin, left_out: Counter[str]
) -> Iterator[dict[str, Any]]:
    """Rows of `REQUEST_STAGES`: a stage of SGLang, or a request, with vLLM's stages by its latencies."""
    from cclbench.formats.serving.figures import LONGEST_WAIT_S

    start, first = row["start"], row.get("ttft_ns")
    queue, prefill = row.get("queue_ns"), row.get("prefill_ns")
    decodes = origin.role == "decode"
    spans = list[tuple[str, int, int]]()
    if name in STAGES:
        spans.append((STAGES[name], start, row["end"]))
    elif not decodes or first is not None:
        spans.append(("request", start, row["end"] if first is None else start + first))
        if queue is not None and decodes:
            # A request waits for its KV cache in the queue of vLLM's decode instance.
            spans += [("kv_wait", start, start + queue), ("first_token", start + queue, start + (first or 0))]
        elif queue is not None and prefill is not None:
            spans += [("queue", start, start + queue), ("prefill", start + queue, start + queue + prefill)]
    for stage, begin, end in spans:
        if not begin <= end <= min(begin + LONGEST_WAIT_S * _NS_PER_S, _MOST_NS - 1):
            left_out["stages that end before they begin, or last more than a day"] += 1
            continue
        yield {
            "request": number_of(origin.request or ""),
            "host": None if origin.host is None else number_of(origin.host),
            "role": origin.role,
            "stage": stage,
            "start_ns": begin,
            "end_ns": end,
        }


def _nanoseconds(attribute: _Attribute, path: Path, number: int, left_out: Counter[str]) -> int | None:
    from cclbench.formats.serving.figures import LONGEST_WAIT_S

    value = attribute.value.double_value
    if value is None:
        value = _plain_integer(attribute.value.int_value)
    if value is None or (not _is_plain(value)):
        raise damaged_error(path, f"has a {attribute.key} that is no number", line=number, hint=_HINT)
    if isinstance(value, str) or not 0 <= value <= LONGEST_WAIT_S:
        left_out[_NO_TIME] += 1
        return None
    return round(value * _NS_PER_S)


def _evidence(rows: list[dict[str, Any]], stages: list[dict[str, Any]], left_out: Counter[str]) -> Evidence:
    rows.sort(key=lambda row: row["start"])
    notes = []
    for place, row in enumerate(rows):
        row["request"] = place
        if row.get("queue_ns") is None:
            row["prefill_ns"] = None
    if without_queue := sum(row.get("queue_ns") is None for row in rows):
        notes.append(f"{without_queue:,} requests state no time in the queue, so no prefill without it")
    seconds = (max(row["end"] for row in rows) - rows[0]["start"]) / _NS_PER_S if rows else 0.0
    duration = {"benchmark": 0, "figure": "duration", "unit": "s", "value": seconds}
    return Evidence(
        requests=pa.Table.from_pylist(rows, schema=REQUESTS),
        request_stages=pa.Table.from_pylist(stages, schema=REQUEST_STAGES),
        serving=pa.Table.from_pylist([duration] if seconds > 0 else [], schema=SERVING),
        left_out=dict(+left_out),
        notes=notes,
    )


READERS.add(OtlpSpans.name, OtlpSpans(), origin=__name__)
