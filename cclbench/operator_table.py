# SPDX-License-Identifier: Apache-2.0
"""Operators of a run: time, FLOPs, bytes, distance from the roofline, by operator, module or phase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from cclbench.analyzers.metric import NotApplicable
from cclbench.analyzers.view.operator_sums import By, DeviceRoof, OperatorSums, RankSums, rank_sums
from cclbench.analyzers.view.per_rank import answer_or_reason, answers_by_rank
from cclbench.analyzers.view.rank_view import RankView
from cclbench.engine import SERIAL, Engine, Progress
from cclbench.ground.units import humanise
from cclbench.machine import Machine, machine_of
from cclbench.normalize.steps import POLICIES
from cclbench.record.manifest import GraphJoins
from cclbench.record.rank import Rank
from cclbench.record.run import Run
from cclbench.record.selection import Selection, Steps

if TYPE_CHECKING:
    from cclbench.card import Card

COLUMNS: Final = (
    *(
        "row",
        "key",
        "calls",
        "time_s",
        "share",
        "flops",
        "bytes",
        "flops_per_s",
        "bytes_per_s",
        "roofline_s",
        "gap_s",
    ),
    *("bound", "mark", "marked_time_s", "marked_roofline_s", "modelled_share", "why_not", "assumes"),
)
_NS_PER_S: Final = 10**9
_LOWER_BOUND: Final = "lower bound"
"""Words of an assumption of a cost that is not exact."""


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """The works of one key over all ranks and steps; unknown values are None.

    FLOPs, bytes and rates are of works with a cost model, `modelled_share` of the time; the gap is time above
    the roofline, of works whose least time is known and that are not faster than it.  Those are marked.
    """

    key: str
    calls: int
    time_ns: int
    share: float
    flops: float | None
    bytes: float | None
    flops_per_s: float | None
    bytes_per_s: float | None
    roofline_s: float | None
    gap_s: float | None
    bound: Literal["compute", "memory", "unknown"]
    modelled_share: float
    why_not: str | None
    """Why some works of the key have no cost."""
    operator: str | None
    family: str | None
    precision: str | None
    """The operator of all works, the family of their cost models, the precision of their arithmetic; None if
    there are several."""
    mark: Literal["cache", "above"] | None = None
    """Works are faster than their roofline: by no more than the device's cache may save, or by more, which a
    wrong formula, element type or peak explains."""
    marked_time_s: float = 0.0
    marked_roofline_s: float = 0.0
    """Time and roofline time of these works; in no other sum."""
    assumes: str | None = None
    """What the costs of some works assume besides the recorded arguments."""

    @property
    def time_s(self) -> float:
        """Σ device time of the works."""
        return self.time_ns / _NS_PER_S

    @property
    def operator_and_shapes(self) -> tuple[str, str]:
        """Operator and shapes of a row by shape: `aten::mm`, `bf16[16,559], bf16[559,64]`."""
        operator = self.operator or self.key
        return operator, self.key.removeprefix(operator).removeprefix("(").removesuffix(")")

    @property
    def roofline_share(self) -> float | None:
        """Least time divided by time, of works whose least time is known."""
        if self.roofline_s is None or self.gap_s is None or self.roofline_s + self.gap_s <= 0:
            return None
        return self.roofline_s / (self.roofline_s + self.gap_s)

    @property
    def marked_share(self) -> float | None:
        """Roofline time divided by time of the marked works; None where there are none."""
        return self.marked_roofline_s / self.marked_time_s if self.mark and self.marked_time_s else None


@dataclass(frozen=True, slots=True)
class OperatorTable:
    """A run's operators by one key."""

    run: str
    by: By
    window: str
    ranks: tuple[int, ...]
    windows: int
    """Number of steps, summed over these ranks."""
    time_ns: int
    """Σ device time of all works: of each the union of its device rows."""
    linked_share: float
    """Share of that time that an operator's call launched."""
    modelled_share: float
    """Share of the time in kernels other than communication for which FLOPs and bytes are known."""
    roof: DeviceRoof | None
    """Roofline of the first rank that has one."""
    rows: tuple[OperatorRow, ...]
    all_rows: int
    notes: tuple[str, ...]

    @property
    def time_s(self) -> float:
        """Σ device time of all works."""
        return self.time_ns / _NS_PER_S

    @property
    def table(self) -> list[dict[str, Any]]:
        """The rows with the columns of `COLUMNS`; `row` counts from 1."""
        return [
            {"row": number, **{name: getattr(row, name) for name in COLUMNS[1:]}}
            for number, row in enumerate(self.rows, start=1)
        ]

    @property
    def document(self) -> dict[str, Any]:
        """The document that `--json` prints."""
        names = ("run", "by", "window", "windows", "time_s", "linked_share", "modelled_share", "all_rows")
        values = {name: getattr(self, name) for name in names}
        listed = {"ranks": list(self.ranks), "rows": self.table, "notes": list(self.notes)}
        return {"schema": "operators.v1", **values, **listed}


