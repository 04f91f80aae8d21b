# SPDX-License-Identifier: Apache-2.0
"""Claims of a paper: their checks, pictures, figures and pages."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.compared_subjects import card, row, subject
from helpers.page_commands import blocks, here, printed_by

import cclbench
from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.errors import UsageError
from cclbench.present.picture import save_picture
from cclbench.record.store import Store
from cclbench.studies.claims import examine_claims, subjects_with_results
from cclbench.studies.claims.bandwidth import examine_bandwidth
from cclbench.studies.claims.claim import Claim
from cclbench.studies.claims.forms import claims_document
from cclbench.studies.claims.frameworks import examine_frameworks
from cclbench.studies.claims.overlap import examine_overlap
from cclbench.studies.claims.picture import draw_claims
from cclbench.studies.published import import_ccl_bench

TOKENS, DOUBLED = "throughput.tokens_per_device", "whatif.scale_up_bandwidth_x2"
FIGURES = {"step": "time.step", "overlap": "overlap.ratio", "tokens": TOKENS, "doubled": DOUBLED}
METADATA = {"model": "model_family", "phase": "phase", "accelerator": "hardware_model", "fsdp": "dp_shard"}
METADATA |= {"batch": "batch_size", "sequence_length": "seq_len", "framework": "framework"}
METADATA |= {"devices": "total_count"}
RAN: dict[str, Any] = {"model": "tiny", "phase": "training", "accelerator": "nvidia_a100", "devices": 4}
RAN |= {"batch": 8, "sequence_length": 512, "framework": "torchtitan", "fsdp": 4}


def evidence(run: str, *, reason: Any = None, published: bool = True, **other: Any) -> ComparisonSubject:
    """A training run; those of `FIGURES` are its figures, the rest what it ran, by published metadata."""
    told = {FIGURES[key]: value for key, value in other.items() if key in FIGURES}
    rows = [row(metric, value, provenance="published", reason=reason) for metric, value in told.items()]
    if "doubled" in other:
        rows += [row(DOUBLED, value, stat=stat) for stat, value in other.get("band", {}).items()]
    ran = RAN | {key: value for key, value in other.items() if key in METADATA}
    if published:
        metadata = {METADATA[key]: value for key, value in ran.items() if value is not None}
        made = subject(run, rows, published={"metadata": metadata}, ranks=0)
    else:
        made = subject(run, rows, card_of_run(ran), ranks=4)
    made.stored.id = run  # type: ignore[misc]
    return made


def card_of_run(ran: dict[str, Any]) -> dict[str, Any]:
    """The card of a run that was computed here."""
    return card(
        workload__model__name=ran["model"],
        workload__phase=ran["phase"],
        workload__batch={"global": ran["batch"], "sequence_length": ran["sequence_length"]},
        hardware__accelerator=ran["accelerator"],
        hardware__count=ran["devices"],
        parallelism={"dp_shard": ran["fsdp"]},
        software={"framework": {"name": ran["framework"]}},
    )


@pytest.fixture(scope="module")
def published(test_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of the real leaderboard."""
    folder = tmp_path_factory.mktemp("claims")
    import_ccl_bench(test_data / "ccl_bench" / "benchmark_data.json", folder)
    return folder


DIFFERENT = {"model": "other", "phase": "inference", "accelerator": "tpu_v6e", "devices": 8, "batch": 4}
DIFFERENT |= {"sequence_length": 1024, "published": False}


def test_pairs_are_of_equal_work_on_equal_hardware() -> None:
    ran: dict[str, Any] = {"step": 1.0, "overlap": 0.5}
    base = evidence("base", **ran)

    def pairs(**other: Any) -> Any:
        return examine_overlap([base, evidence("b", **ran, **other)]).counts["pairs"]

    for key, value in DIFFERENT.items():
        assert pairs(**{key: value}) == 0
        assert key == "published" or pairs(**{key: None}) == 0
    for other in ({"framework": "other"}, {"fsdp": 2}, {"model": "TINY"}):
        assert pairs(**other) == 1


