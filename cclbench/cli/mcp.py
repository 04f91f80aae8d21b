# SPDX-License-Identifier: Apache-2.0
"""`cclbench mcp`: the server of tools for agents."""

from __future__ import annotations

from pathlib import Path

import click

from cclbench.cli import options


@click.command()
@click.option(
    "--root",
    "roots",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    multiple=True,
    help="Folder that `run` may read; repeatable.  [default: the working directory, unless it is / or the"
    " home folder]",
)
@click.option(
    "--allow-url",
    "schemes",
    metavar="SCHEME",
    multiple=True,
    help="Let `run` read URLs of this scheme, such as https (public addresses only) or s3; repeatable."
    "  [default: none]",
)
@click.option(
    "--time-limit",
    "seconds",
    type=click.FloatRange(0, min_open=True),
    default=600,
    show_default=True,
    metavar="SECONDS",
    help="Time limit of a call; for tools that only read tables at most 60 s.",
)
@click.option(
    "--memory",
    "memory_bytes",
    type=options.Size,
    default="4GB",
    show_default=True,
    metavar="SIZE",
    help="Memory limit of a call; two run at once.",
)
@options.store
@options.debug
def mcp(
    roots: tuple[Path, ...], schemes: tuple[str, ...], seconds: float, memory_bytes: int, store: Path
) -> None:
    """Run a Model Context Protocol server for agents, on stdin and stdout.

    Tools: runs, run, diagnose, metrics, explain, sql, ops, sequences, stragglers, memory, timeline, whatif,
    compare, hardware, settings. Answers have at most 2 kB unless a call asks for more. SQL is read-only, and
    limited to runs of the store. Each call runs in its own process, which is killed at its limits or when the
    client cancels. Requires the extra `mcp`.

    \b
    Examples:
      cclbench mcp --store runs
      cclbench mcp --root traces --root workload_cards --allow-url s3
      npx @modelcontextprotocol/inspector cclbench mcp --store /scratch/runs
    """
    from cclbench.agents.calls import Limits
    from cclbench.agents.reach import NEVER, Reach
    from cclbench.agents.server import tool_server

    for scheme in schemes:
        if scheme in NEVER:
            raise click.BadParameter(f"{scheme}:// {NEVER[scheme]}", param_hint="--allow-url")
    tool_server(store, Reach.from_roots(roots, schemes), Limits(seconds, memory_bytes)).run()
