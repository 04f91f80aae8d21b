# SPDX-License-Identifier: Apache-2.0
"""Operators of a run: time, FLOPs, bytes, distance from the roofline, by operator, module, kernel, ..."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, Unpack

import numpy as np

from cclbench.analyzers.metric import NotApplicable
from cclbench.analyzers.view.equal_work import EqualWork, merge_equal_work
from cclbench.analyzers.view.operator_rows import COLUMNS, OperatorRow, operator_row
from cclbench.analyzers.view.operator_sums import (
    NS_PER_S,
    DeviceRoof,
    OperatorSums,
    RankSums,
    UnmodelledKernel,
    rank_sums,
)
from cclbench.analyzers.view.ordered_calls import (
    CallPlace,
    PlacedCalls,
    merge_ordered_calls,
)
from cclbench.analyzers.view.per_rank import answer_or_reason, answers_by_rank
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.work_keys import BY, DEEPEST, By, Words, WorkFilter, parse_grouping, parse_keys
from cclbench.engine import SERIAL, Engine, Progress
from cclbench.ground.errors import UsageError
from cclbench.ground.units import humanise
from cclbench.machine import Machine, machine_of
from cclbench.normalize.steps import POLICIES
from cclbench.record.manifest import GraphJoins
from cclbench.record.rank import Rank
from cclbench.record.run import Run
from cclbench.record.selection import Selection, Steps

if TYPE_CHECKING:
    from cclbench.card import Card

MOST_UNMODELLED: Final = 20
"""Most kernels without a cost that a table lists."""


class TableOptions(TypedDict, total=False):
    """Options of a table; each has a default."""

    sort: str
    """Largest first: time (default), gap, wasted, flops, bytes or calls."""
    top: int | None
    """Only so many rows."""
    where: Sequence[str]
    """Filters that all must hold: `phase=backward` is equal to, `module~attn` contains, in any case."""
    tree: bool
    """By module or class: each with all modules within it; by several keys: a level for each."""
    window: str
    steps: Steps | None
    ranks: Sequence[int] | None
    in_order: bool
    """Also `OperatorTable.calls_in_order` and `equal_work`."""
    engine: Engine
    progress: Progress | None


@dataclass(frozen=True, slots=True)
class Unmodelled:
    """Kernels without FLOPs and bytes, alike in name, operator and reason, over all ranks and steps."""

    kernel: str | None
    """None where the CPU is the device."""
    operator: str | None
    """None where no operator call is linked to them."""
    calls: int
    time_s: float
    share: float
    """Of the device time of all work."""
    why_not: str | None


@dataclass(frozen=True, slots=True)
class OperatorTable:
    """A run's operators by one key, or by several."""

    run: str
    by: str
    window: str
    ranks: tuple[int, ...]
    windows: int
    """Number of steps, summed over these ranks."""
    time_ns: int
    """Σ device time of all works: of each the union of its device rows."""
    linked_share: float
    """Share of the chosen work's time that an operator's call launched."""
    modelled_share: float
    """Share of its time in kernels other than communication for which FLOPs and bytes are known."""
    roof: DeviceRoof | None
    """Roofline of the first rank that has one."""
    rows: tuple[OperatorRow, ...]
    all_rows: int
    notes: tuple[str, ...]
    where: tuple[str, ...] = ()
    """Filters that choose the work."""
    tree: bool = False
    """Whether rows hold those below them: modules within them, or the next of several keys."""
    chosen_ns: int = 0
    """Σ device time of the chosen work."""
    gap_s: float | None = None
    """Time above the roofline of all rows; None without a roofline."""
    largest_gap: OperatorRow | None = None
    """Row with most time above the roofline, also if it is not among `rows`; None of a tree."""
    unmodelled_ns: int = 0
    """Σ device time of the chosen compute work without FLOPs and bytes."""
    unmodelled: tuple[Unmodelled, ...] = ()
    """Its kernels, most time first."""
    calls_in_order: Mapping[CallPlace, PlacedCalls] = field(default_factory=dict)
    """All work by its place in the step, if asked for."""
    equal_work: tuple[EqualWork, ...] = ()
    """All work by what it computes, if asked for with that, of each capture."""

    @property
    def time_s(self) -> float:
        """Σ device time of all works."""
        return self.time_ns / NS_PER_S

    @property
    def chosen_s(self) -> float:
        """Σ device time of the chosen work."""
        return self.chosen_ns / NS_PER_S

    @property
    def unmodelled_s(self) -> float:
        """Σ device time of the chosen compute work without FLOPs and bytes."""
        return self.unmodelled_ns / NS_PER_S

    @property
    def keys(self) -> tuple[By, ...]:
        """The keys of a row."""
        return parse_keys(self.by)

    @property
    def columns(self) -> list[str]:
        """Names of the columns of `table`."""
        keys = self.keys
        return [name for name in COLUMNS if name not in BY or (len(keys) > 1 and name in keys)]

    @property
    def table(self) -> list[dict[str, Any]]:
        """The rows with `columns`."""
        return [row.values(self.keys) for row in self.rows]

    @property
    def document(self) -> dict[str, Any]:
        """The document that `--json` prints."""
        names = (
            *("run", "by", "window", "windows", "time_s", "linked_share", "modelled_share", "all_rows"),
            *("tree", "chosen_s", "gap_s", "unmodelled_s"),
        )
        values = {name: getattr(self, name) for name in names}
        listed = {"ranks": list(self.ranks), "rows": self.table, "notes": list(self.notes)}
        more = {"where": list(self.where), "unmodelled": [asdict(kernels) for kernels in self.unmodelled]}
        return {"schema": "operators.v1", **values, **listed, **more}


