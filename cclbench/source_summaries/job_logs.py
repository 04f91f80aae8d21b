# SPDX-License-Identifier: Apache-2.0
"""Logs of jobs: step time, throughput, which steps are slow or profiled; throughput of servers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from cclbench.ground.units import humanise
from cclbench.record.metric_name import MetricName, metric_name
from cclbench.record.rows import Row
from cclbench.source_summaries.summary import Cell, FigureColumn, FigureTable, SourceSummary, SummaryInputs

JOB_LOG: Final = "job_log"
"""The kind of a log that numbers steps."""
SERVER_LOG: Final = "server_log"
TOKENS: Final = "tokens"
DEVICE_TOKENS: Final = "tokens of a device"
"""Columns of tokens per second, by which jobs of unequal work are compared."""
_STEP: Final = metric_name("log.step")
_TOKENS: Final = metric_name("log.tokens")
_GOODPUT: Final = metric_name("goodput.training")
_DATA_WAIT: Final = metric_name("log.data_wait")
_AGREEMENT: Final = metric_name("log.card_agreement")
_OVERHEAD: Final = metric_name("log.profiler_overhead")
_COLUMNS: Final = (
    FigureColumn(name="log", key=True),
    FigureColumn(name="median", unit="s", lead=True),
    *(FigureColumn(name=stat, unit="s") for stat in ("p5", "p95", "max")),
    FigureColumn(name=TOKENS, unit="1/s"),
    FigureColumn(name=DEVICE_TOKENS, unit="1/s"),
    FigureColumn(name="goodput", unit="1"),
    FigureColumn(name="global batch", unit="count"),
    FigureColumn(name="sequence length", unit="count"),
)
_SERVER_COLUMNS: Final = (
    FigureColumn(name="tokens", key=True),
    FigureColumn(name="rate", unit="1/s", lead=True),
)
_MOST_LOGS: Final = 8
_MOST_STEPS: Final = 4


def summarise_job_logs(inputs: SummaryInputs) -> Iterator[SourceSummary]:
    """All logs of jobs that number steps, else those of servers."""
    rows = list(inputs.results.summary)
    logs = [row for row in rows if _is_of(row, _STEP) and row.step is None and row.value is not None]
    if not logs:
        yield from _server_summary(rows)
        return
    sentences = [words for log in logs[:_MOST_LOGS] for words in _sentences(log, rows)]
    if len(logs) > _MOST_LOGS:
        sentences.append(f"{len(logs) - _MOST_LOGS} more logs: cclbench metrics, report.")
    yield SourceSummary(
        kind=JOB_LOG,
        heading="Steps by the job's log",
        warnings=[words for log in logs[:_MOST_LOGS] for words in _contradiction(log, rows)],
        sentences=sentences,
        tables=[
            FigureTable(
                subject="steps",
                title="Step time and throughput",
                columns=_COLUMNS,
                rows=[_log_row(log, rows, _settings(log, inputs)) for log in logs],
                detail=True,
            )
        ],
    )


def _is_of(row: Row, metric: MetricName, stat: str | None = None) -> bool:
    return row.metric == metric and row.rank is None and row.stat == stat


def _sentences(log: Row, rows: Sequence[Row]) -> Iterator[str]:
    def value_of(metric: MetricName, stat: str | None = None) -> str | None:
        value, unit = _log_value(log, rows, metric, stat)
        return None if value is None else humanise(value, unit)

    name = f"{log.category}: a" if log.category else "A"
    spread = [value_of(_STEP, stat) for stat in ("p5", "p95", "max")]
    range_words = f", {spread[0]} to {spread[1]} (p5 to p95), at most {spread[2]}" if spread[0] else ""
    yield f"{name} step takes {humanise(log.value or 0.0, 's')} in the median{range_words}."
    rate, each, share = value_of(_TOKENS), value_of(_TOKENS, "per_device"), value_of(_GOODPUT)
    if rate is not None:
        rate, each = (text and text.removesuffix("/s").strip() for text in (rate, each))
        yield f"{rate} tokens/s{f', {each} on a device' if each else ''}."
    if share is not None:
        yield f"{share} of the logged time trained."
    if (waiting := value_of(_DATA_WAIT)) is not None:
        yield f"Steps wait {waiting} of their time for their batch."
    yield from _notable_steps(log, rows)
    overhead, unit = _log_value(log, rows, _OVERHEAD, "logged")
    if overhead is not None and overhead > 0:
        yield f"Under the profiler a step took {humanise(overhead, unit)} longer."
    period = next((r for r in rows if _is_of(r, _STEP, "slow_period") and r.category == log.category), None)
    if period is not None and period.reason:
        yield f"{period.reason[:1].upper()}{period.reason[1:]}."


def _log_value(
    log: Row, rows: Sequence[Row], metric: MetricName, stat: str | None = None
) -> tuple[float | None, str]:
    """A metric's value and unit in one log; None where it has none."""
    matches = (r for r in rows if _is_of(r, metric, stat) and r.category == log.category and r.step is None)
    row = next(matches, None)
    return (None, "") if row is None else (row.value, row.unit)


