# SPDX-License-Identifier: Apache-2.0
"""DLIO's results: binary units, steps to the nanosecond, damage by place, nothing of the host."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cclbench.api import run
from cclbench.contribute.redaction import redact_evidence
from cclbench.formats import Evidence, recognise_format
from cclbench.formats.dlio import Dlio
from cclbench.formats.recognition import is_card
from cclbench.ground.errors import InputError
from cclbench.record.selection import Selection
from cclbench.results import full_results

FIGURES: dict[str, Any] = {"train_au_percentage": [99.25, 94.5]}
FIGURES |= {"train_throughput_samples_per_second": [5, 4]}
FIGURES |= {"train_io_mean_MB_per_second": 1139.5, "save_checkpoint_io_mean_GB_per_second": 0.5}
FIGURES |= {"save_checkpoint_duration_mean_seconds": 3.25}
SUMMARY: dict[str, Any] = {"num_accelerators": 2, "hostname": "moonshot-7", "epochs": 2, "metric": FIGURES}
SUMMARY["potential_caching"] = [0, 1]
LOADS, WORKS = {"block1": [2.9556140899658203, 0.25], "eval": [0.5]}, {"block1": [5.5, 1.5], "eval": [1.0]}
STEPS: dict[str, Any] = {"hostname": "moonshot-7", "1": {"load": LOADS, "proc": WORKS}}
STEPS["2"] = {"load": {"block1": [1.5]}, "proc": {"block1": [2.5]}}
BEGUN = {"start": "2026-04-04T16:33:42.960068", "block1": {"start": "2026-04-04T16:33:42.962209"}}
EPOCHS: dict[str, Any] = {"1": BEGUN | {"end": "2026-04-04T16:34:15.862577", "duration": "32.90"}}
Written = Callable[..., Path]


@pytest.fixture
def written(written: Written) -> Written:
    return lambda told, name="summary.json": written(
        told if isinstance(told, str) else json.dumps(told, indent=4), name
    )


def read(path: Path) -> Evidence:
    assert recognise_format(path, path.read_bytes()).name == "dlio"
    return Dlio().read(path)


def test_what_it_calls_mb_and_gb_is_binary(written: Written) -> None:
    found = read(written(SUMMARY))
    names = ("phase", "epoch", "figure", "unit", "value")
    assert [tuple(row[name] for name in names) for row in found.storage.to_pylist()] == [
        ("train", 1, "accelerator_utilization", "1", 0.9925),
        *(("train", 2, "accelerator_utilization", "1", 0.945), ("train", 1, "samples_per_s", "1/s", 5.0)),
        *(("train", 2, "samples_per_s", "1/s", 4.0), ("train", None, "bytes_per_s", "B/s", 1139.5 * 1024**2)),
        *(("save", None, "bytes_per_s", "B/s", 1024**3 / 2), ("save", None, "time", "s", 3.25)),
    ]
    assert found.facts == {"devices": 2, "epochs": 2}
    assert "may have cached" in found.notes[0]
    assert not is_card(written("workload:\n  model: unet3d\n  workflow:\n    train: true\n", "config.yaml"))


def test_checkpoints_of_versions_that_only_save_are_saved(written: Written) -> None:
    """1,042 GiB in 8 s each: 130.25 GiB/s, which it calls GB."""
    metric = {"checkpoint_io_mean_GB_per_second": 130.25, "checkpoint_duration_mean_seconds": 8}
    found = read(written({"num_accelerators": 1024, "metric": metric})).storage
    rows = [tuple(row.values()) for row in found.select(["phase", "figure", "value"]).to_pylist()]
    assert rows == [("save", "bytes_per_s", 130.25 * 1024**3), ("save", "time", 8.0)]


def test_steps_are_numbered_through_the_epochs(written: Written) -> None:
    found = read(written(STEPS, "3_output.json"))
    names = ("rank", "step", "dur_ns", "data_ns")
    assert [tuple(row[name] for name in names) for row in found.log_steps.to_pylist()] == [
        *((3, 1, 5_500_000_000, 2_955_614_090), (3, 2, 1_500_000_000, 250_000_000)),
        (3, 3, 2_500_000_000, 1_500_000_000),
    ]
    assert found.left_out == {"steps of evaluation": 1}
    other = read(written(STEPS, "steps.json")).log_steps
    assert other["rank"].null_count == 3


def test_an_epoch_takes_what_its_stamps_say(written: Written) -> None:
    found = read(written(EPOCHS, "per_epoch_stats.json"))
    assert found.storage["value"].to_pylist() == [32.902509]


def spoilt(document: dict[str, Any], *path: str, value: object) -> dict[str, Any]:
    copy = json.loads(json.dumps(document))
    inner = copy
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return copy


BAD: dict[str, tuple[object, str]] = {
    "no object": ("[1]", "entry 1: is not a JSON object"),
    "cut": (json.dumps(SUMMARY)[:-9], "is not JSON"),
    "a text": (spoilt(SUMMARY, "metric", "train_au_percentage", value=["99"]), "is not a number from 0"),
    "negative": (spoilt(SUMMARY, "metric", "train_au_percentage", value=[-1]), "is not a number from 0"),
    "no figure": (spoilt(SUMMARY, "metric", value={"a": 1}), "has no figure of training"),
    "no metric": (spoilt(SUMMARY, "metric", value=[]), "metric is not an object"),
    "unequal lists": (spoilt(STEPS, "1", "load", "block1", value=[1.0]), "1 times of loading, 2 of steps"),
    "no list": (spoilt(STEPS, "1", "load", "block1", value=3), "block1 is not a list"),
    "an endless step": (spoilt(STEPS, "2", "proc", "block1", value=[1e300]), "is not one in seconds"),
    "no time": (spoilt(EPOCHS, "1", "start", value="soon"), "start is not a time"),
    "backwards": (spoilt(EPOCHS, "1", "end", value="2026-01-01T00:00:00"), "ends before it starts"),
    "no epoch": ({"a": 1}, "has no epoch"),
    "only evaluation": ({"1": {"load": {"eval": [1]}, "proc": {"eval": [1]}}}, "has no step of training"),
}


@pytest.mark.parametrize("case", BAD)
def test_damage_is_an_error_that_says_where(written: Written, case: str) -> None:
    document, says = BAD[case]
    with pytest.raises(InputError, match=says) as error:
        Dlio().read(written(document))
    assert "summary.json" in str(error.value)


@pytest.mark.parametrize("document", [SUMMARY, STEPS, EPOCHS])
def test_what_is_published_has_the_same_figures_and_no_host(tmp_path: Path, document: dict[str, Any]) -> None:
    source, target = tmp_path / "0_output.json", tmp_path / "copy" / "0_output.json"
    target.parent.mkdir()
    source.write_text(json.dumps({**document, "host_cpuinfo": {"model name": "moonshot"}}))
    redact_evidence(source, target)
    assert "moonshot" not in target.read_text()
    own, copied = Dlio().read(source), Dlio().read(target)
    assert (own.storage, own.log_steps, own.facts) == (copied.storage, copied.log_steps, copied.facts)


def test_published_results_in_base_units(test_data: Path, tmp_path: Path) -> None:
    """99,104.22 MB/s of a submission are 708.85 samples/s of 146,600,628 bytes: 103.9 GB/s."""
    found_run = run(test_data / "mlperf_storage", store=tmp_path)
    found = full_results(found_run, Selection()).run
    rate = 708.8530913360294 * 146_600_628
    assert found["storage.read_rate"].value == pytest.approx(rate, rel=1e-9)
    assert found["storage.accelerator_utilization"].value == pytest.approx(0.935852472392038, rel=1e-12)
