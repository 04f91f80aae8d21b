# SPDX-License-Identifier: Apache-2.0
"""Lines of jobs' logs: what they state, ranks, restarts, colours, bars; the table of steps that they make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.changed_bytes import read_or_refused
from helpers.job_logs import FAMILY_LINES, MLLOG, TITAN, TITAN_HEAD
from helpers.nccl_job import Process
from helpers.refused import refused
from hypothesis import given
from hypothesis import strategies as st

from cclbench.formats import Evidence, recognise_format
from cclbench.formats.job_log import JobLog, reading
from cclbench.formats.job_log.columns import UNKNOWN
from cclbench.formats.job_log.families import FAMILIES
from cclbench.formats.job_log.layout import separated_columns
from cclbench.formats.job_log.publishing import published_line
from cclbench.formats.job_log.step_table import StepColumns, step_table
from cclbench.formats.nccl_log import NcclLog

Read = Callable[..., Evidence]
MEGATRON = (
    " [2025-12-18 22:{:02d}:00] iteration {}/ 50 | consumed samples: 32 |"
    " elapsed time per iteration (ms): {} | global batch size: 32 | lm loss: 1.5E+00 |"
)


@pytest.fixture
def read(written: Callable[..., Path]) -> Read:
    """Reads a log of these lines."""
    return lambda *lines, end="\n": JobLog().read(written("".join(line + end for line in lines), "job.out"))


def columns(found: Evidence, *names: str) -> list[tuple[Any, ...]]:
    """Rows as tuples of these columns."""
    return [tuple(row[name] for name in names) for row in found.log_steps.to_pylist()]


@pytest.mark.parametrize("family", FAMILY_LINES)
def test_a_line_of_each_family_is_recognised_and_read(family: str, read: Read) -> None:
    line, stated = FAMILY_LINES[family]
    reader = recognise_format(Path("job.log"), f"text before\n{line}\n".encode())
    assert reader.name == "job_log"
    found = read("text before", line, "text after")
    assert found.facts["producer"] == family
    (row,) = columns(found, *stated)
    assert row == tuple(pytest.approx(v) if isinstance(v, float) else v for v in stated.values())


@pytest.mark.parametrize(
    ("line", "stated"),
    [
        (
            "[2025-10-17T11:33:02+08:00] Training epoch 1, iteration 28/99 | lr: 7e-06 |"
            " global_batch_size: 32 |"
            " global_step: 28 | max_memory_reserved: 127 | max_memory_allocated: 115 |"
            " reduced_train_loss: 2.5 |"
            " train_step_timing in s: 0.25 | TFLOPS_per_GPU: 1.25e+03 | consumed_samples: 928 | val_loss: 3",
            {"step": 28, "dur_ns": 250_000_000, "memory_bytes": 127, "flops_per_s": 1.25e15, "rank": None},
        ),
        (
            " 5: Training epoch 0, iteration 28/99 | lr: 5.6e-06 | global_batch_size: 32 | global_step: 28 |"
            " reduced_train_loss: 2.5 | train_step_timing in s: 0.25 | tokens_per_sec_per_gpu: 6.8e+03 |",
            {"rank": 5, "samples": 32, "tokens_per_s_per_device": 6800.0},
        ),
        (
            "worker-0: [2026-01-02 03:04:05,500] [INFO] [timer.py:199:stop]"
            " epoch=1/micro_step=926/global_step=188,"
            " RunningAvgSamplesPerSec=6.6, CurrSamplesPerSec=6.3, MemAllocated=7.79GB, MaxMemAllocated=8.5GB",
            {"step": 188, "end_ns": 1_767_323_045_500_000_000, "memory_bytes": 9_126_805_504},
        ),
        (
            "[default7]: iteration       20/ 115311 | consumed samples:   960 | consumed tokens:  2015"
            " | elapsed"
            " time per iteration (s): 105.25 | global batch size:  2048 | lm loss: 2.5E+00 | num zeros: 0.0 |"
            " samples per second: 19.463 | TFLOPs: 149.02 |",
            {"rank": 7, "dur_ns": 105_250_000_000, "samples": 2048, "loss": 2.5, "flops_per_s": 149.02e12},
        ),
        (
            "[default0]:07/03/2024 10:11:12 [INFO|DP=0|PP=0|TP=0|ip-26-0-1-2]: iteration: 3 / 20 |"
            " consumed_tokens: 12.6M | elapsed_time_per_iteration_ms: 43.1K | tokens_per_sec: 97.4K |"
            " tokens_per_sec_per_gpu: 1.52K | global_batch_size: 1.02K | lm_loss: 11.2 | lr: 9.53e-05 |"
            " hardware_tflops_per_gpu: 13.8 | grad_norm: 26.1 | cuda_max_memory_reserved: 520M",
            {"rank": 0, "dur_ns": 43_100_000_000, "samples": None, "memory_bytes": 520_000_000},
        ),
        (
            "INFO 2025-09-10 16:32:05.957 metrics.py:386] Avg prompt throughput: 0.2 tokens/s, Avg generation"
            " throughput: 1.1 tokens/s, Running: 2 reqs, Swapped: 0 reqs, Pending: 3 reqs, GPU KV cache"
            " usage: 0.0%",
            {"prompt_tokens_per_s": 0.2, "generated_tokens_per_s": 1.1, "running": 2, "waiting": 3},
        ),
        (
            "[2026-03-14 04:59:11] Decode batch, #running-req: 20, #full token: 2326, mamba num: 20,"
            " cuda graph:"
            " True, gen throughput (token/s): 1174.06, #queue-req: 6, ",
            {"generated_tokens_per_s": 1174.06, "running": 20, "waiting": 6},
        ),
        ("completed step: 5, seconds: 20.5, TFLOP/s/device: 97.5, loss: 12.4", {"step": 5, "loss": 12.4}),
    ],
)
def test_lines_as_jobs_have_printed_them(line: str, stated: dict[str, object], read: Read) -> None:
    """Layouts of logs that people have published, of other versions, launchers and options."""
    (row,) = columns(read(line), *stated)
    assert row == tuple(pytest.approx(v) if isinstance(v, float) else v for v in stated.values())


def test_every_family_has_a_line_here_and_says_what_it_was_tested_on() -> None:
    """But the one of samples."""
    assert {family.name for family in FAMILIES} - set(FAMILY_LINES) == {"mlperf throughput"}
    origins = ("real: ", "excerpts of published logs, no file: ")
    assert all(family.tested.startswith(origins) for family in FAMILIES)


def test_a_throughput_in_samples_gives_the_step_of_the_batch(read: Read) -> None:
    """AMD's logs count samples as `step`: 320 are ten steps of 32, of 32 / 16 = 2 s."""
    batch = MLLOG.format(time=1759906650000, key="global_batch_size", value=32, more="")
    more = {"time": 1759906670000, "key": "tracked_stats", "more": ', "step": 320'}
    line = MLLOG.format(value='{"throughput": 16.0}', **more)
    found = columns(read(batch, line), "step", "dur_ns", "timed_by", "samples")
    assert found == [(10, 2_000_000_000, "rate", 32)]


