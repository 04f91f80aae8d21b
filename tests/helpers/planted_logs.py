# SPDX-License-Identifier: Apache-2.0
"""Logs of made-up jobs in which every n-th step is slow, or none is: noise, drift, restarts, warm-up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
_BEGIN = 1_766_000_000.0


@dataclass(frozen=True)
class PlantedLog:
    """A log's text, and what was planted: `period` steps and the remainder of slow ones; None for none."""

    text: str
    family: str
    planted: tuple[int, int] | None
    words: str


def _megatron(step: int, now: float, seconds: float) -> str:
    stamp = datetime.fromtimestamp(now, UTC)
    return (
        f" [{stamp:%Y-%m-%d %H:%M:%S}] iteration {step:8}/  100000 | consumed samples: {step * 32:12} |"
        f" elapsed time per iteration (ms): {1000 * seconds:.1f} | global batch size:    32 | lm loss: 1.5 |"
    )


def _titan(step: int, now: float, _: float) -> str:
    stamp = datetime.fromtimestamp(now, UTC)
    milliseconds = stamp.microsecond // 1000
    return (
        f"[titan] {stamp:%Y-%m-%d %H:%M:%S},{milliseconds:03} - root - INFO - \x1b[31mstep: {step:2} "
        f" \x1b[32mloss:  6.5  \x1b[36mmemory:  8.50GiB(26%)  \x1b[34mtps: 1,024  \x1b[36mtflops: 4\x1b[39m"
    )


def _maxtext(step: int, _: float, seconds: float) -> str:
    return f"completed step: {step}, seconds: {seconds:.3f}, TFLOP/s/device: 97.5, loss: 12.4"


def _mlperf(step: int, now: float, seconds: float) -> str:
    return (
        f':::MLLOG {{"namespace": "", "time_ms": {round(1000 * now)}, "event_type": "POINT_IN_TIME", "key":'
        f' "tracked_stats", "value": {{"train_step_time": {seconds:.6f}}}, "metadata": {{"step": {step}.0}}}}'
    )


FAMILIES: dict[str, Callable[[int, float, float], str]] = {"megatron": _megatron, "torchtitan": _titan}
FAMILIES |= {"maxtext": _maxtext, "mlperf": _mlperf}
"""A line at the end of `step`, `now` s after the epoch: mean time of the steps since the line before."""


def planted_log(seed: int) -> PlantedLog:
    """A job of a random setting; in two of three logs every n-th step evaluates or saves."""
    rng = np.random.default_rng(seed)
    family = str(rng.choice([*FAMILIES]))
    each = int(rng.choice([1, 1, 1, 5, 10]))
    lines = int(rng.integers(60, 500))
    steps = lines * each
    noise = float(rng.choice([0.002, 0.01, 0.03]))
    skewed = bool(rng.integers(2))
    period = None
    if rng.random() < 2 / 3:
        period = each * int(rng.integers(2, min(50, lines // 6)))
    seconds = np.exp(noise * rng.standard_normal(steps)) if skewed else 1 + noise * rng.standard_normal(steps)
    seconds = 2.0 * seconds.clip(0.5) * _drift(rng, steps)
    rare = float(rng.choice([0, 0.003, 0.01]))
    remainder = 0 if each > 1 or period is None else int(rng.integers(2)) * int(rng.integers(period))
    if period is not None:
        # Visible in a line, the mean of `each` steps: 8 standard deviations and a tenth at least.
        extra = 2.0 * (0.1 + 8 * noise) * each * (1 + rng.random())
        seconds[np.arange(1, steps + 1) % period == remainder] += extra
    else:
        seconds[_irregular(rng, steps)] += 2.0 * (0.1 + 8 * noise) * each
    warm_up = int(rng.integers(0, 10))
    attempts = _attempts(rng, steps, each)
    each_attempt = [_with_outliers(rng, seconds, rare) for _ in attempts]
    text = _text(FAMILIES[family], attempts, each_attempt, each, warm_up)
    words = f"{family}, {lines} lines of {each}, noise {noise}, warm-up {warm_up}, {len(attempts)} attempts"
    return PlantedLog(text, family, None if period is None else (period, remainder), words)


def _irregular(rng: np.random.Generator, steps: int) -> npt.NDArray[np.bool_]:
    """Slow steps without a period: none, bursts, or at distances that vary by a quarter and more."""
    kind, distance = rng.integers(3), int(rng.integers(8, 60))
    slow = np.zeros(steps, np.bool_)
    if kind == 0:
        return slow
    if kind == 1:
        for begin in rng.integers(0, steps, max(steps // (4 * distance), 1)):
            slow[begin : begin + rng.integers(1, 5)] = True
        return slow
    gaps = rng.integers(distance * 3 // 4, distance * 5 // 4 + 2, steps // distance)
    at = np.cumsum(gaps)
    slow[at[at < steps]] = True
    return slow


def _drift(rng: np.random.Generator, steps: int) -> Floats:
    """A factor by step: none, a slope, or a change of level."""
    kind, size = rng.integers(3), rng.uniform(-0.3, 0.4)
    if kind == 0:
        return np.ones(steps)
    if kind == 1:
        return np.linspace(1, 1 + size, steps)
    return np.where(np.arange(steps) < rng.integers(steps), 1.0, 1 + size)


def _with_outliers(rng: np.random.Generator, seconds: Floats, rare: float) -> Floats:
    """Some steps, that share of all, take a second longer in the mean."""
    return seconds + rng.exponential(1.0, len(seconds)) * (rng.random(len(seconds)) < rare)


def _attempts(rng: np.random.Generator, steps: int, each: int) -> list[tuple[int, int]]:
    """First and last step of each attempt, which begins after the last checkpoint of the one before."""
    found, begin = [], 0
    for _ in range(int(rng.integers(0, 3))):
        end = begin + (int(rng.integers(begin, steps)) - begin) // each * each
        if end - begin >= 12 * each:
            found.append((begin + 1, end))
            begin = begin + (end - begin) // 2 // (10 * each) * 10 * each
    return [*found, (begin + 1, steps)]


def _text(
    line: Callable[[int, float, float], str],
    attempts: list[tuple[int, int]],
    each_attempt: list[Floats],
    each: int,
    warm_up: int,
) -> str:
    lines, now = [], _BEGIN
    for (first, last), seconds in zip(attempts, each_attempt, strict=True):
        now += 120.0
        held = 0.0
        for at, step in enumerate(range(first, last + 1)):
            length = float(seconds[step - 1])
            length += 30.0 if at == 0 else length * 2.0 ** (1 - at) if at < warm_up else 0.0
            now, held = now + length, held + length
            if step % each == 0:
                lines.append(line(step, now, held / each))
                held = 0.0
    return "\n".join(lines) + "\n"