@pytest.mark.parametrize(
    ("higher", "lower", "outcome"),
    [
        ((1.031, 0.5), (1.0, 0.4), "longer"),
        ((1.03, 0.5), (1.0, 0.4), "same"),
        ((1.0, 0.5), (1.03, 0.4), "same"),
        ((1.0, 0.5), (1.031, 0.4), "shorter"),
        ((2.0, 0.4), (1.0, 0.4), "equal overlap"),
        ((2.0, 0.001), (1.0, 0.0), "longer"),
    ],
)
def test_whose_step_is_longer(higher: tuple[float, float], lower: tuple[float, float], outcome: str) -> None:
    both = {"higher": higher, "lower": lower}
    runs = [evidence(name, step=step, overlap=overlap) for name, (step, overlap) in both.items()]
    for order in (runs, runs[::-1]):
        (pair,) = examine_overlap(order).rows
        assert pair["outcome"] == outcome
        if outcome != "equal overlap":
            assert (pair["higher_run"], pair["lower_run"]) == ("higher", "lower")
            assert pair["step_ratio"] == higher[0] / lower[0]


def test_runs_without_a_figure_make_no_pair() -> None:
    whole = evidence("a", step=1.0, overlap=0.5)
    claim = examine_overlap([whole, evidence("b", step=2.0), evidence("c", overlap=1.0)])
    assert (claim.outcome, claim.counts["pairs"]) == ("cannot be examined", 0)
    assert (claim.rows, claim.caveats) == ([], ())
    assert examine_overlap([whole, evidence("b", step=2.0, overlap=0.4)]).outcome == "not shown"


def test_caveats_count_without_flagged_values_and_other_spellings() -> None:
    runs = [
        evidence("a", step=1.0, overlap=0.1, model="deep-seek"),
        evidence("b", step=2.0, overlap=0.2, model="deep-seek", reason="sampled"),
        evidence("c", step=3.0, overlap=0.3, model="deep_seek"),
        evidence("d", step=4.0, overlap=0.305, model="deep_seek"),
        # a percentage point exactly, of a model of its own
        evidence("e", step=1.0, overlap=0.0, model="other"),
        evidence("f", step=2.0, overlap=0.01, model="other"),
    ]
    claim = examine_overlap(runs)
    assert (claim.counts["pairs"], claim.counts["longer"]) == (3, 3)
    assert claim.caveats == (
        "the pairs share runs: 3 pairs of 6 runs",
        "counting any longer step: 3 of 3",
        "only pairs whose overlaps differ by a percentage point or more: 2 of 2",
        "only pairs of different parallel plans: 0 of 0",
        "without pairs that rest on a flagged value: 2 of 2 (sampled)",
        "models are equal if their names are; with deep-seek and deep_seek as one model: 7 of 7",
    )


def test_gains_of_gpus_against_tpus() -> None:
    gpus = [evidence(f"g{n}", doubled=1 - gain) for n, gain in enumerate((0.01, 0.02, 0.09))]

    def tpu(name: str, **other: Any) -> ComparisonSubject:
        return evidence(name, accelerator="tpu_v6e", **other)

    def examined(*others: ComparisonSubject) -> Any:
        return examine_bandwidth([*gpus, *others])

    claim = examined(tpu("t0", doubled=0.9), tpu("t1", doubled=0.7))
    assert claim.outcome == "holds"
    assert claim.counts["published_gpu_median"] == pytest.approx(0.02)
    assert claim.counts["published_tpu_median"] == pytest.approx(0.2)
    apart = examined(*(tpu(f"t{n}", doubled=0.9 - 0.2 * n, published=False) for n in (0, 1)))
    assert (apart.outcome, apart.counts["computed_tpu_known"]) == ("cannot be examined", 2)
    assert examined(tpu("t", doubled=0.99)).outcome == "not shown"
    lonely = examined(tpu("t"))
    assert lonely.outcome == "cannot be examined"
    assert lonely.verdict.endswith("none of 1 published TPU run has a gain (not computed)")
    assert examined().verdict.endswith("the store has no TPU run")
    cpu = evidence("c", doubled=0.5, accelerator="generic-cpu")
    assert len(examined(cpu, evidence("u", doubled=0.5, accelerator=None)).rows) == 3
    (found,) = examine_bandwidth([evidence("r", doubled=0.9, band={"low": 0.8, "high": 0.95})]).rows
    assert [found[key] for key in ("gain_low", "gain", "gain_high")] == pytest.approx([0.05, 0.1, 0.2])


