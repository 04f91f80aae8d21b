# SPDX-License-Identifier: Apache-2.0
"""What the step lines of each trainer and server look like: one entry a family, nothing else to add one.

A line is recognised by its `mark`, then matched by `head` and by the `fields` after it, in the order in which
the producer prints them; any field may be missing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

NUMBER: Final = rb"[-+]?[\d.][\d.,]{0,30}(?:[eE][-+]?\d{1,3})?"
"""A number, with commas or a decimal point; its magnitude (1.2K) is the field's own."""
STAMP: Final = rb"(?P<stamp>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?)"
_STEP: Final = rb"(?P<step>\d{1,15})"
LABEL: Final = re.compile(rb"[ \t]*(?:(?P<task>\d{1,7}): |\[(?:default|rank) ?(?P<rank>\d{1,7})\]: ?)")
"""What launchers put before a rank's lines: `3: ` (srun --label), `[rank3]:`, `[default3]:` (torchrun)."""
_GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class LineField:
    """A number of a line: the column of `LOG_STEPS` that it fills, its key, and the factor to its unit."""

    column: str
    key: bytes
    factor: float = 1.0
    after: bytes = b""
    """What follows the number if the unit is stated there."""

    @property
    def is_exact(self) -> bool:
        """Whether a rounded number, such as 1.02K for 1,024 samples, is not read."""
        return self.column == "samples"


@dataclass(frozen=True)
class Family:
    """Step lines of one producer."""

    name: str
    mark: bytes
    head: bytes
    """Pattern of the line's beginning, with groups named as columns: `step`, `stamp`, ..."""
    fields: tuple[LineField, ...]
    tested: str
    separator: bytes = b""
    """One byte between the fields, if it occurs nowhere else; lines are searched faster by it."""
    at_line_begin: bool = False
    is_server: bool = False
    """Whether the lines are of a time, not of a step."""

    @cached_property
    def body(self) -> bytes:
        """The pattern of a line, from `head` on."""
        skip = rb"[^\n]*?"
        if self.separator:
            separator = re.escape(self.separator)
            skip = rb"(?:[^" + separator + rb"\n]*+" + separator + rb")*? *"
        parts = [
            b"(?:" + skip + field.key + b"(?P<" + field.column.encode() + b">" + NUMBER
            + (rb")(?![\d.,KMBGT])" if field.is_exact else rb"[KMBGT]?)") + field.after + b")?"
            for field in self.fields
        ]  # fmt: skip
        return self.head + b"".join(parts)

    @cached_property
    def pattern(self) -> re.Pattern[bytes]:
        """Lines without a rank's label."""
        return re.compile((b"(?m)^" if self.at_line_begin else b"") + self.body)

    @cached_property
    def labelled(self) -> re.Pattern[bytes]:
        """Lines with one."""
        return re.compile(b"(?m)^" + LABEL.pattern + (b"" if self.at_line_begin else rb"[^\n]*?") + self.body)

    def search_line(self, text: bytes) -> bool:
        """Whether a text has such a line, with or without a label."""
        return any(pattern.search(text) for pattern in (self.pattern, self.labelled))

    @cached_property
    def factors(self) -> Mapping[str, float]:
        """Factor to the column's unit, by column."""
        return {field.column: field.factor for field in self.fields}


_ITERATION: Final = rb"(?:\[" + STAMP + rb"\] )?iteration +" + _STEP + rb"/[^|\n]{0,20}\|"
"""The beginning of Megatron-LM's step lines, which its forks keep."""
_MLLOG: Final = (
    rb':::MLLOG \{[^\n]{0,60}?"time_ms": (?P<time_ms>\d{10,15}), [^\n]{0,80}?"tracked_stats", "value": \{'
)

