# SPDX-License-Identifier: Apache-2.0
"""Request traces: rates, lengths, and prefixes that an unlimited cache would hold, by brute force."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.hand_made import Evidence, job_values
from helpers.hand_values import told
from hypothesis import given
from hypothesis import strategies as st

from cclbench.analyzers.metric import Value
from cclbench.analyzers.request_traces import leading_blocks
from cclbench.ground.evidence_schema import REQUEST_TRACE

S = 10**9
REQUESTS: list[tuple[int, int, int, list[int] | None]] = [(0, 1024, 10, [1, 2]), (10, 1500, 20, [1, 2, 3])]
REQUESTS += [(90, 1100, 30, [1, 9, 3]), (100, 512, 40, [7])]


def trace(requests: list[tuple[int, int, int, list[int] | None]], file: str = "t.jsonl") -> pa.Table:
    """Rows of requests: arrival in s, tokens, blocks."""
    own: dict[str, Any] = {"source": "request_trace", "file": file}
    names = ("arrival_ns", "input_tokens", "output_tokens", "blocks")
    rows = [
        own | dict(zip(names, (at * S, *rest), strict=True)) | {"request": n}
        for n, (at, *rest) in enumerate(requests)
    ]
    return pa.Table.from_pylist(rows, schema=REQUEST_TRACE)


def values(metric: str, *tables: pa.Table) -> list[Value]:
    return job_values(
        f"requests.{metric}", Evidence(request_trace=pa.concat_tables(tables).unify_dictionaries())
    )


def test_rate_and_tokens() -> None:
    """3 gaps in 100 s, of 10, 80 and 10 s; two requests in the first minute, two in the second."""
    found = told(values("rate", trace(REQUESTS)))
    assert found == pytest.approx({None: 0.03, "cv": np.std([10, 80, 10]) / (100 / 3), "peak": 2 / 60})
    (none,) = values("rate", trace(REQUESTS[:1]))
    assert none.reason == "all requests arrive at once"
    found = told(values("tokens", trace(REQUESTS)))
    assert found[None] == (1024 + 1500 + 1100 + 512 + 100) / 4
    assert (found["output", "p50"], found["input"], found["input", "max"]) == (25, 1034, 1500)
    # Several traces are kept apart.
    both = values("rate", trace(REQUESTS, "a"), trace(REQUESTS[:2], "b"))
    assert both[0].reason == "2 traces: see their rows"
    assert (told(both)["a"], told(both)["b"]) == (0.03, 0.1)


@pytest.mark.parametrize(
    ("requests", "blocks"),
    [
        # The second request finds two blocks, the third one only: its block 3 follows another prefix.
        (REQUESTS, 3 / 9),
        # In order of arrival: in the other one the longer prompt is first, the shorter one in the cache.
        ([REQUESTS[1], REQUESTS[0]], 2 / 5),
        ([(0, 1024, 1, [1, 2]), (0, 1024, 1, [1, 2])], 0.5),
        # A block twice in a request is not reused.
        ([(0, 1024, 1, [5, 5])], 0),
    ],
)
def test_prefixes_end_at_the_first_new_block(requests: list[Any], blocks: float) -> None:
    found = values("prefix_reuse", trace(requests))
    assert told(found)[None] == blocks
    if requests is REQUESTS:
        assert told(found)["tokens"] == (1024 + 512) / 4136
        assert found[0].reason == "3 of 9 blocks"


def test_what_a_trace_does_not_state() -> None:
    without, *_ = values("prefix_reuse", trace([*REQUESTS, (120, 5, 5, None)]))
    assert without.reason == "1 requests have no ids of blocks"
    *_, sizes = values("prefix_reuse", trace([(0, 100, 1, [1, 2]), (1, 100, 1, [1, 2])]))
    assert (sizes.stat, sizes.reason) == ("tokens", "blocks are not of 512 tokens")
    empty, *_ = values("prefix_reuse", trace([(0, 0, 1, []), (1, 0, 1, [])]))
    assert empty.reason == "no request has a block"
    (none,) = job_values("requests.rate", Evidence())
    assert none.reason == "needs a trace of requests in Mooncake's format"


@given(st.lists(st.lists(st.integers(0, 6), max_size=5), min_size=1, max_size=12))
def test_leading_blocks_are_those_of_a_set(requests: list[list[int]]) -> None:
    seen, expected = set[int](), []
    for blocks in requests:
        held = next((n for n, block in enumerate(blocks) if block not in seen), len(blocks))
        expected.append(held)
        seen.update(blocks)
    flat = np.array([block for blocks in requests for block in blocks], np.int64)
    counts = np.array([len(blocks) for blocks in requests], np.int64)
    assert leading_blocks(flat, counts).tolist() == expected