def operator_costs(run: Run, by: str = "op", **options: Unpack[TableOptions]) -> OperatorTable:
    """The cost of a run's operators by a key of `BY`, or by several (`op,module`).

    `UsageError` if no rank has work in the window.
    """
    (table,) = operator_costs_by(run, (by,), **options)
    return table


def has_operators(run: Run) -> bool:
    """Whether the trace of any rank records operator calls."""
    return any(entry.operators for entry in run.record.ranks)


def operator_costs_by(
    run: Run, keys: Sequence[str], **options: Unpack[TableOptions]
) -> tuple[OperatorTable, ...]:
    """`operator_costs` by each of the keys, in their order, from one pass over the ranks."""
    tree = options.get("tree", False)
    by_text, filters = parse_grouping(keys, options.get("where", ()), tree=tree)
    window, steps, ranks = options.get("window", "steps"), options.get("steps"), options.get("ranks")
    Selection(window, steps, ranks).check(run)
    machine = machine_of(run).without_captures()
    in_order = options.get("in_order", False)
    work = partial(_rank_sums, by_text, filters, tree, in_order, window, steps, run.card, machine)
    by_rank, notes = answers_by_rank(
        run,
        work,
        ranks,
        noun="operators",
        engine=options.get("engine", SERIAL),
        progress=options.get("progress"),
        what="costing operators",
    )
    if filters and not any(rank.chosen_ns for rank in by_rank.values()):
        hint = f"cclbench ops --by {filters[0].key} lists the values of {filters[0].key}"
        raise UsageError(f"no work matches {' and '.join(map(str, filters))}", where=run.id, hint=hint)
    notes += graph_notes([entry.graphs for entry in run.record.ranks if entry.rank in by_rank])
    sort, top = options.get("sort", "time"), options.get("top")
    calls = merge_ordered_calls([rank.calls_in_order for rank in by_rank.values()])
    works = [rank.equal_work for rank in by_rank.values() if rank.equal_work]
    equal = (merge_equal_work(works),) if works else ()
    tables = (_operator_table(run, by, by_rank, notes, sort, tree=tree) for by in by_text)
    return tuple(
        replace(
            table,
            where=tuple(map(str, filters)),
            rows=table.rows[:top],
            calls_in_order=calls,
            equal_work=equal,
        )
        for table in tables
    )


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
    run: Run, by: str, by_rank: Mapping[int, RankSums], notes: Sequence[str], sort: str, *, tree: bool
) -> OperatorTable:
    sums: dict[Words, OperatorSums] = {}
    kernels: dict[UnmodelledKernel, list[int]] = {}
    for rank in by_rank.values():
        for words, key_sums in rank.sums[by].items():
            sums.setdefault(words, OperatorSums()).add_sums(key_sums)
        for kernel, (calls, ns) in rank.unmodelled.items():
            counts = kernels.setdefault(kernel, [0, 0])
            counts[0], counts[1] = counts[0] + calls, counts[1] + ns
    total, chosen, linked, compute, modelled = (
        sum(getattr(rank, name) for rank in by_rank.values())
        for name in ("time_ns", "chosen_ns", "linked_ns", "compute_ns", "modelled_ns")
    )
    roof = next((rank.roof for rank in by_rank.values() if rank.roof), None)
    kind: Literal["path", "keys"] = "keys" if "," in by else "path"
    rows = [
        operator_row(words, key_sums, total, roof, tree=kind if tree else None)
        for words, key_sums in sums.items()
    ]
    rows.sort(key=partial(_sort_key, sort))
    ordered = _tree_order(rows, kind) if tree else rows
    disjoint = [row for row in rows if row.depth in (None, 1)]
    gaps = [row.gap_s for row in disjoint if row.gap_s is not None]
    unmodelled = sorted(kernels.items(), key=lambda pair: (-pair[1][1], *map(str, pair[0])))
    numbered = tuple(replace(row, row=number) for number, row in enumerate(ordered, start=1))
    with_gap = [row for row in numbered if row.gap_s and not tree]
    return OperatorTable(
        run=run.id,
        by=by,
        window=max((rank.policy for rank in by_rank.values()), key=POLICIES.index),
        ranks=tuple(by_rank),
        windows=sum(rank.windows for rank in by_rank.values()),
        time_ns=total,
        linked_share=linked / chosen if chosen else 0.0,
        modelled_share=modelled / compute if compute else 0.0,
        roof=roof,
        rows=numbered,
        all_rows=len(rows),
        notes=(
            *dict.fromkeys(
                f"no roofline: {rank.no_roofline}" for rank in by_rank.values() if rank.no_roofline
            ),
            *_hidden_notes(sum(rank.hidden_ns for rank in by_rank.values())),
            *_mark_notes([sums[row.words] for row in disjoint], total, roof),
            *notes,
        ),
        tree=tree,
        chosen_ns=chosen,
        gap_s=sum(gaps) if gaps else None,
        largest_gap=max(with_gap, key=lambda row: row.gap_s or 0.0, default=None),
        unmodelled_ns=compute - modelled,
        unmodelled=tuple(
            Unmodelled(kernel, operator, calls, ns / NS_PER_S, ns / total if total else 0.0, why)
            for (kernel, operator, why), (calls, ns) in unmodelled[:MOST_UNMODELLED]
        ),
    )


