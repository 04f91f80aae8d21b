# SPDX-License-Identifier: Apache-2.0
"""Trials of searches become runs, whose batch follows from the launch script."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cclbench.ground.errors import CclbenchError, InputError
from cclbench.record.store import Store
from cclbench.studies.claims import subjects_with_results
from cclbench.studies.published import import_ccl_search
from cclbench.studies.published.search import read_search

from .conftest import SEARCH_CARD

SCRIPT = """
torchrun pretrain_gpt.py --global-batch-size $(( DP )) --seq-length 512 \\
    --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP
"""
SCRIPT = """\
GLOBAL=$(( DP * MB ))
torchrun pretrain_gpt.py --global-batch-size $GLOBAL --seq-length 512 \\
    --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP
"""
LAYOUT = {"tp": 2, "dp": 4, "pp": 1, "mb": 2}


@pytest.fixture
def search(tmp_path: Path) -> Callable[..., tuple[Path, Path, Path]]:
    """Writes trials (settings, step time), the script and the card; the paths of all three."""

    def write(*trials: tuple[dict[str, Any], float | None], error: str = "") -> tuple[Path, Path, Path]:
        folder = tmp_path / "tiny"
        folder.mkdir(exist_ok=True)
        with (folder / "results.csv").open("w", newline="") as stream:
            table = csv.writer(stream)
            table.writerow(["iteration", "version", "config", "metrics", "score", "status", "error_msg"])
            for n, (settings, step) in enumerate(trials):
                metrics = {} if step is None else {"avg_step_time": step}
                status = "error" if step is None else "success"
                table.writerow([n, n, json.dumps(settings), json.dumps(metrics), step, status, error])
        (tmp_path / "run.sh").write_text(SCRIPT)
        (tmp_path / "card.yaml").write_text(SEARCH_CARD)
        return folder / "results.csv", tmp_path / "run.sh", tmp_path / "card.yaml"

    return write


def test_a_trial_is_a_run_with_its_work(search: Callable[..., Any], tmp_path: Path) -> None:
    """8 sequences of 512 in 2 s on 8 devices: 2,048 tokens/s, 256 each."""
    found = import_ccl_search(*search((LAYOUT, 2.0), (LAYOUT | {"dp": 2}, 1.5)), store=tmp_path / "s")
    runs = [(run.name, run.numbers, run.card) for run in found.runs]
    assert runs == [("tiny trial 00", 1, True), ("tiny trial 01", 1, True)]
    assert found.remarks == (
        "unequal work: steps of 4, 8 sequences; compare tokens per second, not step times",
        "batch: --global-batch-size of the script",
    )
    subjects, left_out = subjects_with_results(Store(tmp_path / "s"))
    assert left_out == {}
    first, second = (subject.workload for subject in subjects)
    assert (first.model, first.phase, first.accelerator) == ("llama-3.1-8b", "training", "nvidia_a100")
    assert (first.devices, first.batch, first.sequence_length) == (8, 8, 512)
    assert (first.framework, first.plan) == ("megatron-lm", "dp4 x tp2")
    assert (second.devices, second.batch) == (4, 4)
    rows = {row.metric: row for row in subjects[0].results.rows}
    values = [rows[name].value for name in ("time.step", "throughput.tokens", "throughput.tokens_per_device")]
    assert values == [2.0, 2048, 256]
    assert rows["throughput.tokens"].reason.endswith("; --global-batch-size of the script")
    assert rows["compute.mfu"].reason == "not published: the search measured other numbers"
    again = import_ccl_search(*search((LAYOUT, 2.0), (LAYOUT | {"dp": 2}, 1.5)), store=tmp_path / "s")
    assert [run.new for run in again.runs] == [False, False]


def test_a_failed_trial_says_so_and_nothing_of_its_hosts(search: Callable[..., Any], tmp_path: Path) -> None:
    import_ccl_search(*search((LAYOUT, None), error="exit 143: nid001 /home/user"), store=tmp_path / "s")
    (subject,) = subjects_with_results(Store(tmp_path / "s"))[0]
    row = subject.results.row("time.step")  # type: ignore[arg-type]
    assert row is not None
    assert (row.value, row.status) == (None, "not_applicable")
    assert row.reason == "not published: the trial failed (exit 143)"
    files = [path for path in (tmp_path / "s").rglob("*") if path.is_file()]
    assert [path for path in files if b"nid001" in path.read_bytes()] == []


def test_a_repeated_number_is_no_second_measurement(search: Callable[..., Any]) -> None:
    """A number of a trial that did not succeed is flagged."""
    results, script, _ = search((LAYOUT, 2.0), (LAYOUT, 2.1), (LAYOUT, 2.0))
    repeated = "settings and number of trial 0: one measurement, not two"

    def remarks() -> list[str | None]:
        return [row.remarks.get("avg_step_time") for row in read_search(results, script, None).rows]

    assert remarks() == [None, None, repeated]
    results.write_text(results.read_text().replace("success", "timeout"))
    failed = "status of the trial: timeout"
    assert remarks() == [failed, failed, f"{failed}; {repeated}"]


def test_the_card_may_hold_the_history_that_the_agent_appends(
    search: Callable[..., Any], tmp_path: Path
) -> None:
    """Without a card model and hardware are unknown."""
    results, script, card = search((LAYOUT, 2.0))
    history = "runs:\n- config: &id001\n    tp: 4\n\n- config: *id001\n  status: error\n"
    card.write_text(history + SEARCH_CARD + history)
    (row,) = read_search(results, script, card).rows
    assert (row.text("model_family"), row.text("hardware_model")) == ("llama-3.1-8b", "nvidia_a100")
    import_ccl_search(results, script, store=tmp_path / "s")
    (subject,) = subjects_with_results(Store(tmp_path / "s"))[0]
    assert (subject.workload.model, subject.workload.accelerator, subject.workload.batch) == (None, None, 8)
    assert subject.hardware_key is None


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (("iteration,", "number,"), "has no column iteration"),
        (('"{""tp""', '"{""tp'), "trial 0: "),
        (("2.0}", "NaN}"), "trial 0: a metric is not a finite number"),
        (("2.0}", '""fast""}'), "trial 0: Expected `float | null`"),
        (("\n0,", "\nx,"), "trial 0: "),
        (("\n0,", "\n-1,"), "trial 0: its number is negative"),
        (("\n1,", "\n0,"), "numbers two trials alike"),
        (('""tp""', '""\\ud800""'), "trial 0: 'utf-8' codec can't encode"),
        (("\n0,", "\n" + "[" * 100_000 + ","), "trial 0: "),
    ],
)
def test_a_damaged_search_says_where(
    search: Callable[..., Any], tmp_path: Path, changed: tuple[str, str], says: str
) -> None:
    results, script, card = search((LAYOUT, 2.0), (LAYOUT, 3.0))
    text = results.read_text()
    assert changed[0] in text.replace("\r", "")
    results.write_text(text.replace("\r", "").replace(*changed, 1))
    with pytest.raises(InputError, match=r"results\.csv") as raised:
        import_ccl_search(results, script, card, tmp_path / "s")
    assert says in str(raised.value)
    assert not list((tmp_path / "s").glob("*"))


def test_wrong_files_are_named(search: Callable[..., Any], tmp_path: Path) -> None:
    results, script, card = search((LAYOUT, 2.0))
    with pytest.raises(InputError, match=r"results\.csv"):
        read_search(search()[0], script, card)
    results = search((LAYOUT, 2.0))[0]
    for bad in ((results, tmp_path / "none", card), (results, tmp_path, card), (results, script, results)):
        with pytest.raises(InputError):
            read_search(*bad)
    card.write_text("version: 2\nworkload: {}\n")
    with pytest.raises(InputError, match="not a version 1 card"):
        read_search(results, script, card)


def test_no_damage_ends_in_a_traceback(search: Callable[..., Any]) -> None:
    results, script, card = search((LAYOUT, 2.0), (LAYOUT, None), error="exit 1: x")
    whole, draw, read = results.read_bytes(), random.Random(7), 0  # noqa: S311
    for _ in range(2_000):
        damaged = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(damaged))
            damaged[at : at + draw.randint(0, 3)] = draw.randbytes(draw.randint(0, 3))
        results.write_bytes(damaged)
        try:
            read_search(results, script, card)
            read += 1
        except CclbenchError:
            pass
    assert 0 < read < 2_000


def test_the_real_searches(test_data: Path, tmp_path: Path) -> None:
    """One fixes 32 sequences a step, the other's follow the layout: facts of the two launch scripts."""
    agent, card = test_data / "job_logs_ccl" / "agent", tmp_path / "card.yaml"
    card.write_text(SEARCH_CARD)
    titan, megatron = (
        read_search(agent / "ccl_bench_agent" / "runs" / run / "results.csv", agent / script, card)
        for run, script in (
            ("20260429_093910_titan_best", "perlmutter_torchtitan_llama8b/scripts/train_llama8b.sh"),
            ("20260429_115146_megatron_best", "megatron_llama8b/scripts/run.sh"),
        )
    )
    assert [row.whole_number("batch_size") for row in titan.rows] == [32] * 15
    batches = [8, 16, 32, 16, 8, 16, 4, 8, 8, 2, 1, 2, 1, 1, 2, 1, 1, 2]
    assert [row.whole_number("batch_size") for row in megatron.rows] == batches
    both = (*titan.rows, *megatron.rows)
    assert {(row.whole_number("total_count"), row.whole_number("seq_len")) for row in both} == {(16, 1024)}
    assert [row.number for row in megatron.rows if not row.metrics] == [1, 2, 3]
    repeated = [row.number for row in megatron.rows if "avg_step_time" in row.remarks and row.metrics]
    assert repeated == [15, 16]
