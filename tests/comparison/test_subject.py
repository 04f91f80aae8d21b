# SPDX-License-Identifier: Apache-2.0
"""Subjects of a comparison, and the lines that tell of them."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.compared_subjects import card, row, steps_of, subject

from cclbench.analyzers.view.values import ALL_OPEN
from cclbench.comparison.comparison import CardDifference, Comparison, MetricFigure, Versus
from cclbench.comparison.fingerprint import UNKNOWN
from cclbench.comparison.lines import card_differences, metric_lines
from cclbench.comparison.subject import ComparisonSubject, WorkFacts
from cclbench.present.sections import figure_cell, most_different

STEP = [row("time.step", 1.0)]


def workload(**known: Any) -> WorkFacts:
    """Of a tiny model on four H100s, less what is None."""
    told: dict[str, Any] = {"model": "Tiny-Llama", "phase": "training", "accelerator": "nvidia-h100-sxm"}
    told |= {"devices": 4, "batch": 16, "sequence_length": 128, "framework": None, "plan": None}
    return WorkFacts(**(told | known))


@pytest.mark.parametrize(
    ("rows", "published", "window"),
    [
        (STEP, None, "steps"),
        ([STEP[0] | {"window": "trace"}], None, "trace"),
        ([row("time.step", None)], None, None),
        ([row("time.step", 1.0, status="partial")], None, None),
        ([], None, None),
        (STEP, {"source": "x"}, None),
    ],
)
def test_the_window_is_that_of_a_step_time_measured_here(
    rows: list[dict[str, Any]], published: dict[str, Any] | None, window: str | None
) -> None:
    assert subject("A", rows, published=published).window_policy == window


def test_steps_are_those_of_the_step_time() -> None:
    rows = [*steps_of("time.step", [1.0, 2.0]), *steps_of("throughput.tokens", [1.0] * 3, "1/s")]
    assert subject("A", rows).step_count == 2
    assert subject("A", STEP).step_count == 0

    # a step time of an open step says so first
    def all_open(reason: str | None) -> bool:
        return subject("A", [row("time.step", 1.0, reason=reason)]).all_open

    assert all_open(f"{ALL_OPEN}; besides")
    assert not all_open(f"besides, {ALL_OPEN}")
    assert not all_open(None)
    assert not subject("A", []).all_open
    # its place follows from its letter
    assert [subject(letter, []).index for letter in ("A", "C", "Z")] == [0, 2, 25]


METADATA = {"model_family": "tiny-llama", "phase": "training", "hardware_model": "nvidia_a100"}
METADATA |= {"batch_size": 64, "seq_len": 1024, "total_count": 8, "framework": "torchtitan-v2.1"}
METADATA |= {"dp": 2, "fsdp": 1, "tp": 4, "dp_replicate": 2, "dp_shard": 1, "precision": ""}


def published(of: dict[str, Any] | None = None) -> ComparisonSubject:
    return subject("B", STEP, of, published={"metadata": METADATA})


def test_published_metadata_tell_what_ran() -> None:
    found = published().workload
    assert (found.model, found.phase, found.accelerator) == ("tiny-llama", "training", "nvidia_a100")
    assert (found.devices, found.batch, found.sequence_length) == (8, 64, 1024)
    assert (found.framework, found.plan) == ("torchtitan", "dp2 x tp4")
    assert published().card_field("workload.precision") is None
    assert published().published_field("software.framework.name") is None
    assert published().device_count == 8
    # a card made of published metadata lacks names alone
    lacking = card(
        workload__model__name=None, hardware__accelerator=None, workload__precision=None, hardware__count=None
    )
    made = published(lacking)
    names = [made.card_field(path) for path in ("workload.model.name", "hardware.accelerator")]
    assert names == ["tiny-llama", "nvidia_a100"]
    assert made.card_field("hardware.count") is None
    assert subject("A", STEP, lacking).card_field("workload.model.name") is None


def test_a_card_tells_what_ran_and_the_trace_the_device() -> None:
    ran = {"parallelism": {"dp_shard": 2, "tp": 2, "pp": 1}}
    ran["software"] = {"framework": {"name": "megatron", "version": "1"}}
    own = card(workload__model__name=None, hardware__accelerator=None, **ran)
    own["workload"]["model"]["family"] = "llama"
    found = subject("A", STEP, own).workload
    assert (found.model, found.accelerator, found.devices) == ("llama", "H100", 4)
    assert (found.framework, found.plan) == ("megatron", "fsdp2 x tp2")
    assert subject("A", STEP, card(parallelism={"tp": 1})).workload.plan == "unsplit"
    assert subject("A", STEP, card(parallelism=None)).workload.plan is None
    assert subject("A", STEP, card()).workload.accelerator == "nvidia-h100-sxm"
    # a field is the cards by its path
    one = subject("A", STEP, card())
    assert one.card_field("workload.batch.global") == 16
    assert one.card_field("workload.batch.global.more") is None
    assert one.card_field("workload.nothing.here") is None
    assert one.card_field("workload.batch") == {"global": 16, "sequence_length": 128}
    assert subject("A", STEP).card_field("workload.phase") is None


@pytest.mark.parametrize(
    ("accelerator", "kind"),
    [("google-tpu-v5e", "TPU"), ("CPU", "CPU"), ("nvidia_a100", "GPU"), ("", None), (None, None)],
)
def test_the_kind_of_a_device_is_in_its_name(accelerator: str | None, kind: str | None) -> None:
    assert workload(accelerator=accelerator).accelerator_kind == kind


def test_work_is_equal_where_model_phase_batch_and_length_are() -> None:
    assert workload().work_key == ("tiny-llama", "training", 16, 128)
    assert workload(model="TINY-LLAMA", devices=8, plan="tp2").work_key == workload().work_key
    for name in ("model", "phase", "batch", "sequence_length"):
        assert workload(**{name: None}).work_key is None
    # both are four H100s
    metadata = {**METADATA, "hardware_model": "nvidia-h100-sxm", "total_count": 4}
    other = subject("B", STEP, published={"metadata": metadata})
    assert subject("A", STEP, card()).hardware_key == (False, "nvidia-h100-sxm", 4)
    assert other.hardware_key == (True, "nvidia-h100-sxm", 4)
    unknown = {key: value for key, value in metadata.items() if key != "total_count"}
    assert subject("B", STEP, published={"metadata": unknown}).hardware_key is None
    # devices are what the traces call them
    assert subject("A", STEP, card()).devices == ("H100",)
    assert published().devices == ("nvidia_a100",)
    nameless = {key: value for key, value in METADATA.items() if key != "hardware_model"}
    assert subject("B", STEP, published={"metadata": nameless}).devices == ()


def test_cards_differ_by_path() -> None:
    changed = card(parallelism__tp=4, parallelism__cp=[2], workload__precision=None)
    found = card_differences([subject("A", [], card()), subject("B", [], changed)])
    assert found == (
        CardDifference("parallelism.cp", {"A": None, "B": [2]}),
        CardDifference("parallelism.tp", {"A": 2, "B": 4}),
        CardDifference("workload.precision", {"A": "bf16", "B": None}),
    )
    # names and evidence are no difference and a missing card is none
    other = {**card(), "id": "another", "description": "of another", "evidence": {"launch": "x.sh"}}
    assert card_differences([subject("A", [], card()), subject("B", [], other), subject("C", [])]) == ()
    assert card_differences([subject("A", [], card()), subject("B", [])]) == ()
    # an id within a section is a field as any other
    base, other = card(), card()
    base["workload"]["id"], other["workload"]["id"] = "x", "y"
    base["hardware"], other["hardware"] = {"count": 4}, {"count": 4, "nodes": {"count": 2}}
    found = card_differences([subject("A", [], base), subject("B", []), subject("C", [], other)])
    assert found == (
        CardDifference("hardware.nodes.count", {"A": None, "B": None, "C": 2}),
        CardDifference("workload.id", {"A": "x", "B": None, "C": "y"}),
    )


def test_a_line_has_every_subjects_figure_or_its_reason() -> None:
    base = subject("A", [row("time.step", 1.0), row("compute.mfu", None, "1", reason="no card")])
    modelled = ((2.0, None), (1.5, "low"), (2.5, "high"))
    other = subject("B", [row("time.step", s, stat=stat, provenance="modelled") for s, stat in modelled])
    mfu, step = metric_lines([base, other], ["compute.mfu", "time.step"])
    assert (step.metric, step.unit) == ("time.step", "s")
    assert step.figures == {
        "A": MetricFigure(1.0, "ok", "measured", None),
        "B": MetricFigure(2.0, "ok", "modelled", None, 1.5, 2.5),
    }
    assert mfu.figures == {
        "A": MetricFigure(None, "not_applicable", None, "no card"),
        "B": MetricFigure(None, "not_applicable", None, "the run has no such figure"),
    }
    # a measured figure has no band
    rows = [row("time.step", 1.0), row("time.step", 0.5, stat="low"), row("time.step", 2.0, stat="high")]
    (line,) = metric_lines([subject("A", rows)], ["time.step"])
    assert line.figures["A"] == MetricFigure(1.0, "ok", "measured", None)
    # what is only there in parts has a line a part
    base = subject("A", [row("serving.ttft", 0.2, stat="p50"), row("serving.ttft", 0.1, stat="low")])
    other = subject("B", [row("serving.ttft", 0.3), row("serving.ttft", 0.25, stat="p50")])
    whole, part = metric_lines([base, other], ["serving.ttft"])
    assert (whole.metric, whole.figures["B"].value) == ("serving.ttft", 0.3)
    assert part.metric == "serving.ttft[stat=p50]"
    assert [figure.value for figure in part.figures.values()] == [0.2, 0.25]


def test_a_metric_that_nobody_has_has_no_line_and_one_without_a_number_its_unit() -> None:
    base = subject("A", [row("comm.busbw", None, "B/s", reason="no calls")])
    other = subject("B", [row("comm.busbw", 5.0, "GB/s", better="higher", coverage=0.5)])
    assert metric_lines([base], ["time.step"]) == ()
    (line,) = metric_lines([base, other], ["time.step", "comm.busbw"])
    assert (line.metric, line.unit, line.better) == ("comm.busbw", "GB/s", "higher")
    assert line.figures["B"].coverage == 0.5
    (alone,) = metric_lines([base], ["comm.busbw"])
    assert (alone.unit, alone.figures["A"].reason) == ("B/s", "no calls")
    neither = subject("B", [row("comm.busbw", None, "1/s")])
    assert [line.unit for line in metric_lines([base, neither], ["comm.busbw"])] == ["B/s"]
    # what is not measured is marked
    assert figure_cell(MetricFigure(0.1, "ok", "measured", None), "s") == "100 ms"
    assert figure_cell(MetricFigure(0.1, "ok", "modelled", None), "s") == "~100 ms"
    assert figure_cell(MetricFigure(0.1, "ok", "published", None), "s") == "*100 ms"
    assert figure_cell(MetricFigure(None, "not_applicable", None, "why"), "s") == "n/a"
    assert figure_cell(MetricFigure(None, "failed", None, "why"), "s") == "failed"


def test_parts_of_several_keys_stand_in_order_and_only_where_a_whole_is_missing() -> None:
    def made(letter: str, *, whole: bool) -> ComparisonSubject:
        rows = [row("comm.busbw", 1.0, "B/s", collective=kind) for kind in ("all_reduce", "all_gather")]
        rows += [row("comm.busbw", 2.0, "B/s", collective="all_gather", group="0-1")]
        rows += [row("comm.busbw", None, "B/s", collective="broadcast")]
        rows += [row("comm.busbw", 3.0, "B/s", stat=stat) for stat in ("low", "high")]
        return subject(letter, [*rows, *([row("comm.busbw", 4.0, "B/s")] if whole else [])])

    assert [line.metric for line in metric_lines([made("A", whole=True)], ["comm.busbw"])] == ["comm.busbw"]
    found = metric_lines([made("A", whole=True), made("B", whole=False)], ["comm.busbw"])
    assert [line.metric for line in found] == [
        *("comm.busbw", "comm.busbw[collective=all_gather]", "comm.busbw[collective=all_gather,group=0-1]"),
        "comm.busbw[collective=all_reduce]",
    ]
    assert found[2].figures["B"].value == 2.0


def test_key_figures_come_first_then_the_most_different_and_equal_or_missing_ones_not_at_all() -> None:
    rows = {
        "compute.time": (1.0, 1.0), "comm.algbw": (1.0, 1.1), "time.idle": (1.0, 0.2),
        "time.step": (1.0, 1.5), "comm.skew": (0.0, 1.0), "comm.wait": (None, None),
    }  # fmt: skip
    base, other = (
        subject(letter, [row(metric, values[n]) for metric, values in rows.items()])
        for n, letter in enumerate("AB")
    )
    nothing = dict.fromkeys(("ratio", "low", "high", "spread", "captures_needed", "change_ns"))
    against = Versus("A", "B", "time.step", outcome="not comparable", work=UNKNOWN, words="", **nothing)
    found = Comparison((base, other), (), (against,), (), metric_lines([base, other], list(rows)))
    assert [line.metric for line in most_different(found)] == [
        *("time.step", "time.idle", "comm.algbw", "comm.skew")
    ]
