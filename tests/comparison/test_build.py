# SPDX-License-Identifier: Apache-2.0
"""Comparisons: how they are built, and fingerprints of their subjects."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from helpers.compared_subjects import card, row, steps_of, subject

import cclbench
from cclbench import results
from cclbench.comparison.build import compare
from cclbench.comparison.comparison import Comparison
from cclbench.comparison.fingerprint import Fingerprint, evidence_contradiction, work_equality
from cclbench.comparison.work import comparison_warnings
from cclbench.ground.errors import UsageError
from cclbench.record.card_agreement import card_contradiction
from cclbench.record.results import Results
from cclbench.record.run import Run
from cclbench.record.store import Store
from cclbench.studies.published.importing import import_ccl_bench

POINTS = ("tiny-llama-fsdp2-tp2-gloo-cpu", "tiny-llama-fsdp4-gloo-cpu", "tiny-llama-ddp4-gloo-cpu")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compare") / "store"


@pytest.fixture(scope="module")
def shipped(repository: Path, store: Path) -> Comparison:
    """The three shipped gloo data points."""
    cards = [repository / "workload_cards" / f"{name}.yaml" for name in POINTS]
    return compare(*cards, store=store, fail_on=["time.step > +5%", "time.step < -5%"])


def step_ns(comparison: Comparison, letter: str) -> Fraction:
    """Mean over steps of the longest window of any rank, from the steps table."""
    subject = next(s for s in comparison.subjects if s.letter == letter)
    longest: dict[int, int] = {}
    for window in subject.stored.steps().to_pylist():
        if window["source"] == "annotation" and window["step"] is not None:
            length = window["end_ns"] - window["start_ns"]
            longest[window["step"]] = max(longest.get(window["step"], 0), length)
    return Fraction(sum(longest.values()), len(longest))


def test_parts_of_shipped_runs_sum_to_the_difference_to_the_nanosecond(shipped: Comparison) -> None:
    assert [s.letter for s in shipped.subjects] == ["A", "B", "C"]
    assert len(shipped.versus) == 2
    for one in shipped.versus:
        assert one.change_ns == round(step_ns(shipped, one.other) - step_ns(shipped, one.base))
        assert sum(change.change_ns for change in one.changes) == one.change_ns
        for change in one.changes:
            assert abs(change.change_ns - (change.after_s - change.before_s) * 1e9) < 1
            for dimension in ("category", "collective"):
                moved = [m.change_s for m in change.movers if m.dimension == dimension]
                whole = change.after_s - change.before_s
                assert not moved or sum(moved) == pytest.approx(whole, abs=1e-12)
    # The same work on the same machine: nothing to warn of.
    assert shipped.warnings == ()
    assert {c.field for c in shipped.cards} == {
        *("parallelism.dp_replicate", "parallelism.dp_shard", "parallelism.tp", "workload.batch.micro")
    }


def test_the_verdicts_of_the_shipped_runs(shipped: Comparison) -> None:
    """B's 10 % may be chance, though 12 steps alone would tell them; C's 21 % are none."""
    fsdp4, ddp = shipped.versus
    assert (fsdp4.outcome, ddp.outcome) == ("no difference", "faster")
    assert (fsdp4.low or 2) < 1 < (fsdp4.high or 0)
    assert (ddp.high or 2) < 1
    assert fsdp4.words.startswith(
        "B's step is 1.11× shorter than A's in these captures, which may be chance (608 ms against 676 ms a"
        f" step; 95 % interval {1 / (fsdp4.high or 1):.2f} to {1 / (fsdp4.low or 1):.2f} over 12 steps of"
    )
    assert "About 3 captures of each would resolve a difference of this size." in fsdp4.words
    assert ddp.words.startswith("C is 1.26× faster than A (537 ms against 676 ms a step;")
    for one in shipped.versus:
        assert one.work.status == "proved"
        assert one.spread.basis_words == "prior"
    assert [(check.other, check.outcome) for check in shipped.checks] == [
        *(("B", "passed"), ("C", "passed"), ("B", "passed"), ("C", "failed"))
    ]
    assert not shipped.is_passed


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of the runs whose metrics are computed from here on."""
    ids: list[str] = []
    once = results._computed_results

    def counted(stored: Run, *given: Any, **options: Any) -> Any:
        ids.append(stored.id)
        return once(stored, *given, **options)

    monkeypatch.setattr(results, "_computed_results", counted)
    return ids


