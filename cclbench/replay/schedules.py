# SPDX-License-Identifier: Apache-2.0
"""Pipeline schedules: order of the operations on each stage, and when they run.

The layers of a model are cut into v·p parts; stage i of p holds parts i, p + i, ... Micro-batches pass all
parts forward (F) and in reverse backward (B). Zero bubble computes the gradients of inputs (B) and of
weights (W) apart. A stage does one operation at a time, in a fixed order.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from cclbench.ground.errors import InputError

Float64 = npt.NDArray[np.float64]
Schedule = Literal["gpipe", "1f1b", "zero_bubble"]
SCHEDULES: Final[tuple[Schedule, ...]] = ("1f1b", "gpipe", "zero_bubble")
MOST_OPERATIONS: Final = 1 << 17
"""Operations of the largest pipeline that is simulated."""


class Operation(NamedTuple):
    """F, B or W of a micro-batch on a part of the layers."""

    kind: Literal["F", "B", "W"]
    part: int
    microbatch: int


class PartTimes(NamedTuple):
    """Times of operations by part and micro-batch, shape (parts, micro-batches or 1, cases); `weights`: of W,
    part of `backward` unless the schedule separates them; `transfer`: between consecutive parts, shape
    (cases,). All in one unit."""

    forward: Float64
    backward: Float64
    transfer: Float64
    weights: Float64 | None = None


def schedule_orders(
    schedule: Schedule, stages: int, microbatches: int, turns: int = 1
) -> list[list[Operation]]:
    """Operations of each stage, in order; `turns`: parts of each stage.

    `gpipe`: Huang et al. 2019; `1f1b`: Narayanan et al. 2021, with several turns their interleaved schedule,
    whose micro-batches are a multiple of the stages; `zero_bubble`: ZB-H1, which needs no more memory than
    1F1B (Qi et al. 2023).
    """
    if stages * turns * microbatches * 3 > MOST_OPERATIONS:
        raise InputError(
            f"{microbatches:,} micro-batches on {stages * turns:,} parts are too many to simulate"
        )
    if turns > 1 and schedule != "1f1b":
        raise InputError(f"interleaved stages are those of 1f1b, not of {schedule}")
    if turns > 1 and microbatches % stages:
        raise InputError(
            f"interleaved stages need micro-batches in multiples of pp {stages}, not {microbatches}"
        )
    return [_stage_order(schedule, stages, stage, microbatches, turns) for stage in range(stages)]


def _stage_order(
    schedule: Schedule, stages: int, stage: int, microbatches: int, turns: int
) -> list[Operation]:
    count = microbatches * turns
    period = stages * turns
    forward, backward = list[Operation](), list[Operation]()
    for i in range(count):
        turn, microbatch = i % period // stages, i // period * stages + i % stages
        if turns == 1:
            turn, microbatch = 0, i
        forward.append(Operation("F", turn * stages + stage, microbatch))
        backward.append(Operation("B", (turns - 1 - turn) * stages + stage, microbatch))
    ahead = stages - 1 - stage
    if schedule == "gpipe" or (turns > 1 and microbatches == stages):
        ahead = count
    elif turns > 1:
        ahead = min(2 * ahead + (turns - 1) * stages, count)
    else:
        ahead = min(ahead, count)
    order = forward[:ahead]
    for i in range(count):
        order += forward[ahead + i : ahead + i + 1]
        order.append(backward[i])
        if schedule == "zero_bubble" and i >= stage:
            order.append(backward[i - stage]._replace(kind="W"))
    if schedule == "zero_bubble":
        order += [operation._replace(kind="W") for operation in backward[max(count - stage, 0) :]]
    return order


def simulate_schedule(orders: list[list[Operation]], times: PartTimes) -> Float64:
    """When the last operation of each stage ends, from the begin of the first, shape (stages, cases).

    F of a part begins once that of the part before it has ended and been sent, B once that of the part behind
    it has; an operation begins no earlier than the one before it on its stage ends.
    """
    last = len(times.forward) - 1
    length = {"F": times.forward, "B": times.backward, "W": times.weights}
    done: dict[Operation, Float64] = {}
    cases = np.broadcast_shapes(*(part_times.shape[2:] for part_times in times[:2]), times.transfer.shape)
    free = np.zeros((len(orders), *cases))
    position = [0] * len(orders)
    waiting = list(range(len(orders)))
    while waiting:
        stage = waiting.pop()
        for operation in orders[stage][position[stage] :]:
            kind, part, microbatch = operation
            source = part - 1 if kind == "F" else part + 1
            if kind == "W" or source in (-1, last + 1):
                begin = free[stage]
            else:
                ready = done.get(Operation(kind, source, microbatch))
                if ready is None:
                    break
                begin = np.maximum(free[stage], ready + times.transfer)
            row = length[kind]
            assert row is not None  # noqa: S101 - schedules with W have its times
            by_microbatch = row[part]
            free[stage] = begin + by_microbatch[min(microbatch, len(by_microbatch) - 1)]
            done[operation] = free[stage].copy()
            position[stage] += 1
            reader = (part + 1 if kind == "F" else part - 1) % len(orders)
            if kind != "W" and reader != stage and reader not in waiting:
                waiting.append(reader)
    return free
