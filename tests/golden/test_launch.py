# SPDX-License-Identifier: Apache-2.0
"""Launches, windows and parts of steps of real traces, by an independent calculation."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import cclbench
from cclbench.analyzers.step_parts import PARTS
from cclbench.classify import base_name
from cclbench.kernel_sequences import frequent_sequences
from cclbench.record.run import Run

from .conftest import Measure, Rows

NS = 1e-9
CAPTURES = {"ddp_a100": "control.json.gz", "nccl_meta_a100": "nccl_data.json.gz"}
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
HTA_QUEUE = {"ddp_a100": {7: (17_928, 288), 20: (564, 10), 21: (120, 2), 22: (288, 22)}}
HTA_QUEUE |= {"nccl_meta_a100": {7: (7_506, 10), 40: (42, 1)}}
"""By stream, how often HTA sees the length change, and the largest."""


class Launched(NamedTuple):
    """What ran on the device and the call that launched it, times in ns."""

    kind: str
    name: str
    stream: int
    call_begin: int
    call_end: int
    begin: int
    end: int


def ns(row: dict[str, Any], key: str) -> int:
    return int(row[key] * 1000)


@pytest.fixture(params=CAPTURES)
def capture(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def launched(capture: str, kineto: Path, complete_rows: Rows) -> list[Launched]:
    """All device rows of a trace; every one has its call, and no call launches two."""
    rows = complete_rows(kineto / capture / CAPTURES[capture])
    calls = {}
    for row in rows:
        if row["cat"] == "cuda_runtime" and any(m in row["name"] for m in ("Launch", "Memcpy", "Memset")):
            assert calls.setdefault(row["args"]["correlation"], row) is row
    found = []
    for row in rows:
        if row["cat"] in DEVICE:
            call, begin = calls.pop(row["args"]["correlation"]), ns(row, "ts")
            begun = ns(call, "ts")
            ends = begun + ns(call, "dur"), begin + ns(row, "dur")
            found.append(
                Launched(row["cat"], row["name"], row["args"]["stream"], begun, ends[0], begin, ends[1])
            )
    return found


@pytest.fixture
def figures(capture: str, kineto: Path, measure: Measure) -> dict[tuple[str, str | None, str | None], Any]:
    """The rank's rows by metric, category and statistic, over the whole trace."""
    run = measure(kineto / capture, "trace")
    (rank,) = run.ranks
    rows = (row for row in run.rows if row["rank"] == rank and row["step"] is None)
    return {(row["metric"], row["category"], row["stat"]): row["value"] for row in rows}


def queue(launched: list[Launched], *, until: str) -> tuple[list[tuple[int, int]], int]:
    """The queue's lengths, each with how long it lasts, and how often it changes."""
    changes = sorted(
        change for one in launched for change in ((one.call_begin, 1), (getattr(one, until), -1))
    )
    lengths, length = [], 0
    for (at, change), (after, _) in zip(changes, changes[1:] + changes[-1:], strict=True):
        length += change
        lengths.append((length, after - at))
    assert length == 0
    return lengths, len(changes)


def statistics(of: list[int]) -> dict[str, float]:
    """In seconds, by the name of the statistic."""
    found = {"mean": sum(of) / len(of), "p50": np.median(of), "p95": np.percentile(of, 95), "max": max(of)}
    return {name: float(ns) * NS for name, ns in found.items()}


def test_calls_delays_and_kernel_times(launched: list[Launched], figures: dict[Any, Any]) -> None:
    """The main row is a mean, of kernels' times the median."""
    kernels = [one for one in launched if one.kind == "kernel"]
    delays = [one.begin - one.call_begin for one in kernels]
    after = [one.begin - one.call_end for one in kernels]
    assert min(delays) >= 0 > min(after)
    for metric, main, of in (
        ("launch.call_time", "mean", [one.call_end - one.call_begin for one in kernels]),
        ("launch.delay", "mean", delays),
        ("compute.kernel_time", "p50", [one.end - one.begin for one in kernels]),
    ):
        wanted = statistics(of)
        for stat in (None, *(("p50",) if main == "mean" else ()), "p95", "max"):
            assert figures[metric, None, stat] == pytest.approx(wanted[stat or main]), (metric, stat)
    assert figures["launch.delay", None, "after_call"] == pytest.approx(statistics(after)["mean"])
    nccl = [one.end - one.begin for one in launched if one.name.startswith("nccl")]
    assert figures["compute.kernel_time", "communication", None] == pytest.approx(np.median(nccl) * NS)


