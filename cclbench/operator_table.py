# SPDX-License-Identifier: Apache-2.0
"""Operators of a run: time, FLOPs, bytes, distance from the roofline, by operator, module or phase."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np

from cclbench.analyzers.metric import NotApplicable
from cclbench.analyzers.view.operators import Float64, Kind, Works
from cclbench.analyzers.view.platform import accelerator, hbm_bytes_per_s, peak_flops_per_s
from cclbench.analyzers.view.rank_view import RankView
from cclbench.classify import base_name
from cclbench.engine import SERIAL, Engine, Progress
from cclbench.errors import UsageError
from cclbench.intervals import Int64, Mask
from cclbench.machine import Machine, machine_of
from cclbench.normalize.steps import POLICIES
from cclbench.operators.call import Call, Tensor
from cclbench.record.run import Rank, Run
from cclbench.record.selection import Selection, Steps
from cclbench.schema import CATEGORIES, PHASES, group_id

if TYPE_CHECKING:
    from cclbench.card import Card

By = Literal["op", "shape", "module", "phase", "kernel", "category"]
BY: Final[tuple[By, ...]] = ("op", "shape", "module", "phase", "kernel", "category")
SORTS: Final = ("time", "gap", "flops", "bytes", "calls")
COLUMNS: Final = (
    *(
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
    *("bound", "modelled_share", "why_not"),
)
NO_MODULE: Final = "none"
"""The key of what no module launched."""
_NS_PER_S: Final = 10**9


@dataclass(slots=True)
class _Sums:
    """What the works of one key add up to; FLOPs and bytes of those that have a model."""

    calls: int = 0
    time_ns: int = 0
    modelled_ns: int = 0
    flops: float = 0.0
    bytes: float = 0.0
    rooflined_ns: int = 0
    """Time of the works whose least time is known."""
    roofline_ns: float = 0.0
    compute_ns: int = 0
    """Time of the works that are bound by arithmetic."""
    memory_ns: int = 0
    operators: frozenset[str] = frozenset()
    families: frozenset[str] = frozenset()
    precisions: frozenset[str] = frozenset()
    why_not: str | None = None

    def add(self, other: _Sums) -> None:
        """Add another rank's."""
        for one in fields(self):
            if one.name == "why_not":
                self.why_not = self.why_not or other.why_not
            elif one.name in _SETS:
                setattr(self, one.name, getattr(self, one.name) | getattr(other, one.name))
            else:
                setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


_SETS: Final = ("operators", "families", "precisions")


@dataclass(frozen=True, slots=True)
class Roof:
    """What an accelerator does at most: bytes/s of its memory, FLOP/s by precision."""

    memory: float
    peaks: Mapping[str, float]
    """Of the precisions that occur and whose peak is known."""


class _OfRank(NamedTuple):
    """One rank's sums by key, for each thing that keys are of, and what they are of."""

    sums: dict[By, dict[str, _Sums]]
    policy: str
    windows: int
    time_ns: int
    linked_ns: int
    compute_ns: int
    modelled_ns: int
    roof: Roof | None
    no_roofline: str | None


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """The works of one key over all ranks and steps; what is not known is None.

    FLOPs, bytes and the rates are of the works that have a cost model, `modelled_share` of the time; the gap
    is time above the roofline, of those whose least time is known.
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
    """The operator that all of its works are of, the family of their cost models, the precision of their
    arithmetic; None of several."""

    @property
    def time_s(self) -> float:
        """Σ device time of the works."""
        return self.time_ns / _NS_PER_S

    @property
    def parts(self) -> tuple[str, str]:
        """The operator and the shapes that a row by both is of: `aten::mm`, `bf16[16,559], bf16[559,64]`."""
        operator = self.operator or self.key
        return operator, self.key.removeprefix(operator).removeprefix("(").removesuffix(")")

    @property
    def reached(self) -> float | None:
        """Least time over time, of the works whose least time is known."""
        if self.roofline_s is None or self.gap_s is None or self.roofline_s + self.gap_s <= 0:
            return None
        return self.roofline_s / (self.roofline_s + self.gap_s)


@dataclass(frozen=True, slots=True)
class OperatorTable:
    """A run's operators by one key."""

    run: str
    by: By
    window: str
    ranks: tuple[int, ...]
    windows: int
    """Steps of these ranks, added up."""
    time_ns: int
    """Σ device time of all works: of each the union of its device rows."""
    linked_share: float
    """Of that time, what an operator's call launched."""
    modelled_share: float
    """Of the time in kernels that are not communication, what has FLOPs and bytes."""
    roof: Roof | None
    """Of the first rank that knows it."""
    rows: tuple[OperatorRow, ...]
    all_rows: int
    notes: tuple[str, ...]

    @property
    def time_s(self) -> float:
        """Σ device time of all works."""
        return self.time_ns / _NS_PER_S

    @property
    def table(self) -> list[dict[str, Any]]:
        """The rows with the columns of `COLUMNS`."""
        return [{name: getattr(row, name) for name in COLUMNS} for row in self.rows]

    @property
    def document(self) -> dict[str, Any]:
        """All of it, as `--json` prints it."""
        own = ("run", "by", "window", "windows", "time_s", "linked_share", "modelled_share", "all_rows")
        told = {name: getattr(self, name) for name in own}
        listed = {"ranks": list(self.ranks), "rows": self.table, "notes": list(self.notes)}
        return {"schema": "operators.v1", **told, **listed}