def _settings(log: Row, inputs: SummaryInputs) -> Mapping[str, object]:
    """What the log states once; of the only log, by its file of steps."""
    files = [file.name for file in inputs.run.record.evidence if file.rows.get("log_steps")]
    file = log.category or (files[0] if len(files) == 1 else "")
    return inputs.view.settings.get(file, {})


def _log_row(log: Row, rows: Sequence[Row], settings: Mapping[str, object]) -> tuple[Cell, ...]:
    figures = (
        *((_STEP, stat) for stat in (None, "p5", "p95", "max")),
        *((_TOKENS, None), (_TOKENS, "per_device"), (_GOODPUT, None)),
    )
    work = (settings.get(name) for name in ("global_batch", "sequence_length"))
    return (
        log.category,
        *(_log_value(log, rows, metric, stat)[0] for metric, stat in figures),
        *(value if isinstance(value, int) else None for value in work),
    )


def _contradiction(log: Row, rows: Sequence[Row]) -> Iterator[str]:
    agreement = next((r for r in rows if _is_of(r, _AGREEMENT) and r.category == log.category), None)
    if agreement is not None and agreement.value is not None and agreement.value < 1:
        yield f"The card contradicts the log: {agreement.reason}."


def _notable_steps(log: Row, rows: Sequence[Row]) -> Iterator[str]:
    """Profiled and slow steps."""
    for category, words in (
        ("profiled", "Profiled"),
        ("profile saved", "Slowed by writing a profile"),
        ("slow", "Slow"),
    ):
        label = ": ".join(filter(None, (log.category, category)))
        steps = [r for r in rows if r.metric == _STEP and r.step is not None and r.category == label]
        if steps:
            named = [f"{r.step:,} ({humanise(r.value or 0.0, 's')})" for r in steps[:_MOST_STEPS]]
            more = f", {len(steps) - _MOST_STEPS} more" if len(steps) > _MOST_STEPS else ""
            yield f"{words}: step {', '.join(named)}{more}."


def _server_summary(rows: Sequence[Row]) -> Iterator[SourceSummary]:
    rates = {row.category or "generated": row.value for row in rows if _is_of(row, _TOKENS)}
    stated_rates = {what: rate for what, rate in rates.items() if rate is not None}
    if stated_rates:
        yield SourceSummary(
            kind=SERVER_LOG,
            heading="Throughput by the server's log",
            sentences=[
                f"The server's log states {rate:,.0f} {what} tokens/s in the mean."
                for what, rate in stated_rates.items()
            ],
            tables=[
                FigureTable(
                    subject="server",
                    title="Mean throughput",
                    columns=_SERVER_COLUMNS,
                    rows=[*stated_rates.items()],
                    detail=True,
                )
            ],
        )