def operator_costs(
    run: Run,
    by: By = "op",
    *,
    sort: str = "time",
    top: int | None = None,
    window: str = "steps",
    steps: Steps | None = None,
    ranks: Sequence[int] | None = None,
    engine: Engine = SERIAL,
    progress: Progress | None = None,
) -> OperatorTable:
    """The cost of a run's operators, grouped by `by` and sorted by `sort`, largest first: `top` rows or all.

    `UsageError` if no rank has work in the window.
    """
    (table,) = operator_costs_by(
        run,
        (by,),
        sort=sort,
        top=top,
        window=window,
        steps=steps,
        ranks=ranks,
        engine=engine,
        progress=progress,
    )
    return table


def has_operators(run: Run) -> bool:
    """Whether the trace of any rank records operator calls."""
    return any(entry.operators for entry in run.record.ranks)


def operator_costs_by(
    run: Run,
    keys: Sequence[By],
    *,
    sort: str = "time",
    top: int | None = None,
    window: str = "steps",
    steps: Steps | None = None,
    ranks: Sequence[int] | None = None,
    engine: Engine = SERIAL,
    progress: Progress | None = None,
) -> tuple[OperatorTable, ...]:
    """`operator_costs` by each of the keys, in their order, from one pass over the ranks."""
    Selection(window, steps, ranks).check(run)
    machine = machine_of(run).without_captures()
    work = partial(_rank_sums, tuple(keys), window, steps, run.card, machine)
    by_rank, notes = answers_by_rank(
        run, work, ranks, noun="operators", engine=engine, progress=progress, what="costing operators"
    )
    notes += graph_notes([entry.graphs for entry in run.record.ranks if entry.rank in by_rank])
    return tuple(_operator_table(run, by, by_rank, notes, sort, top) for by in keys)


def graph_notes(ranks: Sequence[GraphJoins]) -> list[str]:
    """How many launches of CUDA and HIP graphs are joined with their captures, what is lost, and why."""
    launches, joined, rows, joined_rows, time_ns, joined_ns, without_row = (
        sum(getattr(joins, name) for joins in ranks)
        for name in (
            *("launches", "joined", "rows", "joined_rows", "time_ns", "joined_ns"),
            "launches_without_row",
        )
    )
    if not launches:
        return []
    share = humanise(joined_ns / time_ns if time_ns else 0.0, "1")
    lost = [
        f"; {number:,} {words}"
        for number, words in (
            (rows - joined_rows, f"of their {rows:,} device rows have no certain operator"),
            (without_row, "captured launches have no device row"),
        )
        if number and joined
    ]
    refused = Counter[str]()
    for joins in ranks:
        refused.update(joins.refused)
    return [
        f"graphs: joined {joined:,} of {launches:,} launches with their capture, {share} of their device time"
        + "".join(lost),
        *(f"graphs: {number:,} launches not joined: {why}" for why, number in refused.most_common()),
    ]


def _operator_table(
    run: Run,
    by: By,
    by_rank: Mapping[int, RankSums],
    notes: Sequence[str],
    sort: str,
    top: int | None,
) -> OperatorTable:
    sums: dict[str, OperatorSums] = {}
    for rank in by_rank.values():
        for key, key_sums in rank.sums[by].items():
            sums.setdefault(key, OperatorSums()).add_sums(key_sums)
    total = sum(rank.time_ns for rank in by_rank.values())
    rows = sorted(
        (_operator_row(key, key_sums, total) for key, key_sums in sums.items()), key=partial(_sort_key, sort)
    )
    roof = next((rank.roof for rank in by_rank.values() if rank.roof), None)
    return OperatorTable(
        run=run.id,
        by=by,
        window=max((rank.policy for rank in by_rank.values()), key=POLICIES.index),
        ranks=tuple(by_rank),
        windows=sum(rank.windows for rank in by_rank.values()),
        time_ns=total,
        linked_share=_time_share(by_rank.values(), "linked_ns", "time_ns"),
        modelled_share=_time_share(by_rank.values(), "modelled_ns", "compute_ns"),
        roof=roof,
        rows=tuple(rows[:top]),
        all_rows=len(rows),
        notes=(
            *dict.fromkeys(
                f"no roofline: {rank.no_roofline}" for rank in by_rank.values() if rank.no_roofline
            ),
            *_mark_notes(sums.values(), total, roof),
            *_bound_notes(rows),
            *notes,
        ),
    )