def test_what_gains_rest_on() -> None:
    apart = "no model ran on both GPUs and TPUs: the gap may come from the models"
    depends = "the gain depends on the exposed communication within a node, so on plan,"
    depends += " batch size and model"
    lacks = "no gain for 1 run: not computed"
    told, by_hand = evidence("a", doubled=0.9), evidence("b", doubled=0.9, reason="by hand")
    other = evidence("t", doubled=0.8, accelerator="tpu_v6e", model="huge")
    silent = evidence("s")
    caveats = examine_bandwidth([told, by_hand, other, silent]).caveats
    assert caveats == (lacks, "3 gains as published: by hand", apart, depends)
    assert examine_bandwidth([told]).caveats == ("1 gain as published", depends)
    same = evidence("t", doubled=0.8, accelerator="tpu_v6e")
    assert apart not in examine_bandwidth([told, same]).caveats
    assert examine_bandwidth([silent]).caveats == (lacks,)


def test_a_gap_that_is_the_batch() -> None:
    """3.4x the step with 3.4x the batch is the same speed."""
    runs = [
        evidence("a", step=1.0, tokens=1024.0, batch=10, framework="swift"),
        evidence("b", step=2.0, tokens=512.0, batch=10, framework="swift"),
        evidence("c", step=3.4, tokens=1024.0, batch=34, framework="calm"),
    ]
    claim = examine_frameworks(runs)
    assert claim.outcome == "cannot be examined"
    assert claim.counts["gap_any_work"] == pytest.approx(3.4)
    assert claim.counts["gap_one_model"] == 1
    assert claim.counts["gap_equal_work"] is None
    assert "3.40× on 4 nvidia_a100" in claim.verdict
    assert "not of equal work: batch size differ" in claim.verdict
    assert [line["run"] for line in claim.summary[:2]] == ["a", "c"]
    assert claim.caveats == (
        "1 of 1 step-time comparisons are between unequal work; the store has 0 of equal work",
        "the best of a few runs need not be a tuned one; training runs by framework: calm 1, swift 2",
    )


def test_a_gap_at_equal_work() -> None:
    def runs_of(other: str) -> list[ComparisonSubject]:
        return [
            evidence("a", step=1.0, tokens=1024.0, framework="swift"),
            evidence("b", step=2.6, tokens=400.0, framework=other),
            evidence("c", step=9.0, tokens=100.0, framework=other),
            evidence("d", step=0.1, tokens=9999.0, framework=other, devices=8),
        ]

    runs = runs_of("calm")
    claim = examine_frameworks(runs)
    assert (claim.outcome, claim.counts["gap_equal_work"]) == ("holds", 2.6)
    assert "not of equal work" not in claim.verdict
    assert examine_frameworks(runs_of("swift")).outcome == "cannot be examined"
    near = examine_frameworks([runs[0], evidence("e", step=2.4, tokens=1.0, framework="calm")])
    assert near.outcome == "not shown"


def test_the_published_overlap_claim(published: Path) -> None:
    (claim,) = examine_claims(published, ["overlap"]).claims
    assert claim.outcome == "holds"
    assert claim.counts == {"pairs": 57, "longer": 24, "shorter": 25, "same": 7, "equal_overlap": 1}
    assert "Largest: llama-3.1-8b on 4 nvidia_a100, fsdp4 80.25 % and 1.44 s against" in claim.verdict
    widest = max(
        (row for row in claim.rows if row["outcome"] == "longer"),
        key=lambda row: row["higher_overlap"] - row["lower_overlap"],
    )
    assert (widest["higher_step_s"], widest["lower_step_s"]) == (1.43918, 1.34017)
    assert claim.caveats[0] == "the pairs share runs: 57 pairs of 26 runs"
    assert claim.caveats[1].endswith("27 of 57")
    assert claim.caveats[4].startswith("without pairs that rest on a flagged value: 23 of 56")
    assert claim.caveats[5].endswith("34 of 81")


def test_the_published_bandwidth_claim_lacks_one_side(published: Path) -> None:
    (claim,) = examine_claims(published, ["bandwidth"]).claims
    assert claim.outcome == "cannot be examined"
    gpu = {"runs": 85, "known": 43, "median": pytest.approx(0.00199816)}
    none = {"runs": 0, "known": 0, "median": None}
    sides = {"published_gpu": gpu, "published_tpu": none | {"runs": 17}}
    sides |= {"computed_gpu": none, "computed_tpu": none}
    assert claim.counts == {f"{side}_{name}": n for side, of in sides.items() for name, n in of.items()}


