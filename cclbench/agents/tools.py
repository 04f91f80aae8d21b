# SPDX-License-Identifier: Apache-2.0
"""The tools.  Agents read the docstring of each method, and its signature is the input schema."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

from cclbench import api
from cclbench.agents.answers import PAGE, ToolAnswer, answer_page, check_offset, check_page
from cclbench.agents.reach import Reach
from cclbench.ground.errors import InputError, UsageError
from cclbench.ingestion import ingest
from cclbench.record.manifest import Options
from cclbench.record.metric_name import metric_name
from cclbench.record.run import Run
from cclbench.source_summaries import source_summaries
from cclbench.workspace import source_at, store_at

_STEP: Final = metric_name("time.step")

DISK_BYTES: Final = 16_000_000_000
"""Maximum bytes of a query's temporary files."""
LONGEST_NAME: Final = 200
"""Maximum characters of a name for `explain`."""
_ORDER: Final = (
    "Pages are consistent only if ORDER BY determines the order of all rows: order by unique columns."
)


class Tools:
    """The tools over the runs of a store; `reach` limits the sources that may be read."""

    def __init__(self, store: str | Path, reach: Reach, memory_bytes: int) -> None:
        self._store, self._reach, self._memory_bytes = store, reach, memory_bytes

    def _stored_run(self, run: str) -> Run:
        """The stored run of that id; tools that take a run open no sources."""
        return store_at(self._store).get(run)

    def _with_metrics(self, run: Run) -> Run:
        return api.metrics(run)

    def runs(self, offset: int = 0) -> ToolAnswer:
        """The runs in the store: id, source, ranks, device."""
        return answer_page([_run_row(stored) for stored in store_at(self._store).runs()], offset)

    def run(self, source: str) -> ToolAnswer:
        """Read SOURCE (a workload card, a folder of traces, one trace) into the store; diagnose it."""
        store = store_at(self._store)
        stored = store.find(source)
        if stored is None:
            self._reach.check_source(source)
            with source_at(source, public=True) as located:
                stored = ingest(located, store, Options())
        return self._findings_page(self._with_metrics(stored), 0, run=stored.id)

    def diagnose(self, run: str, offset: int = 0) -> ToolAnswer:
        """What makes a run slow: findings with claim, gain, confidence, evidence, advice and a query."""
        return self._findings_page(self._with_metrics(self._stored_run(run)), offset)

    def _findings_page(self, computed: Run, offset: int, **fields: Any) -> ToolAnswer:
        # Queries are sent back by agents: line breaks in them would arrive as escapes.
        rows = [
            {**row, "query": row["query"] and row["query"].replace("\n", " ")}
            for row in api.diagnose(computed).top_rows()
        ]
        if summaries := source_summaries(computed, computed.figures):
            fields["source"] = [
                {
                    "kind": one.kind,
                    "heading": one.heading,
                    "warnings": one.warnings,
                    "sentences": one.sentences,
                }
                for one in summaries
            ]
        return answer_page(rows, offset, **fields, step_s=computed.figures.value(_STEP))

    def metrics(self, run: str, pattern: str = "*", per_rank: bool = False, offset: int = 0) -> ToolAnswer:
        """The run's metrics that match a glob (`comm.*`), of the whole run or also of each rank."""
        computed = api.metrics(self._stored_run(run), metrics=[pattern])
        rows = [
            {key: value for key, value in row.items() if value is not None}
            for row in computed.rows
            if row["step"] is None and (per_rank or row["rank"] is None)
        ]
        return answer_page(rows, offset)

    def explain(self, name: str, offset: int = 0) -> ToolAnswer:
        """Explain a metric, finding or SQL view: definition, formula, unit, columns, limits."""
        from cclbench.present.terminal.explanation import explanations

        if len(name) > LONGEST_NAME:
            raise UsageError(
                f"a name of {len(name):,} characters", hint=f"names have at most {LONGEST_NAME} characters"
            )
        explained = explanations([name])
        return answer_page([*explained.metrics, *explained.findings, *explained.views], offset, trusted=True)

    def sql(self, run: str, query: str, offset: int = 0) -> ToolAnswer:
        """One read-only SELECT in DuckDB's dialect over a run's views (busy, waits, collective_instances,
        launches, kernel_summary, operator_work, idle_gaps, ...: `explain` lists their columns,
        `FROM (SHOW TABLES)` their names) and tables: events, operators, collectives, groups, steps, results.
        Only the requested page is computed; pages are consistent only if ORDER BY determines the order of all
        rows."""
        from cclbench.record.sql import plain_rows

        check_offset(offset)
        rows = plain_rows(
            self._stored_run(run).sql(
                query,
                times_as_text=True,
                memory_bytes=self._memory_bytes // 2,
                disk_bytes=DISK_BYTES,
                page=(offset, PAGE + 1),
            )
        )
        check_page(len(rows), offset)
        more = len(rows) > PAGE
        return ToolAnswer(
            rows[:PAGE],
            offset,
            more,
            None if more else offset + len(rows),
            notes=[_ORDER] if more or offset else (),
        )

    def ops(
        self,
        run: str,
        by: str = "op",
        sort: Literal["time", "gap", "flops", "bytes", "calls"] = "time",
        where: Sequence[str] = (),
        offset: int = 0,
    ) -> ToolAnswer:
        """Operators by cost: time, FLOPs, bytes, and distance from the roofline (sort by gap).

        by: op, shape, module, class, phase, kernel, category, program, or several: "op,module". where:
        filters that all must hold, such as ["phase=backward", "module~attn"] (equal, contains).
        """
        from cclbench.operator_table import operator_costs

        return answer_page(operator_costs(self._stored_run(run), by, sort=sort, where=where).table, offset)

    def whatif(self, run: str, settings: list[str], offset: int = 0) -> ToolAnswer:
        """Predict the step time on other hardware, such as ["scale_up.bandwidth=x2"], by replaying a run."""
        self._reach.check_settings(settings)
        replayed = api.whatif(self._stored_run(run), *settings)
        return answer_page([row for row in replayed.rows if row["rank"] is None], offset)

    def compare(self, runs: list[str], offset: int = 0) -> ToolAnswer:
        """Compare runs, the first with each other one: which is faster, by how much, and why."""
        from cclbench.comparison.build import compare
        from cclbench.comparison.document import comparison_document

        document = comparison_document(
            compare(*(self._stored_run(run).id for run in runs), store=self._store)
        )
        return answer_page(
            document["lines"],
            offset,
            subjects=document["subjects"],
            warnings=document["warnings"],
            versus=[{key: pair[key] for key in ("base", "other", "words")} for pair in document["versus"]],
        )


def _run_row(stored: Run) -> dict[str, Any]:
    """A row of the list of runs, or why the run cannot be read."""
    try:
        ranks = stored.record.ranks
    except InputError as error:
        return {"run": stored.id, "problem": str(error)}
    return {
        "run": stored.id,
        "source": stored.record.source,
        "ranks": len(ranks),
        "devices": sorted({rank.facts.device_name for rank in ranks if rank.facts.device_name}),
    }
