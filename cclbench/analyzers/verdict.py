# SPDX-License-Identifier: Apache-2.0
"""The verdict on exposed communication: is it the network, or the balance of the ranks?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cclbench.record.rows import Row
from cclbench.units import humanise


def verdict(rows: Sequence[Row], caveat: str | None = None) -> str | None:
    """A sentence on which of waiting and transfer makes up most of a run's exposed communication.

    None where the rows hold no exposed communication of the whole run, or no split of it.  `caveat` is what
    the run says of its process groups.
    """
    own = {row.metric: row for row in rows if row.rank is None and not row.narrowed}
    exposed, wait, transfer, unmatched = (
        _number(own.get(f"time.exposed_{part}")) for part in ("comm", "wait", "transfer", "unmatched")
    )
    if not exposed or wait is None or transfer is None:
        return None
    rest = unmatched or 0.0
    told = f"{_share(wait, exposed)} is waiting and {humanise(transfer, 's')} is transfer"
    if rest:
        told += f", and of {humanise(rest, 's')} nobody can tell"
    straggler = own.get("balance.straggler_rank")
    if rest > max(wait, transfer):
        judged = "most of it is not matched across ranks"
    elif wait > transfer:
        judged = "a balance problem, not the network"
        if straggler and straggler.has_value:
            judged += f"; {straggler.reason}"
    else:
        judged = "a network problem more than one of balance"
    step = " per step" if own["time.exposed_comm"].window == "steps" else ""
    if caveat and caveat not in judged:
        judged += f"; {caveat}"
    said = f"Of {humanise(exposed, 's')} exposed communication{step}, {told}: {judged}."
    return f"{said} {_hedge(own)}".strip()


def _hedge(own: Mapping[str, Row]) -> str:
    """What keeps compute and communication from being told apart, in a sentence; empty where nothing does."""
    row = own["time.exposed_comm"]
    return f"But {row.reason}: more of it may communicate." if row.status == "partial" else ""


def _share(part: float, whole: float) -> str:
    return f"{humanise(part, 's')} ({part / whole:.0%})".replace("%", " %")


def _number(row: Row | None) -> float | None:
    return row.value if row and row.has_value else None
