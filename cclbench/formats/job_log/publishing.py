# SPDX-License-Identifier: Apache-2.0
"""What of a job's log is published: lines about steps and settings, without any word that is not theirs."""

from __future__ import annotations

import re
from typing import Final

from cclbench.formats.job_log.families import FACTS, FAMILIES, PROFILER, RUN_FACTS
from cclbench.formats.nccl_lines import fact_texts

_WORD: Final = re.compile(rb"[\w\x80-\xff](?:[\w\x80-\xff.,@~+-]*[\w\x80-\xff])?")
_NUMBER: Final = re.compile(
    rb"\d[\d.,-]*(?:[eE][-+]?\d{1,3}|GiB|GB|[KMBGT]|it|s)?|\d{4}-\d\d-\d\dT\d\d"
    rb"|(?:rank|default|[DPT]P)\d{1,7}"
)
_DIGIT: Final = re.compile(rb"\d")
_NO_FIGURE: Final = re.compile(rb"\.[\d,]*\.|^\d{16}")
"""In no figure, wherever a family's pattern reads one: the points of a date or an address, more digits than
any count or time of a job has."""
_OWN_WORDS: Final = frozenset(
    b"""
    iteration consumed samples tokens elapsed time per ms s throughput GPU TFLOP TFLOPs learning rate
    global batch size lm loss scale grad norm num zeros params number of skipped nan iterations
    rank default titan root INFO step memory GiB tps wps tflops mfu
    MLLOG namespace time_ms event_type POINT_IN_TIME key value metadata file lineno step samples_count
    tracked_stats train_step_time reduced_train_loss throughput global_batch_size max_sequence_length
    INTERVAL_START INTERVAL_END run_start run_stop status success null
    Training epoch lr global_step train_step_timing in consumed_samples
    max_memory_reserved max_memory_allocated TFLOPS_per_GPU cuda_max_memory_reserved
    completed seconds device Tokens total_weights
    epoch micro_step RunningAvgSamplesPerSec CurrSamplesPerSec MemAllocated MaxMemAllocated GB stop timer.py
    consumed_tokens elapsed_time_per_iteration_ms tokens_per_sec tokens_per_sec_per_gpu lm_loss
    model_tflops_per_gpu hardware_tflops_per_gpu grad_norm K M B G T
    Epoch it train_loss v_num Avg prompt generation Running Waiting Pending reqs KV cache
    usage Prefix hit Engine Decode running-req token gen queue-req cuda graph True False accept len
    world_size tensor_model_parallel_size pipeline_model_parallel_size data_parallel_size
    context_parallel_size expert_model_parallel_size micro_batch_size seq_length
    Building device mesh with parallelism pp dp_replicate dp_shard cp tp ep etp
    Trainer is initialized local batch gradient accumulation steps sequence length total warmup
    Started ET observer at Saved Kineto trace Dumping profiler traces
    """.split()
)
"""Words of the lines; all others, such as names of files and whatever people print there, are replaced."""


def published_line(line: bytes) -> bytes | None:
    """The line with `-` for each word that is not its family's; None if it is about no step or setting.

    Numbers stay where the family's pattern or a setting's reads them, and are zeros elsewhere.  Of a line of
    NCCL or RCCL the parts remain that state facts, which the run's manifest has as well.
    """
    if b"CCL " in line and (texts := fact_texts(line.decode(errors="replace").rstrip())):
        return f"NCCL INFO {'  '.join(texts)}".encode()
    matches = [match for pattern in _patterns_of(line) for match in pattern.finditer(line)]
    if not matches:
        return None
    unread = bytearray(line)
    for begin, end in (span for match in matches for span in match.regs[1:] if span[0] >= 0):
        unread[begin:end] = bytes(end - begin)

    def published_word(match: re.Match[bytes]) -> bytes:
        word = match[0]
        if word in _OWN_WORDS:
            return word
        if not _NUMBER.fullmatch(word):
            return b"-"
        is_read = not _DIGIT.search(unread, *match.span()) and not _NO_FIGURE.search(word)
        return word if is_read else b"0".join(_DIGIT.split(word))

    return _WORD.sub(published_word, line)


def _patterns_of(line: bytes) -> list[re.Pattern[bytes]]:
    families = [pattern for f in FAMILIES if f.mark in line for pattern in (f.pattern, f.labelled)]
    return [*families, *(fact.pattern for fact in (*FACTS, *RUN_FACTS) if fact.mark in line), PROFILER]
