# SPDX-License-Identifier: Apache-2.0
"""What agents ask over the Model Context Protocol: small answers, a page at a time, with their evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, Literal, ParamSpec

from cclbench import __version__, api
from cclbench.errors import CclbenchError, UsageError, install_hint
from cclbench.record.remote_store import store_at
from cclbench.record.run import Run

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

PAGE: Final = 50
"""Rows of an answer."""
INSTRUCTIONS: Final = (
    "cclbench computes where each step's time went, on every rank, and why, from profiler traces. Begin with"
    " `run` for traces that are not read yet, or `runs` for what is in the store. Then `diagnose` says what"
    " makes a run slow, with evidence, a bound on what a step would gain, and a query for `sql` that lists"
    " the events behind it. Times are in seconds, rates in bytes or FLOP a second. A missing number has a"
    f" status and a reason. Answers have at most {PAGE} rows: ask on with `offset`."
)
Answer = dict[str, Any]
Asked = ParamSpec("Asked")


def server(store: str | Path) -> MCPServer:
    """A server of the tools over the runs of that store; `UsageError` without the extra `mcp`."""
    try:
        from mcp.server.mcpserver import MCPServer
    except ImportError:
        raise UsageError("the mcp package is not installed", hint=install_hint("mcp")) from None
    made = MCPServer("cclbench", version=__version__, instructions=INSTRUCTIONS)
    tools = Tools(store)
    for tool in (
        *(tools.runs, tools.run, tools.diagnose, tools.metrics, tools.explain),
        *(tools.sql, tools.ops, tools.whatif, tools.compare),
    ):
        made.tool()(tool)
    return made


def _tool(
    answer: Callable[Concatenate[Tools, Asked], Answer],
) -> Callable[Concatenate[Tools, Asked], Answer]:
    """A tool whose wrong calls and bad inputs are the protocol's errors."""

    @wraps(answer)
    def answered(tools: Tools, /, *args: Asked.args, **asked: Asked.kwargs) -> Answer:
        from mcp.server.mcpserver.exceptions import ToolError

        try:
            return answer(tools, *args, **asked)
        except CclbenchError as error:
            raise ToolError("; ".join(filter(None, (str(error), error.hint)))) from None

    return answered


def _page(rows: Sequence[Any], offset: int) -> Answer:
    """Some of the rows, how many there are, and where to ask on."""
    end = min(offset + PAGE, len(rows))
    more = {"next_offset": end} if end < len(rows) else {}
    return {"rows": list(rows[offset:end]), "all_rows": len(rows), **more}


class Tools:
    """The tools; each one's docstring is what an agent reads."""

    def __init__(self, store: str | Path) -> None:
        self._store = store

    def _stored(self, run: str) -> Run:
        """The run of that id: nothing else is opened by tools that name a run."""
        return store_at(self._store).get(run)

    def _computed(self, run: str) -> Run:
        return api.metrics(self._stored(run), store=self._store)

    @_tool
    def runs(self, offset: int = 0) -> Answer:
        """The runs in the store: id, source, ranks, device."""
        found = [
            {
                "run": stored.id,
                "source": stored.record.source,
                "ranks": len(stored.record.ranks),
                "devices": sorted({r.facts.device_name for r in stored.record.ranks if r.facts.device_name}),
            }
            for stored in store_at(self._store).runs()
        ]
        return _page(found, offset)

    @_tool
    def run(self, source: str) -> Answer:
        """Read SOURCE (a workload card, a folder of traces, one trace) into the store; why it is slow."""
        computed = api.run(source, store=self._store)
        return {"run": computed.id, **self._why(computed, 0)}

    @_tool
    def diagnose(self, run: str, offset: int = 0) -> Answer:
        """What makes a run slow: findings with claim, gain, confidence, evidence, what to try, a query."""
        return self._why(self._computed(run), offset)

    def _why(self, computed: Run, offset: int) -> Answer:
        step = computed.figures.value("time.step")
        return {"step_s": step, **_page(api.diagnose(computed, store=self._store).rows(), offset)}

    @_tool
    def metrics(self, run: str, pattern: str = "*", per_rank: bool = False, offset: int = 0) -> Answer:
        """The run's metrics that a glob names (`comm.*`), whole or also of each rank."""
        computed = api.metrics(self._stored(run), store=self._store, metrics=[pattern])
        rows = [
            {key: value for key, value in row.items() if value is not None}
            for row in computed.rows
            if row["step"] is None and (per_rank or row["rank"] is None)
        ]
        return _page(rows, offset)

    @_tool
    def explain(self, name: str) -> Answer:
        """What a metric or finding is: definition, formula, unit, when it does not apply."""
        from cclbench.analyzers.metric import resolve
        from cclbench.findings.finding import FINDINGS
        from cclbench.present.terminal.explanation import explanation, of_finding

        if name in FINDINGS:
            return {"rows": [of_finding(FINDINGS.get(name))]}
        return _page([explanation(metric) for metric, _ in resolve([name])], 0)

    @_tool
    def sql(self, run: str, query: str, offset: int = 0) -> Answer:
        """One SELECT of DuckDB's dialect over a run's tables: events, operators, collectives, groups, steps,
        results. It can only read, and only that run."""
        from cclbench.record.sql import plain_rows

        return _page(plain_rows(self._stored(run).sql(query, times_as_text=True)), offset)

    @_tool
    def ops(
        self,
        run: str,
        by: Literal["op", "shape", "module", "phase", "kernel", "category"] = "op",
        sort: Literal["time", "gap", "flops", "bytes", "calls"] = "time",
        offset: int = 0,
    ) -> Answer:
        """What operators cost: time, FLOPs, bytes, and how far each is from the roofline (sort by gap)."""
        from cclbench.operator_table import operators

        return _page(operators(self._stored(run), by=by, sort=sort).table, offset)

    @_tool
    def whatif(self, run: str, settings: list[str]) -> Answer:
        """Replay a run under other hardware, such as ["scale_up.bandwidth=x2"]: what would the step take?"""
        found = api.whatif(self._stored(run), *settings, store=self._store)
        return {"rows": [row for row in found.rows if row["rank"] is None][:PAGE]}

    @_tool
    def compare(self, runs: list[str]) -> Answer:
        """Compare runs, the first against each other one: who is faster, by how much, and why."""
        from cclbench.comparison.build import compare
        from cclbench.comparison.document import document

        told = document(compare(*(self._stored(run).id for run in runs), store=self._store))
        return {
            "subjects": told["subjects"],
            "warnings": told["warnings"],
            "versus": [{key: one[key] for key in ("base", "other", "words")} for one in told["versus"]],
            **_page(told["lines"], 0),
        }