def test_stamps_time_the_steps_between_two_lines(read: Read) -> None:
    """10 s for the five steps from 5 to 10: 2 s each; the first line has no time."""
    found = read(*TITAN_HEAD, TITAN.format(second=5, step=5), TITAN.format(second=15, step=10))
    assert columns(found, "step", "steps", "dur_ns", "timed_by", "tokens") == [
        *((5, 5, None, None, 16 * 512), (10, 5, 2_000_000_000, "stamps", 16 * 512))
    ]
    parallel = {"pipeline": 1, "replicate": 1, "shard": 8, "context": 1, "tensor": 2, "expert": 1}
    known = {"producer": "torchtitan"} | {f"{name}_parallel": size for name, size in parallel.items()}
    known |= {"devices": 16, "global_batch": 16, "micro_batch": 2, "sequence_length": 512}
    assert found.facts == known


@pytest.mark.parametrize("label", ["{}: ", " {}: ", "[rank{}]:", "[default{}]:", "[rank{}]: "])
def test_labelled_ranks_are_kept_apart(label: str, read: Read) -> None:
    one = label + MEGATRON.replace("{", "{{").replace("}", "}}")
    lines = [one.format(rank).format(step, step, 1000 + rank) for step in (1, 2, 3) for rank in (1, 0)]
    assert columns(read(*lines), "rank", "step", "restart", "dur_ns") == [
        (rank, step, 0, (1000 + rank) * 10**6) for rank in (0, 1) for step in (1, 2, 3)
    ]