def _mark_notes(sums: Collection[OperatorSums], total_ns: int, roof: DeviceRoof | None) -> Iterator[str]:
    """How many rows hold work that is faster than its roofline, of how much time, and what that means."""
    size = roof.cache_bytes if roof else None
    cache = f"the {humanise(size, 'B')} of the device's last cache" if size else "a cache"
    reasons = {
        "cached_ns": f"as {cache} may hold what they read and write",
        "above_ns": "a formula, an element type or a peak is wrong"
        + ("" if size else ", or a cache holds their operands: the catalog has no size of the device's"),
    }
    for column, reason in reasons.items():
        times = [time_ns for row in sums if (time_ns := getattr(row, column))]
        if times:
            share = humanise(sum(times) / total_ns, "1")
            yield (
                f"faster than the roofline, and in no sum of it: {len(times):,} row{'s'[: len(times) != 1]},"
                f" {share} of the time: {reason}"
            )


def _bound_notes(rows: Sequence[OperatorRow]) -> Iterator[str]:
    """Which rows' costs are lower bounds."""
    bounded = [row for row in rows if _LOWER_BOUND in (row.assumes or "")]
    if bounded:
        names = ", ".join(dict.fromkeys(row.operator or row.key for row in bounded))
        share = humanise(sum(row.share for row in bounded), "1")
        why = "lower bounds, as a length or size is not recorded (`assumes` of --json)"
        yield f"{why}: {names}, {share} of the time"


def _time_share(ranks: Iterable[RankSums], part: str, whole: str) -> float:
    listed = list(ranks)
    total = sum(getattr(rank, whole) for rank in listed)
    return float(sum(getattr(rank, part) for rank in listed) / total) if total else 0.0


def _sort_key(sort: str, row: OperatorRow) -> tuple[float, float, str]:
    """Sort key of a row: largest first, unknown values last."""
    value = {
        "time": row.time_s,
        "gap": row.gap_s,
        "flops": row.flops,
        "bytes": row.bytes,
        "calls": row.calls,
    }[sort]
    return -1.0 * (value if value is not None else -np.inf), -row.time_s, row.key


def _operator_row(key: str, sums: OperatorSums, total: int) -> OperatorRow:
    modelled_s = sums.modelled_ns / _NS_PER_S
    known = sums.modelled_ns > 0
    least = sums.roofline_ns / _NS_PER_S if sums.rooflined_ns else None
    marked_ns = sums.cached_ns + sums.above_ns
    bounded_ns = sums.compute_ns + sums.memory_ns
    return OperatorRow(
        key=key,
        calls=sums.calls,
        time_ns=sums.time_ns,
        share=sums.time_ns / total if total else 0.0,
        flops=sums.flops if known else None,
        bytes=sums.bytes if known else None,
        flops_per_s=sums.flops / modelled_s if known else None,
        bytes_per_s=sums.bytes / modelled_s if known else None,
        roofline_s=least,
        gap_s=None if least is None else sums.rooflined_ns / _NS_PER_S - least,
        bound="unknown" if not bounded_ns else "compute" if sums.compute_ns > sums.memory_ns else "memory",
        mark="above" if sums.above_ns else "cache" if sums.cached_ns else None,
        marked_time_s=marked_ns / _NS_PER_S,
        marked_roofline_s=sums.beaten_ns / _NS_PER_S,
        modelled_share=sums.modelled_ns / sums.time_ns if sums.time_ns else 0.0,
        why_not=sums.why_not,
        operator=_single_word(sums.operators),
        family=_single_word(sums.families),
        precision=_single_word(sums.precisions),
        assumes="; ".join(sorted(sums.assumptions)) or None,
    )


def _single_word(words: frozenset[str]) -> str | None:
    return next(iter(words)) if len(words) == 1 else None


def _rank_sums(
    keys: tuple[By, ...], window: str, steps: Steps | None, card: Card | None, machine: Machine, tables: Rank
) -> RankSums | NotApplicable:
    """One rank's sums, or why it has none."""
    view = RankView(tables, rank=tables.entry.rank, window=window, steps=steps, card=card, machine=machine)
    return answer_or_reason(view, lambda rank: rank_sums(rank, keys))