def test_short_kernels_and_the_compute_in_them(launched: list[Launched], figures: dict[Any, Any]) -> None:
    kernels = [one for one in launched if one.kind == "kernel"]
    short = [one for one in kernels if one.end - one.begin < one.call_end - one.call_begin]
    assert figures["launch.short_kernels", None, None] == pytest.approx(len(short) / len(kernels))
    compute = covered([one for one in kernels if not one.name.startswith("nccl")])
    of_short = covered([one for one in short if not one.name.startswith("nccl")])
    assert figures["compute.launch_bound_share", None, None] == pytest.approx(of_short / compute)
    assert figures["compute.time", None, None] == pytest.approx(compute * NS)


def covered(rows: list[Launched]) -> int:
    """The time in which any of them runs."""
    total, reach = 0, 0
    for begin, end in sorted((one.begin, one.end) for one in rows):
        total += max(end - max(begin, reach), 0)
        reach = max(reach, end)
    return total


def test_the_queue_of_each_stream(launched: list[Launched], figures: dict[Any, Any]) -> None:
    """From the first device row's begin on, which the window opens with."""
    first, last = min(one.begin for one in launched), max(one.end for one in launched)
    by_stream: dict[str | None, list[Launched]] = defaultdict(list)
    for one in launched:
        inside = one._replace(call_begin=max(one.call_begin, first))
        by_stream[f"stream {one.stream}"].append(inside)
        by_stream[None].append(inside)
    assert {key[1] for key in figures if key[0] == "launch.queue_length"} == set(by_stream)
    for stream, rows in by_stream.items():
        lengths, _ = queue(rows, until="end")
        area = sum(length * lasts for length, lasts in lengths)
        busy = sum(lasts for length, lasts in lengths if length)
        most = max(length for length, lasts in lengths if lasts)
        own = {
            stat: figures["launch.queue_length", stream, stat] for stat in (None, "max", "empty", "blocked")
        }
        empty = 1 - busy / (last - first)
        expected = {None: area / (last - first), "max": most, "empty": empty, "blocked": 0}
        assert own == pytest.approx(expected), stream


def test_these_loops_give_htas_queue_where_they_count_alike(capture: str, launched: list[Launched]) -> None:
    by_stream: dict[int, list[Launched]] = defaultdict(list)
    for one in launched:
        by_stream[one.stream].append(one)
    found = {}
    for stream, rows in by_stream.items():
        lengths, changes = queue(rows, until="begin")
        found[stream] = (changes, max(length for length, _ in lengths))
    assert found == HTA_QUEUE[capture]


@pytest.mark.parametrize("capture", ["ddp_a100"])
def test_these_loops_give_htas_launches_where_times_are_whole_microseconds(launched):
    assert len(launched) == 9_450
    assert sum(one.end - one.begin < one.call_end - one.call_begin for one in launched) == 3_704
    calls = sum(one.call_end - one.call_begin for one in launched)
    delays = sum(max(one.begin - one.call_end, 0) for one in launched)
    assert calls / len(launched) == pytest.approx(14_756.190, abs=1e-3)
    assert delays / len(launched) == pytest.approx(2_122_421.481, abs=1e-3)