def _tree_order(rows: Sequence[OperatorRow], kind: Literal["path", "keys"]) -> list[OperatorRow]:
    """The rows of a tree, each before its children, which keep their order."""
    children: dict[Words, list[OperatorRow]] = {}
    places = [row.words if kind == "keys" else tuple(row.key.split("/", DEEPEST - 1)) for row in rows]
    for place, row in zip(places, rows, strict=True):
        children.setdefault(place[:-1], []).append(row)
    place_of = dict(zip(map(id, rows), places, strict=True))
    ordered: list[OperatorRow] = []
    pending = children.pop((), [])[::-1]
    while pending:
        row = pending.pop()
        ordered.append(row)
        pending += children.pop(place_of[id(row)], [])[::-1]
    return ordered


def _hidden_notes(hidden_ns: int) -> Iterator[str]:
    if hidden_ns:
        time = humanise(hidden_ns / NS_PER_S, "s")
        yield (
            f"transfers beside the device's core count with its time to issue and await them: {time} in which"
            " they run while it does other work, or awaits another one, are in no row"
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


def _sort_key(sort: str, row: OperatorRow) -> tuple[float, float, str]:
    """Sort key of a row: largest first, unknown values last."""
    value = {
        "time": row.time_s,
        "gap": row.gap_s,
        "wasted": row.wasted_flops,
        "flops": row.flops,
        "bytes": row.bytes,
        "calls": row.calls,
    }[sort]
    return -1.0 * (value if value is not None else -np.inf), -row.time_s, row.key


def _rank_sums(
    keys: tuple[str, ...],
    filters: tuple[WorkFilter, ...],
    tree: bool,
    in_order: bool,
    window: str,
    steps: Steps | None,
    card: Card | None,
    machine: Machine,
    tables: Rank,
) -> RankSums | NotApplicable:
    """One rank's sums, or why it has none."""
    view = RankView(tables, rank=tables.entry.rank, window=window, steps=steps, card=card, machine=machine)
    return answer_or_reason(view, lambda rank: rank_sums(rank, keys, filters, tree=tree, in_order=in_order))