def test_a_step_number_that_falls_is_a_restart_and_ranks_may_lack_labels(read: Read) -> None:
    """Also where each step stands there twice: from 5 back to 1 is no neighbour's delay."""
    found = read(*(MEGATRON.format(n, step, 1000) for n, step in enumerate((10, 20, 30, 20, 30, 40))))
    assert columns(found, "step", "restart", "steps") == [
        *((10, 0, 10), (20, 0, 10), (30, 0, 10), (20, 1, 10), (30, 1, 10), (40, 1, 10))
    ]
    found = read(*(MEGATRON.format(n, step, 1000) for n, step in enumerate((1, 2, 3, 4, 5) * 2)))
    assert [restart for (restart,) in columns(found, "restart")] == [0] * 5 + [1] * 5
    # three ranks print each step, not quite in order: no restart
    steps = (1, 1, 2, 1, 2, 2, 3, 3, 3, 4, 5, 4, 5, 4, 5)
    found = read(*(MEGATRON.format(step, step, 1000) for step in steps))
    assert columns(found, "step", "restart") == [(step, 0) for step in (1, 2, 3, 4, 5)]
    assert found.left_out == {"lines that repeat a step, or have none": 10}


def test_bars_end_with_carriage_returns_and_go_on_counting(read: Read) -> None:
    bar = " {}%|█   | {}/100 [00:10<00:20,  2.00s/it]"
    found = read("Map: 3%|█   | 3/100 [00:10<00:20, 9.00it/s]", *(bar.format(n, n) for n in (1, 2)), end="\r")
    assert columns(found, "step", "dur_ns") == [(1, 2 * 10**9), (2, 2 * 10**9)]
    bar = "Epoch {}: {}%|█   | {}/2 [00:10<00:20,  2.00s/it]"
    found = read(*(bar.format(epoch, n, n) for epoch in (0, 1) for n in (0, 1, 2)), end="\r")
    assert columns(found, "step", "restart") == [(n, 0) for n in (1, 2, 3, 4)]


def test_lines_of_different_layouts_are_all_read(read: Read) -> None:
    """The search for lines that look like the first one finds fewer than there are."""
    other = MEGATRON.replace(" lm loss: 1.5E+00 |", "").replace("/ 50 |", "/ 50 | skipped: 1 |")
    found = read(*(one.format(n, n, 1000.5) for n, one in enumerate((MEGATRON, other, MEGATRON), 1)))
    assert columns(found, "step", "dur_ns", "loss") == [
        (n, 1_000_500_000, loss) for n, loss in ((1, 1.5), (2, None), (3, 1.5))
    ]


CHANGES = [
    *(("| global", "| throughput per GPU (TFLOP/s/GPU): 23.0 | global"), ("1.5E+00", "nan")),
    *(("1.5E+00", "1.5E+00 (mean)"), ("1.5E+00", "1,500.5"), ("32", "+32")),
    *((" lm loss: 1.5E+00 |", ""), ("samples: 32", "tokens: 32"), ("lm loss", "mtp loss")),
    *(("(ms)", "(ms, mean)"), ("[2025", "[rank3] [2025"), (" [2025-12-18", " ["), ("| ", "|  ")),
    *(("iteration ", "iteration  "), ("lm loss: ", "validation lm loss: "), (": ", " : ")),
    *((" iteration", " Héllo iteration"), ("| ", "| | "), ("1.5E+00 |", "1.5E+00")),
]


def random_line(chance: Random, step: int) -> str:
    """A line of Megatron-LM, now and then unlike the others in one of many ways."""
    line = MEGATRON.format(step % 60, step, f"{chance.random() * 3000:.{chance.randint(1, 3)}f}")
    if chance.random() < 0.15:
        line = line.replace(*chance.choice(CHANGES))
    return line if chance.random() < 0.97 else f"{line}{MEGATRON.format(1, step, 5)}"


