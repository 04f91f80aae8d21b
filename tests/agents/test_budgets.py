# SPDX-License-Identifier: Apache-2.0
"""Answers and calls within their budgets: bytes, rows, time, memory."""

from __future__ import annotations

import json
import re
from pathlib import Path

import anyio
import pytest
from helpers.mcp_session import Server, answer, first_run, refusal, session, text_of
from mcp.client import Client

from cclbench.agents.answers import ANSWER_BYTES, ToolAnswer, encode_answer
from cclbench.ground.errors import UsageError

LARGE = (
    ("SELECT e.*, i FROM events e, range(100) t(i) LIMIT 151388", 50, None),
    ("SELECT repeat('x', 20000000) AS x", 1, 20_000_000),
    ("SELECT repeat('x', 1000000) AS x FROM range(50)", 50, 1_000_000),
    ("SELECT range(1000000) AS x", 1, 1_000_000),
)
"""Queries, with how many rows an answer has, and how long the text that is cut is."""


def test_a_large_answer_is_cut_to_its_budget(store: Path) -> None:
    async def asks(client: Client) -> None:
        run = await first_run(client)
        for query, rows, length in LARGE:
            with anyio.fail_after(60):
                text = await text_of(client, "sql", {"run": run, "query": query, "full": True})
            assert len(text.encode()) <= ANSWER_BYTES, query
            found = json.loads(text)
            assert len(found["rows"]) == rows, query
            assert found["more"] == (length is None), query
            if length is not None:
                assert found["cut"][-1] == {"row": rows - 1, "at": "x", "length": length, "given": 4000}
                assert len(found["rows"][0]["x"]) == 4000
                assert "substr(column, given + 1)" in found["notes"][-1]
        text = "repeat('x', 4000) || 'end'"
        first = await answer(client, "sql", run=run, query=f"SELECT {text} AS x", full=True)
        assert first["cut"] == [{"row": 0, "at": "x", "length": 4003, "given": 4000}]
        rest = await answer(client, "sql", run=run, query=f"SELECT substr({text}, 4001) AS x")
        assert rest["rows"] == [{"x": "end"}]

    session(store, asks)


def test_rows_that_do_not_fit_are_on_the_next_page(store: Path) -> None:
    """Ten columns of 4,000 bytes: six rows an answer."""

    async def asks(client: Client) -> None:
        run, seen, offset = await first_run(client), [], 0
        columns = ", ".join(f"repeat('x', 4000) AS c{n}" for n in range(10))
        query = f"SELECT i, {columns} FROM range(18) t(i)"  # noqa: S608 - no input in it
        for _ in range(3):
            page = await answer(client, "sql", run=run, query=query, offset=offset, full=True)
            assert len(page["rows"]) == 6
            seen += [row["i"] for row in page["rows"]]
            offset = page.get("next_offset", 0)
        assert seen == list(range(18))
        assert offset == 0

    session(store, asks)


def test_a_row_that_does_not_fit_has_its_texts_cut_shorter_or_is_refused() -> None:
    """100 columns of 4,000 characters are more than 256,000 bytes, of 1,000 they are not."""
    encoded = encode_answer(ToolAnswer([{f"c{n}": "x" * 4000 for n in range(100)}], most_bytes=ANSWER_BYTES))
    assert len(encoded) <= ANSWER_BYTES
    found = json.loads(encoded)
    assert {len(text) for text in found["rows"][0].values()} == {1000}
    assert found["cut"][0] == {"row": 0, "at": "c0", "length": 4000, "given": 1000}
    many = ToolAnswer([{f"column{n}": "x" * 99 for n in range(20_000)}], 7, most_bytes=ANSWER_BYTES)
    with pytest.raises(UsageError, match=r"row 7 has more than 256,000 bytes.*select fewer columns"):
        encode_answer(many)
    beside = {"subjects": [list(range(9999))] * 20}
    encoded = encode_answer(ToolAnswer([{"x": 1}], fields=beside, most_bytes=ANSWER_BYTES))
    found = json.loads(encoded)
    assert len(encoded) <= ANSWER_BYTES
    assert found["rows"] == [{"x": 1}]
    assert {"at": "subjects[0]", "length": 9999, "given": 1000} in found["cut"]


def test_a_call_that_needs_too_much_memory_fails_alone(store: Path) -> None:
    server = Server(store, "--memory", "500MB")

    async def asks(client: Client) -> None:
        run = await first_run(client)
        with anyio.fail_after(60):
            error = await refusal(client, "sql", run=run, query="SELECT list(i) FROM range(1000000000) t(i)")
        assert re.search(r"Out of Memory.*ask for fewer rows or columns at once", error)
        cells = "SELECT repeat('x', 100000000) || i AS x FROM range(50) t(i)"
        assert re.search("memory|Memory", await refusal(client, "sql", run=run, query=cells))
        assert (await answer(client, "sql", run=run, query="SELECT 1 AS x"))["rows"] == [{"x": 1}]

    session(server, asks)


def test_descriptions_state_the_limits(store: Path) -> None:
    async def asks(client: Client) -> None:
        tools = {tool.name: tool.description or "" for tool in (await client.list_tools()).tools}
        assert all("50 rows and 256,000 bytes of JSON" in text for text in tools.values())
        limit = r"(\d+) s since the call's arrival, (.+?) of mem"
        limits = {name: found.groups() for name in tools if (found := re.search(limit, tools[name]))}
        long = ("run", "diagnose", "metrics", "stragglers", "timeline", "whatif", "compare")
        short = dict.fromkeys(("runs", "sql", "ops", "sequences", "memory"), ("60", "2 GB"))
        assert limits == short | dict.fromkeys(long, ("300", "2 GB"))

    session(Server(store, "--time-limit", "300", "--memory", "2GB"), asks)
