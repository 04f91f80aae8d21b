# SPDX-License-Identifier: Apache-2.0
"""Calls that nobody waits for any more end, whatever they were doing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest
from helpers.mcp_session import HEAVY, Server, answer, first_run, refusal, session
from mcp.client import Client


def test_fifty_abandoned_queries_leave_the_server_free(store: Path) -> None:
    """The client cancels them: `explain` and `sql` answer at once, and no process is left of them."""
    server = Server(store)

    async def asks(client: Client) -> None:
        run = await first_run(client)
        idle = server.processes()

        async def abandon() -> None:
            with anyio.move_on_after(1):
                await client.call_tool("sql", {"run": run, "query": HEAVY})

        async with anyio.create_task_group() as group:
            for _ in range(50):
                group.start_soon(abandon)
        with anyio.fail_after(20):
            assert (await answer(client, "explain", name="time.step"))["rows"]
            assert (await answer(client, "sql", run=run, query="SELECT 1 AS x"))["rows"] == [{"x": 1}]
        await server.wait_for(lambda now: now <= idle)

    session(server, asks)


def test_queries_that_nobody_cancels_end_by_themselves(store: Path) -> None:
    """`explain` answers while they run and wait; two run at once, 100 may wait, each ends at its limit."""
    server = Server(store, "--time-limit", "8")

    async def asks(client: Client) -> None:
        run = await first_run(client)
        idle = server.processes()
        errors: list[str] = []

        async def ask() -> None:
            errors.append(await refusal(client, "sql", run=run, query=HEAVY))

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for _ in range(105):
                    group.start_soon(ask)
                await server.wait_for(lambda now: len(now - idle) == 2)
                assert (await answer(client, "explain", name="time.step"))["rows"]
                assert not [error for error in errors if "took longer" in error]
        assert sum("2 calls are running and 100 are waiting" in error for error in errors) == 3
        # Whose turn comes just before its own end ran, too.
        ended = re.compile(r"sql took longer than 8 s; ask for less .* or raise --time-limit")
        ran = sum(ended.search(error) is not None for error in errors)
        waited = sum("waited 8 s for other calls" in error for error in errors)
        assert ran >= 2
        assert ran + waited == 102
        await server.wait_for(lambda now: now <= idle)

    session(server, asks)


@pytest.fixture(scope="module")
def long_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace that takes seconds to read."""
    event = '{{"ph":"X","cat":"kernel","name":"k{}","pid":0,"tid":7,"ts":{},"dur":1,"args":{{"stream":7}}}}'
    path = tmp_path_factory.mktemp("long") / "rank0.json"
    events = ",\n".join(event.format(n % 9, 2 * n) for n in range(600_000))
    path.write_text(f'{{"schemaVersion": 1, "traceEvents": [\n{events}]}}', "utf-8")
    return path


def test_a_trace_whose_reading_is_cancelled_leaves_nothing(long_trace: Path, tmp_path: Path) -> None:
    store = tmp_path / "runs"
    server = Server(store, "--root", str(long_trace.parent), TMPDIR=str(tmp_path))

    async def asks(client: Client) -> None:
        await answer(client, "runs")
        idle = server.processes()
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "run", {"source": str(long_trace)})
            await server.wait_for(lambda _: any(store.glob(".unfinished-*/**/*.parquet")))
            assert len(server.processes() - idle) == 1
            group.cancel_scope.cancel()
        await server.wait_for(lambda now: now <= idle)
        await server.wait_for(lambda _: not list(store.iterdir()))
        assert (await answer(client, "runs"))["rows"] == []

    session(server, asks)
    assert not list(tmp_path.glob("cclbench-*"))


def test_a_client_that_goes_away_takes_its_queries_with_it(store: Path) -> None:
    server = Server(store)
    client = {"name": "x", "version": "1"}
    envelope = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    run = next(path.name for path in store.iterdir() if not path.name.startswith("."))
    lines = [
        {"id": 1, "method": "initialize", "params": envelope},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "runs", "arguments": {}}},
    ]
    heavy = {"name": "sql", "arguments": {"run": run, "query": HEAVY}}
    program = [sys.executable, *server.args]
    # a browser of other tests may have an event loop in this thread
    with (
        ThreadPoolExecutor(1) as apart,
        subprocess.Popen(
            program, env=server.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for line in lines:
                process.stdin.write(json.dumps({"jsonrpc": "2.0", **line}) + "\n")
            process.stdin.flush()
            while json.loads(process.stdout.readline()).get("id") != 2:
                pass
            idle = server.processes()
            for number in range(3, 8):
                call = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": heavy}
                process.stdin.write(json.dumps(call) + "\n")
            process.stdin.flush()
            apart.submit(anyio.run, server.wait_for, lambda now: len(now - idle) == 2).result()
            process.stdin.close()
            assert process.wait(30) == 0
            apart.submit(anyio.run, server.wait_for, lambda now: not now).result()
        finally:
            process.kill()
