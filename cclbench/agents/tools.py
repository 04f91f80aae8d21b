# SPDX-License-Identifier: Apache-2.0
"""The tools: agents read each method's docstring; its signature and `PARAMETERS` are the input schema."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from cclbench import api
from cclbench.agents.answers import (
    PAGE,
    ToolAnswer,
    answer_document,
    answer_page,
    bytes_of,
    check_offset,
    check_page,
)
from cclbench.agents.reach import Reach
from cclbench.findings.diagnosis import diagnose_run
from cclbench.ground.errors import InputError, UsageError
from cclbench.ingestion import ingest
from cclbench.present.brief.quantities import Brief
from cclbench.present.terminal.run import document_head
from cclbench.record.manifest import Options
from cclbench.record.metric_name import metric_name
from cclbench.record.rows import builtins
from cclbench.record.run import Run
from cclbench.source_summaries import source_summaries
from cclbench.source_summaries.summary import summary_document
from cclbench.workspace import source_at, store_at

_STEP: Final = metric_name("time.step")

DISK_BYTES: Final = 16_000_000_000
"""Maximum bytes of a query's temporary files."""
LONGEST_NAME: Final = 200
"""Maximum characters of a name for `explain`."""
_ORDER: Final = (
    "Pages are consistent only if ORDER BY determines the order of all rows: order by unique columns."
)
TOOLS: Final = (
    *("runs", "run", "diagnose", "metrics", "explain", "sql", "ops", "sequences", "stragglers", "memory"),
    *("timeline", "whatif", "compare", "hardware", "settings"),
)
"""Names of the tools, methods of `Tools`."""
PARAMETERS: Final = {
    "run": "Id of a run in the store (tool `runs`), its unique beginning, or @last for the newest.",
    "runs": "Ids of runs, as of `run`: of compare the runs A, B, ...; of stragglers captures of one job.",
    "against": "Captures of job B; then those in `runs` are captures of job A.",
    "source": "A workload card, a folder of traces (one per rank), one trace, or an allowed URL.",
    "pattern": "Name of a metric, an alias, or a glob such as comm.* (all: *).",
    "per_rank": "Also the rows of each rank.",
    "name": "Name of a metric, finding, SQL view, table or setting, such as time.step, busy, events.",
    "query": "One SELECT in DuckDB's dialect; times are in ns. Order by unique columns to get stable pages.",
    "by": "Group by op, shape, module, class, phase, kernel, category, program, or several: op,module.",
    "sort": "Sort by this, largest first; gap: time above the roofline.",
    "where": "Filters that all must hold: phase=backward (equal), module~attn (contains).",
    "length": "Kernels per sequence.",
    "settings": "Changes, combined. whatif: kernels.time=x0.5, scale_up.bandwidth=x2 (tool `settings`);"
    " memory: batch=9, optimizer.shards=8, checkpoint=Block.",
    "part": "Rows of the full answer: metrics, parts of the step, operators, modules, kernels or cards.",
    "step": "Number of the step; by default the first complete one.",
    "ranks": "Only these ranks.",
    "from_ms": "Begin, in ms from the step's start.",
    "to_ms": "End, in ms from the step's start.",
    "entry": "Id of a catalog entry or a part of it, such as h100 or aws-p5; empty for all.",
    "offset": "Number of the first row; `next_offset` of the answer before.",
    "full": "Rows of up to 256 kB in place of an answer of at most 2 kB.",
}
"""What each parameter means, equal in all tools."""


