# SPDX-License-Identifier: Apache-2.0
"""Lines of jobs' logs as trainers and servers print them, made up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

TITAN: Final = (
    "[titan] 2026-01-02 03:04:{second:02d},500 - root - INFO - \x1b[31mstep: {step:2}  \x1b[32mloss:  6.5"
    "  \x1b[34mgrad_norm:  0.28  \x1b[36mmemory:  8.50GiB(26.87%)  \x1b[34mtps: 1,024  \x1b[36mtflops: 4.90"
    "  \x1b[35mmfu: 1.50%\x1b[39m"
)
TITAN_HEAD: Final = (
    "[titan] 2026-01-02 03:03:59,000 - root - INFO - Building device mesh with parallelism: pp=1,"
    " dp_replicate=1, dp_shard=8, cp=1, tp=2, ep=1, etp=1",
    "[titan] 2026-01-02 03:03:59,100 - root - INFO - Trainer is initialized with local batch size 2, global"
    " batch size 16, gradient accumulation steps 1, sequence length 512, total steps 100 (warmup 10)",
)
MLLOG: Final = (
    ':::MLLOG {{"namespace": "", "time_ms": {time}, "event_type": "POINT_IN_TIME", "key": "{key}", "value":'
    ' {value}, "metadata": {{"file": "/home/alice/llm/callbacks.py", "lineno": 480{more}}}}}'
)
BAR = "Epoch 0:  12%|█▏        | 120/1000 [00:30<03:40,  4.00it/s, v_num=0, train_loss=2.5]"
TRACKED = '{"train_step_time": 0.25, "reduced_train_loss": 8.5}'
MORE = ', "step": 31.0, "samples_count": 512.0'
FAMILY_LINES: Final[Mapping[str, tuple[str, Mapping[str, object]]]] = {
    "megatron": (
        " [2025-12-18 22:03:52] iteration        7/      50 | consumed samples:          224 | elapsed time"
        " per iteration (ms): 8155.6 | throughput per GPU (TFLOP/s/GPU): 23.0 | learning rate: 1.05E-04 |"
        " global batch size:    32 | lm loss: 1.159155E+01 | loss scale: 1.0 | grad norm: 37.136 |",
        {"step": 7, "dur_ns": 8_155_600_000, "timed_by": "stated", "end_ns": 1_766_095_432 * 10**9}
        | {"samples": 32, "flops_per_s": 23e12, "loss": 11.59155},
    ),
    "megatron-deepspeed": (
        " iteration        7/      50 | consumed samples:          224 | consumed tokens:       458752 |"
        " elapsed time per iteration (s): 1.25 | learning rate: 1.05E-04 | global batch size:    32 | lm"
        " loss: 4.5E+00 | samples per second: 25.600 | TFLOPs: 50.00 |",
        {"step": 7, "dur_ns": 1_250_000_000, "samples": 32, "flops_per_s": 50e12, "loss": 4.5},
    ),
    "torchtitan": (
        TITAN.format(second=5, step=3),
        {"step": 3, "dur_ns": None, "end_ns": 1_767_323_045_500_000_000, "memory_bytes": 9_126_805_504}
        | {"tokens_per_s_per_device": 1024.0, "flops_per_s": 4.9e12, "mfu": 0.015, "loss": 6.5},
    ),
    "mlperf": (
        MLLOG.format(time=1759906650694, key="tracked_stats", value=TRACKED, more=MORE),
        {"step": 31, "dur_ns": 250_000_000, "end_ns": 1_759_906_650_694_000_000, "loss": 8.5},
    ),
    "nemo": (
        "Training epoch 0, iteration 5/100 | lr: 0.0001 | global_batch_size: 16 | global_step: 5 |"
        " reduced_train_loss: 10.5 | train_step_timing in s: 3.5 | consumed_samples: 96",
        {"step": 5, "dur_ns": 3_500_000_000, "samples": 16, "loss": 10.5},
    ),
    "maxtext": (
        "I0102 03:04:05.123456 140 metric_logger.py:196] completed step: 4, seconds: 3.125, TFLOP/s/device:"
        " 123.5, Tokens/s/device: 1234.5, total_weights: 65536, loss: 9.5",
        {"step": 4, "dur_ns": 3_125_000_000, "flops_per_s": 123.5e12}
        | {"tokens_per_s_per_device": 1234.5, "loss": 9.5},
    ),
    "deepspeed": (
        "[2026-01-02 03:04:05,500] [INFO] [timer.py:215:stop] epoch=0/micro_step=10/global_step=10,"
        " RunningAvgSamplesPerSec=7.5, CurrSamplesPerSec=8.0, MemAllocated=3.5GB, MaxMemAllocated=8.5GB",
        {"step": 10, "dur_ns": None, "memory_bytes": 9_126_805_504},
    ),
    "nanotron": (
        "01/02/2026 03:04:05 [INFO|DP=0|PP=0|TP=0|node7]: iteration: 10 / 100 | consumed_tokens: 10.5M |"
        " elapsed_time_per_iteration_ms: 1.5K | tokens_per_sec: 12.3K | tokens_per_sec_per_gpu: 1.54K |"
        " global_batch_size: 512 | lm_loss: 9.5 | lr: 0.0003 | model_tflops_per_gpu: 100 |"
        " hardware_tflops_per_gpu: 110 | grad_norm: 1.2",
        {"step": 10, "dur_ns": 1_500_000_000, "tokens_per_s_per_device": 1540.0, "samples": 512}
        | {"flops_per_s": 110e12, "loss": 9.5},
    ),
    "progress bar": (BAR, {"step": 120, "dur_ns": 250_000_000, "timed_by": "rate", "loss": 2.5}),
    "vllm": (
        "INFO 11-27 05:52:35 [loggers.py:116] Engine 000: Avg prompt throughput: 25.5 tokens/s, Avg"
        " generation throughput: 512.5 tokens/s, Running: 4 reqs, Waiting: 1 reqs, GPU KV cache usage: 0.1%",
        {"step": None, "steps": None, "prompt_tokens_per_s": 25.5, "generated_tokens_per_s": 512.5}
        | {"running": 4, "waiting": 1},
    ),
    "sglang": (
        "[2025-11-27 05:52:35 TP0] Decode batch. #running-req: 1, #token: 59, token usage: 0.00, gen"
        " throughput (token/s): 104.25, #queue-req: 2, ",
        {"step": None, "generated_tokens_per_s": 104.25, "running": 1, "waiting": 2},
    ),
}
