# SPDX-License-Identifier: Apache-2.0
"""The verdict on sources without steps, in words, from the ratios of their tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from cclbench.comparison.comparison import Versus
from cclbench.comparison.summaries import TableComparison
from cclbench.ground.units import humanise
from cclbench.source_summaries.job_logs import DEVICE_TOKENS, JOB_LOG, TOKENS


def with_table_words(
    versus: Versus, tables: Sequence[TableComparison], differences: Sequence[str] = ()
) -> Versus:
    """The verdict on sources without steps: the ratios of the first common table that has any.

    Logs of jobs whose work has `differences` are compared by tokens per second.  A verdict by a measured
    rate is unchanged, and one on subjects without a common table.
    """
    pair_tables = [table for table in tables if (table.base, table.other) == (versus.base, versus.other)]
    if versus.ratio is not None:
        return versus
    logs = [table for table in pair_tables if table.kind == JOB_LOG]
    if differences and logs:
        rate = next(filter(None, map(_rate_words, logs)), "The logs do not both state tokens per second.")
        reasons = ", ".join(differences)
        return replace(
            versus, words=f"Their work differs ({reasons}), so step times do not rank them. {rate}"
        )
    words = next((table.ratio_words for table in pair_tables if table.ratio_words), None)
    if words is None:
        return versus
    chance = "It is one measurement of each: whether the difference is chance is unknown."
    return replace(versus, outcome="undecided", words=f"{words} {chance}")


def _rate_words(table: TableComparison) -> str | None:
    """The ratio of tokens per second of a device, else of the whole job."""
    names = [column.name for column in table.columns]
    for name, suffix in ((DEVICE_TOKENS, " and device"), (TOKENS, "")):
        if ratios := table.ratios_of(names.index(name)):
            factor = humanise(median(ratios), "ratio")
            return f"{table.other}'s tokens per second{suffix} are {factor} {table.base}'s."
    return None
