# SPDX-License-Identifier: Apache-2.0
"""Metrics of jobs' logs, on rows whose answers can be worked out by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from helpers.hand_made import Evidence, busy_steps, card, job_values

from cclbench.analyzers.metric import Value
from cclbench.analyzers.view.step_logs import period_of
from cclbench.card.model import Card
from cclbench.formats.job_log import JobLog

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


def _drift(rng: np.random.Generator, steps: int) -> npt.NDArray[np.float64]:
    """A factor by step: none, a slope, or a change of level."""
    kind, size = rng.integers(3), rng.uniform(-0.3, 0.4)
    if kind == 0:
        return np.ones(steps)
    if kind == 1:
        return np.linspace(1, 1 + size, steps)
    return np.where(np.arange(steps) < rng.integers(steps), 1.0, 1 + size)


def _with_outliers(
    rng: np.random.Generator, seconds: npt.NDArray[np.float64], rare: float
) -> npt.NDArray[np.float64]:
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
    each_attempt: list[npt.NDArray[np.float64]],
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


S = 10**9


def lines(seconds: Iterable[float | None], first: int = 1, **changes: Any) -> list[dict[str, Any]]:
    """A line a step, stamped when its step ends."""
    rows, now = [], 1000.0
    own = {"source": "job_log", "file": "job.log", "restart": 0, "steps": 1, "timed_by": "stated"}
    for step, length in enumerate(seconds, first):
        now += length or 0.0
        lasts = None if length is None else round(length * S)
        row = own | {"step": step, "dur_ns": lasts, "end_ns": round(now * S), "tokens": 4096}
        rows.append(row | changes)
    return rows


def values(metric: str, rows: Sequence[dict[str, Any]], *ranks: Any, **more: Any) -> dict[Any, Value]:
    """Values by category, step and stat: None of all three, the one that there is, or a tuple of several."""
    made = {}
    name = metric if "." in metric else f"log.{metric}"
    for value in job_values(name, Evidence(log_steps=rows), *ranks, **more):
        about = tuple(part for part in (value.category, value.step, value.stat) if part is not None)
        made[(about[0] if len(about) == 1 else about) if about else None] = value
    return made


def job(**parallelism: int) -> Card:
    batch = {"global": 32, "sequence_length": 128}
    return card(parallelism=parallelism, hardware__count=8, workload__batch=batch)


SERVER = {"source": "job_log", "file": "server.log", "restart": 0, "prompt_tokens_per_s": 10.0}
RATES = [SERVER | {"generated_tokens_per_s": rate} for rate in (0.0, 30.0)]
BY_DEVICE = lines([9, 2, 2, 2], tokens_per_s_per_device=250.0)
PROFILED = [
    row | {"profiler": {4: "recorded", 5: "saved"}.get(row["step"])} for row in lines([9, 1, 1, 3, 8, 1])
]
TWO_LOGS = lines([9, 1, 1, 1]) + lines([9, 2, 2, 2], file="other.log")
# Steps 1 to 4 of 10, 2, 2 and 2 s; 18 s later 3 to 6 of 6, 2, 2 and 2 s.
RESTARTED = lines([10, 2, 2, 2])
RESTARTED += [row | {"end_ns": row["end_ns"] + 34 * S} for row in lines([6, 2, 2, 2], first=3, restart=1)]


@pytest.mark.parametrize(
    ("metric", "rows", "more", "expected"),
    [
        # 60 s of the first step are compilation; of 1, 2, 3, 4 s the median is 2.5.
        (*("step", lines([60, 1, 2, 3, 4]), {}),
         {None: 2.5, "mean": 2.5, "max": 4, "cv": np.std([1, 2, 3, 4], ddof=1) / 2.5}),
        # Quarters of 20 lines are 5: from 1.0 s to 1.2 s is a drift of 20 %.
        ("step", lines([9] + [1.0] * 10 + [1.2] * 10), {}, {"drift": 0.2, "p5": 1.0, "p99": 1.2}),
        # Noise is not slow.
        ("step", lines(1 + 0.003 * np.random.default_rng(34).standard_normal(2000)), {}, {"slow_share": 0}),
        # Of steps 2 to 6 without 4 and 5: 1, 1, 1 s.
        ("step", PROFILED, {}, {"unprofiled": 1, ("profiled", 4): 3, ("profile saved", 5): 8}),
        ("step", TWO_LOGS, {}, {None: None, "job.log": 1, "other.log": 2}),
        *(("step", lines(few), {}, {None: None}) for few in ([5], [5, 1], [5, 1, 2], [5, None, None, None])),
        ("step", RATES, {}, {None: None}),
        # A server has rates.
        ("tokens", RATES, {}, {None: 15, "prompt": 10}),
        # 4,096 tokens in 2 s; on 8 devices by the log or the card 256 each.
        (*("tokens", BY_DEVICE, {"settings": {"job.log": {"devices": 8}}}),
         {None: 2048, "per_device": 256, "stated_per_device": 250}),
        ("tokens", BY_DEVICE, {"card": job()}, {"per_device": 256}),
        ("tokens", BY_DEVICE, {}, {"per_device": None}),
        ("tokens", lines([9, 2, 2, 2], tokens=None), {}, {None: None}),
        # Five steps of 2 s without a gap: all of 10 s.
        ("goodput.training", lines([2] * 5), {}, {None: 1, "restarts": 0, "lost_steps": 0}),
        # Steps 3 and 4 are done twice. Productive: 2 + 2 s of the first attempt, 4 · 2 s of the second.
        (*("goodput.training", RESTARTED, {}),
         {None: 12 / (10 + 6 + 18 + 6 + 6), "restarts": 1, "lost_steps": 2}),
        ("goodput.training", lines([2, 2, 2, 2], end_ns=None), {}, {None: None}),
        (*("mfu", lines([9, 2, 2, 2], mfu=0.25, flops_per_s=5e13), {}),
         {None: 0.25, "flops_per_s": 5e13, "derived": None}),
        ("profiler_overhead", lines([9, 2, 2, 2]), {}, {None: None}),
    ],
)  # fmt: skip
def test_figures_of_a_log(metric: str, rows: Any, more: dict[str, Any], expected: dict[Any, Any]) -> None:
    found = values(metric, rows, **more)
    assert {about: found[about].value for about in expected} == pytest.approx(expected)
    assert {found[about].status for about, value in expected.items() if value is None} <= {"not_applicable"}


@pytest.mark.parametrize(
    ("settings", "value", "reason"),
    [
        ({"run_start_ms": 1000, "run_stop_ms": 61_500}, 60.5, None),
        ({"run_start_ms": 1000}, None, "the log has no run_start and successful run_stop of MLPerf"),
        ({"run_start_ms": 2, "run_stop_ms": 1}, None, "run_stop is before run_start"),
    ],
)
def test_time_to_train_is_of_runs(settings: dict[str, int], value: float | None, reason: str | None) -> None:
    found = values("time_to_train", lines([1, 1, 1]), settings={"job.log": settings})
    assert (found[None].value, found[None].reason) == (value, reason)


def test_slow_steps_with_a_rhythm_and_without() -> None:
    """Every fifth of 50 is slow, and 7, 8, 20 and 41: no distance fits most of these."""
    found = values("step", lines([1.5 if step % 5 == 0 else 1.0 for step in range(1, 51)]))
    assert found["slow_period"].value == 5
    assert found["slow_period"].reason == "every 5 steps, as step 5, a step takes 500 ms more"
    assert found["slow_share"].value == pytest.approx(10 / 49)
    odd = values("step", lines([1.5 if n in (7, 8, 20, 41) else 1.0 for n in range(1, 51)]))
    assert "slow_period" not in odd
    slow = [[value.step for value in own.values() if value.category == "slow"] for own in (found, odd)]
    assert slow == [list(range(5, 51, 5)), [7, 8, 20, 41]]


def test_a_period_needs_most_of_its_own_steps_and_no_chance() -> None:
    """Of two periods the shorter one is named; three slow steps of 20 are as regular by chance."""
    steps = np.arange(1, 101)
    assert period_of(steps, steps % 10 == 3) == (10, 3)
    assert period_of(steps, (steps % 10 == 3) & (steps < 50)) is None
    assert period_of(steps, (steps % 10 == 3) | (steps % 7 == 0)) == (7, 0)
    assert period_of(steps[:20], steps[:20] % 7 == 5) is None
    assert period_of(steps, steps < 3) is None


@pytest.mark.parametrize("family", FAMILIES)
def test_periods_are_found_where_planted_and_never_claimed_where_not(family: str, tmp_path: Path) -> None:
    """Jobs with noise, drift, restarts, warm-up, lines of several steps, and slow steps without a period."""
    found = []
    for seed in range(80):
        log = planted_log(seed)
        if log.family == family:
            path = tmp_path / "job.log"
            path.write_text(log.text)
            rows = JobLog().read(path).log_steps
            rows = rows.set_column(1, "file", pa.array(["job.log"] * len(rows)))
            table = Evidence(log_steps=rows.to_pylist())
            value = {v.stat: v for v in job_values("log.step", table)}.get("slow_period")
            expected = (
                log.planted and f"every {log.planted[0]} steps, as step {log.planted[1] or log.planted[0]},"
            )
            assert (value and value.value) == (log.planted and log.planted[0]), log.words
            assert expected is None or value.reason.startswith(expected), log.words
            found.append(expected is not None)
    assert 8 < sum(found) < len(found) - 2


@pytest.mark.parametrize("period", [2, 5])
def test_every_second_step_and_every_fifth_of_a_drifting_job_are_slow(period: int) -> None:
    """Times double from the first step to the last: no step is slow by the median of all."""
    slow = np.where(np.arange(1, 101) % period == 0, 1.2, 1.0)
    found = values("step", lines(np.linspace(1, 2, 100) * slow))
    assert (found["slow_period"].value, found["slow_share"].value) == (period, 0)


def test_what_the_figures_of_a_log_rest_on() -> None:
    assert values("step", PROFILED)["profiled", 4].reason == "2.00 s more than the unprofiled median"
    assert values("step", TWO_LOGS)[None].reason == "2 logs: see their rows"
    assert "p95" not in values("step", lines([60, 1, 2, 3, 4]))
    # Ranks that log the same steps count once.
    both = values("step", lines([9, 1, 1, 1], rank=0) + lines([9, 2, 2, 2], rank=1))[None]
    assert (both.value, "one of 2 ranks" in str(both.reason)) == (1, True)
    # Steps longer than the time they were logged in fail.
    longer = [row | {"dur_ns": 2 * row["dur_ns"]} for row in lines([2, 2, 2, 2])]
    assert values("goodput.training", longer)[None].status == "failed"


TWO_STEPS = busy_steps((0, 3 * S), (3 * S, 6 * S))


def test_a_traced_step_against_the_log() -> None:
    """Two closed steps of 3 s, in a log of 2 s: 50 % longer than the others, and than all of them."""
    rows = lines([9, 2, 2, 2, 3, 8])
    rows[4]["profiler"], rows[5]["profiler"] = "recorded", "saved"
    found = values("profiler_overhead", rows, TWO_STEPS)
    assert (found[None].value, found["longer_than"].value) == (pytest.approx(0.5), 1)
    assert "joined by folder" in str(found[None].reason)


@pytest.mark.parametrize(
    ("marked", "words"),
    [(1, "joined by step number;"), (2, "joined by step number, which the trace counts from 0;")],
)
def test_a_traced_step_is_joined_by_the_number_that_the_profiler_marks(marked: int, words: str) -> None:
    rows = lines([9, 2, 2, 2])
    rows[marked - 1]["profiler"] = "recorded"
    assert f"{values('profiler_overhead', rows, TWO_STEPS)[None].reason};".endswith(words)


def test_a_card_against_its_log() -> None:
    """The run named pp 2 ran pp 1: two of four settings differ."""
    logged = {"pipeline_parallel": 1, "shard_parallel": 8, "devices": 8, "global_batch": 32}
    told = {"settings": {"job.log": logged}}
    own = values("card_agreement", lines([9, 2]), card=job(pp=2, dp_shard=4), **told)[None]
    assert own.value == 0.5
    assert "2 in the card, 1 in the log; shard parallel 4 in the card, 8 in the log" in (own.reason or "")
    assert values("card_agreement", lines([9, 2]), card=job(dp_shard=8), **told)[None].value == 1


EPOCH = 1_700_000_000 * S


def clocked(seconds: Iterable[float | None], begin: int, **changes: Any) -> list[dict[str, Any]]:
    """`lines` whose first step begins at a time."""
    rows = lines(seconds, **changes)
    return [row | {"end_ns": row["end_ns"] - 1000 * S + begin} for row in rows]


@pytest.mark.parametrize(
    ("hours", "zone"), [(0, ""), (-8, ", the log -8 h from UTC"), (5.5, ", the log +5.5 h from UTC")]
)
def test_a_traced_step_is_joined_by_the_clock(hours: float, zone: str) -> None:
    """Steps of 9, 2, 2, 3, 8 and 2 s: the trace has the fourth, from 13 to 16 s, by UTC."""
    rows = clocked([9, 2, 2, 3, 8, 2], EPOCH + round(hours * 3600 * S))
    found = values("profiler_overhead", rows, busy_steps((EPOCH + 13 * S, EPOCH + 16 * S)))
    assert found[None].reason == f"3.00 s traced, 2.00 s in the log; joined by clock{zone}"
    assert (found[None].value, found["logged"].value) == (0.5, 0.5)
    assert found[0].reason == "step 4 of the log, 3.00 s there"


def test_a_clock_that_fits_in_two_zones_or_is_not_since_1970_joins_nothing() -> None:
    """20 min of steps hold the traced ones as they are, and a quarter of an hour later; by UTC, once."""
    rows = clocked([60, *[2.0] * 570], EPOCH)
    rank = busy_steps((EPOCH + 130 * S, EPOCH + 133 * S))
    assert "joined by folder" in str(values("profiler_overhead", rows, rank)[None].reason)
    found = values("profiler_overhead", rows, rank, settings={"job.log": {"clock": "utc"}})
    assert str(found[None].reason).endswith("joined by clock")
    assert found[0].reason == "step 37 of the log, 2.00 s there"
    early = values("profiler_overhead", clocked([9, 2, 2, 2], 0), busy_steps((10 * S, 12 * S)))
    assert "joined by folder" in str(early[None].reason)
    # Steps as short as the clock's second are not told apart.
    rows = clocked([9.0, *[1.0] * 9], EPOCH)
    found = values("profiler_overhead", rows, busy_steps((EPOCH + 10 * S, EPOCH + 12 * S)))
    assert str(found[None].reason).endswith("joined by clock")
    assert 0 not in found


def test_of_two_logs_the_clock_tells_which_is_the_traced_jobs() -> None:
    """The other job ran a day later; a second log of the same job agrees, that of another one does not."""
    rank = busy_steps((EPOCH + 11 * S, EPOCH + 14 * S))
    own, later = clocked([9, 2, 3, 2], EPOCH), clocked([9, 5, 5, 5], EPOCH + 86_400 * S, file="other.log")
    events = clocked([9, 2, 3, 2], EPOCH, file="events", source="tensorboard")
    rival = clocked([9, 4, 4, 4], EPOCH, file="rival.log")
    stranger = clocked([9, 4, 4, 4], EPOCH + 200_000 * S, file="stranger.log")
    found = values("profiler_overhead", own + later, rank)[None]
    assert (found.value, str(found.reason).endswith("joined by clock: job.log")) == (0.5, True)
    assert values("profiler_overhead", own + events, rank)[None].value == 0.5
    why = "2 logs beside the traces: {} their step numbers or times"
    for logs, fit in ((own + rival, "2 of them fit"), (later + stranger, "none fits")):
        assert values("profiler_overhead", logs, rank)[None].reason == why.format(fit)


def test_a_traced_step_is_in_the_rhythm_of_the_slow_ones_or_not() -> None:
    rows = lines([1.5 if step % 5 == 0 else 1.0 for step in range(1, 31)])
    rows[9]["profiler"], rows[10]["profiler"] = "recorded", "recorded"
    rank = busy_steps(*((n * 2 * S, (n + 1) * 2 * S) for n in range(12)))
    found = values("profiler_overhead", rows, rank)
    assert found[10].reason == "step 10 of the log, 1.50 s there, one of the slow steps, every 5"
    assert found[11].reason == "step 11 of the log, 1.00 s there, none of the slow steps, every 5"


def test_a_log_alone_tells_the_overhead_of_the_steps_that_it_marks() -> None:
    """Of steps of 3 and 2.5 s the shorter one, over 2 s."""
    rows = lines([9, 2, 2, 3, 2.5, 2])
    rows[3]["profiler"], rows[4]["profiler"] = "recorded", "recorded"
    found = values("profiler_overhead", rows)
    assert (found[None].status, found["logged"].value) == ("not_applicable", 0.25)
    assert found["logged"].reason == "step 5: 2.50 s, 2.00 s unprofiled"