def test_splitting_gives_what_the_pattern_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of one layout, with others among them; the family's pattern alone reads the same rows."""
    chance, path, split = Random(34), tmp_path / "job.log", 0  # noqa: S311
    for _ in range(300):
        lines = [random_line(chance, step) for step in range(1, chance.randint(2, 9))]
        others = ["", "a | b", "| | | | | |", " validation loss at iteration 3 | lm loss value: 1.5E+00 |"]
        lines.insert(chance.randint(0, len(lines)), chance.choice(others))
        path.write_text("\n".join(lines) + "\n" * chance.randint(0, 1))
        split += separated_columns(FAMILIES[0], path.read_bytes().rstrip(b"\n")) is not None
        fast = JobLog().sniff(path.read_bytes()) and JobLog().read(path)
        with monkeypatch.context() as patch:
            patch.setattr(reading, "separated_columns", lambda *_: None)
            patch.setattr(reading, "alike_lines", lambda *_: None)
            slow = JobLog().sniff(path.read_bytes()) and JobLog().read(path)
        assert fast == slow
    assert 50 < split < 250


def test_a_bar_of_an_evaluation_is_not_a_restart(read: Read) -> None:
    """The bar that runs for 90 s is the job's; before and between its steps another one counts to 7."""
    bar = "{}%|█   | {}/{} [{}<00:20,  2.00s/it]"
    steps = [bar.format(n, n, 9, f"01:{20 + n:02}") for n in (1, 2, 3)]
    others = [bar.format(n, n, 7, f"00:{50 + n}") for n in (0, 3, 7)]
    found = read(*others, steps[0], *others, *steps[1:], end="\r")
    assert columns(found, "step", "restart") == [(1, 0), (2, 0), (3, 0)]
    # The rate is smoothed: by the clock 0:10 to 0:31 and to 1:15 are 2 steps and 1, then none ends.
    clock = ((1, "00:10"), (2, "00:20"), (3, "00:31"), (4, "01:15"), (5, "01:16"))
    found = read(*(f"{n}%|█   | {n}/9 [{at}<00:20,  2.00s/it]" for n, at in clock), end="\r")
    seconds = [ns and ns / 10**9 for (ns,) in columns(found, "dur_ns")]
    assert seconds == [None, 10.5, 10.5, 44.0, None]


@pytest.mark.parametrize("loss", ["nan", "inf", ""])
def test_a_loss_that_is_no_number_is_none(loss: str, read: Read) -> None:
    found = read(*(MEGATRON.format(n, n, 1000).replace("1.5E+00", loss) for n in (1, 2)))
    assert columns(found, "step", "loss") == [(1, None), (2, None)]


@pytest.mark.parametrize(
    ("ms", "dur"), [("0.0", None), ("1e30", None), ("9" * 31, None), ("1.2.3", None), ("0.25", 250_000)]
)
def test_an_impossible_time_or_stamp_is_none(ms: str, dur: int | None, read: Read) -> None:
    lines = [MEGATRON.format(1, 1, ms), MEGATRON.format(1, 2, ms).replace("2025-12", "2025-13")]
    found = read(*lines)
    assert columns(found, "dur_ns") == [(dur,)] * 2
    assert [end is None for (end,) in columns(found, "end_ns")] == [False, True]


def test_a_profiler_marks_the_steps_that_it_slowed(read: Read) -> None:
    """Recording starts before step 3 and is written after step 4's line, during step 5."""
    lines = [MEGATRON.format(n, n, 1000) for n in range(1, 7)]
    lines.insert(4, "Saved Kineto trace to /home/alice/traces/kineto_trace_0.json")
    lines.insert(2, "Started ET observer at iteration 2")
    marks = (None, None, "recorded", "recorded", "saved", None)
    assert columns(read(*lines), "step", "profiler") == [*enumerate(marks, 1)]