FAMILIES: Final = (
    Family(
        "megatron",
        b"elapsed time per iteration (ms): ",
        _ITERATION,
        (
            LineField("step_ms", rb"elapsed time per iteration \(ms\): *", 1e-3),
            LineField("flops_per_s", rb"throughput per GPU \(TFLOP/s/GPU\): *", 1e12),
            LineField("samples", b"global batch size: *"),
            LineField("loss", b"lm loss: *"),
        ),
        "real: two jobs of Megatron-LM on 8 GPUs",
        b"|",
    ),
    Family(
        "megatron-deepspeed",
        b"elapsed time per iteration (s): ",
        _ITERATION,
        (
            LineField("step_s", rb"elapsed time per iteration \(s\): *"),
            LineField("samples", b"global batch size: *"),
            LineField("loss", b"lm loss: *"),
            LineField("flops_per_s", b"TFLOPs: *", 1e12),
        ),
        "excerpts of published logs, no file: jobs of 2021 to 2024",
        b"|",
    ),
    Family(
        "torchtitan",
        b"memory: ",
        STAMP + rb"[^\n]{0,60}?\bstep: *" + _STEP + b" ",
        (
            LineField("loss", b"loss: *"),
            LineField("memory_bytes", b"memory: *", _GIB, b"GiB"),
            LineField("tokens_per_s_per_device", b"(?:tps|wps): *"),
            LineField("flops_per_s", b"tflops: *", 1e12),
            LineField("mfu", b"mfu: *", 1e-2, b"%"),
        ),
        "real: a job on 8 GPUs, 2026",
    ),
    Family(
        "mlperf",
        b'"train_step_time"',
        _MLLOG + rb'"train_step_time": (?P<step_s>' + NUMBER + b")",
        (
            LineField("loss", b'"reduced_train_loss": '),
            LineField("step", b'"step": '),
        ),
        "real: 15 logs of MLPerf Training v5.1",
    ),
    # Its `step` counts samples: rate times the time between two lines is the difference of their steps.
    Family(
        "mlperf throughput",
        b'"throughput"',
        _MLLOG + rb'"throughput": (?P<samples_per_s>' + NUMBER + b")",
        (LineField("consumed_samples", b'"step": '),),
        "real: three logs of MLPerf Training v5.1",
    ),
    Family(
        "nemo",
        b"train_step_timing in s",
        rb"Training epoch \d+, iteration " + _STEP + b"/",
        (
            LineField("samples", b"global_batch_size: "),
            LineField("memory_bytes", b"max_memory_reserved: "),
            LineField("loss", b"reduced_train_loss: "),
            LineField("step_s", b"train_step_timing in s: "),
            LineField("flops_per_s", b"TFLOPS_per_GPU: ", 1e12),
            LineField("tokens_per_s_per_device", b"tokens_per_sec_per_gpu: "),
        ),
        "excerpts of published logs, no file: NeMo 2, four jobs",
        b"|",
    ),
    Family(
        "maxtext",
        b"completed step: ",
        b"completed step: " + _STEP + b",",
        (
            LineField("step_s", b"seconds: "),
            LineField("flops_per_s", b"TFLOP/s/device: ", 1e12),
            LineField("tokens_per_s_per_device", b"Tokens/s/device: "),
            LineField("loss", b"loss: "),
        ),
        "excerpts of published logs, no file: jobs of 2024 and 2025",
        b",",
    ),
    Family(
        "deepspeed",
        b"CurrSamplesPerSec=",
        rb"(?:[^\n\[]{0,60}\[" + STAMP + rb"\] )?[^\n]{0,120}?global_step=" + _STEP + b",",
        (
            LineField("samples_per_s", b"CurrSamplesPerSec="),
            LineField("memory_bytes", b"MaxMemAllocated=", _GIB, b"GB"),
        ),
        "excerpts of published logs, no file: jobs of 2023 and 2024",
        b",",
        at_line_begin=True,
    ),
    Family(
        "nanotron",
        b"elapsed_time_per_iteration_ms",
        rb"iteration: " + _STEP + rb" / \d+ ",
        (
            LineField("step_ms", b"elapsed_time_per_iteration_ms: ", 1e-3),
            LineField("tokens_per_s_per_device", b"tokens_per_sec_per_gpu: "),
            LineField("samples", b"global_batch_size: "),
            LineField("loss", b"lm_loss: "),
            LineField("flops_per_s", b"hardware_tflops_per_gpu: ", 1e12),
            LineField("memory_bytes", b"cuda_max_memory_reserved: "),
        ),
        "excerpts of published logs, no file: two jobs of 2024",
        b"|",
    ),
    # A bar without description, or Lightning's `Epoch 0: `: others are of downloads and checkpoints.
    Family(
        "progress bar",
        b"%|",
        rb"[ \t]*(?:Epoch (?P<epoch>\d{1,9}): *)?\d{1,3}%\|[^|\n]*\| *" + _STEP + rb"/(?P<total>\d{1,15}) \["
        rb"(?:(?P<hours>\d{1,6}):)?(?P<minutes>\d\d):(?P<seconds>\d\d)<[^,\n]{1,30}, *",
        (
            LineField("step_s", b"", 1.0, b"s/it"),
            LineField("steps_per_s", b"", 1.0, b"it/s"),
            LineField("loss", b"loss="),
        ),
        "real: bars of HF Trainer 5.24 and Lightning 2.6 on a CPU",
        at_line_begin=True,
    ),
    Family(
        "vllm",
        b"Avg generation throughput",
        rb"Avg prompt throughput: (?P<prompt_tokens_per_s>" + NUMBER + b") tokens/s",
        (
            LineField("generated_tokens_per_s", b"Avg generation throughput: "),
            LineField("running", b"Running: "),
            LineField("waiting", b"(?:Waiting|Pending): "),
        ),
        "excerpts of published logs, no file: vLLM 0.6 to 0.11",
        is_server=True,
    ),
    Family(
        "sglang",
        b"gen throughput (token/s)",
        rb"(?:\[" + STAMP + rb"[^\]\n]{0,40}\] )?Decode batch[^\n]{0,40}?#running-req: (?P<running>\d{1,9})",
        (
            LineField("generated_tokens_per_s", rb"gen throughput \(token/s\): "),
            LineField("waiting", b"#queue-req: "),
        ),
        "excerpts of published logs, no file: servers of 2025 and 2026",
        is_server=True,
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fact:
    """What a log states once: its name and its line."""

    name: str
    mark: bytes
    pattern: re.Pattern[bytes]


_ARGUMENTS: Final = {
    "devices": b"world_size",
    "tensor_parallel": b"tensor_model_parallel_size",
    "pipeline_parallel": b"pipeline_model_parallel_size",
    "data_parallel": b"data_parallel_size",
    "context_parallel": b"context_parallel_size",
    "expert_parallel": b"expert_model_parallel_size",
    "global_batch": b"global_batch_size",
    "micro_batch": b"micro_batch_size",
    "sequence_length": b"seq_length",
}
"""Megatron-LM's arguments, printed as `name ..... value`."""
_MESH: Final = {
    "pipeline_parallel": b"pp",
    "replicate_parallel": b"dp_replicate",
    "shard_parallel": b"dp_shard",
    "context_parallel": b"cp",
    "tensor_parallel": b"tp",
    "expert_parallel": b"ep",
}
"""torchtitan's dimensions, printed as `name=value`."""
MESH: Final = tuple(name for name in _MESH if name != "expert_parallel")
"""Settings whose product is torchtitan's number of devices; experts share those of the others."""
_TRAINER: Final = b"Trainer is initialized with"
_MLLOG_KEYS: Final = {"global_batch": b"global_batch_size", "sequence_length": b"max_sequence_length"}

FACTS: Final = tuple(
    Fact(name, mark, re.compile(pattern))
    for name, mark, pattern in (
        *(
            (fact, b" .....", rb"(?m)^[^\n]{0,20}?\b" + name + rb" \.{3,} (\d{1,9})\b")
            for fact, name in _ARGUMENTS.items()
        ),
        *(
            (fact, b"Building ", rb"Building [^\n]{0,20}mesh with [^\n]*?\b" + name + rb"=(\d{1,9})\b")
            for fact, name in _MESH.items()
        ),
        ("global_batch", _TRAINER, _TRAINER + rb"[^\n]*? global batch size (\d{1,9})\b"),
        ("micro_batch", _TRAINER, _TRAINER + rb"[^\n]*? local batch size (\d{1,9})\b"),
        ("sequence_length", _TRAINER, _TRAINER + rb"[^\n]*? sequence length (\d{1,9})\b"),
        *(
            (fact, name, rb':::MLLOG [^\n]*?"key": "' + name + rb'", "value": (\d{1,9})\b')
            for fact, name in _MLLOG_KEYS.items()
        ),
    )
)
"""Settings that logs print once, before their steps."""
_RUN: Final = rb':::MLLOG [^\n]{0,40}?"time_ms": (\d{10,15}), [^\n]{0,80}?"key": '
RUN_FACTS: Final = (
    Fact("run_start_ms", b'"run_start"', re.compile(_RUN + b'"run_start"')),
    Fact("run_stop_ms", b'"run_stop"', re.compile(_RUN + rb'"run_stop"[^\n]*?"status": "success"')),
)
"""Begin and successful end of an MLPerf run, ms since 1970, anywhere in a log."""

PROFILER_MARKS: Final = (
    b"Started ET observer at iteration",
    b"Saved Kineto trace",
    b"Dumping profiler traces at step",
)
PROFILER: Final = re.compile(b"(?P<started>%b)|(?P<saved>%b|%b)" % PROFILER_MARKS)
"""Lines of profilers: `started` before the first step that is recorded, `saved` after the last one."""
