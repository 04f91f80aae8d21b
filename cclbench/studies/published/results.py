# SPDX-License-Identifier: Apache-2.0
"""A published row as rows of `schema.RESULTS`: one per column, and the throughput derived from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from cclbench.analyzers.aliases import ALIASES
from cclbench.analyzers.metric import METRICS
from cclbench.record.metric_name import metric_name
from cclbench.record.rows import Row
from cclbench.studies.published.columns import COLUMNS
from cclbench.studies.published.defects import defects_of
from cclbench.studies.published.leaderboard import PublishedRow

_TOKENS: Final = metric_name("throughput.tokens")
_TOKENS_PER_DEVICE: Final = metric_name("throughput.tokens_per_device")


def result_rows(row: PublishedRow, publisher: str) -> list[Row]:
    """The numbers of `publisher` as our metrics, flagged with defects; a missing one has a reason."""
    return [*(_column_row(row, column, publisher) for column in COLUMNS), *_throughput_rows(row, publisher)]


def published_row(
    publisher: str, metric: str, value: float | None, reason: str | None = None, *, stat: str | None = None
) -> Row:
    """A published figure of a benchmark as a whole as a row of our metric; without a value, why."""
    return msgspec.structs.replace(_result_row(metric, value, reason, publisher, window="trace"), stat=stat)


def _column_row(row: PublishedRow, column: str, publisher: str) -> Row:
    alias, conversion = ALIASES[column], COLUMNS[column]
    number, defects = row.metrics.get(column), list(defects_of(row, column))
    value, remark = None, row.remarks.get(column)
    if number is None:
        explanation = remark or (
            "its tool gave no number" if column in row.metrics else "not a column for this kind of trace"
        )
        reason: str | None = f"not published: {explanation}"
    elif instead := [defect.words for defect in defects if defect.no_number]:
        reason = instead[0]
    else:
        value, reason = (
            conversion.convert_number(number),
            "; ".join(filter(None, (remark, *(defect.words for defect in defects)))) or None,
        )
    collective = alias.collectives[-1] if alias.collectives else None
    window = conversion.window_policy(row)
    return _result_row(alias.metric, value, reason, publisher, window=window, collective=collective)


def _throughput_rows(row: PublishedRow, publisher: str) -> Iterator[Row]:
    """Tokens per second, which is not published, from step time and batch size."""
    step, devices = row.metrics.get("avg_step_time"), row.whole_number("total_count")
    batch, length = row.whole_number("batch_size"), row.whole_number("seq_len")
    per_second = None
    if row.text("phase") != "training":
        reason = "a step is an engine iteration, with an unknown number of tokens"
    elif not (step and batch and length and devices):
        reason = "not published: step time, batch size, sequence length or number of devices"
    else:
        per_second = batch * length / step
        reason = "from the published step time, batch size and sequence length"
    reason = "; ".join(filter(None, (reason, row.work_basis)))
    for metric, share in ((_TOKENS, 1), (_TOKENS_PER_DEVICE, devices or 1)):
        yield _result_row(metric, per_second and per_second / share, reason, publisher)


def _result_row(
    metric: str,
    value: float | None,
    reason: str | None,
    publisher: str,
    *,
    window: str = "annotations",
    collective: str | None = None,
) -> Row:
    definition = METRICS.get(metric)
    return Row(
        metric=definition.name,
        value=value,
        unit=definition.unit,
        status="not_applicable" if value is None else "ok",
        provenance=None if value is None else "published",
        reason=reason,
        better=definition.better,
        window=window,
        version=definition.version,
        source=publisher,
        collective=collective,
    )
