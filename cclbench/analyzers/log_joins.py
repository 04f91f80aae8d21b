# SPDX-License-Identifier: Apache-2.0
"""A job's log against what stands beside it: the traces of some of its steps, and the card."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from cclbench.analyzers.counters import windows_of_steps
from cclbench.analyzers.metric import NotApplicable, Value, no_value, run_metric
from cclbench.analyzers.view.run_view import RunView
from cclbench.analyzers.view.step_logs import NO_LOG, StepLog, of_each_log, step_logs
from cclbench.card import Card
from cclbench.ground.intervals import Int64
from cclbench.ground.units import humanise

_NS_PER_S: Final = 10**9
_DEGREES: Final = {
    "tensor_parallel": "tp",
    "pipeline_parallel": "pp",
    "context_parallel": "cp",
    "expert_parallel": "ep",
    "replicate_parallel": "dp_replicate",
    "shard_parallel": "dp_shard",
}
"""Settings of a log that are fields of a card's `parallelism`."""


@run_metric(
    "log.profiler_overhead",
    definition="How much longer a traced step takes than the job's steps without a profiler: the mean over"
    " closed windows of the longest rank, over the log's median of unprofiled steps, − 1. It includes"
    " whatever else made the traced steps slower. Stat longer_than: share of unprofiled logged steps that"
    " are shorter than the traced one, 0.5 for a typical step. The traced step belongs to the log by its"
    " number, as the log counts it or from 0, where a profiler's lines mark that step in the log; otherwise"
    " because trace and log are in one folder.",
    formula="traced step / median(unprofiled steps of the log) − 1",
    unit="1",
    better="lower",
    inputs=("events", "steps", "log_steps"),
    not_applicable=f"{NO_LOG}, or add the traces of some steps",
)
def profiler_overhead(run: RunView) -> Iterator[Value]:
    logs = step_logs(run)
    if len(logs) > 1:
        raise NotApplicable(f"{len(logs)} logs beside the traces: only one can be of the traced job")
    numbers, traced = _traced_steps(run)
    (log,) = logs
    seconds = log.seconds[log.steady & ~log.profiled()]
    if not len(seconds):
        raise NotApplicable("the log times no step without a profiler")
    middle = float(np.median(seconds))
    reason = (
        f"{humanise(traced, 's')} traced, {humanise(middle, 's')} in the log; {_join_words(log, numbers)}"
    )
    yield Value(value=traced / middle - 1, provenance="derived", reason=reason)
    yield Value(value=float((seconds < traced).mean()), stat="longer_than", provenance="derived")


def _traced_steps(run: RunView) -> tuple[Int64, float]:
    """Numbers of the traced steps, and their mean length over the longest rank of each, s."""
    longest: dict[int, int] = {}
    for windows in windows_of_steps(run):
        for step, length in zip(windows.steps, (windows.ends - windows.starts).tolist(), strict=True):
            if step is not None and not windows.open:
                longest[step] = max(longest.get(step, 0), length)
    if not longest:
        raise NotApplicable("no traced step is complete")
    return np.array(list(longest), np.int64), sum(longest.values()) / len(longest) / _NS_PER_S


def _join_words(log: StepLog, numbers: Int64) -> str:
    marked = log.numbers("step")[log.profiled("recorded")]
    for offset, words in ((0, "by step number"), (1, "by step number, which the trace counts from 0")):
        if len(marked) and np.isin(numbers + offset, marked).any():
            return f"joined {words}"
    return "joined by folder: no line of a profiler names the traced steps"


@run_metric(
    "log.card_agreement",
    definition="Share of the settings stated by both card and log in which they agree: parallel degrees,"
    " number of devices, global batch, sequence length. The reason names those that differ.",
    formula="settings that agree / settings that both state",
    unit="1",
    better="higher",
    inputs=("log_steps", "card: parallelism, hardware.count, workload.batch"),
    not_applicable=f"{NO_LOG}, and a card",
)
def card_agreement(run: RunView) -> Iterator[Value]:
    card = run.card
    if card is None:
        raise NotApplicable("needs a workload card")
    yield from of_each_log(run, lambda log: _agreement(log, card))


def _agreement(log: StepLog, card: Card) -> Iterator[Value]:
    batch = card.workload.batch
    stated = {name: getattr(card.parallelism, degree) for name, degree in _DEGREES.items()}
    stated["data_parallel"] = card.parallelism.dp_replicate * card.parallelism.dp_shard
    stated["devices"] = card.hardware.count
    stated["global_batch"], stated["sequence_length"] = (
        (batch.global_, batch.sequence_length) if batch is not None else (None, None)
    )
    pairs = {
        name: (value, log.settings[name])
        for name, value in stated.items()
        if value is not None and name in log.settings
    }
    if not pairs:
        yield no_value("the log states no setting of the card")
        return
    differing = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    words = [
        f"{name.replace('_', ' ')} {ours} in the card, {logs} in the log"
        for name, (ours, logs) in differing.items()
    ]
    reason = "; ".join(words) or f"{len(pairs)} settings compared"
    yield Value(value=1 - len(differing) / len(pairs), provenance="derived", reason=reason)
