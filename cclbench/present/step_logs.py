# SPDX-License-Identifier: Apache-2.0
"""Summary of a job's steps by its log: sentences for a run that has no trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from cclbench.ground.units import humanise
from cclbench.record.metric_name import MetricName, metric_name
from cclbench.record.rows import Row

_STEP: Final = metric_name("log.step")
_TOKENS: Final = metric_name("log.tokens")
_GOODPUT: Final = metric_name("goodput.training")
_AGREEMENT: Final = metric_name("log.card_agreement")
_OVERHEAD: Final = metric_name("log.profiler_overhead")
_MOST_LOGS: Final = 8
_MOST_STEPS: Final = 4


def summary_of_log(rows: Sequence[Row]) -> list[str]:
    """Steps, throughput and what is slow, in sentences, one list for all logs; empty without a log."""
    logs = [row for row in rows if _is_of(row, _STEP) and row.step is None and row.value is not None]
    sentences = list[str]()
    for log in logs[:_MOST_LOGS]:
        sentences += _sentences(log, rows)
    if len(logs) > _MOST_LOGS:
        sentences.append(f"{len(logs) - _MOST_LOGS} more logs: cclbench metrics, report.")
    return sentences or _server_sentences(rows)


def _is_of(row: Row, metric: MetricName, stat: str | None = None) -> bool:
    return row.metric == metric and row.rank is None and row.stat == stat


def _sentences(log: Row, rows: Sequence[Row]) -> Iterator[str]:
    def value_of(metric: MetricName, stat: str | None = None) -> str | None:
        found = (r for r in rows if _is_of(r, metric, stat) and r.category == log.category and r.step is None)
        row = next(found, None)
        return humanise(row.value, row.unit) if row is not None and row.value is not None else None

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
    agreement = next((r for r in rows if _is_of(r, _AGREEMENT) and r.category == log.category), None)
    if agreement is not None and agreement.value is not None and agreement.value < 1:
        yield f"The card contradicts the log: {agreement.reason}."
    yield from _notable_steps(log, rows)
    overhead = next((r for r in rows if _is_of(r, _OVERHEAD, "logged") and r.category == log.category), None)
    if overhead is not None and (overhead.value or 0.0) > 0:
        yield f"Under the profiler a step took {humanise(overhead.value or 0.0, '1')} longer."
    period = next((r for r in rows if _is_of(r, _STEP, "slow_period") and r.category == log.category), None)
    if period is not None and period.reason:
        yield f"{period.reason[:1].upper()}{period.reason[1:]}."


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


def _server_sentences(rows: Sequence[Row]) -> list[str]:
    rates = {row.category: row for row in rows if _is_of(row, _TOKENS) and row.value is not None}
    return [
        f"The server's log states {row.value:,.0f} {category or 'generated'} tokens/s in the mean."
        for category, row in rates.items()
    ]