def test_the_librarys_lines_tell_what_they_tell_in_a_log_of_their_own(read: Read, tmp_path: Path) -> None:
    """Facts, and calls of two ranks among the steps."""
    ranks = [Process(rank) for rank in range(2)]
    for rank, process in enumerate(ranks):
        process.init("world", rank, 2)
        process.call("AllReduce", "world", 2, 1024, dtype=7)
    lines = "".join(process.text for process in ranks).splitlines()
    lines.insert(0, "node1:1:1 [0] NCCL INFO Using network Socket")
    found = read(*lines[:3], MEGATRON.format(1, 1, 1000), *lines[3:])
    own = NcclLog().read(tmp_path / "job.out")
    assert own.timings is not None
    assert (found.timings, found.communicators) == (own.timings, own.communicators)
    assert (found.facts, len(columns(found, "step"))) == ({**own.facts, "producer": "megatron"}, 1)


@pytest.mark.parametrize(
    "text", [b"", b"no step\n", b"step: 3 of the plan\n", b"iteration 5 took long\n", b"\0" * 100]
)
def test_other_texts_are_not_recognised(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(text)
    assert JobLog().sniff(text) == 0
    refused(JobLog().read, path, "has no line about a step")


def test_damaged_logs_are_read_or_refused(tmp_path: Path) -> None:
    lines = [line for line, _ in FAMILY_LINES.values()]
    text = "\n".join([*TITAN_HEAD, *lines, *(MEGATRON.format(n, n, 1000) for n in (1, 2, 1))])
    read_or_refused(JobLog().read, tmp_path / "job.log", text.encode())


Line = tuple[int, int, float, float, int]
"""Rank, step, ms, loss and stamp."""


def table_of(*blocks: list[Line]) -> pa.Table:
    lines = StepColumns("megatron")
    for block in blocks:
        rank, step, ms, loss, stamp = (np.array(column) for column in zip(*block, strict=True))
        lines.count += len(block)
        lines.append("rank", rank)
        lines.append("step", step.astype(np.float64))
        lines.append("step_ms", ms.astype(np.float64))
        lines.append("loss", loss.astype(np.float64))
        lines.append("stamp", stamp)
    return step_table(lines, {})[0]


@st.composite
def interleaved(draw: st.DrawFn) -> tuple[list[list[Line]], list[Line]]:
    """Lines of each rank, and all of them in another order, in which each rank's stay in order."""
    ms, loss = st.sampled_from([np.nan, 0.0, 20.0, 21.5]), st.sampled_from([np.nan, 2.5, 3.0])
    stamps, steps = (
        st.sampled_from([UNKNOWN, 10**18, 10**18 + 7]),
        st.sets(st.integers(0, 50), min_size=1, max_size=6),
    )
    ranks = [
        [(rank, step, draw(ms), draw(loss), draw(stamps)) for step in sorted(draw(steps))]
        for rank in range(draw(st.integers(1, 3)))
    ]
    order = draw(st.permutations([rank for rank, own in enumerate(ranks) for _ in own]))
    left = [iter(own) for own in ranks]
    return ranks, [next(left[rank]) for rank in order]


@given(interleaved(), st.integers(1, 9))
def test_lines_of_any_order_are_the_same_rows(lines: tuple[list[list[Line]], list[Line]], size: int) -> None:
    ranks, mixed = lines
    blocks = [mixed[first : first + size] for first in range(0, len(mixed), size)]
    table, single = table_of(*blocks), pa.concat_tables([table_of(own) for own in ranks])
    first = np.flatnonzero(np.diff(single["rank"].to_numpy(), prepend=-1))
    assert table.drop_columns("steps").to_pylist() == single.drop_columns("steps").to_pylist()
    # the steps of a first line are the usual number of all ranks
    steps, alone = table["steps"].to_numpy().copy(), single["steps"].to_numpy().copy()
    steps[first] = alone[first] = 0
    assert steps.tolist() == alone.tolist()


@pytest.mark.parametrize("digits", [b"17.29.1976", b"8991373283319999849"])
def test_digits_that_are_no_figure_are_not_published(digits: bytes) -> None:
    """A date, or the number of a SIM card, where a pattern reads a number."""
    line = b" iteration 10/ 100 | elapsed time per iteration (ms): %b | lm loss: 1.5E+00 |"
    published = published_line(line % digits)
    assert published is not None
    assert digits[-4:] not in published
    assert b"lm loss: 1.5E+00" in published