class Tools:
    """The tools over the runs of a store; `reach` limits the sources that may be read."""

    def __init__(self, store: str | Path, reach: Reach, memory_bytes: int) -> None:
        self._store, self._reach, self._memory_bytes = store, reach, memory_bytes

    def _stored_run(self, run: str) -> Run:
        """The stored run of that id; tools that take a run open no sources."""
        return store_at(self._store).get(run)

    def runs(self, offset: int = 0, full: bool = False) -> ToolAnswer:
        """List the runs in the store, the newest first: id, source, ranks, device."""
        return answer_page(
            [_run_row(stored) for stored in store_at(self._store).runs_by_time()], offset, full=full
        )

    def run(self, source: str, full: bool = False) -> ToolAnswer | Brief:
        """Read SOURCE into the store unless it is there; findings and key figures of the run."""
        store = store_at(self._store)
        stored = store.find(source)
        if stored is None:
            self._reach.check_source(source)
            with source_at(source, public=True) as located:
                stored = ingest(located, store, Options())
        computed = api.metrics(stored)
        if full:
            return _findings_page(computed, 0, run=stored.id)
        return answer_document(
            {
                **_findings_document(computed),
                **document_head(computed.record, computed.figures, computed.window),
                "results": builtins(computed.figures.summary),
            }
        )

    def diagnose(self, run: str, offset: int = 0, full: bool = False) -> ToolAnswer | Brief:
        """What makes a run slow: the culprit first, with gain, confidence and what to try; full: evidence,
        and a query for `sql` that lists the events."""
        computed = api.metrics(self._stored_run(run))
        if full or offset:
            return _findings_page(computed, offset)
        return answer_document(_findings_document(computed))

    def metrics(
        self, run: str, pattern: str = "*", per_rank: bool = False, offset: int = 0, full: bool = False
    ) -> ToolAnswer | Brief:
        """Metrics of a run that match a pattern, with units, or why a number is missing."""
        computed = api.metrics(self._stored_run(run), metrics=[pattern])
        rows = [row for row in computed.rows if row["step"] is None and (per_rank or row["rank"] is None)]
        if not (full or per_rank or offset):
            head = document_head(computed.record, computed.figures, computed.window)
            return answer_document({**head, "results": rows})
        compact_rows = [{key: value for key, value in row.items() if value is not None} for row in rows]
        return answer_page(compact_rows, offset, full=full)

    def explain(self, name: str, offset: int = 0, full: bool = False) -> ToolAnswer:
        """Explain a metric, finding, SQL view, table, reader, setting or standard workload: definition,
        formula, unit, limits; of views and tables each column with type, unit and meaning."""
        from cclbench.present.terminal.explanation import explanations

        if len(name) > LONGEST_NAME:
            raise UsageError(
                f"a name of {len(name):,} characters", hint=f"names have at most {LONGEST_NAME} characters"
            )
        explained = explanations([name])
        rows = [*explained.metrics, *explained.findings, *explained.readers]
        rows += [*explained.settings, *explained.workloads]
        for view in explained.views:
            rows += [{key: value for key, value in view.items() if key != "columns"}, *view["columns"]]
        return answer_page(rows, offset, full=full, trusted=True)

    def sql(self, run: str, query: str, offset: int = 0, full: bool = False) -> ToolAnswer:
        """Query a run's views (busy, waits, collective_instances, launches, kernel_summary, operator_work,
        idle_gaps, ...) and tables (events, operators, collectives, groups, steps, results) in SQL, read-only:
        `explain` describes their columns, `FROM (SHOW TABLES)` lists them."""
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
            most_bytes=bytes_of(full=full),
        )

    def ops(
        self,
        run: str,
        by: str = "op",
        sort: Literal["time", "gap", "wasted", "flops", "bytes", "calls"] = "time",
        where: Sequence[str] = (),
        offset: int = 0,
        full: bool = False,
    ) -> ToolAnswer | Brief:
        """Operators by cost: time, FLOPs, bytes, and distance from the roofline (sort by gap)."""
        from cclbench.operator_table import operator_costs

        costs = operator_costs(self._stored_run(run), by, sort=sort, where=where)
        return answer_page(costs.table, offset) if full or offset else answer_document(costs.document)

    def sequences(self, run: str, length: int = 3, offset: int = 0, full: bool = False) -> ToolAnswer | Brief:
        """Sequences of kernels that take the most time: candidates for fusion."""
        from cclbench.kernel_sequences import frequent_sequences

        frequent = frequent_sequences(self._stored_run(run), length=length, top=PAGE)
        return answer_page(frequent.table, offset) if full or offset else answer_document(frequent.document)

    def stragglers(self, runs: list[str], offset: int = 0, full: bool = False) -> ToolAnswer | Brief:
        """Which rank is late, why, since when, and whether chance explains it; full: each rank and step."""
        from cclbench.stragglers import find_stragglers

        late = find_stragglers([self._stored_run(run) for run in runs])
        return answer_page(late.table, offset) if full or offset else answer_document(late.document)

    def memory(
        self, run: str, settings: Sequence[str] = (), offset: int = 0, full: bool = False
    ) -> ToolAnswer | Brief:
        """Peak memory of each device and who holds it, refused requests, what grows from step to step; with
        settings the modelled peak; full: call sites at the peak."""
        from cclbench.analyzers.view.memory_scenarios import predict_memory
        from cclbench.present.memory import allocator_histories, memory_document, peak_rows
        from cclbench.present.program_memory import program_documents, program_rows

        stored = self._stored_run(run)
        histories, programs = allocator_histories(stored), program_documents(stored)
        rows = [row for history in histories for row in peak_rows(history)]
        if full or offset:
            return answer_page([*rows, *program_rows(programs)], offset)
        recorded = [history for history in histories if history.recorded and settings]
        predictions = [predict_memory(stored, history, settings) for history in recorded]
        return answer_document(memory_document(stored, histories, rows, predictions, programs))

    def timeline(
        self,
        run: str,
        step: int | None = None,
        ranks: Sequence[int] | None = None,
        from_ms: float | None = None,
        to_ms: float | None = None,
    ) -> bytes:
        """A PNG picture of one step on all ranks: computing, waiting, transferring."""
        from cclbench.present.picture import Picture
        from cclbench.present.timeline import step_timeline
        from cclbench.present.timeline_picture import draw_timeline, title_of

        stored = self._stored_run(run)
        drawn = step_timeline(stored, step=step, ranks=ranks, from_ms=from_ms, to_ms=to_ms)
        return Picture(draw_timeline(drawn, title=title_of(stored, drawn)))._repr_png_()

    def whatif(
        self, run: str, settings: list[str], offset: int = 0, full: bool = False
    ) -> ToolAnswer | Brief:
        """Predict the step time under settings, such as other hardware, by replaying a run."""
        self._reach.check_settings(settings)
        stored = self._stored_run(run)
        replayed = api.whatif(stored, *settings)
        if full or offset:
            return answer_page([row for row in replayed.rows if row["rank"] is None], offset)
        return answer_document({"schema": "result.v1", "run": {"id": stored.id}, "results": replayed.rows})

    def compare(
        self,
        runs: list[str],
        against: Sequence[str] = (),
        part: Literal["metrics", "parts", "operators", "modules", "kernels", "cards"] = "metrics",
        offset: int = 0,
        full: bool = False,
    ) -> ToolAnswer | Brief:
        """Compare runs, the first with each other one: which is faster, by how much, and why."""
        from cclbench.comparison.build import compare
        from cclbench.comparison.document import comparison_document

        first, second = ([self._stored_run(run).id for run in side] for side in (runs, against))
        document = comparison_document(compare(*first, against=second, store=self._store))
        if not (full or offset):
            return answer_document(document)
        rows = {
            "metrics": document["lines"],
            "parts": [
                {"other": pair["other"], **row} for pair in document["versus"] for row in pair["changes"]
            ],
            "cards": document["cards"],
        }
        within = [
            {"other": pair["other"], **row} for pair in document["operators"] for row in pair.get(part, ())
        ]
        return answer_page(
            rows.get(part, within),
            offset,
            subjects=document["subjects"],
            warnings=document["warnings"],
            versus=[{key: pair[key] for key in ("base", "other", "words")} for pair in document["versus"]],
        )

    def hardware(self, entry: str = "", offset: int = 0, full: bool = False) -> ToolAnswer:
        """Machines, accelerators and networks of the catalog; full: all their figures and sources."""
        from cclbench.hardware.catalog import catalog_entries
        from cclbench.hardware.describe import entry_summary

        chosen = [record for record in catalog_entries().values() if entry.casefold() in record.id]
        rows = [
            {"id": record.id, "kind": record.kind, "summary": entry_summary(record)}
            | (msgspec.to_builtins(record) if full else {})
            for record in chosen
        ]
        return answer_page(rows, offset, full=full, trusted=True)

    def settings(self, offset: int = 0, full: bool = False) -> ToolAnswer:
        """Settings of `whatif`: key, values, what each changes."""
        from cclbench.present.terminal.explanation import setting_row
        from cclbench.replay.change import CHANGES

        return answer_page(
            [setting_row(CHANGES.get(key)) for key in CHANGES], offset, full=full, trusted=True
        )


def _findings_document(computed: Run) -> dict[str, Any]:
    """The document of `cclbench diagnose`."""
    diagnosis = diagnose_run(computed)
    return {
        **document_head(computed.record, computed.figures, computed.window, schema="findings.v1"),
        **({"unknown": diagnosis.unknown} if diagnosis.unknown else {}),
        "summaries": list(map(summary_document, source_summaries(computed, computed.figures))),
        "findings": diagnosis.top_rows(),
    }


def _findings_page(computed: Run, offset: int, **fields: Any) -> ToolAnswer:
    # Queries are sent back by agents: line breaks in them would arrive as escapes.
    document = _findings_document(computed)
    rows = [
        {**row, "query": row["query"] and row["query"].replace("\n", " ")} for row in document["findings"]
    ]
    if summaries := document["summaries"]:
        shown = ("kind", "heading", "warnings", "sentences")
        fields["source"] = [{name: summary[name] for name in shown} for summary in summaries]
    return answer_page(rows, offset, **fields, step_s=computed.figures.value(_STEP))


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