@pytest.mark.parametrize(("length", "most"), [(2, 1_000), (5, 2_000)])
def test_kernel_sequences(capture, launched, kineto, measure, length, most):
    """Every sequence of the whole trace, its kernels and gaps in sets, which hold each once."""
    count: dict[tuple[str, ...], int] = defaultdict(int)
    kernels: dict[tuple[str, ...], set[tuple[int, int]]] = defaultdict(set)
    gaps: dict[tuple[str, ...], set[tuple[int, int]]] = defaultdict(set)
    by_stream: dict[int, list[Launched]] = defaultdict(list)
    for one in sorted(launched, key=lambda one: (one.begin, one.end)):
        by_stream[one.stream].append(one)
    for rows in by_stream.values():
        for first in range(len(rows) - length + 1):
            part = rows[first : first + length]
            names = tuple(base_name(one.name) for one in part)
            copies = any(one.kind != "kernel" for one in part)
            if copies or all(name.startswith("nccl") for name in names):
                continue
            count[names] += 1
            kernels[names] |= {(one.begin, one.end) for one in part}
            gaps[names] |= {(one.end, after.begin) for one, after in pairwise(part)}
    run = measure(kineto / capture, "trace")
    found = frequent_sequences(run, length=length, top=most, window="trace")
    assert len(found.rows) == found.distinct == len(count) < most
    for row in found.rows:
        assert row.count == count[row.kernels]
        for seconds, spans in ((row.time_s, kernels), (row.gap_s, gaps)):
            assert seconds == pytest.approx(sum(end - begin for begin, end in spans[row.kernels]) * NS)
    times = [row.time_s for row in found.rows]
    assert times == sorted(times, reverse=True)
    every = sum(one.end - one.begin for one in launched if one.kind == "kernel")
    assert found.rows[0].share == pytest.approx(times[0] / (every * NS))


KINETO = ("dlrm_8xv100", "ddp_a100", "resnet_mi300x", "h100_qwen", "sglang_decode_mi300x", "sampled_2of128")
SOURCES = [(f"kineto/{capture}", window) for capture in KINETO for window in ("steps", "trace")]
SOURCES += [("nsys/nsysai_mfu_2gpu_before_c8f71e.sqlite", "steps")]
SOURCES += [("xprof/tpu_v6e_4plane_host_offload_psum.xplane.pb", "steps")]
EXPOSED = ("exposed_transfer", "exposed_wait", "exposed_unmatched")


def check(run: Run) -> None:
    own = [row for row in run.rows if row["metric"] == "time.step_parts"]
    step = next(row["value"] for row in run.rows if row["metric"] == "time.step" and row["rank"] is None)
    whole, by_part = own[0], defaultdict(list)
    assert whole["value"] == pytest.approx(step, rel=1e-15)
    for row in own:
        if row["step"] is None and row["stat"] in PARTS:
            key = [name for name in ("collective", "group", "category") if row[name] is not None]
            by_part[row["stat"], *key].append(row["value"])
    total = math.fsum(by_part[part,][0] for part in PARTS if (part,) in by_part)
    assert total == pytest.approx(step, rel=1e-15)
    for part, by in (("compute", "category"), *((part, "collective") for part in EXPOSED)):
        total = by_part.get((part,), [0.0])[0]
        assert math.fsum(by_part.get((part, by), [])) == pytest.approx(total, rel=1e-14, abs=1e-18)
    steps: dict[int, list[float]] = defaultdict(list)
    for row in own:
        if row["step"] is not None:
            steps[row["step"]].append(row["value"])
    longest: dict[int, float] = defaultdict(float)
    for row in run.rows:
        counted = row["step"] is not None and row["stat"] != "open"
        if row["metric"] == "time.step" and counted and row["rank"] is not None:
            longest[row["step"]] = max(longest[row["step"]], row["value"])
    assert {step: math.fsum(values) for step, values in steps.items()} == pytest.approx(longest, rel=1e-14)


@pytest.mark.parametrize(("source", "window"), SOURCES)
def test_parts_of_traces_sum_to_the_step(test_data: Path, measure: Measure, source: str, window: str) -> None:
    check(measure(test_data / source, window))


def test_parts_of_a_shipped_run_sum_and_are_the_same_from_several_processes(repository, measure, tmp_path):
    card = repository / "workload_cards" / "tiny-llama-fsdp2-tp2-gloo-cpu.yaml"
    alone = measure(card)
    check(alone)
    several = cclbench.run(card, store=tmp_path, jobs=2, metrics=["time.step_parts"])
    assert several.rows == [row for row in alone.rows if row["metric"] == "time.step_parts"]
    for window in ("trace", "annotations"):
        check(measure(card, window))
