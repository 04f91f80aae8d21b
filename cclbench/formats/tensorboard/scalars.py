# SPDX-License-Identifier: Apache-2.0
"""Scalars of event files by tag, and the columns of `LOG_STEPS` that trainers' tags fill.

Fields of the messages: tensorflow/core/util/event.proto, framework/summary.proto and tensor.proto.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np

from cclbench.formats.job_log.columns import UNKNOWN, nanoseconds, scaled
from cclbench.formats.job_log.step_table import StepColumns
from cclbench.ground.protobuf_schema import described_class

_MESSAGES: Final = {
    "Tensor": "dtype=1:int32 tensor_content=4:bytes float_val=5:float* double_val=6:double*",
    "Value": "tag=1:string simple_value=2:float? tensor=8:Tensor?",
    "Summary": "value=1:Value*",
    "Event": "wall_time=1:double step=2:int64 file_version=3:string? summary=5:Summary?",
}
_CONTENT: Final = {1: struct.Struct("<f"), 2: struct.Struct("<d")}
"""Layout of a tensor's one number, by the type's number."""
_MOST_EVENTS: Final = 1 << 24
_MOST_TAGS: Final = 1 << 12
_GIB: Final = 1 << 30

PRODUCERS: Final = (
    (
        "torchtitan",
        {
            "loss_metrics/global_avg_loss": ("loss", 1.0),
            "time_metrics/end_to_end(s)": ("step_s", 1.0),
            "throughput(tps)": ("tokens_per_s_per_device", 1.0),
            "tflops": ("flops_per_s", 1e12),
            "mfu(%)": ("mfu", 1e-2),
            "memory/max_reserved(GiB)": ("memory_bytes", _GIB),
            "n_tokens_seen": ("consumed_tokens", 1.0),
        },
    ),
    (
        "megatron",
        {
            "lm loss": ("loss", 1.0),
            "iteration-time": ("step_s", 1.0),
            "throughput": ("flops_per_s", 1e12),
            "batch-size": ("samples", 1.0),
        },
    ),
    (
        "nemo",
        {
            "reduced_train_loss": ("loss", 1.0),
            "train_step_timing in s": ("step_s", 1.0),
            "global_batch_size": ("samples", 1.0),
        },
    ),
    (
        "maxtext",
        {
            "learning/loss": ("loss", 1.0),
            "perf/step_time_seconds": ("step_s", 1.0),
            "perf/per_device_tflops_per_sec": ("flops_per_s", 1e12),
            "perf/per_device_tokens_per_sec": ("tokens_per_s_per_device", 1.0),
        },
    ),
    *(("tensorboard", {tag: ("loss", 1.0)}) for tag in ("train/loss", "train_loss", "loss")),
)
"""Tags of trainers: the column of each, and the factor to its unit. The first one is always written, and
marks the trainer; steps' times are means over the steps since the line before."""
TAGS: Final = frozenset(tag for _, tags in PRODUCERS for tag in tags)


@cache
def event_class() -> Any:
    """The class of events."""
    return described_class("tensorboard", _MESSAGES, "Event")


class Scalar(NamedTuple):
    """A number of a step."""

    wall_s: float
    step: int
    tag: str
    value: float | None
    """None if it is not a number, such as a histogram."""


def scalars_of(event: Any) -> Iterator[Scalar]:
    """The values of an event."""
    for value in event.summary.value:
        yield Scalar(event.wall_time, event.step, value.tag, _number_of(value))


def _number_of(value: Any) -> float | None:
    if value.HasField("simple_value"):
        return float(value.simple_value)
    layout = _CONTENT.get(value.tensor.dtype)
    listed = [*value.tensor.float_val, *value.tensor.double_val]
    if layout is not None and len(value.tensor.tensor_content) == layout.size:
        listed = [*layout.unpack(value.tensor.tensor_content)]
    return float(listed[0]) if len(listed) == 1 else None


class TaggedScalars:
    """Scalars of a file by tag, in the order of the file."""

    def __init__(self) -> None:
        self.count, self.not_scalar = 0, 0
        self._places: dict[str, array[int]] = {}
        self._steps: dict[str, array[int]] = {}
        self._values: dict[str, array[float]] = {}
        self._walls: dict[str, array[float]] = {}

    def add(self, scalar: Scalar) -> bool:
        """Append a scalar; False if the file has more than are read."""
        if scalar.value is None:
            self.not_scalar += 1
            return True
        if scalar.tag not in self._places:
            self._places[scalar.tag], self._steps[scalar.tag] = array("q"), array("q")
            self._values[scalar.tag], self._walls[scalar.tag] = array("d"), array("d")
        self._places[scalar.tag].append(self.count)
        self._steps[scalar.tag].append(scalar.step)
        self._values[scalar.tag].append(scalar.value)
        self._walls[scalar.tag].append(scalar.wall_s)
        self.count += 1
        return self.count < _MOST_EVENTS and len(self._places) < _MOST_TAGS

    def columns(self) -> StepColumns | None:
        """A line for each scalar of the trainer's most frequent tag, else of the most frequent one."""
        producer, known = next(
            (one for one in PRODUCERS if next(iter(one[1])) in self._places), ("tensorboard", {})
        )
        tags = [tag for tag in known if tag in self._places] or list(self._places)
        if not tags:
            return None
        lead = max(tags, key=lambda tag: len(self._places[tag]))
        columns = StepColumns(producer)
        places, steps = np.array(self._places[lead]), np.array(self._steps[lead])
        columns.count = len(steps)
        columns.append("rank", np.full(len(steps), UNKNOWN))
        columns.append("step", steps.astype(np.float64))
        columns.append("stamp", nanoseconds(np.array(self._walls[lead])))
        for tag, (name, factor) in known.items():
            if tag in self._places:
                own, values = np.array(self._steps[tag]), np.full(len(steps), np.nan)
                after = np.searchsorted(places, np.array(self._places[tag]))
                for line in (after - 1, after):
                    near = line.clip(0, len(steps) - 1)
                    alike = steps[near] == own
                    values[near[alike]] = np.array(self._values[tag])[alike]
                columns.append(name, scaled(values, factor))
        return columns
