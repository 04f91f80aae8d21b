# SPDX-License-Identifier: Apache-2.0
"""Searches of a paper's claims, and their figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.compared_subjects import row, subject

import cclbench
from cclbench.record.store import Store
from cclbench.studies.claims import Claim, examine_claims, subjects_with_results
from cclbench.studies.claims.figures import FIGURES, StatedFigure, examine_figures
from cclbench.studies.claims.frameworks import examine_frameworks
from cclbench.studies.claims.job_logs import logged_jobs
from cclbench.studies.claims.searches import searched_pairs
from cclbench.studies.published import import_ccl_bench, import_ccl_search

from ..published.conftest import SEARCH_CARD
from .test_claims import evidence


def trial(number: int, step: float, *, batch: int, framework: str, search: str = "", **settings: Any) -> Any:
    """A trial of sequences of 512 on 4 devices; its tokens per second follow."""
    tokens = batch * 512 / step
    run = evidence(
        f"{framework}{search}{number}", step=step, tokens=tokens / 4, batch=batch, framework=framework
    )
    facts = {"search": framework + search, "trial": number, "settings": settings}
    run.stored.record.published.metadata.update(facts)
    return run


def test_both_readings_by_hand() -> None:
    """The one takes 2 s for 32 sequences, the other 0.5 s for 1: 4x by step, 8x the other way by tokens."""
    whole = {"tp": 1, "dp": 4, "micro_batch_size": 2}
    runs = [
        trial(0, 6.0, batch=32, framework="titan", tp=4),
        trial(1, 2.0, batch=32, framework="titan", **whole, ac=True),
        trial(0, 5.0, batch=8, framework="mega", tp=4),
        trial(1, 1.5, batch=8, framework="mega", **whole, ac=False),
        trial(2, 0.5, batch=1, framework="mega", tp=2),
        trial(0, 0.1, batch=1, framework="alone", search="x"),
    ]
    assert [pair.long.framework for pair in searched_pairs(runs)] == ["titan"]
    claim = examine_frameworks(runs[:5])
    counts = {key.removeprefix("search_"): n for key, n in claim.counts.items() if key.startswith("search_")}
    gains = {"gain_long": 3.0, "gain_short": 10.0}
    assert counts == {"step_gap": 4.0, "token_lead": 8.0, "one_configuration": 3.0, **gains}
    assert "by step time titan is 4.00× slower, by tokens per second titan is 8.00× faster" in claim.verdict
    caveats = "\n".join(claim.caveats)
    configuration = "(tp 1, dp 4, micro_batch_size 2, ac false instead of true)"
    for words in (
        f"mega with titan's fastest configuration {configuration}",
        # 8 x 512 / 1.5 s over 512 / 0.5 s
        "takes 3.00× as long as its own fastest trial (8 sequences instead of 1: 2.67× the tokens",
        "titan's search shortens the step 3.00× from its first trial (equal work)",
        "mega's search shortens the step 10.0× from its first trial (1 sequence instead of 8: 1.25×",
    ):
        assert words in caveats


def test_what_makes_no_pair() -> None:
    one = trial(0, 2.0, batch=4, framework="titan")
    assert searched_pairs([one, trial(0, 1.0, batch=4, framework="titan", search="again")]) == []
    assert searched_pairs([one, evidence("plain", step=1.0, tokens=9.0, framework="mega")]) == []
    for key, value in {"model_family": "other", "total_count": 8, "seq_len": 1, "batch_size": None}.items():
        other = trial(0, 1.0, batch=4, framework="mega")
        other.stored.record.published.metadata[key] = value
        assert searched_pairs([one, other]) == []
    untried = examine_frameworks([one, trial(0, 1.0, batch=4, framework="mega", tp=2)])
    assert untried.counts["search_one_configuration"] is None
    assert "titan is 2.00× slower, by tokens per second mega is 2.00× faster" in untried.verdict
    assert examine_frameworks([one]).counts["search_step_gap"] is None


@pytest.fixture(scope="module")
def claim(test_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Claim:
    """The claim on the real leaderboard, both searches and the logs of two of the leaderboard's jobs."""
    store = tmp_path_factory.mktemp("paper")
    card = store / "card.yaml"
    card.write_text(SEARCH_CARD)
    jobs = test_data / "job_logs_ccl"
    runs, agent = jobs / "agent" / "ccl_bench_agent" / "runs", jobs / "agent"
    import_ccl_bench(test_data / "ccl_bench" / "benchmark_data.json", store / "runs")
    for search, script in (
        ("20260429_093910_titan_best", "perlmutter_torchtitan_llama8b/scripts/train_llama8b.sh"),
        ("20260429_115146_megatron_best", "megatron_llama8b/scripts/run.sh"),
    ):
        import_ccl_search(runs / search / "results.csv", agent / script, card, store / "runs")
    for log in sorted((jobs / "megatron_logs").glob("*.out")):
        cclbench.run(log, store=store / "runs")
    return examine_claims(store / "runs", ["frameworks"]).claims[0]


def test_the_published_searches(claim: Claim) -> None:
    """Step times as the two `results.csv` state them: 3.39, 9.4, 3.01, 7.9 and 18.9."""
    long, short = 1.499781809, 0.4427202638125
    counts = {
        name: claim.counts[f"search_{name}"] for name in ("step_gap", "token_lead", "one_configuration")
    }
    gaps = {"step_gap": long / short, "token_lead": (32 / long) / (1 / short)}
    assert counts == pytest.approx(gaps | {"one_configuration": 1.33202886603125 / short})
    assert claim.counts["search_gain_long"] == pytest.approx(11.8667514054375 / long)
    assert claim.counts["search_gain_short"] == pytest.approx(8.3581441925 / short)
    assert claim.counts["gap_any_work"] == claim.counts["search_step_gap"]
    assert claim.outcome == "not shown"
    assert "batch size differs" in claim.verdict
    behind = {(line["basis"], line["framework"], round(line["behind"], 2)) for line in claim.summary}
    assert ("tokens/s/device of each search's fastest trial", "megatron-lm", 9.45) in behind


