# SPDX-License-Identifier: Apache-2.0
"""The timeline of a page: each kernel where it runs, merged where it is too short, bounded in bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.report_run import HOSTILE, Event, subject

from cclbench.present import step_spans
from cclbench.present.step_spans import StepSpans


def timeline(folder: Path, events: tuple[Event, ...]) -> StepSpans:
    found = step_spans.step_spans(subject(folder, events=events).stored)
    assert isinstance(found, StepSpans)
    return found


def spans_of(found: StepSpans) -> dict[str, list[tuple[int, int, str, str, int]]]:
    """By lane: begin and duration in ns, name, colour, number of merged events."""
    data: dict[str, Any] = json.loads(found.data)
    lanes = {}
    for lane in data["lanes"]:
        shown, at = [], 0
        for place in range(0, len(lane["spans"]), 4):
            gap, ns, name, number = lane["spans"][place : place + 4]
            shown.append((at + gap, ns, *data["names"][name], number))
            at += gap + ns
        lanes[lane["label"]] = shown
    return lanes


def test_each_kernel_is_where_it_runs(tmp_path: Path) -> None:
    events = (
        (0, "void at::native::add<float>(int)", "elementwise", 1000, 500),
        (0, "ncclDevKernel_AllReduce", "communication", 1700, 200),
        (1, "gemm", "gemm", 1100, 600),
    )
    found = timeline(tmp_path, events)
    shown = spans_of(found)
    begin = shown["rank 1, stream 7"][0][0] - 100
    assert shown == {
        "rank 0, stream 7": [
            (begin, 500, "add<float>", "compute", 1),
            (begin + 700, 200, "ncclDevKernel_AllReduce", "transfer", 1),
        ],
        "rank 1, stream 7": [(begin + 100, 600, "gemm", "compute", 1)],
    }
    assert found.legend == (("compute", "compute"), ("transfer", "communication"))
    assert found.notes == ()


def test_a_limit_merges_the_short_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long kernel stays itself; of 300 short ones as many are left as the limit allows."""
    short: list[Event] = [(0, f"short_{n % 7}", "elementwise", 1400 + 2 * n, 1) for n in range(300)]
    monkeypatch.setattr(step_spans, "MOST_SPANS", 100)
    found = timeline(tmp_path, ((0, "long", "gemm", 1000, 300), *short))
    (shown,) = spans_of(found).values()
    assert len(shown) <= 100
    assert shown[0] == (0, 300, "long", "compute", 1)
    assert sum(span[4] for span in shown) == 301
    assert shown[-1][0] + shown[-1][1] == 400 + 2 * 299 + 1
    assert "is merged" in found.notes[0]


def test_the_text_is_bounded_and_inert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: tuple[Event, ...] = tuple(
        (0, f"{text}{n}", "gemm", 1000 + 9 * n, 5) for n, text in enumerate(HOSTILE)
    )
    found = timeline(tmp_path / "hostile", events)
    assert not {"<", ">", "&", "\u202e"} & set(found.data)
    many: tuple[Event, ...] = tuple(
        (0, f"kernel_{n}_of_many", "gemm", 1000 + 40 * n, 30) for n in range(2000)
    )
    monkeypatch.setattr(step_spans, "MOST_BYTES", 10_000)
    assert len(timeline(tmp_path / "many", many).data.encode()) <= 10_000


def test_nothing_to_draw_has_a_reason(tmp_path: Path) -> None:
    assert isinstance(step_spans.step_spans(subject(tmp_path, events=()).stored), str)
