# SPDX-License-Identifier: Apache-2.0
"""What rows say where the process groups that they rest on are stated by no trace."""

from __future__ import annotations

from collections.abc import Sequence

from cclbench.analyzers.metric import METRICS
from cclbench.record.rows import Row


def with_caveat(rows: Sequence[Row], caveat: str | None) -> list[Row]:
    """The rows, those with a number that rests on process groups with the caveat after their reason.

    They are the rows of a group and all rows of metrics that have groups or matching among their inputs.
    """
    if caveat is None:
        return list(rows)
    return [
        row.noted(caveat)
        if row.value is not None and (row.group is not None or METRICS.get(row.metric).rests_on_groups)
        else row
        for row in rows
    ]
