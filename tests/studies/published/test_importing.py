# SPDX-License-Identifier: Apache-2.0
"""Importing published results, InferenceX's among them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from formats.test_inferencex import DISAGGREGATED, ONE_NODE

import cclbench
from cclbench.analyzers.metric import METRICS
from cclbench.card import load_card
from cclbench.comparison.build import run_subject
from cclbench.ground.errors import InputError
from cclbench.ground.json_schema import packaged_schema
from cclbench.ground.schema import RESULTS
from cclbench.present.charts.pareto import points_of
from cclbench.record.rows import builtins
from cclbench.record.run import Run
from cclbench.record.store import Store
from cclbench.studies.published import Imported, import_ccl_bench, import_inferencex
from cclbench.studies.published.columns import COLUMNS
from cclbench.studies.published.leaderboard import PublishedRow
from cclbench.studies.published.results import result_rows

from .conftest import metadata, published


def results_of(row: PublishedRow) -> list[dict[str, Any]]:
    return builtins(result_rows(row, "ccl-bench"))


FSDP4 = "ccl-bench-llama3-torchtitan-nccl-4gpu-fsdp_4-b_4-s_512-720d98fa"
ALONE = "ccl-bench-llama-3.1-8b-torchxla-vllm-tp1-tpu-group-4-"


@pytest.fixture(scope="module")
def imported(board_file: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Imported, Store]:
    folder = tmp_path_factory.mktemp("published")
    return import_ccl_bench(board_file, folder), Store(folder)


def rows_of(run: Run) -> dict[tuple[str, str | None], dict[str, Any]]:
    assert run.saved_results is not None
    return {(row["metric"], row["collective"]): row for row in builtins(run.saved_results)}


def test_all_rows_and_values_are_there(imported: tuple[Imported, Store]) -> None:
    found, store = imported
    assert len(found.runs) == len(store.runs()) == 102
    assert all(run.new for run in found.runs)
    tables = [results for run in store.runs() if (results := run.saved_results) is not None]
    assert [len(table) for table in tables] == [25 + 2] * 102
    rows = pa.concat_tables([results.table.cast(RESULTS) for results in tables])
    assert rows.schema.names == RESULTS.names
    of_columns = rows.filter(pc.invert(pc.starts_with(rows["metric"], "throughput.")))
    numbers, missing = 1742 - 285, 2550 - 1742 + 285
    assert Counter(of_columns["status"].to_pylist()) == {"ok": numbers, "not_applicable": missing}
    assert set(rows["provenance"].to_pylist()) == {"published", None}
    assert rows["source"].unique().to_pylist() == ["ccl-bench"]
    told = [sum(getattr(run, name) for run in found.runs) for name in ("numbers", "no_number", "flagged")]
    assert told == [1457, 285, 823]
    assert found.unknown_columns == {}
    without = rows.filter(pc.equal(rows["status"], "not_applicable"))
    assert without["value"].null_count == len(without)
    assert without["reason"].null_count == 0
    # 35 training rows, of which one has no step time
    throughput = rows.filter(pc.equal(rows["metric"], "throughput.tokens_per_device"))
    assert Counter(throughput["status"].to_pylist()) == {"ok": 34, "not_applicable": 68}


def test_one_row_in_our_names_and_units(imported: tuple[Imported, Store]) -> None:
    rows = rows_of(imported[1].get(FSDP4))
    values = {key: row["value"] for key, row in rows.items()}
    assert values["time.step", None] == 1.43918
    assert values["overlap.ratio", None] == pytest.approx(0.8024940, abs=1e-7)
    assert values["whatif.scale_up_bandwidth_x2", None] == pytest.approx(1 - 0.0435171)
    assert values["comm.volume", None] == pytest.approx(40.1513e9)
    # 33.3994 GiB/s
    assert values["comm.busbw", "all_gather"] == pytest.approx(33.3994 * 1024**3, rel=1e-5)
    assert values["throughput.tokens_per_device", None] == pytest.approx(4 * 512 / 1.43918 / 4)
    assert values["serving.ttft", None] is None
    assert rows["serving.ttft", None]["reason"] == "not published: not a column for this kind of trace"
    assert rows["comm.busbw", "all_to_all"]["reason"] == "not published: its tool gave no number"
    assert (rows["time.step", None]["reason"], rows["time.step", None]["window"]) == (None, "annotations")
    assert rows["comm.busbw", "all_gather"]["reason"].startswith("published in GiB/s but labelled GB/s")
    assert {row["unit"] for row in rows.values()} <= {METRICS.get(name).unit for name in METRICS}
    (alone,) = (run for run in imported[1].runs() if run.id.startswith(ALONE))
    row = rows_of(alone)["overlap.ratio", None]
    assert row["value"] == pytest.approx(0.824935)
    flags = [words.split(",")[0] for words in row["reason"].split("; ")]
    merged = "all chips and host threads are merged"
    assert flags == [merged, "ours is per rank", "a single chip has no communication"]


def test_zeros_that_stand_for_no_data_are_no_numbers() -> None:
    rows = {row["metric"]: row for row in results_of(published({"straggler": 0.0, "moe_fraction": 0.0}))}
    delay = rows["balance.straggler_delay"]
    assert (delay["status"], delay["value"]) == ("not_applicable", None)
    assert delay["reason"] == "published as 0, which its tool writes if there is no data"
    assert rows["compute.moe_share"]["value"] == 0
    every = results_of(published({}))
    assert len({(row["metric"], row["collective"]) for row in every}) == len(every) == len(COLUMNS) + 2


@pytest.mark.parametrize("lacking", ["batch_size", "seq_len", "total_count"])
def test_throughput_needs_all_it_is_made_of(lacking: str) -> None:
    *_, tokens, per_device = results_of(published({"avg_step_time": 2.0}))
    assert (tokens["value"], per_device["value"]) == (4 * 512 / 2, 4 * 512 / 2 / 4)
    *_, tokens, per_device = results_of(published({"avg_step_time": 2.0}, **{lacking: ""}))
    assert tokens["status"] == per_device["status"] == "not_applicable"


def test_manifests_keep_the_schema_and_cards_load(imported: tuple[Imported, Store]) -> None:
    found, store = imported
    validator = jsonschema.Draft7Validator(dict(packaged_schema("manifest")))
    for run in store.runs():
        validator.validate(run.manifest)
        assert (run.ranks, run.sources, len(run.groups())) == ([], [], 0)
        path = run.path / "card.yaml"
        assert path.is_file() == (run.manifest["card"] is not None)
        if path.is_file():
            assert load_card(path).id == run.id
    assert sum(run.card for run in found.runs) == 94
    card = load_card(store.get(FSDP4).path / "card.yaml")
    assert (card.workload.batch.global_, card.workload.batch.sequence_length) == (4, 512)
    assert (card.workload.model.family, card.hardware.count) == ("llama-3.1-8b", 4)
    assert card.parallelism.dp_shard == 4
    left_out = store.get(FSDP4).manifest["published"]["left_out_of_card"]
    assert any("nvidia-a100-sxm-40gb or nvidia-a100-sxm-80gb" in words for words in left_out)


def test_importing_again_changes_nothing(imported: tuple[Imported, Store], board_file: Path) -> None:
    found, store = imported
    before = {path: path.stat().st_mtime_ns for path in store.folder.rglob("*") if path.is_file()}
    again = import_ccl_bench(board_file, store.folder)
    assert not any(run.new for run in again.runs)
    assert [run.run for run in again.runs] == [run.run for run in found.runs]
    assert {path: path.stat().st_mtime_ns for path in store.folder.rglob("*") if path.is_file()} == before


def test_a_published_run_is_computed_from_nothing_else(imported: tuple[Imported, Store]) -> None:
    _, store = imported
    before = rows_of(store.get(FSDP4))
    assert len(cclbench.metrics(FSDP4, store=store.folder).rows) == 27
    asked = cclbench.metrics(FSDP4, store=store.folder, metrics=["compute_comm_overlap", "time.*"])
    assert [row["metric"] for row in asked.rows] == ["overlap.ratio", "time.step"]
    assert rows_of(store.get(FSDP4)) == before


def row_of(name: str, **other: Any) -> dict[str, Any]:
    return {"trace": "t", "metadata": metadata(workload_name=name, **other), "metrics": {"mfu": 5.0}}


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("../../etc/passwd", "etc-passwd"), ("..", ""), ("\x1b[31mred\x1b[0m", "31mred-0m"),
        ("a/b\\c d", "a-b-c-d"), ("Ünïcødé", "n-c-d"), ("x" * 5000, "x" * 100),
        ("$(touch gone) `id`", "touch-gone-id"),
    ],
)  # fmt: skip
def test_names_stay_in_the_store(board_of: Callable[..., Path], tmp_path: Path, name: str, slug: str) -> None:
    store = Store(tmp_path / "store")
    (run,) = import_ccl_bench(board_of(row_of(name)), store.folder).runs
    assert run.run == "-".join(filter(None, ("ccl-bench", slug, run.run[-8:])))
    assert [path.name for path in store.folder.iterdir()] == [run.run]
    assert store.get(run.run).manifest["published"]["metadata"]["workload_name"] == name


@pytest.mark.parametrize(
    "other",
    [
        {"tp": "many"},
        {"tp": -1},
        {"batch_size": [1, 2]},
        {"batch_size": 10**30},
        {"phase": {"deep": [1]}},
        {"description": "a: b\n- c\x07\u202e"},
        {"comm_env": {"A": None, "b c": "1"}},
        {"hardware_model": "quantum"},
        {"unheard_of": "x"},
        {"trace_types": "json"},
    ],
    ids=str,
)
def test_odd_metadata_breaks_nothing(board_of: Callable[..., Path], tmp_path: Path, other: Any) -> None:
    """What has no home in a card is said."""
    found = import_ccl_bench(board_of(row_of("a", **other)), tmp_path / "store")
    stored = Store(tmp_path / "store").get(found.runs[0].run)
    if (stored.path / "card.yaml").is_file():
        load_card(stored.path / "card.yaml")
    published = stored.manifest["published"]
    for key, value in other.items():
        assert published["metadata"][key] == value
    if "unheard_of" in other:
        assert "unheard_of: cards have no field for it" in published["left_out_of_card"]
    assert len(cclbench.metrics(stored.id, store=tmp_path / "store").rows) == 27


def test_unknown_columns_are_counted_and_rows_merged(board_of: Callable[..., Path], tmp_path: Path) -> None:
    row = row_of("a")
    row["metrics"] |= {"beauty": 3.0, "truth": None}
    found = import_ccl_bench(board_of(row, row), tmp_path / "store")
    assert found.unknown_columns == {"beauty": 2}
    assert [run.new for run in found.runs] == [True, False]


def test_nothing_is_written_of_a_file_with_a_bad_row(board_of: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="row 2"):
        import_ccl_bench(board_of(row_of("a"), row_of("b") | {"metrics": 3}), tmp_path / "store")
    assert not (tmp_path / "store").exists()


def board(folder: Path, *rows: Any) -> Path:
    path = folder / "agg_bmk.json"
    path.write_text(json.dumps(list(rows)))
    return path


def test_each_point_is_a_run(tmp_path: Path) -> None:
    """800 tokens/s of output on 8 GPUs; of 12 disaggregated ones over all of them."""
    found = import_inferencex(board(tmp_path, ONE_NODE, DISAGGREGATED, {"users": 3}), tmp_path / "store")
    assert [run.name for run in found.runs] == [
        "h200 gpt-oss-120b vllm fp4 1024-8192 8gpu c64",
        "h200 gpt-oss-120b vllm fp4 1024-8192 12gpu c64",
    ]
    assert found.unknown_columns == {"results of agents": 1}
    runs = [Store(tmp_path / "store").get(run.run) for run in found.runs]
    subjects = [run_subject("", run) for run in runs]
    one, disaggregated = points_of(subjects).points
    assert (one.per_device, disaggregated.per_device) == (100, pytest.approx(800 / 12))
    assert one.workload == "gpt-oss-120b, 1,024 input tokens, 8,192 output tokens"
    assert (one.latencies["ttft p50"], one.load["max_concurrency"]) == (0.4, 64)
    (row,) = (r for r in subjects[1].results.rows if r.metric == "serving.output_tokens_per_device")
    assert row.reason == "over all GPUs; published over those that decode"
    assert {r.provenance for r in subjects[0].results.rows} == {"published"}
    assert subjects[0].card_field("hardware.count") == 8
    again = import_inferencex(tmp_path / "agg_bmk.json", tmp_path / "store")
    assert not any(run.new for run in again.runs)


def test_contradicting_rates_are_flagged(tmp_path: Path) -> None:
    found = import_inferencex(board(tmp_path, ONE_NODE | {"tput_per_gpu": 400.0}), tmp_path / "store")
    (run,) = found.runs
    assert run.flagged == run.numbers > 0
    rows = run_subject("", Store(tmp_path / "store").get(run.run)).results.rows
    assert any("contradict its number of GPUs" in (row.reason or "") for row in rows)


def test_nothing_to_import_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no result with tput_per_gpu"):
        import_inferencex(board(tmp_path, {"users": 3}), tmp_path / "store")
