# SPDX-License-Identifier: Apache-2.0
"""Resources and prompts: what a person attaches to a conversation or begins one with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cclbench.agents.calls import Limits, ToolCalls

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

_JSON = "application/json"


def add_resources(mcp_server: MCPServer, calls: ToolCalls, limits: Limits) -> None:
    """Register the list of runs, each run's findings and two prompts; their texts are answers of tools."""

    @mcp_server.resource("cclbench://runs", name="runs", mime_type=_JSON)
    async def runs() -> str:
        """The runs in the store."""
        return (await calls.answer("runs", limits, {})).decode()

    @mcp_server.resource("cclbench://runs/{run}", name="run", mime_type=_JSON)
    async def findings(run: str) -> str:
        """What makes a run slow, the culprit first, in at most 2 kB."""
        return (await calls.answer("diagnose", limits, {"run": run})).decode()

    @mcp_server.prompt()
    def diagnose(source: str) -> str:
        """Find what makes a job slow, and check it against the events."""
        return (
            f"Use cclbench's tool `run` on {source!r}, or `diagnose` if it is the id of a run. Name the first"
            " finding as the culprit, with its gain and confidence as they are stated. Check it with the tool"
            " that `next` names and with the finding's query (diagnose with full=true, then sql). Say what to"
            " try first, and what the trace does not show."
        )

    @mcp_server.prompt()
    def compare(before: str, after: str) -> str:
        """Say whether a change made a job slower, and why."""
        return (
            f"Use cclbench's tool `compare` on the runs {before!r} and {after!r}. Repeat the verdict with its"
            " interval: a difference that may be chance is no regression. Name the part of the step and the"
            " operator that changed most, and whether both runs did equal work."
        )
