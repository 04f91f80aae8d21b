# SPDX-License-Identifier: Apache-2.0
"""The calls of a run that a micro-benchmark reproduces, by a row of the operators' table or by operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Unpack

import numpy as np

from cclbench.analyzers.metric import NotApplicable
from cclbench.analyzers.view.operator_calls import OperatorCalls, ids_of
from cclbench.analyzers.view.per_rank import answer_or_reason, answers_by_rank
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.work_keys import By, Words, WorkFilter, row_entries
from cclbench.analyzers.view.works import Works
from cclbench.engine import SERIAL, Engine, Progress
from cclbench.ground.errors import UsageError
from cclbench.ground.intervals import Index, Int64, Mask
from cclbench.machine import Machine, machine_of
from cclbench.normalize.operators import nearest_flagged
from cclbench.operator_table import TableOptions, operator_costs
from cclbench.record.facts import TraceFacts
from cclbench.record.rank import Rank
from cclbench.record.run import Run
from cclbench.record.selection import Steps
from cclbench.reproduction.arguments import RecordedTexts

if TYPE_CHECKING:
    from cclbench.card import Card

Choice = Callable[[Works], Mask]
_TEXTS: Final = RecordedTexts._fields


@dataclass(frozen=True, slots=True, eq=False)
class RecordedCalls:
    """Calls of an operator with equal arguments that launched equal kernels, on all chosen ranks.

    `texts` is None for kernels that no operator call launched; `operator` is then the kernel's name.
    """

    run: str
    operator: str
    texts: RecordedTexts | None
    kernels: tuple[str, ...]
    """Kernels that a call launched, in order, without those of calls that are works themselves."""
    times_ns: Int64
    """Device time of each call, with that of the calls that it made; shape (calls,)."""
    facts: TraceFacts
    """Of the trace of the first rank that has the call."""

    @property
    def time_ns(self) -> int:
        """Σ device time of the calls."""
        return int(self.times_ns.sum())


def calls_of_row(run: Run, row: int, by: str = "op", **options: Unpack[TableOptions]) -> RecordedCalls:
    """The calls with most time among those of a row of `operator_costs` with the same options, rows from 1.

    `UsageError` if there is no such row.
    """
    table = operator_costs(run, by, **options)
    if not 1 <= row <= len(table.rows):
        raise UsageError(f"no row {row}: the table has {len(table.rows):,}", where=run.id)
    filters = tuple(map(WorkFilter.parse, table.where))
    choose = partial(_works_of_row, table.keys, filters, table.rows[row - 1].words, table.tree)
    alike = recorded_calls(
        run,
        choose,
        window=options.get("window", "steps"),
        steps=options.get("steps"),
        ranks=options.get("ranks"),
        engine=options.get("engine", SERIAL),
        progress=options.get("progress"),
    )
    return max(alike, key=lambda calls: calls.time_ns)


def recorded_calls(
    run: Run,
    choose: Choice,
    *,
    window: str = "steps",
    steps: Steps | None = None,
    ranks: Sequence[int] | None = None,
    engine: Engine = SERIAL,
    progress: Progress | None = None,
) -> list[RecordedCalls]:
    """The chosen calls, those with equal arguments and kernels together; `choose` is called for each rank."""
    machine = machine_of(run).without_captures()
    work = partial(_rank_calls, choose, window, steps, run.card, machine, run.id)
    by_rank, _ = answers_by_rank(
        run, work, ranks, noun="operators", engine=engine, progress=progress, what="finding calls"
    )
    return _joined(calls for alike in by_rank.values() for calls in alike)


def works_of_operator(operator: str, works: Works) -> Mask:
    """The calls of an operator."""
    return works.of_names({operator}) & works.is_linked


def _works_of_row(
    keys: Sequence[By],
    filters: Sequence[WorkFilter],
    words: Words,
    tree: bool,
    works: Works,
) -> Mask:
    """The works of a row of the operators' table."""
    mask = np.zeros(len(works), np.bool_)
    mask[row_entries(works, keys, filters, words, tree=tree).work] = True
    return mask


def _joined(several: Iterable[RecordedCalls]) -> list[RecordedCalls]:
    """Equal calls of several ranks together."""
    joined: dict[tuple[object, ...], RecordedCalls] = {}
    for calls in several:
        same = (calls.operator, calls.texts, calls.kernels)
        first = joined.get(same)
        times = calls.times_ns if first is None else np.append(first.times_ns, calls.times_ns)
        joined[same] = replace(first or calls, times_ns=times)
    return list(joined.values())


def _rank_calls(
    choose: Choice,
    window: str,
    steps: Steps | None,
    card: Card | None,
    machine: Machine,
    run: str,
    tables: Rank,
) -> list[RecordedCalls] | NotApplicable:
    """One rank's chosen calls, or why it has no work."""
    view = RankView(tables, rank=tables.entry.rank, window=window, steps=steps, card=card, machine=machine)
    return answer_or_reason(view, lambda rank: _view_calls(rank, choose, run))


def _view_calls(view: RankView, choose: Choice, run: str) -> list[RecordedCalls]:
    works = view.works
    chosen = np.flatnonzero(choose(works))
    calls = OperatorCalls(view)
    place = calls.ids.index_of(works.operator[chosen])
    times: Int64 = works.time_ns[chosen] + _time_inside(view, calls, place)
    kind = works.kind[chosen]
    texts = view.operators(*_TEXTS)
    calls_by_kind = []
    for number in np.unique(kind).tolist():
        members = np.flatnonzero(kind == number)
        call, first = works.kinds[number].call, int(place[members[0]])
        calls_by_kind.append(
            RecordedCalls(
                run=run,
                operator=call.name,
                texts=None if first < 0 else RecordedTexts(*(texts[name][first].as_py() for name in _TEXTS)),
                kernels=call.kernels,
                times_ns=times[members],
                facts=view.facts,
            )
        )
    return calls_by_kind


def _time_inside(view: RankView, calls: OperatorCalls, place: Index) -> Int64:
    """Device time of calls made by each of the calls at `place` that are works of their own; 0 for none."""
    is_chosen = np.zeros(len(calls), np.bool_)
    is_chosen[place[place >= 0]] = True
    parents = calls.ids.index_of(ids_of(view.operators("parent")["parent"]))
    holder = nearest_flagged(parents, is_chosen)
    device_ns = view.operators("device_ns")["device_ns"].to_numpy()
    inside = np.flatnonzero((holder >= 0) & (calls.owner != holder) & (device_ns > 0))
    total = np.zeros(len(calls) + 1, np.int64)
    np.add.at(total, holder[inside], device_ns[inside])
    return total[place]
