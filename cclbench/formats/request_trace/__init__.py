# SPDX-License-Identifier: Apache-2.0
"""Mooncake's request traces: arrivals, lengths and prefix blocks of a service's requests, without any text.

Each line is an object: `timestamp` (ms since the trace began), `input_length` and `output_length` (tokens),
and `hash_ids`, an id for each 512 tokens of the prompt that covers them and all before them (FAST'25
release): equal ids are equal prefixes.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.texts import damaged_error, exact_number, raw_lines, reason_of, strip_decoration
from cclbench.ground.evidence_schema import REQUEST_TRACE

_MOST_BYTES: Final = 1 << 30
_MOST_TOKENS: Final = 1 << 31
_LONGEST_MS: Final = 10**12
_BLOCK_ROWS: Final = 1 << 14
_KEYS: Final = ("timestamp", "input_length", "output_length", "hash_ids")
_BACK: Final = "its requests are not in the order of their arrival"


class _Request(msgspec.Struct, frozen=True):
    timestamp: Decimal | int
    input_length: int
    output_length: int
    hash_ids: list[int] | None = None


class RequestTrace(EvidenceReader):
    """Reader of Mooncake's request traces."""

    name = "request_trace"
    description = "request traces of Mooncake (JSON lines): arrivals, lengths, prefix blocks"
    extensions: tuple[str, ...] = (".jsonl",)
    capture = "Mooncake's published traces, or one in their format"
    versions = "Mooncake's FAST'25 release"
    tested = "real: Mooncake's synthetic trace of 3,993 requests"
    published_keys = _KEYS

    withheld: Mapping[str, str] = {}

    def sniff(self, head: bytes) -> float:
        """Sure of a first line with an arrival and both lengths."""
        first = strip_decoration(head).lstrip().partition(b"\n")[0]
        keys = (b'"timestamp"', b'"input_length"', b'"output_length"')
        return 0.9 if first.startswith(b"{") and all(key in first for key in keys) else 0.0

    def read(self, path: Path) -> Evidence:
        """All requests, in the order of the file."""
        decoder = msgspec.json.Decoder(_Request, float_hook=exact_number)
        lines = ((number, line) for number, line in raw_lines(path, _MOST_BYTES) if line.strip())
        requests = (_decoded(decoder, line, path, number) for number, line in lines)
        first, batches = 0, list[pa.RecordBatch]()
        while block := list(islice(requests, _BLOCK_ROWS)):
            batches.append(_batch(block, first))
            first += len(block)
        table = pa.Table.from_batches(batches, REQUEST_TRACE).unify_dictionaries()
        if not len(table):
            raise damaged_error(path, "has no request")
        arrivals = table["arrival_ns"].to_numpy()
        back = bool((arrivals[1:] < arrivals[:-1]).any())
        return Evidence(request_trace=table, notes=[_BACK] if back else [])


def _decoded(decoder: msgspec.json.Decoder[_Request], line: bytes, path: Path, number: int) -> _Request:
    try:
        request = decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = f"is not a request: {reason_of(error)}"
        raise damaged_error(path, what, line=number, hint="write it again, or remove this line") from None
    lengths = (request.input_length, request.output_length)
    if not all(0 <= length < _MOST_TOKENS for length in lengths):
        raise damaged_error(path, "has a length that is not a number of tokens", line=number)
    # A text such as "NaN" is a Decimal, too, which cannot be compared.
    if not (Decimal(request.timestamp).is_finite() and 0 <= request.timestamp <= _LONGEST_MS):
        raise damaged_error(path, "has a timestamp that is not a time in ms", line=number)
    if request.hash_ids and not all(-(1 << 63) <= block < 1 << 63 for block in request.hash_ids):
        raise damaged_error(path, "has a hash id of more than 64 bits", line=number)
    return request


def _batch(requests: list[_Request], first: int) -> pa.RecordBatch:
    columns: dict[str, list[Any]] = {
        "request": [*range(first, first + len(requests))],
        "arrival_ns": [round(request.timestamp * 10**6) for request in requests],
        "input_tokens": [request.input_length for request in requests],
        "output_tokens": [request.output_length for request in requests],
        "blocks": [request.hash_ids for request in requests],
    }
    arrays = [
        pa.array(columns[field.name], field.type)
        if field.name in columns
        else pa.nulls(len(requests), field.type)
        for field in REQUEST_TRACE
    ]
    return pa.record_batch(arrays, schema=REQUEST_TRACE)


READERS.add(RequestTrace.name, RequestTrace(), origin=__name__)
