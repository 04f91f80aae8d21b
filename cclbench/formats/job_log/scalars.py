# SPDX-License-Identifier: Apache-2.0
"""Numbers that trainers log by tag, with TensorBoard or W&B, as columns of `LOG_STEPS`."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from cclbench.formats import Evidence
from cclbench.formats.job_log.columns import UNKNOWN, nanoseconds, scaled
from cclbench.formats.job_log.step_table import StepColumns, step_table
from cclbench.formats.texts import damaged_error

_MOST_EVENTS: Final = 1 << 24
_MOST_TAGS: Final = 1 << 12
_GIB: Final = 1 << 30

_ANY: Final = "scalars"
"""Producer of tags that are anybody's."""
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
    (
        "nanotron",
        {
            "lm_loss": ("loss", 1.0),
            "elapsed_time_per_iteration_ms": ("step_s", 1e-3),
            "tokens_per_sec_per_gpu": ("tokens_per_s_per_device", 1.0),
            "hardware_tflops_per_gpu": ("flops_per_s", 1e12),
            "global_batch_size": ("samples", 1.0),
            "consumed_tokens": ("consumed_tokens", 1.0),
        },
    ),
    (
        "hf trainer",
        {"train/loss": ("loss", 1.0), "train/num_input_tokens_seen": ("consumed_tokens", 1.0)},
    ),
    *((_ANY, {tag: ("loss", 1.0)}) for tag in ("train_loss", "loss")),
)
"""Tags of trainers: the column of each, and the factor to its unit. The first one is always written, and
marks the trainer; steps' times are means over the steps since the line before."""
TAGS: Final = frozenset(tag for _, tags in PRODUCERS for tag in tags)


def published_tag(tag: str, numbers: dict[str, int]) -> str:
    """The tag if it is a trainer's, else a number, which the file's other values of that tag get, too."""
    return tag if tag in TAGS else f"scalar {numbers.setdefault(tag, len(numbers))}"


class Scalar(NamedTuple):
    """A number of a step."""

    wall_s: float
    step: int
    tag: str
    value: float | None
    """None if it is not a number, such as a histogram."""


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
        """A line for each scalar of the tag that marks the trainer, else of the most frequent tag."""
        producer, by_tag = next(
            (candidate for candidate in PRODUCERS if next(iter(candidate[1])) in self._places), (_ANY, {})
        )
        if not self._places:
            return None
        lead = next(iter(by_tag), max(self._places, key=lambda tag: len(self._places[tag])))
        columns = StepColumns(producer)
        places, steps = np.array(self._places[lead]), np.array(self._steps[lead])
        columns.count = len(steps)
        columns.append("rank", np.full(len(steps), UNKNOWN))
        columns.append("step", steps.astype(np.float64))
        columns.append("stamp", nanoseconds(np.array(self._walls[lead])))
        for tag, (name, factor) in by_tag.items():
            if tag in self._places:
                tag_steps, values = np.array(self._steps[tag]), np.full(len(steps), np.nan)
                after = np.searchsorted(places, np.array(self._places[tag]))
                for line in (after - 1, after):
                    near = line.clip(0, len(steps) - 1)
                    alike = steps[near] == tag_steps
                    values[near[alike]] = np.array(self._values[tag])[alike]
                columns.append(name, scaled(values, factor))
        return columns

    def evidence(self, path: Path, *, long: int, incomplete: bool) -> Evidence:
        """Rows of `log_steps`; `long` records were not read, and the last one may be `incomplete`."""
        columns = self.columns()
        if columns is None:
            raise damaged_error(path, "has no scalar", hint="pass the file that the training loop wrote")
        table, repeated = step_table(columns, {})
        left_out = {
            "lines that repeat a step, or have none": repeated,
            "values that are not scalars": self.not_scalar,
            "records that are too long": long,
        }
        return Evidence(
            log_steps=table,
            facts={"producer": columns.producer, "clock": "utc"},
            left_out={reason: count for reason, count in left_out.items() if count},
            notes=["the last record is cut: the job was ended while it wrote"] if incomplete else [],
        )
