# SPDX-License-Identifier: Apache-2.0
"""The protocol's own client, and the processes that a server has."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
from mcp import StdioServerParameters, stdio_client
from mcp.client import Client

MARK = "CCLBENCH_TEST_SERVER"
HEAVY = "SELECT count(*) FROM range(10000000000) a(i), range(1000) b(j) WHERE sin(i * j) > 2"
"""A query of hours."""


class Server:
    """How a server is started, and which processes are its own."""

    def __init__(self, store: Path, *options: str, **environment: str) -> None:
        self.mark = uuid4().hex
        self.args = ["-m", "cclbench", "mcp", "--store", str(store), *options]
        self.environment = {**os.environ, MARK: self.mark, **environment}

    def processes(self) -> set[int]:
        """The server and all that it started, by what they inherit."""
        wanted, found = f"{MARK}={self.mark}".encode(), set()
        for folder in Path("/proc").iterdir():
            try:
                if folder.name.isdecimal() and wanted in (folder / "environ").read_bytes():
                    found.add(int(folder.name))
            except OSError:  # another user's, or gone
                continue
        return found

    async def wait_for(self, done: Callable[[set[int]], bool], seconds: float = 30) -> None:
        """Wait until the processes are as they should be; fails after so many seconds."""
        with anyio.fail_after(seconds):
            while not done(self.processes()):
                await anyio.sleep(0.05)


def session(
    server: Server | Path, asks: Callable[[Client], Awaitable[None]], cwd: Path | None = None
) -> None:
    """A server process, and a client that asks it."""
    started = Server(server) if isinstance(server, Path) else server

    async def served() -> None:
        program = StdioServerParameters(
            command=sys.executable, args=started.args, env=started.environment, cwd=cwd
        )
        async with Client(stdio_client(program)) as client:
            await asks(client)

    with ThreadPoolExecutor(1) as apart:  # a browser of other tests may have an event loop in this thread
        apart.submit(anyio.run, served).result()


async def text_of(client: Client, tool: str, asked: Mapping[str, Any]) -> str:
    """An answer's text."""
    result = await client.call_tool(tool, dict(asked))
    (content,) = result.content
    assert not result.is_error, content
    assert isinstance(content.text, str)
    return content.text


async def answer(client: Client, tool: str, **asked: Any) -> dict[str, Any]:
    """What a tool answers."""
    found: dict[str, Any] = json.loads(await text_of(client, tool, asked))
    return found


async def refusal(client: Client, tool: str, **asked: Any) -> str:
    """The error that a tool answers."""
    result = await client.call_tool(tool, asked)
    (content,) = result.content
    assert result.is_error, content
    assert "Traceback" not in content.text
    return str(content.text)


async def first_run(client: Client) -> str:
    """The first run of the store."""
    return str((await answer(client, "runs"))["rows"][0]["run"])
