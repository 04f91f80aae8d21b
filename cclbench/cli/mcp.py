# SPDX-License-Identifier: Apache-2.0
"""`cclbench mcp`: the tools that agents call."""

from __future__ import annotations

from pathlib import Path

import click

from cclbench.cli import options


@click.command()
@options.store
@options.debug
def mcp(store: Path) -> None:
    """Serve agents: a Model Context Protocol server on stdin and stdout.

    Tools: runs, run, diagnose, metrics, explain, sql, ops, whatif, compare. Answers are small, a page at a
    time; SQL can only read, and only runs of the store. Needs the extra `mcp`.

    \b
    Examples:
      cclbench mcp --store runs
      npx @modelcontextprotocol/inspector cclbench mcp --store /scratch/runs
    """
    from cclbench.agents import server

    server(store).run()
