# SPDX-License-Identifier: Apache-2.0
"""Overlap: communication hidden behind compute, exposed communication by kind, pipeline bubbles."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Final

import numpy as np
import pyarrow as pa

from cclbench.analyzers.metric import GROUPS, NotApplicable, Unknown, Value, count_words, metric
from cclbench.analyzers.view.arrivals import matched_rows
from cclbench.analyzers.view.collectives import UNKNOWN, Label, group_sizes
from cclbench.analyzers.view.columns import has_word
from cclbench.analyzers.view.platform import card_field
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.values import NS_PER_S, by_label, share_values

_COMPUTES: Final = 0.05
"""Least share of the compute time for a compute stream."""
_NO_COMMUNICATION = "the rank runs no communication in the window"


@metric(
    "overlap.ratio",
    definition="Share of the communication time that is hidden behind compute.",
    formula="|C∩K| / |K|",
    unit="1",
    better="higher",
    not_applicable=_NO_COMMUNICATION,
)
def ratio(rank: RankView) -> Iterator[Value]:
    p = rank.parts
    communication = p.overlapped + p.exposed_comm
    yield from share_values(rank, p.overlapped, communication, noun="communication", blurred=rank.blurred)


@metric(
    "overlap.efficiency",
    definition="Share of the possible overlap that was reached: at most the shorter of compute and"
    " communication can overlap. Overlap and limit are summed over steps.",
    formula="Σ |C∩K| / Σ min(|C|, |K|), step by step",
    unit="1",
    better="higher",
    not_applicable="the rank runs no communication or no compute in the window",
)
def efficiency(rank: RankView) -> Iterator[Value]:
    p = rank.parts
    shorter = p.overlapped + np.minimum(p.compute_only, p.exposed_comm)
    yield from share_values(
        rank, p.overlapped, shorter, noun="compute or no communication", blurred=rank.blurred
    )


@metric(
    "overlap.same_stream",
    definition="Share of the time of communication kernels on compute streams, whose other kernels cannot"
    " overlap them. A compute stream has at least 5 % of the rank's compute kernel time.",
    formula="Σ duration of communication kernels on such streams / Σ duration of communication kernels",
    unit="1",
    better="lower",
    inputs=("events", "steps"),
    not_applicable="the rank runs no communication kernels or no compute in the window",
)
def same_stream(rank: RankView) -> Value:
    rank.needs_accelerator("its threads are not streams")
    sums: dict[int, list[int]] = {}
    for batch, _ in rank.begun(("kernel",), "track", "category"):
        communicates = has_word(batch, "category", "communication")
        ns, track = batch["dur_ns"].to_numpy(), batch["track"].to_numpy()
        for stream in np.unique(track).tolist():
            stream_sums = sums.setdefault(stream, [0, 0])
            stream_sums[0] += int(ns[(track == stream) & ~communicates].sum())
            stream_sums[1] += int(ns[(track == stream) & communicates].sum())
    compute, communication = (sum(stream[part] for stream in sums.values()) for part in (0, 1))
    if not compute or not communication:
        raise NotApplicable("the rank runs no communication kernels or no compute in the window")
    on_compute_streams = sum(
        transfer for kernels, transfer in sums.values() if kernels >= _COMPUTES * compute
    )
    return Value(value=on_compute_streams / communication, weight=communication)


@metric(
    "overlap.exposed_by",
    definition="Exposed communication time by kind, process group and parallel dimension (category)."
    " Collectives that run at once share the time equally; 'unknown' is communication outside known"
    " collectives. The kinds sum to time.exposed_comm.",
    formula="Σ over instants t in K \\ C of running_x(t) / running(t), per step",
    unit="s",
    better="lower",
    inputs=("events", "collectives", "steps"),
    not_applicable=_NO_COMMUNICATION,
)
def exposed_by(rank: RankView) -> Iterator[Value]:
    blurred = rank.blurred
    if not len(rank.communication):
        if blurred is not None:
            raise Unknown(f"no communication is known: {blurred.reason}", blurred.coverage)
        raise NotApplicable(_NO_COMMUNICATION)
    steps, total = len(rank.windows), int(rank.parts.exposed_comm.sum())
    exposed = rank.exposed.by_label()
    unknown = total - sum(exposed, Fraction(0))
    labels = [*rank.exposed.labels, Label(collective=UNKNOWN)][: None if unknown else -1]
    yield Value(
        value=total / (steps * NS_PER_S),
        reason=blurred.reason if blurred else None,
        coverage=blurred.coverage if blurred else None,
    )
    yield from by_label(labels, [ns / (steps * NS_PER_S) for ns in [*exposed, unknown][: len(labels)]])


_TRANSFERS = ("send", "recv", "send_recv")


@metric(
    "overlap.pipeline_bubble",
    definition="Share of the window that a rank of a pipeline stands still: idle, or in an exposed wait in a"
    " send or receive of a pipeline group (or of a group of unknown dimension).",
    formula="(idle + exposed wait of send/recv in pipeline groups) / W",
    unit="1",
    better="lower",
    inputs=("events", "collectives", GROUPS, "steps", "card: parallelism.pp"),
    not_applicable="neither the card nor a process group states a pipeline of several stages, or the rank's"
    " sends and receives are not matched with those of other ranks",
)
def pipeline_bubble(rank: RankView) -> Iterator[Value]:
    table = rank.collectives
    staged = has_word(table, "dimension", "pp") & (group_sizes(table) > 1)
    if not (rank.card and rank.card.parallelism.pp > 1) and not staged.any():
        raise NotApplicable("neither the card (parallelism.pp) nor a process group states a pipeline")
    in_pipeline = has_word(table, "dimension", "pp", "")  # the empty word: of unknown dimension
    transfers = table.filter(pa.array(in_pipeline & has_word(table, "kind", *_TRANSFERS)))
    matched = matched_rows(transfers)
    if len(transfers) and not matched.complete.any():
        why = f"the waits of the pipeline's transfers are unknown: {count_words(matched.left_out)}"
        raise Unknown(why, matched.coverage)
    of_pipeline = [
        label.collective in _TRANSFERS and label.dimension in ("pp", None) for label in rank.exposed.labels
    ]
    chosen = np.array(of_pipeline, np.bool_)
    window = rank.parts.window
    if not window.sum():
        raise NotApplicable("there is no time in the window")
    bubble = [
        int(idle) + wait
        for idle, wait in zip(rank.parts.idle, rank.exposed.wait.by_window(chosen), strict=True)
    ]
    total = int(window.sum())
    yield Value(
        value=float(sum(bubble, Fraction(0)) / total),
        weight=total,
        left_out=matched.left_out,
        coverage=matched.coverage,
    )
    for step, stopped_ns, length in zip(rank.windows.steps, bubble, window.tolist(), strict=True):
        if step is not None and length:
            yield Value(value=float(stopped_ns / length), step=step)


@metric(
    "overlap.bubble_ideal",
    definition="Least share of a step that a rank of the pipeline stands still by its schedule: p stages and"
    " m micro-batches of equal time, without interleaving (GPipe, 1F1B). overlap.pipeline_bubble is the"
    " measured share.",
    formula="(p − 1) / (m + p − 1)",
    unit="1",
    better="lower",
    inputs=("card: parallelism.pp, parallelism.microbatches",),
    not_applicable="there is no card, or it states no pipeline of several stages or no number of"
    " micro-batches",
)
def bubble_ideal(rank: RankView) -> Value:
    stages = int(card_field(rank, "parallelism.pp"))
    if stages < 2:
        raise NotApplicable("the workload card states no pipeline of several stages (parallelism.pp)")
    micro_batches = int(card_field(rank, "parallelism.microbatches"))
    return Value(value=(stages - 1) / (micro_batches + stages - 1), provenance="derived")