def test_the_published_framework_gap_is_not_like_for_like(published: Path) -> None:
    (claim,) = examine_claims(published, ["frameworks"]).claims
    assert claim.outcome == "not shown"
    # 10.033 s / 3.59666 s, of another model and four times the batch; 10.508 s / 10.033 s at equal work
    assert claim.counts["gap_any_work"] == pytest.approx(10.033 / 3.59666)
    assert claim.counts["gap_equal_work"] == pytest.approx(10.508 / 10.033)
    assert "not of equal work: model and batch size differ" in claim.verdict


def test_computed_runs_take_part(published: Path, repository: Path, tmp_path: Path) -> None:
    store, cards = tmp_path / "store", repository / "workload_cards"
    shutil.copytree(published, store)
    run = cclbench.run(cards / "tiny-llama-fsdp2-tp2-gloo-cpu.yaml", store=store)
    cclbench.ingest(cards / "tiny-llama-ddp4-gloo-cpu.yaml", store=store)
    found = examine_claims(store)
    assert (found.published, found.computed) == (102, 1)
    (why,) = found.left_out.values()
    assert why.startswith("has no results yet")
    (own,) = (one for one in subjects_with_results(Store(store))[0] if not one.is_published)
    ran = own.workload
    assert (own.id, ran.framework, ran.devices, ran.plan) == (run.id, "pytorch", 4, "fsdp2 x tp2")
    assert (ran.phase, ran.accelerator_kind) == ("training", "CPU")
    assert own.results.value("time.step") == next(r["value"] for r in run.rows if r["metric"] == "time.step")
    assert found.claims[0].counts["pairs"] == 57


