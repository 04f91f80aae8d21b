# SPDX-License-Identifier: Apache-2.0
"""`cclbench mcp`: the tools that agents call."""

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
    help="Folder below which `run` may read; may be repeated. Default: the working directory, unless that is"
    " / or the home folder.",
)
@click.option(
    "--allow-url",
    "schemes",
    metavar="SCHEME",
    multiple=True,
    help="Let `run` read URLs of this kind, such as https (public addresses alone) or s3; may be repeated."
    " Default: none.",
)
@click.option(
    "--time-limit",
    "seconds",
    type=click.FloatRange(0, min_open=True),
    default=600,
    show_default=True,
    metavar="SECONDS",
    help="Longest call; of runs, sql and ops at most 60 s.",
)
@click.option(
    "--memory",
    "memory_bytes",
    type=options.Size,
    default="4GB",
    show_default=True,
    metavar="SIZE",
    help="Most memory of a call; two run at once.",
)
@options.store
@options.debug
def mcp(
    roots: tuple[Path, ...], schemes: tuple[str, ...], seconds: float, memory_bytes: int, store: Path
) -> None:
    """Serve agents: a Model Context Protocol server on stdin and stdout.

    Tools: runs, run, diagnose, metrics, explain, sql, ops, whatif, compare. Answers are small, a page at a
    time; SQL can only read, and only runs of the store. Each call runs in a process of its own, which is
    killed at its limits or when the client cancels. Needs the extra `mcp`.

    \b
    Examples:
      cclbench mcp --store runs
      cclbench mcp --root traces --root workload_cards --allow-url s3
      npx @modelcontextprotocol/inspector cclbench mcp --store /scratch/runs
    """
    from cclbench.agents.calls import Limits
    from cclbench.agents.reach import NEVER, Reach
    from cclbench.agents.server import server

    for scheme in schemes:
        if scheme in NEVER:
            raise click.BadParameter(f"{scheme}:// {NEVER[scheme]}", param_hint="--allow-url")
    server(store, Reach.of(roots, schemes), Limits(seconds, memory_bytes)).run()