def operators(
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
    """What a run's operators cost, by `by`: rows with most of what they are sorted by first, `top` or all.

    `UsageError` where no rank has work in the window.
    """
    (found,) = operators_by(
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
    return found


def has_operators(run: Run) -> bool:
    """Whether any rank's trace records calls of operators."""
    return any(run.rank(rank).operator_count for rank in run.ranks)


def operators_by(
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
    """`operators` by each of the keys, in their order, from one pass over the ranks."""
    Selection(window, steps, ranks).check(run)
    wanted = run.ranks if ranks is None else sorted(set(ranks))
    machine = machine_of(run).without_captures()
    work = partial(_of_rank, tuple(keys), window, steps, run.card, machine)
    answers = engine.map(
        work, [run.rank(rank) for rank in wanted], progress=progress, what="costing operators"
    )
    found = {rank: one for rank, one in zip(wanted, answers, strict=True) if isinstance(one, _OfRank)}
    silent: dict[str, list[int]] = {}
    for rank, one in zip(wanted, answers, strict=True):
        if isinstance(one, str):
            silent.setdefault(one, []).append(rank)
    if not found:
        raise UsageError(f"no operators: {'; '.join(silent) or 'it has no trace'}", where=run.id)
    return tuple(_table(run, by, found, silent, sort, top) for by in keys)


def _table(
    run: Run,
    by: By,
    found: Mapping[int, _OfRank],
    silent: Mapping[str, Sequence[int]],
    sort: str,
    top: int | None,
) -> OperatorTable:
    sums: dict[str, _Sums] = {}
    for one in found.values():
        for key, own in one.sums[by].items():
            sums.setdefault(key, _Sums()).add(own)
    total = sum(one.time_ns for one in found.values())
    rows = sorted((_row(key, own, total) for key, own in sums.items()), key=partial(_place, sort))
    return OperatorTable(
        run=run.id,
        by=by,
        window=max((one.policy for one in found.values()), key=POLICIES.index),
        ranks=tuple(found),
        windows=sum(one.windows for one in found.values()),
        time_ns=total,
        linked_share=_share(found.values(), "linked_ns", "time_ns"),
        modelled_share=_share(found.values(), "modelled_ns", "compute_ns"),
        roof=next((one.roof for one in found.values() if one.roof), None),
        rows=tuple(rows[:top]),
        all_rows=len(rows),
        notes=(
            *dict.fromkeys(f"no roofline: {one.no_roofline}" for one in found.values() if one.no_roofline),
            *(f"rank {group_id(tuple(listed))} left out: {why}" for why, listed in silent.items()),
        ),
    )


def _share(found: Iterable[_OfRank], part: str, whole: str) -> float:
    listed = list(found)
    total = sum(getattr(one, whole) for one in listed)
    return float(sum(getattr(one, part) for one in listed) / total) if total else 0.0


def _place(sort: str, row: OperatorRow) -> tuple[float, float, str]:
    """Where a row stands: most first, what is not known last."""
    value = {
        "time": row.time_s,
        "gap": row.gap_s,
        "flops": row.flops,
        "bytes": row.bytes,
        "calls": row.calls,
    }[sort]
    return -1.0 * (value if value is not None else -np.inf), -row.time_s, row.key


def _row(key: str, own: _Sums, total: int) -> OperatorRow:
    modelled_s = own.modelled_ns / _NS_PER_S
    known = own.modelled_ns > 0
    least = own.roofline_ns / _NS_PER_S if own.rooflined_ns else None
    told = own.compute_ns + own.memory_ns
    return OperatorRow(
        key=key,
        calls=own.calls,
        time_ns=own.time_ns,
        share=own.time_ns / total if total else 0.0,
        flops=own.flops if known else None,
        bytes=own.bytes if known else None,
        flops_per_s=own.flops / modelled_s if known else None,
        bytes_per_s=own.bytes / modelled_s if known else None,
        roofline_s=least,
        gap_s=None if least is None else own.rooflined_ns / _NS_PER_S - least,
        bound="unknown" if not told else "compute" if own.compute_ns > own.memory_ns else "memory",
        modelled_share=own.modelled_ns / own.time_ns if own.time_ns else 0.0,
        why_not=own.why_not,
        operator=_only(own.operators),
        family=_only(own.families),
        precision=_only(own.precisions),
    )


def _only(words: frozenset[str]) -> str | None:
    return next(iter(words)) if len(words) == 1 else None


def _of_rank(
    keys: tuple[By, ...], window: str, steps: Steps | None, card: Card | None, machine: Machine, tables: Rank
) -> _OfRank | str:
    """One rank's sums, or why it has none."""
    view = RankView(tables, rank=tables.entry.rank, window=window, steps=steps, card=card, machine=machine)
    try:
        works = view.works
    except NotApplicable as why:
        return str(why)
    times = _times(view, works)
    computes = works.computes
    return _OfRank(
        sums={by: _sums(works, times, by) for by in keys},
        policy=view.windows.policy,
        windows=len(view.windows),
        time_ns=int(works.time_ns.sum()),
        linked_ns=int(works.time_ns[works.linked].sum()),
        compute_ns=int(works.time_ns[computes].sum()),
        modelled_ns=int(works.time_ns[computes & works.modelled].sum()),
        roof=times.roof,
        no_roofline=times.no_roofline,
    )


class _Times(NamedTuple):
    """The time of each work's arithmetic at the peak, its least time; the peaks, or why there are none."""

    arithmetic: Float64
    least: Float64
    roof: Roof | None = None
    no_roofline: str | None = None


def _sums(works: Works, times: _Times, by: By) -> dict[str, _Sums]:
    """One rank's sums by key."""
    arithmetic, least = times.arithmetic, times.least
    key, keys = _keys(works, by)
    sums = [_Sums() for _ in keys]
    columns = {
        "calls": np.ones(len(works)),
        "time_ns": works.time_ns,
        "modelled_ns": np.where(works.modelled, works.time_ns, 0),
        "flops": np.where(works.modelled, works.flops, 0),
        "bytes": np.where(works.modelled, works.bytes, 0),
        "rooflined_ns": np.where(np.isnan(least), 0, works.time_ns),
        "roofline_ns": np.nan_to_num(least),
        "compute_ns": np.where(~np.isnan(least) & (arithmetic >= least), works.time_ns, 0),
        "memory_ns": np.where(~np.isnan(least) & (arithmetic < least), works.time_ns, 0),
    }
    if by == "kernel":
        # A kernel has its own time; what its operator costs is its own only where that launched nothing else.
        alone = works.kernels[works.rows.work] == 1
        columns = {name: np.where(alone, values[works.rows.work], 0) for name, values in columns.items()}
        columns |= {"calls": np.ones(len(key)), "time_ns": works.rows.ends - works.rows.starts}
    for name, values in columns.items():
        whole = name == "calls" or (name.endswith("_ns") and name != "roofline_ns")
        added = np.bincount(key, values.astype(np.float64), len(keys)).tolist()
        for own, amount in zip(sums, added, strict=True):
            setattr(own, name, int(amount) if whole else amount)
    if by == "kernel":
        return dict(zip(keys, sums, strict=True))
    # What works of one key and one kind have in common is told once.
    pair = key * len(works.kinds) + works.kind
    for work in _first(pair, np.ones(len(works), np.bool_)):
        own, kind = sums[key[work]], works.kinds[works.kind[work]]
        own.operators |= {_name(kind)}
        own.families |= {kind.family} if kind.family else set()
        own.precisions |= {kind.cost.precision} if kind.cost and kind.cost.precision else set()
    for work in _first(pair, ~works.modelled & works.computes):
        own = sums[key[work]]
        own.why_not = own.why_not or works.kinds[works.kind[work]].why_not
    return dict(zip(keys, sums, strict=True))


def _first(pair: Int64, chosen: Mask) -> list[int]:
    """Index of the first chosen entry of each value, in order."""
    at = np.flatnonzero(chosen)
    _, first = np.unique(pair[at], return_index=True)
    return [int(index) for index in np.sort(at[first])]


def _name(kind: Kind) -> str:
    """What a kind is called: its operator, or the kernel without its arguments."""
    return kind.call.name if kind.linked else base_name(kind.call.name)


def _times(view: RankView, works: Works) -> _Times:
    unknown = np.full(len(works), np.nan)
    try:
        peaks, memory = accelerator(view).peak_flops_per_s, hbm_bytes_per_s(view)
    except NotApplicable as why:
        return _Times(unknown, unknown, no_roofline=str(why))
    try:
        stated_peak: float | None = peak_flops_per_s(view)
    except NotApplicable:
        stated_peak = None
    # What is copied to or from the host crosses a link, not the device's memory.
    least = np.where(works.computes, works.roofline_ns(peaks, stated_peak, memory), np.nan)
    used = sorted({word for word in works.precision if word})
    known = {word: peak for word in used if (peak := peaks.get(word))}
    return _Times(works.compute_ns(peaks, stated_peak), least, Roof(memory, known))


def _keys(works: Works, by: By) -> tuple[Int64, list[str]]:
    """The key of each work, of each device row by kernel, as a number; and the keys."""
    if by == "kernel":
        words = [base_name(name or "") for name in works.rows.names]
        if not len(works.rows.name) and len(works):
            raise UsageError("a CPU runs no kernels: ask --by op")
        return _numbered(words, works.rows.name)
    if by == "module":
        return _numbered([word or NO_MODULE for word in works.modules], works.module)
    if by == "phase":
        return _numbered(list(PHASES), works.phase)
    if by == "category":
        return _numbered(list(CATEGORIES), works.category)
    names = [_name(kind) for kind in works.kinds]
    if by == "shape":
        told = (f"{name}({_shapes(kind.call)})" for name, kind in zip(names, works.kinds, strict=True))
        names = [one.removesuffix("()") for one in told]
    return _numbered(names, works.kind)


def _numbered(words: Sequence[str], index: Int64) -> tuple[Int64, list[str]]:
    """The words that occur, each once, and the number of each entry's."""
    numbers: dict[str, int] = {}
    used = np.unique(index).tolist()
    code = np.zeros(len(words), np.int64)
    for one in used:
        code[one] = numbers.setdefault(words[one], len(numbers))
    return code[index] if len(words) else index, list(numbers)


def _shapes(call: Call) -> str:
    """`[16,559], [559,64]`: the sizes of the tensors that it is called with."""
    return ", ".join(_listed(call.arguments))


def _listed(arguments: Iterable[Any]) -> Iterator[str]:
    for argument in arguments:
        if isinstance(argument, Tensor):
            yield f"{argument.precision or argument.dtype}[{','.join(map(str, argument.shape))}]"
        elif isinstance(argument, tuple) and any(isinstance(one, Tensor) for one in argument):
            yield f"{len(argument)} x {next(_listed(argument))}"
