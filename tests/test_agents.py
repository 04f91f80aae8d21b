# SPDX-License-Identifier: Apache-2.0
"""The tools of agents, asked by the protocol's own client over stdio."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import StdioServerParameters, stdio_client
from mcp.client import Client

import cclbench

Ask = Callable[..., dict[str, Any]]
TOOLS = {"runs", "run", "diagnose", "metrics", "explain", "sql", "ops", "whatif", "compare"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """A store with two runs."""
    folder = tmp_path_factory.mktemp("agents")
    for name in ("ddp4", "fsdp4"):
        cclbench.run(repository / "workload_cards" / f"tiny-llama-{name}-gloo-cpu.yaml", store=folder)
    return folder


def session(store: Path, asks: Callable[[Client], Awaitable[None]]) -> None:
    """A server process, and a client that asks it."""

    async def served() -> None:
        program = StdioServerParameters(
            command=sys.executable, args=["-m", "cclbench", "mcp", "--store", str(store)]
        )
        async with Client(stdio_client(program)) as client:
            await asks(client)

    with ThreadPoolExecutor(1) as apart:  # a browser of other tests may have an event loop in this thread
        apart.submit(anyio.run, served).result()


async def answer(client: Client, tool: str, **asked: Any) -> dict[str, Any]:
    """What a tool says."""
    told = await client.call_tool(tool, asked)
    assert not told.is_error, told
    (text,) = told.content
    found: dict[str, Any] = json.loads(text.text)
    return found


def test_a_round_trip_through_all_tools(store: Path) -> None:
    async def asks(client: Client) -> None:
        assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
        runs = [row["run"] for row in (await answer(client, "runs"))["rows"]]
        assert len(runs) == 2
        found = await answer(client, "diagnose", run=runs[0])
        first = found["rows"][0]
        assert first["gain_share"] > 0.01
        assert (await answer(client, "sql", run=runs[0], query=first["query"]))["rows"]
        assert (await answer(client, "explain", name=first["name"]))["rows"][0]["rule"]
        steps = await answer(client, "metrics", run=runs[0], pattern="time.step")
        assert steps["rows"][0]["value"] == found["step_s"]
        assert (await answer(client, "ops", run=runs[0], by="category"))["all_rows"] > 1
        told = await answer(client, "compare", runs=runs)
        assert "slower" in told["versus"][0]["words"]
        half = await answer(client, "whatif", run=runs[0], settings=["compute=x0.5"])
        assert half["rows"]

    session(store, asks)


def test_long_answers_come_in_pages(store: Path) -> None:
    async def asks(client: Client) -> None:
        run = (await answer(client, "runs"))["rows"][0]["run"]
        query = "SELECT name, start_ns FROM events ORDER BY rank, start_ns, name LIMIT 120"
        first = await answer(client, "sql", run=run, query=query)
        assert (len(first["rows"]), first["all_rows"], first["next_offset"]) == (50, 120, 50)
        last = await answer(client, "sql", run=run, query=query, offset=100)
        assert len(last["rows"]) == 20
        assert "next_offset" not in last

    session(store, asks)


@pytest.mark.parametrize(
    ("tool", "asked", "said"),
    [
        ("diagnose", {"run": "nobody"}, "no run"),
        ("sql", {"run": "{run}", "query": "COPY events TO 'x'"}, "SQL"),
        ("sql", {"run": "/etc", "query": "SELECT 1"}, "no run"),
        ("explain", {"name": "time.stepp"}, "time.step"),
        ("run", {"source": "/nowhere"}, "/nowhere"),
    ],
)
def test_a_wrong_call_is_the_protocols_error(
    store: Path, tool: str, asked: dict[str, str], said: str
) -> None:
    async def asks(client: Client) -> None:
        run = (await answer(client, "runs"))["rows"][0]["run"]
        told = await client.call_tool(
            tool, {key: value.replace("{run}", run) for key, value in asked.items()}
        )
        assert told.is_error
        assert said in told.content[0].text
        assert "Traceback" not in told.content[0].text

    session(store, asks)