def test_published_steps_are_profiled_ones(claim: Claim) -> None:
    """Iteration 26 of both logs; medians by the logs' own lines: 8.0694 and 9.3183 s."""
    one, other = [line for line in claim.summary if "job's log" in line["basis"]]
    assert (one["step_s"], one["plan"]) == (8.0694, "dp2 x tp4")
    assert (other["step_s"], other["plan"]) == (9.3183, "dp4 x tp2")
    assert other["behind"] == pytest.approx(9.3183 / 8.0694)
    assert one["tokens_per_s_per_device"] == pytest.approx(32 * 1024 / 8.0694 / 8)
    first, second = [caveat for caveat in claim.caveats if "profiled iteration" in caveat]
    job = "published 10.033 s of megatron-lm, dp2 x tp4, is profiled iteration 26 (10.040 s"
    assert first.startswith(job)
    assert first.endswith("the log's median is 8.069 s, so the published step is 1.24× as long")
    assert second.endswith("the log's median is 9.318 s, so the published step is 1.09× as long")


def test_a_log_of_another_job_is_not_its_log(test_data: Path, tmp_path: Path) -> None:
    """The log's layout with another step time, and the step time with another layout."""
    (log,) = (test_data / "job_logs_ccl" / "megatron_logs").glob("*46715226*")
    cclbench.run(log, store=tmp_path)
    (run,) = subjects_with_results(Store(tmp_path))[0]

    def published(step: float, **other: Any) -> Any:
        ran = {"devices": 8, "batch": 32, "sequence_length": 1024, "framework": "megatron-lm", "fsdp": 1}
        made = evidence("p", step=step, tokens=1.0, **ran)
        made.stored.record.published.metadata.update({"tp": 4, "pp": 1, "dp_replicate": 2, **other})
        return made

    assert [job.step for job in logged_jobs([published(10.033)], [run])] == [26]
    assert logged_jobs([published(10.2)], [run]) == []
    for key, value in {"tp": 2, "pp": 2, "dp_replicate": 4, "dp_shard": None, "batch_size": 16}.items():
        assert logged_jobs([published(10.033, **{key: value})], [run]) == []
    assert logged_jobs([published(10.033, framework="torchtitan")], [run]) == []


@pytest.mark.parametrize(
    ("stated", "value", "equal"),
    [
        ("53.65 %", 0.536544, True), ("53.65 %", 0.536551, False), ("81.22 ms", 0.0812249, True),
        ("81.22 ms", 0.0812251, False), ("221.8 ms", 0.22176, True), ("817.9 GB", 817.94e9, True),
        ("817.9 GB", 817.9 * 2**30, False), ("4 %", 0.0449, True),
    ],
)  # fmt: skip
def test_a_value_rounds_to_the_stated_digits_or_not(stated: str, value: float, equal: bool) -> None:
    assert StatedFigure("f", stated).is_rounded(value) == equal


def published(name: str, **values: float) -> Any:
    rows = [
        row(metric.replace("__", "."), value, unit="1", provenance="published")
        for metric, value in values.items()
    ]
    source = {"source": "ccl-bench", "metadata": {"workload_name": name}}
    return subject("A", rows, published=source, ranks=0)


def test_a_figure_is_looked_up_in_its_row_only() -> None:
    """The MoE's 53.65 % in another row or as another metric is not that figure; a share is one anywhere."""
    moe = FIGURES[0].workload or ""
    for run, equal in (
        (published(moe, comm__fraction=0.536544), 1),
        (published(moe, overlap__ratio=0.536544), 0),
        (published("other", comm__fraction=0.536544), 0),
        (published("other", overlap__ratio=0.83674), 1),
    ):
        claim = examine_figures([run])
        assert (claim.counts["equal"], claim.outcome) == (equal, "not shown")
    assert claim.summary[0]["published"] is None
    assert claim.summary[7]["published"] == "83.674 %"
    assert examine_figures([]).outcome == "cannot be examined"
    elsewhere = {"source": "ccl-search", "metadata": {"workload_name": moe}}
    rows = [row("comm.fraction", 0.536544, unit="1", provenance="published")]
    other = subject("A", rows, published=elsewhere, ranks=0)
    assert examine_figures([other]).outcome == "cannot be examined"


PRINTED = "53.6544 %|46.4142 %|81.2221 ms|76.0341 ms|221.814 ms|85.051 ms|97.6773 ms"
STATED = "53.65 %|46.41 %|81.22 ms|76.03 ms|221.8 ms|85.05 ms|97.68 ms"


def test_the_figures_of_the_paper(test_data: Path, tmp_path: Path) -> None:
    """Seven stand in the rows, to the paper's digits; two stand in none."""
    import_ccl_bench(test_data / "ccl_bench" / "benchmark_data.json", tmp_path)
    (claim,) = examine_claims(tmp_path, ["figures"]).claims
    found = {line["stated"]: line["published"] for line in claim.summary if line["equal"]}
    assert found == dict(zip(STATED.split("|"), PRINTED.split("|"), strict=True))
    assert claim.verdict == "7 of 9 figures stand in the rows; in no row: 83.67 %, 817.9 GB"
    assert [line["published"] for line in claim.summary if not line["equal"]] == ["83.9077 %", "776.804 GB"]
