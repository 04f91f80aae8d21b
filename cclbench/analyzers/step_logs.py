# SPDX-License-Identifier: Apache-2.0
"""Steps and throughput of a whole job by its log, and how much of its time was training."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import PurePosixPath
from typing import Final

import numpy as np

from cclbench.analyzers.metric import NotApplicable, Value, no_value, run_metric
from cclbench.analyzers.view.model_flops import flops_per_step
from cclbench.analyzers.view.platform import card_field, run_accelerator
from cclbench.analyzers.view.run_view import RunView
from cclbench.analyzers.view.step_logs import (
    NO_LOG,
    StepLog,
    server_lines,
    values_by_log,
)
from cclbench.analyzers.view.values import NS_PER_S
from cclbench.ground.intervals import Int64, Mask
from cclbench.ground.units import humanise

_LEAST_STEPS: Final = 3
_NO_DEVICES: Final = (
    "the log does not state the number of devices: add a card (hardware.count), or beside a log of MLPerf its"
    " system's description (systems/NAME.json)"
)
_FEW: Final = 20
"""Lines from which there are percentiles, and most slow steps that are listed."""
_log_metric = partial(run_metric, not_applicable=NO_LOG)


@_log_metric(
    "log.step",
    definition="Step time by the job's log: the median over all lines but the first of each attempt, which"
    " holds compilation and warm-up. A line's time is what it states, or the difference of its stamp and the"
    " one before, over the steps between. Stats: mean, p5, p95 and p99 from 20 lines up, max, cv; drift: the"
    " median of the last quarter of lines over that of the first, − 1; unprofiled: the median without steps"
    " that a profiler slowed, by the profiler's own lines; slow_share: share of lines more than 5 robust"
    " standard deviations (1.4826 MAD) and 5 % above the median; slow_period: distance in steps of slow"
    " steps: at least 90 % of the steps so far apart are slower than those around them, by the same rule,"
    " they are a quarter of all that are, and slow steps at random positions do not fit as well (p < 0.0005);"
    " profiled steps and warm-up aside. Slow and profiled steps have rows of their own.",
    formula="median(dur)",
    unit="s",
    better="lower",
    inputs=("log_steps",),
    version=3,
)
def step(run: RunView) -> Iterator[Value]:
    yield from values_by_log(run, _step_values)


def _step_values(log: StepLog) -> Iterator[Value]:
    steady = log.steady
    seconds = log.seconds[steady]
    if len(seconds) < _LEAST_STEPS:
        yield no_value(f"fewer than {_LEAST_STEPS} lines state a step time, the first of an attempt aside")
        return
    middle = float(np.median(seconds))
    yield Value(
        value=middle, reason=_basis_words(log), left_out={"first lines of attempts": int(log.first.sum())}
    )
    yield Value(value=float(seconds.mean()), stat="mean")
    if len(seconds) >= _FEW:
        for percent in (5, 95, 99):
            yield Value(value=float(np.percentile(seconds, percent)), stat=f"p{percent}")
        quarter = len(seconds) // 4
        drift = np.median(seconds[-quarter:]) / np.median(seconds[:quarter]) - 1
        yield Value(value=float(drift), stat="drift", unit="1", provenance="derived")
    yield Value(value=float(seconds.max()), stat="max")
    yield Value(value=float(seconds.std(ddof=1) / seconds.mean()), stat="cv", unit="1", provenance="derived")
    yield from _profiled_values(log)
    yield from _slow_values(log, middle)


def _basis_words(log: StepLog) -> str:
    steps = log.numbers("steps")[log.steady].sum()
    timed = log.rows("timed_by")["timed_by"].unique().to_pylist()
    words = [
        f"{int(steps):,} steps in {int(log.steady.sum()):,} lines of {log.settings.get('producer', 'a log')}"
    ]
    if "stated" not in timed:
        words.append("times from a stated rate" if "rate" in timed else "times from the stamps of lines")
    if log.ranks > 1:
        words.append(f"one of {log.ranks:,} ranks that log them")
    return ", ".join(words)


def _profiled_values(log: StepLog) -> Iterator[Value]:
    """The median without a profiler, and each step with one."""
    seconds, rest = log.seconds, log.steady & ~log.profiled()
    if not log.profiled().any() or not rest.any():
        return
    middle = float(np.median(seconds[rest]))
    reason = f"{int(log.profiled().sum())} steps with a profiler left out"
    yield Value(value=middle, stat="unprofiled", reason=reason)
    steps = log.steps
    for what, category in (("recorded", "profiled"), ("saved", "profile saved")):
        for line in np.flatnonzero(log.profiled(what) & log.steady)[:_FEW].tolist():
            cost = seconds[line] - middle
            words = f"{humanise(abs(cost), 's')} {'more' if cost > 0 else 'less'} than the unprofiled median"
            yield Value(value=float(seconds[line]), step=int(steps[line]), category=category, reason=words)


def _slow_values(log: StepLog, middle: float) -> Iterator[Value]:
    """Slow steps: how many, their period, and the slowest."""
    slow, steps = log.slow_lines(), log.steps
    yield Value(value=float(slow.sum() / log.steady.sum()), stat="slow_share", unit="1", provenance="derived")
    unexplained = slow & ~log.profiled()
    period = log.slow_period()
    if period is not None:
        unprofiled = log.steady & ~log.profiled()
        at = unprofiled & (steps % period[0] == period[1])
        excess = float(np.median(log.seconds[at]) - np.median(log.seconds[unprofiled & ~at]))
        mean_of = int(np.median(log.numbers("steps")[at]))
        words = f"every {period[0]} steps, as step {period[1] or period[0]}"
        reason = f"{words}, a step takes {humanise(excess, 's')} more"
        reason += f" in the mean of {mean_of}" if mean_of > 1 else ""
        yield Value(value=period[0], stat="slow_period", unit="count", provenance="derived", reason=reason)
    lines = np.flatnonzero(unexplained)
    for line in sorted(lines[np.argsort(-log.seconds[lines], kind="stable")][:_FEW].tolist()):
        factor = humanise(log.seconds[line] / middle, "ratio")
        yield Value(
            value=float(log.seconds[line]),
            step=int(steps[line]),
            category="slow",
            reason=f"{factor} the median",
        )


@_log_metric(
    "log.data_wait",
    definition="Share of the steps' time in which they wait for their batch, as the job's log states both."
    " The first line of each attempt does not count. Stat max: the largest share of a step.",
    formula="Σ wait / Σ dur",
    unit="1",
    better="lower",
    inputs=("log_steps",),
)
def data_wait(run: RunView) -> Iterator[Value]:
    yield from values_by_log(run, _data_wait_values)


def _data_wait_values(log: StepLog) -> Iterator[Value]:
    waits = log.numbers("data_ns") / NS_PER_S
    has_wait = log.steady & ~np.isnan(waits)
    time = float(log.seconds[has_wait].sum())
    if not time:
        yield no_value("no line states how long its step waits for its batch")
        return
    waited = float(waits[has_wait].sum())
    reason = f"{humanise(waited, 's')} of {humanise(time, 's')}, {int(has_wait.sum()):,} steps"
    yield Value(value=waited / time, reason=reason, provenance="derived")
    yield Value(
        value=float((waits[has_wait] / log.seconds[has_wait]).max()), stat="max", provenance="derived"
    )


@_log_metric(
    "log.tokens",
    definition="Tokens per second of the job by its log: tokens of a step, samples as it states them times"
    " the sequence length that it states, over the median step (log.step). Stats: per_device, over the number"
    " of devices that the log states, else MLPerf's description of its system, else the card;"
    " stated_per_device: the median of the rate that the lines state. Of a server's log: mean over lines of"
    " the stated rates of generated tokens, and of tokens of prompts as category prompt.",
    formula="samples · sequence length / log.step",
    unit="1/s",
    better="higher",
    inputs=("log_steps", "card: hardware.count"),
)
def tokens(run: RunView) -> Iterator[Value]:
    if not run.step_logs and len(server_lines(run)):
        yield from _server_values(run)
        return
    yield from values_by_log(run, lambda log: _token_values(log, *_device_count(log, run)))


def _device_count(log: StepLog, run: RunView) -> tuple[int | None, str]:
    """Devices of a log's job, and who states them: the log, MLPerf's description of its system, the card."""
    stated = log.settings.get("devices")
    if isinstance(stated, int) and stated > 0:
        return stated, "by the log"
    if described := _system_description(log.file, run):
        return described
    return (run.card.hardware.count if run.card is not None else None), "by the card"


def _system_description(log: str, run: RunView) -> tuple[int, str] | None:
    """Accelerators by `NAME.json` for a log in `results/NAME`, or by the only description beside it."""
    device_counts = {
        PurePosixPath(file): devices
        for file, facts in run.settings.items()
        if isinstance(devices := facts.get("system_devices"), int)
    }
    parts = PurePosixPath(log).parts
    named = parts[parts.index("results") + 1] if "results" in parts[:-2] else None
    if named is not None:
        fitting = [file for file in device_counts if file.stem == named]
    else:
        fitting = [file for file in device_counts if file.parent == PurePosixPath(log).parent]
    return (device_counts[fitting[0]], f"by {fitting[0]}") if len(fitting) == 1 else None


def _token_values(log: StepLog, devices: int | None, by: str) -> Iterator[Value]:
    steady = log.steady
    per_step = log.numbers("tokens")[steady]
    if not len(per_step) or np.isnan(per_step).all():
        yield no_value("the log does not state the samples of a step and the sequence length")
    else:
        rate = float(np.median(per_step / log.seconds[steady]))
        yield Value(value=rate, provenance="derived", reason=f"{np.nanmedian(per_step):,.0f} tokens a step")
        if devices:
            reason = f"{devices:,} devices {by}"
            yield Value(value=rate / devices, stat="per_device", provenance="derived", reason=reason)
        else:
            yield no_value(_NO_DEVICES, stat="per_device")
    stated = log.numbers("tokens_per_s_per_device")[~log.first]
    if np.isfinite(stated).any():
        yield Value(value=float(np.nanmedian(stated)), stat="stated_per_device")


def _server_values(run: RunView) -> Iterator[Value]:
    lines = server_lines(run)
    for category, column in ((None, "generated_tokens_per_s"), ("prompt", "prompt_tokens_per_s")):
        rates = lines[column].drop_null().to_numpy()
        reason = f"mean of {len(rates):,} lines of the server's log, idle ones included"
        if len(rates):
            yield Value(value=float(rates.mean()), category=category, reason=reason, source="job_log")
            yield Value(value=float(rates.max()), category=category, stat="max", source="job_log")


@_log_metric(
    "log.mfu",
    definition="Model FLOPs utilisation as the job's log states it: the median over all lines but the first"
    " of each attempt. Its peak is the trainer's own and may be of another device. Stat derived: the FLOPs of"
    " a step by the card, as in compute.mfu, over log.step, all devices and their dense peak in the catalog."
    " Stat flops_per_s: the stated FLOP/s of a device.",
    formula="as stated; derived: FLOPs per step / (log.step · devices · peak)",
    unit="1",
    better="higher",
    inputs=("log_steps", "card: workload, hardware", "catalog: dense peak"),
)
def mfu(run: RunView) -> Iterator[Value]:
    yield from values_by_log(run, lambda log: _utilisations(log, run))


def _utilisations(log: StepLog, run: RunView) -> Iterator[Value]:
    stated = {name: log.numbers(name)[~log.first] for name in ("mfu", "flops_per_s")}
    finite_values = {name: values[np.isfinite(values)] for name, values in stated.items()}
    share = finite_values["mfu"]
    if len(share):
        yield Value(value=float(np.median(share)), reason="of the peak that the trainer assumes")
    else:
        yield no_value("the log states no MFU")
    if len(finite_values["flops_per_s"]):
        yield Value(value=float(np.median(finite_values["flops_per_s"])), stat="flops_per_s", unit="FLOP/s")
    yield _derived_mfu(log, run)


def _derived_mfu(log: StepLog, run: RunView) -> Value:
    try:
        flops = flops_per_step(run)[None]
        precision, devices = card_field(run, "workload.precision"), card_field(run, "hardware.count")
        accelerator = run_accelerator(run)
    except NotApplicable as why:
        return no_value(str(why), stat="derived")
    peak = accelerator.peak_flops_per_s.get(precision)
    if peak is None:
        return no_value(f"the catalog has no dense {precision} peak of {accelerator.id}", stat="derived")
    if not log.steady.any():
        return no_value("the log states no step time", stat="derived")
    share = flops / (float(np.median(log.seconds[log.steady])) * devices * peak)
    if share > 1:
        reason = f"{share:.3g} of the peak: card and log disagree"
        return Value(value=None, status="failed", stat="derived", reason=reason)
    reason = f"of {accelerator.id}'s {precision} peak"
    return Value(value=share, stat="derived", provenance="derived", reason=reason)


@_log_metric(
    "log.time_to_train",
    definition="Time to train to the target quality, as MLPerf Training measures it: from run_start to a"
    " run_stop whose status is success, without initialisation, with evaluation.",
    formula="run_stop − run_start",
    unit="s",
    better="lower",
    inputs=("log_steps",),
)
def time_to_train(run: RunView) -> Iterator[Value]:
    yield from values_by_log(run, _time_to_train)


def _time_to_train(log: StepLog) -> Iterator[Value]:
    times = [log.settings.get(f"run_{name}_ms") for name in ("start", "stop")]
    begin, end = (time if isinstance(time, int) else None for time in times)
    if begin is None or end is None:
        yield no_value("the log has no run_start and successful run_stop of MLPerf")
    elif end < begin:
        yield Value(value=None, status="failed", reason="run_stop is before run_start")
    else:
        yield Value(value=(end - begin) / 1000)


@_log_metric(
    "goodput.training",
    definition="Share of a job's time that trained: time of all steps, each counted once and as its last"
    " attempt took it, over the time from the first line with a stamp to the last, with the first line's own"
    " steps. Evaluation, checkpoints, and steps that a restart repeated are not productive; of an attempt's"
    " first line, what is above the median step is not. The time before the first line's steps is unknown."
    " Stats: restarts; lost_steps: steps done again after a restart.",
    formula="Σ over distinct steps of their time / time of the log",
    unit="1",
    better="higher",
    inputs=("log_steps",),
)
def training_goodput(run: RunView) -> Iterator[Value]:
    yield from values_by_log(run, _goodput_values)


def _goodput_values(log: StepLog) -> Iterator[Value]:
    steps, counts = log.steps, log.numbers("steps")
    last = _last_attempts(steps, log.restart)
    lost = float(counts[~last].sum())
    is_timed = log.timed & ~np.isnan(log.seconds)
    if int(is_timed.sum()) < _LEAST_STEPS:
        yield no_value("fewer than 3 lines have a stamp and a step time")
    else:
        seconds, end = log.seconds, log.numbers("end_ns") / 1e9
        begin = int(np.flatnonzero(is_timed)[0])
        wall = float(np.ptp(end[is_timed]) + seconds[begin] * counts[begin])
        usual = np.median(seconds[log.steady]) if log.steady.any() else np.inf
        productive = np.where(log.first, np.minimum(seconds, usual), seconds)
        trained = float((productive * counts)[last & is_timed].sum())
        restarts = int(log.restart.max())
        words = f"{humanise(trained, 's')} of {humanise(wall, 's')}"
        if wall <= 0 or trained > 1.05 * wall:
            yield Value(value=None, status="failed", reason=f"steps and stamps disagree: {words}")
        else:
            yield Value(value=min(trained / wall, 1.0), provenance="derived", reason=words)
        yield Value(value=restarts, stat="restarts", unit="count")
    yield Value(value=lost, stat="lost_steps", unit="count", provenance="derived")


def _last_attempts(steps: Int64, restart: Int64) -> Mask:
    """Lines whose steps no later attempt did again: those before the first step of every later attempt."""
    begins = np.unique(restart, return_index=True)[1]
    later = np.append(np.minimum.accumulate(steps[begins][::-1])[::-1][1:], np.iinfo(np.int64).max)
    last: Mask = steps < later[np.cumsum(np.isin(np.arange(len(steps)), begins)) - 1]
    return last
