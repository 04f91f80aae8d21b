# SPDX-License-Identifier: Apache-2.0
"""Pipeline schedules: closed forms of even stages, properties, and two traced jobs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers.replay_subjects import card
from hypothesis import given
from hypothesis import strategies as st

from cclbench.ground.errors import InputError
from cclbench.replay.schedules import (
    MOST_OPERATIONS,
    SCHEDULES,
    Operation,
    PartTimes,
    Schedule,
    schedule_orders,
    simulate_schedule,
)
from cclbench.replay.stages import LayerPipeline, head_layers
from cclbench.replay.step_projection import JITTER

stages = st.integers(1, 8)
works = st.lists(st.integers(1, 9), min_size=1, max_size=6)
schedules = st.sampled_from(SCHEDULES)


def span(
    orders: list[list[Operation]], forward: list[float], backward: list[float], send: float = 0
) -> float:
    """When the last operation of parts with these times ends."""
    columns = (np.array(times, np.float64)[:, None, None] for times in (forward, backward))
    return float(simulate_schedule(orders, PartTimes(*columns, np.array([send]))).max())


def idle_share(pipeline: LayerPipeline) -> float:
    """Share of a step in which the busiest stage does nothing."""
    fill = pipeline.fill_share(0.0)
    return fill / (1 + fill)


def test_two_stages_by_hand() -> None:
    """F 1, B 2, sends 1: F0 0-1, F1 1-2 on the first; F0 2-3, B0 3-5, F1 5-6, B1 6-8; B0 6-8, B1 9-11."""
    orders = schedule_orders("1f1b", 2, 2)
    written = ["".join(f"{one.kind}{one.microbatch}" for one in order) for order in orders]
    assert written == ["F0F1B0B1", "F0B0F1B1"]
    assert span(orders, [1, 1], [2, 2], 1) == 11
    # the last takes 3 + 6 for each of 4 micro-batches, behind F of 1 and before B of 2 of the first
    assert span(schedule_orders("1f1b", 2, 4), [1, 3], [2, 6]) == 1 + 4 * 9 + 2


@given(stages, st.integers(1, 24), st.sampled_from(("gpipe", "1f1b")))
def test_even_stages_idle_for_p_less_one_of_m_and_p_less_one(p: int, m: int, schedule: Schedule) -> None:
    """Huang et al. 2019; Narayanan et al. 2021."""
    assert idle_share(LayerPipeline(p, m, p, 1, schedule)) == pytest.approx((p - 1) / (m + p - 1))


@given(stages, st.integers(1, 4), st.integers(2, 4))
def test_parts_of_a_stage_divide_what_it_idles(p: int, groups: int, v: int) -> None:
    m = groups * p
    assert idle_share(LayerPipeline(p, m, p * v, v)) == pytest.approx((p - 1) / (v * m + p - 1))


@given(stages, st.integers(0, 16))
def test_zero_bubble_fills_with_gradients_of_weights(p: int, more: int) -> None:
    """Qi et al. 2023: (p − 1) (F + B − W) of enough micro-batches, here F = B = W; never worse than 1F1B."""
    m = 2 * p + more
    even = idle_share(LayerPipeline(p, m, p, 1, "zero_bubble"))
    assert even == pytest.approx((p - 1) / 3 / (m + (p - 1) / 3))
    for few in range(1, m):
        assert idle_share(LayerPipeline(p, few, p, 1, "zero_bubble")) <= (p - 1) / (few + p - 1) + 1e-9


@given(schedules, works, st.integers(1, 10), st.integers(0, 5))
def test_more_and_slower_are_no_shorter(schedule: Schedule, work: list[int], m: int, send: int) -> None:
    def step(times: list[int], count: int, transfer: float) -> float:
        pipeline = LayerPipeline(len(times), count, len(times), 1, schedule)
        return float(pipeline.span(np.array(times, np.float64)[:, None], transfer)[0])

    took = step(work, m, send)
    assert took >= m * max(work) - 1e-9
    assert step(work, m + 1, send) >= took - 1e-9
    assert step(work, m, send + 1) >= took - 1e-9
    assert step([*work[:-1], work[-1] + 1], m, send) >= took - 1e-9


@given(schedules, stages, st.integers(1, 12))
def test_each_stage_does_each_operation_once(schedule: Schedule, p: int, m: int) -> None:
    for stage, order in enumerate(schedule_orders(schedule, p, m)):
        kinds = "FBW" if schedule == "zero_bubble" else "FB"
        assert sorted(order) == sorted(Operation(kind, stage, i) for kind in kinds for i in range(m))  # type: ignore[arg-type]


def test_one_forward_one_backward_keeps_no_more_micro_batches_than_stages() -> None:
    for schedule in ("1f1b", "zero_bubble"):
        held = peak = 0
        for one in schedule_orders(schedule, 4, 12)[0]:
            held += {"F": 1, "B": -1 if schedule == "1f1b" else 0, "W": -1}[one.kind]
            peak = max(peak, held)
        assert peak == 4


def test_schedules_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match="multiples of pp 4, not 6"):
        schedule_orders("1f1b", 4, 6, 2)
    with pytest.raises(InputError, match="not of gpipe"):
        schedule_orders("gpipe", 4, 8, 2)
    with pytest.raises(InputError, match="too many to simulate"):
        schedule_orders("1f1b", 4, MOST_OPERATIONS)


def test_layers_are_split_as_evenly_as_they_can_be() -> None:
    """30 layers in 4 parts, the last with a head of 1.5; two parts a stage have parts 0 and 2, 1 and 3."""
    assert LayerPipeline(4, 8, 30).stage_layers(1.5).tolist() == [8, 8, 7, 8.5]
    assert LayerPipeline(2, 8, 30, 2).stage_layers(1.5).tolist() == [15, 16.5]
    # two even stages wait for a send of each micro-batch; a slow last one for two, while it fills
    pipeline = LayerPipeline(2, 8, 8)
    assert pipeline.exposed_sends(0.0) == pytest.approx(8)
    assert pipeline.exposed_sends(2.0) == pytest.approx(2)
    # 2 h V FLOPs of a token, and 24 h² + 4 s h of a layer
    sizes = card({"vocabulary": 50_257, "hidden": 2560}, {"sequence_length": 2048})
    assert head_layers(sizes) == pytest.approx(2 * 2560 * 50_257 / (24 * 2560**2 + 4 * 2048 * 2560))
    assert head_layers(card({"hidden": 2560}, {"sequence_length": 2048})) is None
    assert head_layers(None) is None


@pytest.mark.parametrize(("name", "send", "even"), [("ST", 0.0005, 0.850), ("AR", 0.0011, 0.969)])
def test_traced_pipelines_are_as_simulated(name: str, send: float, even: float, test_data: Path) -> None:
    """Jobs of 4 stages (J. Lin et al. 2025): operations' own times give the span of a step within 0.3 %,
    stages' mean times within `JITTER`; even stages, (m + p − 1) (F + B), are up to 15 % too fast."""
    rows = pq.read_table(test_data / "stragglers" / f"trace-{name}.parquet").to_pandas()
    rows = rows[rows["optype"].isin(("forward-compute", "backward-compute"))]
    rows["end"] = rows["start_ts"] + rows["duration"]
    count = int(rows["mb_id"].max()) + 1
    orders = schedule_orders("1f1b", 4, count)
    own, mean, closed = [], [], []
    for _, step in rows.groupby(["step", "dp_rank"]):
        measured = step["end"].max() - step["start_ts"].min()
        table = step.pivot_table(index=["optype", "stage"], columns="mb_id", values="duration")
        forward, backward = (
            table.loc[kind].to_numpy()[:, :, None] for kind in ("forward-compute", "backward-compute")
        )
        for found, times in ((own, (forward, backward)), (mean, (forward.mean(1), backward.mean(1)))):
            parts = PartTimes(*(time.reshape(4, -1, 1) for time in times), np.array([send]))
            found.append(float(simulate_schedule(orders, parts).max()) / measured)
        closed.append((count + 3) * (forward.mean() + backward.mean()) / measured)
    assert 0.997 < min(own) <= max(own) < 1.0
    assert 1 - JITTER < min(mean) <= max(mean) < 1 + JITTER * 1.1
    assert np.median(closed) == pytest.approx(even, abs=0.001)