def test_claims_are_json_and_an_unknown_one_says_what_to_do(published: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cclbench import ccl-bench"):
        examine_claims(tmp_path / "none")
    with pytest.raises(UsageError, match="did you mean overlap"):
        examine_claims(published, ["overlop"])
    told = json.loads(json.dumps(claims_document(examine_claims(published)), allow_nan=False))
    assert told["schema"] == "claims.v1"
    assert [len(claim["rows"]) for claim in told["claims"]] == [57, 102, 34, 9]


HOSTILE = "$\\frac{1}{0}$ \x1b[31m" + "x" * 500


def claim(key: Any, summary: list[dict[str, Any]], rows: list[dict[str, Any]]) -> Claim:
    outcome = "holds" if rows else "cannot be examined"
    said = {"statement": "A statement.", "outcome": outcome, "verdict": "nothing is known"}
    return Claim(key=key, counts={}, summary=summary, rows=rows, caveats=(), **said)  # type: ignore[arg-type]


def pair(outcome: str, ratio: float, overlaps: tuple[float, float]) -> dict[str, Any]:
    higher, lower = overlaps
    return {"outcome": outcome, "step_ratio": ratio, "higher_overlap": higher, "lower_overlap": lower}


def gain(value: float | None, provenance: str = "published", accelerator: str = "a") -> dict[str, Any]:
    band = (value - 0.01, value + 0.01) if value is not None and provenance == "modelled" else (None, None)
    found = {"gain": value, "provenance": provenance, "accelerator": accelerator}
    found |= {"phase": "training", "basis": "b"}
    return found | dict(zip(("gain_low", "gain_high"), band, strict=True))


def accelerator(name: str, told: int) -> dict[str, Any]:
    found = {"accelerator": name, "phase": "training", "kind": "GPU", "basis": "b", "known": told, "runs": 2}
    return found | {"median": 0.02 if told else None}


def best(framework: str, behind: float, basis: str = "step time, equal work") -> dict[str, Any]:
    found = {"basis": basis, "framework": framework, "behind": behind, "model": "m", "accelerator": "a"}
    found |= {"devices": 8, "batch": 4, "sequence_length": 512}
    return found | {"step_s": 1.0, "tokens_per_s_per_device": 2.0}


SHORTER, EQUAL = pair("shorter", 0.5, (0.5, 0.49)), pair("equal overlap", 1.1, (0.0, 0.0))
PAIRS = claim("overlap", [{}], [pair("longer", 1.5, (0.8, 0.4)), SHORTER, EQUAL])
GAINS = claim(
    "bandwidth",
    [accelerator("a", 2), accelerator("b", 0)],
    [gain(0.01), gain(0.03, "modelled"), gain(None), gain(None, accelerator="b")],
)
BEST = claim("frameworks", [best("swift", 1.0), best("calm", 2.5)], [{}])


def test_pairs_lie_where_they_should() -> None:
    axes = draw_claims([PAIRS]).axes[0]
    marks = [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.get_lines()]
    assert marks == [([pytest.approx(40.0)], [1.5]), ([pytest.approx(1.0)], [0.5]), ([0.0], [1.1])]
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend == ["longer step: 1", "shorter step: 1", "equal overlap: 1"]


def test_modelled_gains_look_different_and_missing_ones_are_said() -> None:
    axes = draw_claims([GAINS]).axes[0]
    lines = [(line, list(line.get_xdata())) for line in axes.get_lines()]
    marks = {line.get_fillstyle(): x for line, x in lines if line.get_marker() == "o" and x}
    assert marks == {"full": [1.0], "none": [3.0]}
    bands = [x for line, x in lines if line.get_linewidth() == 3]
    assert bands == [[pytest.approx(2.0), pytest.approx(4.0)]]
    assert [text.get_text() for text in axes.texts] == ["not known"]
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert labels == ["a, training: 2 of 2", "b, training: 0 of 2"]


def test_bars_are_as_long_as_they_are_behind() -> None:
    axes = draw_claims([BEST]).axes[0]
    assert [bar.get_width() for bar in axes.patches] == [1.0, 2.5]
    title, *bars = [text.get_text() for text in axes.texts]
    assert title == "step time, equal work, 8 a"
    assert bars == [" 1.00×, 1.00 s, 2 tokens/s/device", " 2.50×, 1.00 s, 2 tokens/s/device"]


def test_what_there_is_no_room_for_is_counted() -> None:
    many = [best(name, 1.0, f"basis {n}") for n in range(12) for name in ("swift", "calm")]
    axes = draw_claims([claim("frameworks", many, [{}])]).axes[0]
    assert len(axes.patches) == 16
    assert axes.get_xlabel().endswith("; 8 more lines in the table")
    axes = draw_claims([claim("bandwidth", [accelerator(str(n), 0) for n in range(30)], [])]).axes[0]
    assert axes.get_xlabel().endswith("; 6 more lines in the table")


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_hostile_and_empty_claims_are_drawn(tmp_path: Path, suffix: str) -> None:
    hostile = best(HOSTILE, 1.0) | {"model": HOSTILE, "accelerator": HOSTILE}
    empty = [claim(key, [], []) for key in ("overlap", "bandwidth", "frameworks")]
    claims = [claim("frameworks", [hostile], [{}]), claim("bandwidth", [accelerator(HOSTILE, 0)], []), *empty]
    one, other = tmp_path / f"one{suffix}", tmp_path / f"other{suffix}"
    for path in (one, other):
        save_picture(lambda: draw_claims(claims), path)
    assert one.read_bytes() == other.read_bytes()
    with pytest.raises(UsageError, match=r"use \.png"):
        save_picture(lambda: draw_claims([PAIRS]), tmp_path / "claims.gif")


def test_the_page_shows_what_its_commands_print(repository: Path, test_data: Path, tmp_path: Path) -> None:
    shutil.copy(test_data / "ccl_bench" / "benchmark_data.json", tmp_path)
    jobs = test_data / "job_logs_ccl"
    shutil.copytree(jobs / "megatron_logs", tmp_path / "logs")
    for folder, search, script in (
        ("titan", "20260429_093910_titan_best", "perlmutter_torchtitan_llama8b/scripts/train_llama8b.sh"),
        ("megatron", "20260429_115146_megatron_best", "megatron_llama8b/scripts/run.sh"),
    ):
        (tmp_path / folder).mkdir()
        shutil.copy(jobs / "agent" / "ccl_bench_agent" / "runs" / search / "results.csv", tmp_path / folder)
        shutil.copy(jobs / "agent" / script, tmp_path / folder)
    (tmp_path / "docs" / "images").mkdir(parents=True)
    text = (repository / "docs" / "claims.md").read_text()
    printed, ran, compared = "", 0, 0
    for kind, name, block in blocks(text):
        if name:
            (tmp_path / name).write_text(block)
        elif kind == "sh":
            printed, ran = printed_by(block, tmp_path, here(tmp_path)), ran + 1
        elif kind == "text":
            assert block.removesuffix("...\n").rstrip() in printed
            compared += 1
    assert (ran, compared) == (4, 6)
    assert (tmp_path / "docs" / "images" / "claims.png").stat().st_size < 400_000
