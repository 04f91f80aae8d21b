# SPDX-License-Identifier: Apache-2.0
"""Steps of reinforcement learning by phase and role, from the trainer's log and from marked ranges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from cclbench.analyzers.metric import (
    Coverage,
    NotApplicable,
    Value,
    metric,
    no_value,
    run_metric,
)
from cclbench.analyzers.view.columns import word_codes
from cclbench.analyzers.view.named_times import longest_names, spread_values
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.role_times import RoleTimes, role_times, share_a_clock
from cclbench.analyzers.view.run_view import RunView
from cclbench.analyzers.view.values import NS_PER_S
from cclbench.classify.rl_phases import (
    ASYNCHRONOUS,
    NOT_ALWAYS_WITHIN,
    ROLES,
    TIMERS,
    WITHIN_GENERATION,
)
from cclbench.ground import intervals
from cclbench.ground.intervals import Int64

_READER: Final = "verl_timings"
NO_TIMERS: Final = "needs a log with verl's times by phase (timing_s/...)"
NO_RANGES: Final = (
    "needs ranges of generation and of updates in the traces (verl's workers, or record_function and NVTX"
    f" ranges named {', '.join(f'rl.{role}' for role in ROLES)})"
)
STEP_PARTS: Final = (*ROLES, "wait_generate", "unattributed")
_PERCENTS: Final = (50, 90, 99)
_MOST_PHASES: Final = 30
_value = partial(Value, source=_READER)
_log_metric = partial(run_metric, unit="s", better="lower", inputs=("phase_times",), not_applicable=NO_TIMERS)


@dataclass(frozen=True, slots=True, eq=False)
class StepSplit:
    """Steps whose phases the log states one after the other, arrays of int64 ns, shape (steps,)."""

    lengths: Int64
    parts: Mapping[str, Int64]
    """By `STEP_PARTS`, which add up to the lengths."""
    unsplit: Mapping[str, int]
    """Numbers of other steps, by reason."""


def split_steps(times: pa.Table) -> StepSplit:
    """The steps of a table `phase_times`, by role."""
    files, _ = word_codes(times, "file")
    _, step = np.unique(files * (1 << 40) + times["entry"].to_numpy(), return_inverse=True)
    count = int(step.max(initial=-1)) + 1
    codes, names = word_codes(times, "phase")
    dur = times["dur_ns"].to_numpy()

    def total(*phases: str) -> Int64:
        in_phases = np.isin(codes, [names.index(phase) for phase in phases if phase in names])
        sums = np.zeros(count, np.int64)
        np.add.at(sums, step[in_phases], dur[in_phases])
        return sums

    def states(*phases: str) -> np.ndarray:
        in_phases = np.isin(codes, [names.index(phase) for phase in phases if phase in names])
        return np.bincount(step[in_phases], minlength=count) > 0

    asynchronous = states(*ASYNCHRONOUS)
    within = np.minimum(total(*WITHIN_GENERATION), total("gen"))
    parts = {part: total(*(phase for phase, role in TIMERS.items() if role == part)) for part in STEP_PARTS}
    # Generation runs beside the steps of an asynchronous trainer: only the wait for it is within one.
    parts["generate"] = np.where(asynchronous, 0, parts["generate"] - within)
    parts["weight_sync"] = parts["weight_sync"] + np.where(asynchronous, 0, within)
    length = total("step")
    parts["unattributed"] = length - sum(parts[part] for part in STEP_PARTS[:-1])
    causes = {
        "the log states no time of the whole step": ~states("step"),
        "they validate or save, which is not always within the step": states(*NOT_ALWAYS_WITHIN),
        "their generation runs beside them, and the log does not state the wait for it": asynchronous
        & ~states("wait_prev_gen"),
        "their phases take longer than the step: they overlap": parts["unattributed"] < 0,
    }
    split, unsplit = np.ones(count, np.bool_), dict[str, int]()
    for reason, mask in causes.items():
        if (excluded_steps := mask & split).any():
            unsplit[reason] = int(excluded_steps.sum())
        split &= ~mask
    return StepSplit(
        length[split], {part: part_lengths[split] for part, part_lengths in parts.items()}, unsplit
    )


def _phase_times(run: RunView) -> pa.Table:
    times = run.table("phase_times")
    if not len(times):
        raise NotApplicable(NO_TIMERS)
    return times


@_log_metric(
    "rl.step",
    definition="Time of a step of reinforcement learning by the trainer's log, and its parts by role, which"
    " add up to it: generate, score (rewards, log probabilities, values, advantages), update, weight_sync"
    " (resharding within the generation included), wait_generate (an asynchronous trainer waits for samples),"
    " unattributed. Mean, p50, p90, p99 over steps. Steps that validate or save are left out, as versions"
    " differ in whether these are within the step, and so are steps whose phases overlap.",
    formula="Σ timing_s of the role's phases; unattributed = step − Σ",
)
def rl_step(run: RunView) -> Iterator[Value]:
    """Time of a step and its parts."""
    split = split_steps(_phase_times(run))
    count, others = len(split.lengths), sum(split.unsplit.values())
    why = "; ".join(f"{number:,} steps are not split: {reason}" for reason, number in split.unsplit.items())
    if not count:
        yield no_value(why, source=_READER)
        return
    coverage = Coverage(count, count + others)
    words = "; ".join(filter(None, (f"of {count:,} steps", why)))
    for part, part_lengths in ((None, split.lengths), *split.parts.items()):
        if part is not None and not part_lengths.any():
            continue
        reason = words if part is None else None
        value = partial(_value, category=part, coverage=coverage, provenance="derived", reason=reason)
        yield value(value=int(part_lengths.sum()) / count / NS_PER_S)
        for percent, time in zip(_PERCENTS, np.percentile(part_lengths, _PERCENTS).tolist(), strict=True):
            yield value(value=time / NS_PER_S, stat=f"p{percent}")


@_log_metric(
    "rl.phase",
    definition="Time of a phase in a step by the trainer's own timers, the mean over the steps that state it,"
    " by category for those that take most time in all, with p50, max, sum and count. Timers nest, and those"
    " of asynchronous trainers overlap: they do not add up.",
    formula="mean of timing_s/PHASE",
)
def rl_phase(run: RunView) -> Iterator[Value]:
    """Time of each phase, as the log names it."""
    times = _phase_times(run)
    seconds = times["dur_ns"].to_numpy() / NS_PER_S
    names = len(times["phase"].unique())
    yield no_value(f"{names:,} timers: see their rows", source=_READER)
    for name, phase_mask in longest_names(times, "phase", seconds, _MOST_PHASES):
        yield from spread_values(seconds[phase_mask], (50,), category=name, source=_READER)


def bubbles_over_ranks(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """Mean time of all ranks by role in their common window, and bubbles between ranks of other roles."""
    times = {
        rank: value.detail
        for rank, values in sorted(ranks.items())
        for value in values
        if isinstance(value.detail, RoleTimes)
    }
    roles = set[str]().union(*(rank_times.roles for rank_times in times.values()))
    if not roles >= {"generate", "update"}:
        raise NotApplicable(NO_RANGES)
    pools: dict[tuple[str, ...], list[int]] = {}
    for rank, rank_times in times.items():
        pools.setdefault(tuple(role for role in ROLES if role in rank_times.roles), []).append(rank)
    value = partial(Value, provenance="derived", coverage=Coverage(len(times), len(ranks)))
    means = {
        role: _mean_seconds(
            [rank_times.roles[role] for rank_times in times.values() if role in rank_times.roles], len(times)
        )
        for role in ROLES
        if role in roles
    }
    if len(pools) > 1 and not share_a_clock([*times.values()]):
        reason = "not known because no collective links the ranks of all roles: their clocks may differ"
        yield no_value(reason)
        for role, seconds in means.items():
            yield value(value=seconds, category=role)
        for category in ("bubble", "unattributed"):
            yield no_value(reason, category=category)
        return
    busy = {rank: rank_times.busy for rank, rank_times in times.items()}
    begin = min(int(spans.starts[0]) for spans in busy.values())
    end = max(int(spans.ends[-1]) for spans in busy.values())
    window = intervals.union(np.array([begin]), np.array([end]))
    bubble = dict.fromkeys(times, intervals.EMPTY)
    for pool, members in pools.items():
        others = intervals.join(
            *(busy[rank] for other, other_ranks in pools.items() if other != pool for rank in other_ranks)
        )
        for rank in members:
            bubble[rank] = intervals.subtract(others, busy[rank])
    words = "; ".join(f"{', '.join(pool)}: {len(members):,} ranks" for pool, members in pools.items())
    yield value(value=(end - begin) / NS_PER_S, reason=words)
    for role, seconds in means.items():
        yield value(value=seconds, category=role)
    yield value(value=_mean_seconds([*bubble.values()], len(times)), category="bubble")
    rest = [intervals.subtract(window, intervals.join(busy[rank], bubble[rank])) for rank in times]
    yield value(value=_mean_seconds(rest, len(times)), category="unattributed")
    for pool, members in pools.items() if len(pools) > 1 else ():
        seconds = _mean_seconds([bubble[rank] for rank in members], len(members))
        yield value(value=seconds, category=f"bubble of {', '.join(pool)}")


def _mean_seconds(times: Sequence[intervals.Intervals], ranks: int) -> float:
    return sum(spans.length for spans in times) / ranks / NS_PER_S


@metric(
    "rl.time",
    definition="Time from a job's first marked range of a role of reinforcement learning to its last, and by"
    " category its parts, which add up to it, mean over ranks: roles generate, tools, score, update and"
    " weight_sync (the innermost where one is within another), bubble (none of the rank's own, while ranks"
    " of other roles are in one), unattributed (no rank of other roles is, either). Ranks that mark the same"
    " roles are one pool; category `bubble of ROLES`: mean over a pool's ranks. Ranges are those of the host."
    " Bubbles need one clock: collectives that link the ranks. A rank's own rows are in its own window, whose"
    " rest is between its ranges.",
    formula="|role \\\\ roles within it|; bubble = |∪ others' roles \\\\ own|; unattributed = W − Σ",
    unit="s",
    inputs=("events", "collectives"),
    not_applicable=NO_RANGES,
    combine=bubbles_over_ranks,
    graphs="counted",
)
def rl_time(rank: RankView) -> Iterator[Value]:
    """Time of a rank by role."""
    times = role_times(rank)
    if times is None:
        raise NotApplicable(NO_RANGES)
    busy = times.busy
    length = int(busy.ends[-1] - busy.starts[0])
    value = partial(Value, provenance="derived")
    yield value(value=length / NS_PER_S, detail=times)
    for role in ROLES:
        if role in times.roles:
            yield value(value=times.roles[role].length / NS_PER_S, category=role)
    yield value(value=(length - busy.length) / NS_PER_S, category="rest")