def test_results_made_alike_are_reused(shipped: Comparison, store: Path, computed: list[str]) -> None:
    ids = [subject.id for subject in shipped.subjects]
    first = compare(*ids, store=store)  # whatever other tests have computed in this store last
    computed.clear()
    again = compare(*ids, store=store)
    assert computed == []
    assert first.versus == again.versus == shipped.versus
    compare(*ids[:2], store=store, window="trace")
    assert computed == ids[:2]
    back = compare(*ids, store=store)
    assert computed == [*ids[:2], *ids[:2]]
    assert back.versus == shipped.versus
    cclbench.metrics(ids[0], store=store, metrics=["time.step"])  # a part of the metrics replaces nothing
    computed.clear()
    compare(*ids, store=store)
    assert computed == []


def test_results_made_with_another_catalog_are_not_reused(
    shipped: Comparison, store: Path, computed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [subject.id for subject in shipped.subjects][:2]
    compare(*ids, store=store)
    computed.clear()
    own = tmp_path / "h100.yaml"
    known = files("cclbench") / "hardware" / "data" / "nvidia-h100-sxm.yaml"
    own.write_text(known.read_text().replace("nvidia-h100-sxm", "nvidia-h100-own"))
    monkeypatch.setenv("CCLBENCH_HARDWARE", str(own))
    compare(*ids, store=store)
    assert computed == ids


@pytest.mark.parametrize(
    ("first", "second", "outcome", "warned"),
    [
        ("kineto/h100_qwen", "kineto/resnet_mi300x", "undecided", ["number of devices: A 1, B 8"]),
        ("kineto/h100_qwen", "kineto/sglang_decode_mi300x", "undecided", []),
        (
            "nsys/nsysai_mfu_2gpu_before_c8f71e.sqlite",
            "kineto/ddp_a100",
            "not comparable",
            ["window: A trace, B steps", "kind of trace: A nsys, B kineto", "B has traces of 1 of 8 ranks"],
        ),
        (
            "xprof/tpu_v6e_4plane_host_offload_psum.xplane.pb",
            "kineto/dlrm_8xv100",
            "undecided",
            ["kind of trace: A xplane, B kineto", "A does not show how much of the idle time is host-bound"],
        ),
    ],
)
def test_other_readers_and_devices_compare_and_warn(
    test_data: Path, store: Path, first: str, second: str, outcome: str, warned: list[str]
) -> None:
    found = compare(test_data / first, test_data / second, store=store)
    (one,) = found.versus
    assert one.outcome == outcome
    if outcome == "undecided":
        assert "A has only an incomplete one" in one.words or "B has only an incomplete one" in one.words
    assert sum(change.change_ns for change in one.changes) == one.change_ns
    for start in ["the work of a step of A and B is unknown", *warned]:
        assert any(warning.startswith(start) for warning in found.warnings), (start, found.warnings)


def test_a_card_with_another_batch_is_ranked_by_tokens(repository: Path, tmp_path: Path, store: Path) -> None:
    name = POINTS[1]
    shutil.copytree(repository / "traces" / name, tmp_path / "traces" / name)
    shutil.copytree(repository / "scripts" / name, tmp_path / "scripts" / name)
    (tmp_path / "workload_cards").mkdir()
    text = (repository / "workload_cards" / f"{name}.yaml").read_text()
    assert "global: 16" in text
    changed = tmp_path / "workload_cards" / f"{name}.yaml"
    changed.write_text(text.replace("global: 16", "global: 64"))
    (one,) = compare(repository / "workload_cards" / f"{name}.yaml", changed, store=store).versus
    assert (one.measure, one.outcome, one.change_ns) == ("throughput.tokens_per_device", "faster", 0)
    assert one.ratio == pytest.approx(4)
    assert "global batch 64 against 16" in one.words


def test_wrong_calls_say_what_to_do(shipped: Comparison, repository: Path, store: Path) -> None:
    first = shipped.subjects[0].id
    with pytest.raises(UsageError, match="2 to 26 runs, not 1"):
        compare(first, store=store)
    with pytest.raises(UsageError, match="the same run"):
        compare(first, repository / "workload_cards" / f"{POINTS[0]}.yaml", store=store)
    with pytest.raises(UsageError, match="no run 'nowhere'"):
        compare(first, "nowhere", store=store)
    with pytest.raises(UsageError, match="unknown metric"):
        compare(first, shipped.subjects[1].id, store=store, metrics=["time.stp"])


@pytest.mark.parametrize(
    "first", ["import cclbench", "import cclbench.comparison.comparison", "from cclbench import api, compare"]
)
def test_the_package_is_the_function_whatever_is_imported_first(first: str) -> None:
    program = (
        f"{first}\nimport cclbench\ntry:\n    cclbench.compare('a')\nexcept Exception as e:\n    print(e)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "no run 'a'" in ran.stdout or "2 to 26 runs" in ran.stdout


def test_a_run_against_a_published_one(test_data: Path, repository: Path, store: Path) -> None:
    imported = import_ccl_bench(test_data / "ccl_bench" / "benchmark_data.json", store)
    saved = {one.run: Store(store).get(one.run).saved_results or () for one in imported.runs}
    timed = next(
        run for run, rows in saved.items() if any((r.metric, r.status) == ("time.step", "ok") for r in rows)
    )
    found = compare(repository / "workload_cards" / f"{POINTS[0]}.yaml", timed, store=store)
    (one,) = found.versus
    assert one.changes == ()
    assert (one.low, one.high) == (None, None)
    assert "the figures of B are published, not computed from a trace" in found.warnings
    assert found.subjects[1].devices == ("google-tpu-v6e",)
    assert any(text.startswith("the work differs: model: A tiny-llama-5M, B ") for text in found.warnings)
    step = next(line for line in found.lines if line.metric == "time.step")
    assert [figure.provenance for figure in step.figures.values()] == ["measured", "published"]


def test_equal_steps_on_twice_the_devices_are_half(repository: Path, store: Path, tmp_path: Path) -> None:
    """A card says of the traces of four ranks that they are of eight: each then does half as much."""
    name = "tiny-llama-ddp4-gloo-cpu"
    four = repository / "workload_cards" / f"{name}.yaml"
    shutil.copytree(repository / "traces" / name, tmp_path / "traces" / name)
    eight = tmp_path / "workload_cards" / f"{name}.yaml"
    eight.parent.mkdir()
    text = four.read_text()
    for field in ("  count", "per_node", "dp_replicate"):
        assert f"{field}: 4" in text
        text = text.replace(f"{field}: 4", f"{field}: 8")
    eight.write_text(text)
    (one,) = compare(four, eight, store=store, metrics=["scaling"]).versus
    assert (one.scaling.kind, one.scaling.devices) == ("strong", (4, 8))
    assert one.scaling.efficiency == pytest.approx(0.5)
    assert "Strong scaling from 4 to 8 devices: 50.0 % of the tokens per second and device" in one.words


CALLS = {"aten::mm": 96.0, "aten::_flash_attention": 8.0}
ALL = {**CALLS, "aten::embedding": 2.0, "aten::_fused_adamw_": 1.0}
BASE = Fingerprint(4, 1e12, CALLS, ALL, {"all_reduce": 4e8})


def scaled(factor: float, **changes: Any) -> Fingerprint:
    calls = {name: factor * count for name, count in CALLS.items()}
    whole = {name: count if "adamw" in name else factor * count for name, count in ALL.items()}
    return replace(BASE, flops=factor * 1e12, calls=calls, all_calls=whole, **changes)


def test_equal_flops_are_equal_work_however_it_is_split() -> None:
    """Sharded over twice as many ranks, with other collectives, and half the calls of each rank."""
    other = Fingerprint(8, 0.5e12, {"aten::mm": 48.0}, {"aten::mm": 48.0}, {"all_gather": 1e9})
    assert work_equality(BASE, other).status == "proved"
    assert work_equality(BASE, other).reason == "4.00 TFLOP a step each"
    # twice the micro batches are refuted with both counts
    found = work_equality(BASE, scaled(2.0))
    assert found.status == "refuted"
    assert found.reason == "4 against 2 calls of aten::embedding, 8.00 TFLOP against 4.00 TFLOP a step"
    # as many calls of half the size are told by their flops
    assert work_equality(BASE, replace(scaled(2.0), flops=1e12)).status == "proved"


def test_between_equal_and_other_nothing_is_said() -> None:
    found = work_equality(BASE, replace(BASE, flops=1.03e12))
    assert found.status == "unknown"
    assert found.reason == "4.12 TFLOP against 4.00 TFLOP a step, which may differ with the data of a step"
    # recomputation is no other work
    found = work_equality(BASE, replace(BASE, flops=1.33e12, recomputes=True))
    assert found.status == "unknown"
    assert "only one of them recomputes its forward pass" in found.reason
    # one operator that is fused is no multiple
    fused = replace(BASE, flops=None, calls={**CALLS, "aten::mm": 48.0}, bytes={})
    assert work_equality(replace(BASE, flops=None), fused).status == "unknown"


@pytest.mark.parametrize(
    ("factor", "status"), [(2.0, "refuted"), (0.5, "refuted"), (1.0, "unknown"), (1.4, "unknown")]
)
def test_without_shapes_a_multiple_tells(factor: float, status: str) -> None:
    one, other = replace(BASE, flops=None), replace(scaled(factor), flops=None)
    assert work_equality(one, other).status == status
    assert work_equality(one, replace(other, ranks=8)).status == "unknown"


def test_collectives_alone_tell_a_multiple() -> None:
    one = Fingerprint(4, None, bytes={"all_reduce": 4e8, "all_gather": 1e8})
    twice = Fingerprint(4, None, bytes={"all_reduce": 8e8, "all_gather": 2e8})
    assert work_equality(one, twice).reason == "200,000,000 against 100,000,000 bytes of all_gather a step"
    assert work_equality(one, one).status == "unknown"
    # a client asks and gets the same
    served = {"max_concurrency": 16, "completed": 2000.0, "input_tokens": 1e6, "output_tokens": 2e5}
    one = Fingerprint(0, None, served=served)
    assert work_equality(one, one).status == "proved"
    found = work_equality(one, Fingerprint(0, None, served={**served, "max_concurrency": 32}))
    assert (found.status, found.reason) == ("refuted", "max concurrency 32 against 16")


def test_cards_and_traces_that_contradict_one_another_are_told() -> None:
    a, b = (subject(letter, [row("time.step", 1.0)], card()) for letter in "AB")
    (told, *_) = comparison_warnings([a, b], [work_equality(BASE, scaled(2.0))])
    assert told.startswith("the cards of A and B state equal work, but their traces show different work: 4")
    half = subject("B", [row("time.step", 1.0)], card(workload__batch__global=8))
    said = evidence_contradiction(a, half, work_equality(BASE, BASE), ["global batch 8 against 16"])
    assert "their traces show equal work (4.00 TFLOP a step each)" in said
    assert evidence_contradiction(a, b, work_equality(BASE, BASE), []) is None
    # proved work needs no card
    a, b = subject("A", steps_of("time.step", [1.0] * 9)), subject("B", steps_of("time.step", [2.0] * 9))
    warnings = comparison_warnings([a, b], [work_equality(BASE, BASE)])
    assert not any("nothing says" in told for told in warnings)


def flops(needed: float, again: float = 0.0, without: float = 0.02, pairs: float = 1.0) -> Results:
    """Of 1 FLOP that runs; `pairs`: FLOPs with all pairs of tokens over those with the pairs that attend."""
    stats = {"recomputed": again, "without_model": without, "executed": 1.0, "needed": needed}
    stats["needed_all_pairs"] = needed * pairs
    metric = "compute.model_flops_share"
    return subject("A", [row(metric, value, "1", stat=stat) for stat, value in stats.items()]).results


def test_a_card_that_needs_twice_the_flops_that_ran_contradicts_them() -> None:
    said = "need 2.00× the FLOPs of the products and attention that ran"
    assert said in card_contradiction(flops(2.0))
    assert card_contradiction(flops(0.5)) is not None
    assert card_contradiction(flops(1.05)) is None
    assert card_contradiction(flops(0.75, again=0.25)) is None  # activation checkpointing
    assert card_contradiction(flops(0.7, pairs=1.5)) is None  # masked pairs are computed
    assert card_contradiction(flops(2.0, without=0.3)) is None
    assert card_contradiction(Results.from_rows([])) is None
