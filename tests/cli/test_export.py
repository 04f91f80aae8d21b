# SPDX-License-Identifier: Apache-2.0
"""`cclbench export` on a small run: nodes, groups, the machine, and errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers import synthetic as sim
from helpers.command_line import Call

from cclbench.export import chakra

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four ranks, a pair of which all-reduce 1 MiB in each of two steps, and every kind once among all."""
    ops = [op for kind in KINDS for op in (sim.Compute(20_000), sim.Collective(kind, "tp", 1 << 20))]
    folder = tmp_path_factory.mktemp("export") / "traces"
    program = sim.Program((*ops, sim.Compute(20_000), sim.Collective("all_reduce", "dp", 1 << 22)), steps=2)
    sim.write(
        sim.simulate(sim.Layout(dp=2, tp=2, gpus_per_host=4), program, sim.Network(sim.Link(5_000, 100))),
        folder,
    )
    return folder


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store: the traces are read once."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture
def export(call: Call, traces: Path, store: Path) -> Call:
    """The command on those traces."""
    return lambda *words: call("export", traces, "--store", store, *words)


def test_collectives_have_type_group_and_bytes(export: Call, tmp_path: Path) -> None:
    folder = tmp_path / "et"
    code, out, err = export("--to", "chakra", "-o", folder, "--check")
    assert (code, err) == (0, f"wrote {folder}\n")
    steps = {line.split()[0]: line.split()[-2] for line in out.splitlines()[2:]}
    assert steps.keys() == {"measured", "replayed", "read"}
    assert steps["read"] == steps["replayed"]
    groups = json.loads((folder / "comm_groups.json").read_text())
    assert sorted(each for each in groups.values() if len(each) == 2) == [[0, 1], [0, 2], [1, 3], [2, 3]]
    header, *nodes = chakra.read_messages(folder / "workload.3.et")
    says = chakra.message_attributes(header)
    assert (says["rank"], says["ranks"]) == (3, "[0, 1, 2, 3]")
    assert str(says["run"]).startswith("traces-")
    parts = [
        (found["comm_type"], groups[str(found["pg_name"])], found["comm_size"], found["is_cpu_op"])
        for node in nodes
        if node.type == chakra.COLLECTIVE
        for found in [chakra.message_attributes(node)]
    ]
    # bytes that a rank hands in, where the larger side has 1 MiB: a half of it to an all-gather of two
    mib = 1 << 20
    tp = [(kind, [2, 3], size, False) for kind, size in ((0, mib), (2, mib // 2), (7, mib), (6, mib))]
    assert parts == [*tp, (0, [1, 3], 4 * mib, False)] * 2
    written = ["README.txt", "comm_groups.json", *(f"workload.{rank}.et" for rank in range(4))]
    assert sorted(path.name for path in folder.iterdir()) == written


@pytest.mark.parametrize(
    ("system", "kind", "rate", "latency"),
    [
        # 25 GB/s x 18 links, 20.6 of 25 usable; half of 3.4 us: NCCL's step of a ring
        ("dgx-h100", "Switch", 450e9 * 20.6 / 25 / 2**30, 1700),
        # a mesh: a seventh of the links to each peer; RCCL's step
        ("mi300x-8gpu", "FullyConnected", 48e9 / 2**30, 2100),
    ],
)
def test_the_machine_is_the_catalogs(
    system: str, kind: str, rate: float, latency: float, export: Call, tmp_path: Path
) -> None:
    folder = tmp_path / "sim"
    assert export("--to", "astra-sim", "--system", system, "-o", folder, "-q").code == 0
    text = (folder / "network.yml").read_text()
    found = yaml.safe_load(text)
    assert (found["topology"], found["npus_count"], found["latency"]) == ([kind], [4], [latency])
    assert found["bandwidth"] == [pytest.approx(rate, rel=1e-4)]
    assert f"{system}, scale_up.bytes_per_s: " in text
    settings = json.loads((folder / "system.json").read_text())
    assert settings["all-reduce-implementation"] == ["ring" if kind == "Switch" else "direct"]
    assert json.loads((folder / "logical_topology.json").read_text()) == {"logical-dims": ["4"]}
    assert system in (folder / "README.txt").read_text()


def test_nodes_are_a_dimension(export: Call, tmp_path: Path) -> None:
    words = ("--to", "astra-sim", "--system", "dgx-h100", "--per-node", "2")
    assert export(*words, "-o", tmp_path / "sim").code == 0
    found = yaml.safe_load((tmp_path / "sim" / "network.yml").read_text())
    assert (found["topology"], found["npus_count"]) == (["Switch"] * 2, [2, 2])
    # 400 Gb/s an interface, one each, 0.94 of it; half of 14 us: NCCL's step over the network
    assert found["bandwidth"][1] == pytest.approx(50e9 * 0.94 / 2**30, rel=1e-4)
    assert found["latency"] == [1700, 7000]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("chakra", "--ranks", "7"), 2, "has no rank 7"),
        (("chakra", "-o", "mine"), 2, "exists already; name a new folder"),
        (("chakra", "-o", "no/folder"), 2, "create it first"),
        (("astra-sim", "--ranks", "0,2"), 3, "no trace of ranks 1,3: each of ASTRA-sim's 4 NPUs"),
        (("astra-sim", "--system", "dgx-h1000"), 2, "did you mean dgx-h100"),
        (("astra-sim", "--system", "aws-trn2"), 3, "hop_latency_s is not known"),
        (("perfetto",), 2, "'perfetto' is not one of 'chakra', 'astra-sim'"),
    ],
)
def test_errors_leave_nothing(
    arguments: tuple[str, ...], code: int, says: str, export: Call, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    Path("mine", "file").touch()
    found, out, err = export("-o", "x", "--to", *arguments)
    assert (found, out) == (code, "")
    assert says in " ".join(err.split())
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "mine", tmp_path / "mine" / "file"]


