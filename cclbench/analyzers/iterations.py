# SPDX-License-Identifier: Apache-2.0
"""Iterations of a serving engine by phase: prefill, decode, or mixed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from cclbench.analyzers.metric import Coverage, NotApplicable, Value, metric
from cclbench.analyzers.view.columns import has_values, has_word, row_spans, word_codes
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.values import NS_PER_S
from cclbench.classify.serving_steps import is_serving_step, is_vllm_step, serving_phase
from cclbench.ground.intervals import Int64, Mask

_NO_PHASES: Final = "no step annotation distinguishes prefill from decode (those of vLLM and SGLang do)"


@metric(
    "serving.iteration",
    definition="Length of a serving engine's iteration, by phase (category): prefill, decode, or mixed; the"
    " phase is that of the engine's annotation that contains the step's launches; of annotated steps, that of"
    " the annotation that contains the step, or of the only one in it.",
    formula="Σ W of the phase's steps / their number",
    unit="s",
    better="lower",
    inputs=("events", "steps"),
    not_applicable=_NO_PHASES,
    graphs="counted",
)
def iteration(rank: RankView) -> Iterator[Value]:
    """Mean over all iterations, and by phase."""
    phases = [name and serving_phase(name) for name in iteration_names(rank)]
    lengths = rank.windows.ends - rank.windows.starts
    has_phase = np.array([named is not None for named in phases], np.bool_)
    if not has_phase.any():
        raise NotApplicable(_NO_PHASES)
    yield _mean_length(lengths, has_phase, None)
    for phase in sorted({named for named in phases if named is not None}):
        of_phase = np.array([named == phase for named in phases], np.bool_)
        yield _mean_length(lengths[of_phase], of_phase[of_phase], phase)
    for step, length, step_phase in zip(rank.windows.steps, lengths.tolist(), phases, strict=True):
        if step_phase is not None and step is not None:
            yield Value(value=length / NS_PER_S, step=step, category=step_phase)


def iteration_names(rank: RankView) -> list[str | None]:
    """The engine's name of each window's iteration; None where its launches are not in one, or the window
    has several.

    `NotApplicable` where the trace names no iterations.
    """
    if rank.windows.policy == "trace":
        raise NotApplicable("the window is the whole trace, not an iteration")
    names, starts, ends = _engine_annotations(rank)
    first, last = _window_launches(rank)
    annotation = np.searchsorted(starts, first, side="right") - 1
    within = (annotation >= 0) & (first <= last) & (last < ends[annotation])
    if rank.windows.policy == "annotations":
        inner, behind = (np.searchsorted(starts, edge) for edge in (rank.windows.starts, rank.windows.ends))
        only = ~within & (behind - inner == 1) & (np.append(ends, 0)[inner] <= rank.windows.ends)
        annotation, within = np.where(only, inner, annotation), within | only
    return [names[i] if inside else None for i, inside in zip(annotation, within, strict=True)]


def _mean_length(lengths: Int64, has_phase: Mask, category: str | None) -> Value:
    used = lengths[has_phase]
    return Value(
        value=int(used.sum()) / len(used) / NS_PER_S,
        category=category,
        weight=len(used),
        left_out={"of no single phase": int((~has_phase).sum())},
        coverage=Coverage.from_rows(has_phase, lengths),
    )


def _engine_annotations(rank: RankView) -> tuple[list[str], Int64, Int64]:
    """Name, start and end of one engine's host annotations, ordered by start."""
    rows = list[tuple[int, int, str]]()
    for batch in rank.tables.events(("annotation",), ("side", "name", "start_ns", "dur_ns")):
        name, words = word_codes(batch, "name")
        engines = np.array([is_serving_step(word or "") for word in words], np.bool_)
        chosen = engines[name] & has_word(batch, "side", "host")
        begin, end = (edge[chosen].tolist() for edge in row_spans(batch))
        rows += zip(begin, end, (words[code] or "" for code in name[chosen]), strict=True)
    # an engine that uses both forms nests them: vLLM's then name the iterations, as they mark the steps
    outer = [row for row in rows if is_vllm_step(row[2])] or rows
    if not outer:
        raise NotApplicable(_NO_PHASES)
    begins, until, names = zip(*sorted(outer), strict=True)
    return list(names), np.array(begins, np.int64), np.array(until, np.int64)


def _window_launches(rank: RankView) -> tuple[Int64, Int64]:
    """Launch times of each window's first and last kernel or graph; last < first where unknown.

    Shape (windows,). Windows that are annotations contain their launches by definition.
    """
    windows = rank.windows
    if windows.policy == "annotations":
        return windows.starts, windows.ends - 1
    launched = pa.concat_tables(
        [pa.table({"correlation": [], "at": []}, schema=_LAUNCH)]
        + [
            pa.table({"correlation": batch["correlation"], "at": batch["start_ns"]}, schema=_LAUNCH)
            for batch in rank.tables.events(("launch",), ("correlation", "start_ns"))
        ]
    ).drop_null()
    order = np.argsort(launched["correlation"].to_numpy(), kind="stable")
    keys, times = launched["correlation"].to_numpy()[order], launched["at"].to_numpy()[order]
    first = np.full(len(windows), np.iinfo(np.int64).max)
    last = np.full(len(windows), np.iinfo(np.int64).min)
    index = {step: i for i, step in enumerate(windows.steps)}
    for batch in rank.tables.events(("kernel", "graph"), ("correlation", "step")):
        linked = batch.filter(pa.array(has_values(batch, "correlation", "step")))
        correlation = linked["correlation"].to_numpy()
        row = np.searchsorted(keys, correlation)
        hit = row < len(keys)
        hit[hit] = keys[row[hit]] == correlation[hit]
        steps, step_codes = np.unique(linked["step"].to_numpy()[hit], return_inverse=True)
        window = np.array([index.get(step, -1) for step in steps.tolist()], np.int64)[step_codes]
        in_window = window >= 0
        np.minimum.at(first, window[in_window], times[row[hit][in_window]])
        np.maximum.at(last, window[in_window], times[row[hit][in_window]])
    return first, last


_LAUNCH: Final = pa.schema([("correlation", pa.int64()), ("at", pa.int64())])
