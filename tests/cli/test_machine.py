# SPDX-License-Identifier: Apache-2.0
"""What the commands say of one machine: 16 ranks, eight H100 a host."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.synthetic import Collective, Compute, Distortion, Layout, Link, Network, Program, simulate, write

from cclbench.cli import main

CONTRADICTION = "the card says 4 a node (hardware.per_node), the traces count 8 devices:"
CONTRADICTION += " the card's number is used"


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five sizes of all-reduce within a host and of another between the hosts, whose clocks differ."""
    inside = [op for i in range(1, 6) for op in (Compute(20_000), Collective("all_reduce", "tp", i << 24))]
    between = [op for i in range(1, 6) for op in (Compute(20_000), Collective("all_reduce", "dp", i << 24))]
    truth = simulate(
        Layout(dp=2, tp=8), Program((*inside, *between, Compute(20_000)), steps=2), Network(Link(5_000, 10))
    )
    folder = tmp_path_factory.mktemp("machine") / "traces"
    clocks = {rank: 0 if rank < 8 else 3_000_000 for rank in range(16)}
    write(truth, folder, Distortion(offset_ns=clocks, jitter_ns=200))
    return folder


@pytest.fixture(scope="module")
def unnamed(traces: Path) -> Path:
    """The traces of one rank a host, without a word of the devices."""
    folder = traces.with_name("unnamed")
    folder.mkdir()
    for rank in (0, 8):
        path = traces / f"rank{rank}_trace.json"
        trace = json.loads(path.read_text())
        del trace["deviceProperties"]
        (folder / path.name).write_text(json.dumps(trace))
    return folder


def with_card(traces: Path, name: str, **hardware: Any) -> Path:
    """A card of those traces that says this of the hardware."""
    model = {"parameters": 1100, "embedding_parameters": 100, "tied_embeddings": False, "vocabulary": 20}
    model |= {"hidden": 5, "layers": 1, "heads": 2, "head_dim": 5, "moe": False}
    workload = {"phase": "training", "precision": "bf16", "batch": {"global": 16, "sequence_length": 128}}
    paths = {rank: traces / f"rank{rank}_trace.json" for rank in range(16)}
    listed = [
        {"path": str(path.relative_to(traces.parent)), "format": "kineto", "ranks": [rank]}
        for rank, path in paths.items()
        if path.is_file()
    ]
    card = {"version": 2, "id": name, "description": "a card of a test"} | {
        "workload": workload | {"model": model},
        "hardware": {"count": 16, **hardware},
        "parallelism": {"dp_replicate": 2, "tp": 8},
        "evidence": {"traces": listed},
    }
    path = traces.parent / f"{name}.yaml"
    path.write_text(yaml.safe_dump(card))
    return path


@pytest.fixture
def told(tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]) -> Any:
    """The JSON, or the YAML, that a command prints."""
    store = tmp_path_factory.mktemp("store")

    def call(*words: str | Path, code: int = 0) -> Any:
        form = [] if words[0] == "card" else ["--json"]
        assert main([*map(str, words), *form, "--store", str(store)]) == code
        return yaml.safe_load(capsys.readouterr().out)

    return call


def figures(document: Any, metric: str) -> list[tuple[Any, ...]]:
    """What the rows of a metric say, and of what."""
    keys = ("group", "collective", "category", "rank", "step", "stat", "status", "value")
    rows = [row for row in document["results"] if row["metric"] == metric]
    return [tuple(row[key] for key in keys) for row in rows]


def test_a_system_says_what_nodes_are(unnamed: Path, told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(unnamed.parent)
    alone = with_card(unnamed, "alone", system="dgx-h100")
    full = with_card(unnamed, "full", system="dgx-h100", accelerator="nvidia-h100-sxm", per_node=8)
    metrics = ("comm.bandwidth_utilization", "compute.mfu", "comm.transfer")
    asked = [word for metric in metrics for word in ("--metric", metric)]
    by_card = [told("run", card, *asked) for card in (alone, full)]
    for metric in metrics:
        one, other = (figures(document, metric) for document in by_card)
        assert one == other
        assert one[0][-1] is not None
    changes = ("accelerator=h200", "scale_up.bandwidth=x2", "scale_out.bandwidth=100GB/s")
    scenarios = [word for change in changes for word in ("--scenario", change)]
    one, other = (figures(told("whatif", card, *scenarios), "whatif.step") for card in (alone, full))
    assert one == other
    assert {row[2] for row in one} == set(changes)
    runs = told("compare", alone, full)["subjects"]
    assert [run["devices"] for run in runs] == [["nvidia-h100-sxm"]] * 2
    hardware = told("card", "new", alone)["hardware"]
    assert (hardware["accelerator"], hardware["count"], hardware["per_node"]) == ("nvidia-h100-sxm", 16, 8)


def test_devices_that_traces_count_say_the_nodes_of_a_larger_world(
    traces: Path, told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A card is believed against the count, and the difference said."""
    monkeypatch.chdir(traces.parent)
    card = with_card(traces, "stated", accelerator="nvidia-h100-sxm", per_node=8)
    asked = ("--metric", "comm.bandwidth_utilization")
    by_run = [told("run", run, *asked) for run in (traces, card)]
    one, other = (figures(document, asked[1]) for document in by_run)
    assert one == other
    assert {row[0] for row in one if row[-1] is not None} == {None, "0-7", "8-15"}
    assert [document["run"]["notes"] for document in by_run] == [[], []]
    scenarios = ("--scenario", "scale_up.bandwidth=x2", "--scenario", "scale_out.bandwidth=x2")
    one, other = (figures(told("whatif", run, *scenarios), "whatif.step") for run in (traces, card))
    assert one == other
    assert all(row[-1] is not None for row in one)
    assert told("card", "new", traces)["hardware"]["per_node"] == 8
    card = with_card(traces, "four", accelerator="nvidia-h100-sxm", per_node=4)
    assert told("run", card, "--metric", "time.step")["run"]["notes"] == [CONTRADICTION]
    inside = figures(told("whatif", card, "--set", "scale_up.bandwidth=x2"), "whatif.speedup")
    assert inside[0][-1] is None  # no collective stays inside a node of four
    assert told("card", "new", card)["hardware"]["per_node"] == 4


def test_ranks_of_a_counted_host_share_a_clock(traces: Path, tmp_path: Path) -> None:
    assert main(["ingest", str(traces), "--store", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("*/manifest.json")
    clocks = json.loads(path.read_text())["clocks"]["ranks"]
    offsets = Counter((clock["rank"] // 8, clock["offset_ns"]) for clock in clocks)
    (one, ranks), (other, more) = offsets.most_common(2)
    assert one[0] != other[0]
    assert min(ranks, more) >= 7  # a rank that seems to drift stands alone