def test_inferred_groups_are_said(call: Call, tmp_path: Path) -> None:
    step = (sim.Compute(200_000), sim.Collective("all_reduce", "dp", 96 * 1024))
    truth = sim.simulate(sim.Layout(dp=4), sim.Program(step * 4, steps=2, jitter=300), seed=1)
    sim.write(truth, tmp_path / "traces", sim.Distortion(metadata="none", listed_groups=False))
    code, _, err = call("export", tmp_path / "traces", "--to", "chakra", "-o", tmp_path / "et")
    assert code == 0
    assert "note: process groups are inferred" in err
    assert "process groups are inferred" in (tmp_path / "et" / "README.txt").read_text()
    header = next(chakra.read_messages(tmp_path / "et" / "workload.0.et"))
    assert "process groups are inferred" in str(chakra.message_attributes(header)["caveat"])


def test_some_ranks_alone(export: Call, tmp_path: Path) -> None:
    folder = tmp_path / "et"
    assert export("--to", "chakra", "--ranks", "2", "-o", folder).code == 0
    assert [path.name for path in folder.glob("*.et")] == ["workload.2.et"]
    _, *nodes = chakra.read_messages(folder / "workload.2.et")
    assert not [node for node in nodes if "instance" in chakra.message_attributes(node)]


def test_a_send_and_its_receive_have_peers_and_one_tag(call: Call, tmp_path: Path) -> None:
    ops = (sim.Transfer("recv", 1 << 16), sim.Compute(100_000), sim.Transfer("send", 1 << 16))
    truth = sim.simulate(
        sim.Layout(pp=2, gpus_per_host=2), sim.Program(ops, steps=2), sim.Network(sim.Link(5_000, 100))
    )
    sim.write(truth, tmp_path / "traces")
    words = ("--to", "astra-sim", "--system", "dgx-h100", "--check", "-o", tmp_path / "et")
    code, out, _ = call("export", tmp_path / "traces", *words)
    assert code == 0
    steps = {line.split()[0]: float(line.split()[-2]) for line in out.splitlines()[2:]}
    assert steps["read"] == pytest.approx(steps["replayed"], rel=0.01)
    ends = {}
    for rank, kind in ((0, chakra.SEND), (1, chakra.RECV)):
        _, *nodes = chakra.read_messages(tmp_path / "et" / f"workload.{rank}.et")
        ends[rank] = [chakra.message_attributes(node) for node in nodes if node.type == kind]
        assert [(e["comm_src"], e["comm_dst"], e["comm_size"]) for e in ends[rank]] == [(0, 1, 1 << 16)] * 2
    assert [e["comm_tag"] for e in ends[0]] == [e["comm_tag"] for e in ends[1]]
    assert len({e["comm_tag"] for e in ends[0]}) == 2
