# SPDX-License-Identifier: Apache-2.0
"""Metrics of jobs' logs, on rows whose answers can be worked out by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.hand_made import Evidence, busy_steps, of_run
from helpers.planted_logs import FAMILIES, planted_log

from cclbench.analyzers.metric import Value
from cclbench.analyzers.view.step_logs import period_of
from cclbench.card.model import Card, card_of
from cclbench.formats.job_log import JobLog

S = 10**9

CARD = {
    "version": 2,
    "id": "job",
    "description": "A job.",
    "workload": {
        "phase": "training",
        "precision": "bf16",
        "model": {"name": "m", "parameters": 100},
        "batch": {"global": 32, "sequence_length": 128},
    },
    "hardware": {"accelerator": "nvidia-a100-sxm-80gb", "count": 8, "per_node": 8},
    "software": {"framework": {"name": "pytorch"}, "communication": {"library": "nccl"}},
    "parallelism": {"pp": 2, "dp_shard": 4},
}



def lines(seconds: Iterable[float | None], first: int = 1, **changes: Any) -> list[dict[str, Any]]:
    """A line a step, stamped when its step ends."""
    rows, now = [], 1000.0
    for step, length in enumerate(seconds, first):
        now += length or 0.0
        row = {
            "source": "job_log",
            "file": "job.log",
            "restart": 0,
            "step": step,
            "steps": 1,
            "dur_ns": None if length is None else round(length * S),
            "end_ns": round(now * S),
            "timed_by": "stated",
            "tokens": 4096,
        }
        rows.append(row | changes)
    return rows


def values(metric: str, rows: Sequence[dict[str, Any]], *ranks: Any, **more: Any) -> dict[Any, Value]:
    """Values by category, step and stat."""
    found = of_run(metric, Evidence(log_steps=rows), *ranks, **more)
    return {(value.category, value.step, value.stat): value for value in found}


def test_the_median_is_over_all_but_the_first_line_of_an_attempt() -> None:
    """60 s of the first step are compilation; of 1, 2, 3, 4 s the median is 2.5."""
    found = values("log.step", lines([60, 1, 2, 3, 4]))
    assert found[None, None, None].value == 2.5
    assert found[None, None, "mean"].value == 2.5
    assert found[None, None, "max"].value == 4
    assert found[None, None, "cv"].value == pytest.approx(np.std([1, 2, 3, 4], ddof=1) / 2.5)
    assert (None, None, "p95") not in found


def test_percentiles_and_drift_of_twenty_lines() -> None:
    """Quarters of 20 lines are 5: from 1.0 s to 1.2 s is a drift of 20 %."""
    found = values("log.step", lines([9] + [1.0] * 10 + [1.2] * 10))
    assert found[None, None, "drift"].value == pytest.approx(0.2)
    assert found[None, None, "p5"].value == 1.0
    assert found[None, None, "p99"].value == 1.2


@pytest.mark.parametrize(
    ("settings", "value", "reason"),
    [
        ({"run_start_ms": 1000, "run_stop_ms": 61_500}, 60.5, None),
        ({"run_start_ms": 1000}, None, "the log has no run_start and successful run_stop of MLPerf"),
        ({"run_start_ms": 2, "run_stop_ms": 1}, None, "run_stop is before run_start"),
    ],
)
def test_the_time_to_train_is_from_run_start_to_run_stop(
    settings: dict[str, int], value: float | None, reason: str | None
) -> None:
    found = values("log.time_to_train", lines([1, 1, 1]), settings={"job.log": settings})
    assert (found[None, None, None].value, found[None, None, None].reason) == (value, reason)


@pytest.mark.parametrize("seconds", [[5], [5, 1], [5, 1, 2], [5, None, None, None]])
def test_few_times_are_no_distribution(seconds: list[float | None]) -> None:
    assert values("log.step", lines(seconds))[None, None, None].status == "not_applicable"


def test_every_fifth_step_is_slow() -> None:
    found = values("log.step", lines([1.5 if step % 5 == 0 else 1.0 for step in range(1, 51)]))
    assert found[None, None, "slow_period"].value == 5
    assert found[None, None, "slow_period"].reason == "every 5 steps, as step 5, a step takes 500 ms more"
    assert found[None, None, "slow_share"].value == pytest.approx(10 / 49)
    assert [step for category, step, _ in found if category == "slow"] == list(range(5, 51, 5))


def test_slow_steps_without_a_rhythm_have_no_period() -> None:
    """Of 50 steps 7, 8, 20 and 41 are slow: no distance fits most of them."""
    found = values("log.step", lines([1.5 if n in (7, 8, 20, 41) else 1.0 for n in range(1, 51)]))
    assert (None, None, "slow_period") not in found
    assert [step for category, step, _ in found if category == "slow"] == [7, 8, 20, 41]


def test_noise_is_not_slow() -> None:
    chance = np.random.default_rng(34)
    found = values("log.step", lines(1 + 0.003 * chance.standard_normal(2000)))
    assert found[None, None, "slow_share"].value == 0


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
            value = {v.stat: v for v in of_run("log.step", table)}.get("slow_period")
            expected = (
                log.planted and f"every {log.planted[0]} steps, as step {log.planted[1] or log.planted[0]},"
            )
            assert (value and value.value) == (log.planted and log.planted[0]), log.words
            assert expected is None or value.reason.startswith(expected), log.words
            found.append(expected is not None)
    assert 8 < sum(found) < len(found) - 2


def test_every_second_step_and_every_fifth_of_a_drifting_job_are_slow() -> None:
    """Times double from the first step to the last: no step is slow by the median of all."""
    drift = np.linspace(1, 2, 100)
    for period in (2, 5):
        rows = lines(drift * np.where(np.arange(1, 101) % period == 0, 1.2, 1.0))
        found = values("log.step", rows)
        assert found[None, None, "slow_period"].value == period
        assert found[None, None, "slow_share"].value == 0


def test_profiled_steps_stand_apart() -> None:
    """Of steps 2 to 6 without 4 and 5: 1, 1, 1 s; step 4 took 2 s more."""
    rows = lines([9, 1, 1, 3, 8, 1])
    rows[3]["profiler"], rows[4]["profiler"] = "recorded", "saved"
    found = values("log.step", rows)
    assert found[None, None, "unprofiled"].value == 1
    assert found["profiled", 4, None].value == 3
    assert found["profiled", 4, None].reason == "2.00 s more than the unprofiled median"
    assert found["profile saved", 5, None].value == 8


def test_two_logs_are_two_jobs() -> None:
    rows = lines([9, 1, 1, 1]) + lines([9, 2, 2, 2], file="other.log")
    found = values("log.step", rows)
    assert found[None, None, None].reason == "2 logs: see their rows"
    assert found["job.log", None, None].value == 1
    assert found["other.log", None, None].value == 2


def test_ranks_that_log_the_same_steps_count_once() -> None:
    rows = lines([9, 1, 1, 1], rank=0) + lines([9, 2, 2, 2], rank=1)
    found = values("log.step", rows)
    assert found[None, None, None].value == 1
    assert "one of 2 ranks" in str(found[None, None, None].reason)


def test_tokens_of_the_job_and_of_a_device() -> None:
    """4,096 tokens in 2 s; on 8 devices by the log 256 each."""
    rows = lines([9, 2, 2, 2], tokens_per_s_per_device=250.0)
    found = values("log.tokens", rows, settings={"job.log": {"devices": 8}})
    assert found[None, None, None].value == 2048
    assert found[None, None, "per_device"].value == 256
    assert found[None, None, "stated_per_device"].value == 250
    assert values("log.tokens", rows)[None, None, "per_device"].status == "not_applicable"
    assert values("log.tokens", rows, card=card())[None, None, "per_device"].value == 256


def test_a_log_without_samples_has_no_tokens() -> None:
    found = values("log.tokens", lines([9, 2, 2, 2], tokens=None))
    assert found[None, None, None].status == "not_applicable"


def test_a_server_has_rates_and_no_step() -> None:
    row = {"source": "job_log", "file": "server.log", "restart": 0}
    rows = [row | {"generated_tokens_per_s": rate, "prompt_tokens_per_s": 10.0} for rate in (0.0, 30.0)]
    found = values("log.tokens", rows)
    assert found[None, None, None].value == 15
    assert found["prompt", None, None].value == 10
    assert values("log.step", rows)[None, None, None].status == "not_applicable"


def test_goodput_of_a_job_without_trouble() -> None:
    """Five steps of 2 s without a gap: all of 10 s."""
    found = values("goodput.training", lines([2, 2, 2, 2, 2]))
    assert found[None, None, None].value == 1
    assert found[None, None, "restarts"].value == 0
    assert found[None, None, "lost_steps"].value == 0


def test_goodput_leaves_out_compilation_gaps_and_repeated_steps() -> None:
    """Steps 1 to 4 of 10, 2, 2 and 2 s; 18 s later 3 to 6 of 6, 2, 2 and 2 s.

    Steps 3 and 4 are done twice. Productive: 2 + 2 s of the first attempt, 4 · 2 s of the second.
    """
    before = lines([10, 2, 2, 2])
    after = lines([6, 2, 2, 2], first=3, restart=1)
    shift = before[-1]["end_ns"] + 18 * S - 1000 * S
    for row in after:
        row["end_ns"] += shift
    found = values("goodput.training", before + after)
    assert found[None, None, None].value == pytest.approx(12 / (10 + 6 + 18 + 6 + 6))
    assert found[None, None, "restarts"].value == 1
    assert found[None, None, "lost_steps"].value == 2


def test_goodput_needs_stamps() -> None:
    found = values("goodput.training", lines([2, 2, 2, 2], end_ns=None))
    assert found[None, None, None].status == "not_applicable"


def test_steps_longer_than_the_time_they_were_logged_in_fail() -> None:
    rows = lines([2, 2, 2, 2])
    for row in rows:
        row["dur_ns"] *= 2
    assert values("goodput.training", rows)[None, None, None].status == "failed"


def test_a_traced_step_against_the_log() -> None:
    """Two closed steps of 3 s, in a log of 2 s: 50 % longer than the others, and than all of them."""
    rows = lines([9, 2, 2, 2, 3, 8])
    rows[4]["profiler"], rows[5]["profiler"] = "recorded", "saved"
    rank = busy_steps((0, 3 * S), (3 * S, 6 * S))
    found = values("log.profiler_overhead", rows, rank)
    assert found[None, None, None].value == pytest.approx(0.5)
    assert found[None, None, "longer_than"].value == 1
    assert "joined by folder" in str(found[None, None, None].reason)


@pytest.mark.parametrize(
    ("marked", "words"),
    [(1, "joined by step number;"), (2, "joined by step number, which the trace counts from 0;")],
)
def test_a_traced_step_is_joined_by_the_number_that_the_profiler_marks(marked: int, words: str) -> None:
    rows = lines([9, 2, 2, 2])
    rows[marked - 1]["profiler"] = "recorded"
    found = values("log.profiler_overhead", rows, busy_steps((0, 3 * S), (3 * S, 6 * S)))
    assert f"{found[None, None, None].reason};".endswith(words)


def test_a_log_without_traces_has_no_overhead() -> None:
    assert values("log.profiler_overhead", lines([9, 2, 2, 2]))[None, None, None].status == "not_applicable"


def card(**parallelism: int) -> Card:
    return card_of(CARD | ({"parallelism": parallelism} if parallelism else {}), root=Path())


def test_a_card_against_its_log() -> None:
    """The run named pp 2 ran pp 1: two of four settings differ."""
    logged = {"pipeline_parallel": 1, "shard_parallel": 8, "devices": 8, "global_batch": 32}
    found = values("log.card_agreement", lines([9, 2]), card=card(), settings={"job.log": logged})
    assert found[None, None, None].value == 0.5
    assert found[None, None, None].reason == (
        "pipeline parallel 2 in the card, 1 in the log; shard parallel 4 in the card, 8 in the log"
    )
    agreeing = values(
        "log.card_agreement", lines([9, 2]), card=card(dp_shard=8), settings={"job.log": logged}
    )
    assert agreeing[None, None, None].value == 1


def test_stated_and_derived_utilisation() -> None:
    rows = lines([9, 2, 2, 2], mfu=0.25, flops_per_s=5e13)
    found = values("log.mfu", rows)
    assert found[None, None, None].value == 0.25
    assert found[None, None, "flops_per_s"].value == 5e13
    assert found[None, None, "derived"].status == "not_applicable"


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
    rank = busy_steps((EPOCH + 13 * S, EPOCH + 16 * S))
    found = values("log.profiler_overhead", rows, rank)
    assert found[None, None, None].reason == f"3.00 s traced, 2.00 s in the log; joined by clock{zone}"
    assert found[None, None, None].value == 0.5
    assert found[None, 0, None].reason == "step 4 of the log, 3.00 s there"
    assert found[None, None, "logged"].value == 0.5


def test_a_clock_that_fits_in_two_zones_joins_nothing() -> None:
    """20 min of steps hold the traced ones as they are, and a quarter of an hour later; by UTC, once."""
    rows = clocked([60, *[2.0] * 570], EPOCH)
    rank = busy_steps((EPOCH + 130 * S, EPOCH + 133 * S))
    assert "joined by folder" in str(values("log.profiler_overhead", rows, rank)[None, None, None].reason)
    found = values("log.profiler_overhead", rows, rank, settings={"job.log": {"clock": "utc"}})
    assert str(found[None, None, None].reason).endswith("joined by clock")
    assert found[None, 0, None].reason == "step 37 of the log, 2.00 s there"


def test_times_that_are_not_since_1970_join_nothing() -> None:
    found = values("log.profiler_overhead", clocked([9, 2, 2, 2], 0), busy_steps((10 * S, 12 * S)))
    assert "joined by folder" in str(found[None, None, None].reason)


def test_steps_as_short_as_the_clocks_second_are_not_told_apart() -> None:
    rows = clocked([9.0, *[1.0] * 9], EPOCH)
    found = values("log.profiler_overhead", rows, busy_steps((EPOCH + 10 * S, EPOCH + 12 * S)))
    assert str(found[None, None, None].reason).endswith("joined by clock")
    assert (None, 0, None) not in found


def test_of_two_logs_the_clock_tells_which_is_the_traced_jobs() -> None:
    """The other job ran a day later; a second log of the same job agrees, that of another one does not."""
    rank = busy_steps((EPOCH + 11 * S, EPOCH + 14 * S))
    own, later = clocked([9, 2, 3, 2], EPOCH), clocked([9, 5, 5, 5], EPOCH + 86_400 * S, file="other.log")
    found = values("log.profiler_overhead", own + later, rank)
    assert found[None, None, None].value == 0.5
    assert str(found[None, None, None].reason).endswith("joined by clock: job.log")
    events = clocked([9, 2, 3, 2], EPOCH, file="events", source="tensorboard")
    assert values("log.profiler_overhead", own + events, rank)[None, None, None].value == 0.5
    rival = clocked([9, 4, 4, 4], EPOCH, file="rival.log")
    refused = values("log.profiler_overhead", own + rival, rank)[None, None, None]
    assert refused.reason == "2 logs beside the traces: 2 of them fit their step numbers or times"
    stranger = clocked([9, 4, 4, 4], EPOCH + 200_000 * S, file="stranger.log")
    refused = values("log.profiler_overhead", later + stranger, rank)[None, None, None]
    assert refused.reason == "2 logs beside the traces: none fits their step numbers or times"


def test_a_traced_step_is_in_the_rhythm_of_the_slow_ones_or_not() -> None:
    rows = lines([1.5 if step % 5 == 0 else 1.0 for step in range(1, 31)])
    rows[9]["profiler"], rows[10]["profiler"] = "recorded", "recorded"
    rank = busy_steps(*((n * 2 * S, (n + 1) * 2 * S) for n in range(12)))
    found = values("log.profiler_overhead", rows, rank)
    assert found[None, 10, None].reason == "step 10 of the log, 1.50 s there, one of the slow steps, every 5"
    assert found[None, 11, None].reason == "step 11 of the log, 1.00 s there, none of the slow steps, every 5"


def test_a_log_alone_tells_the_overhead_of_the_steps_that_it_marks() -> None:
    """Of steps of 3 and 2.5 s the shorter one, over 2 s."""
    rows = lines([9, 2, 2, 3, 2.5, 2])
    rows[3]["profiler"], rows[4]["profiler"] = "recorded", "recorded"
    found = values("log.profiler_overhead", rows)
    assert found[None, None, None].status == "not_applicable"
    assert found[None, None, "logged"].value == 0.25
    assert found[None, None, "logged"].reason == "step 5: 2.50 s, 2.00 s unprofiled"
