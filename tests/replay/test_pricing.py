# SPDX-License-Identifier: Apache-2.0
"""Ratios of times: by the catalog's model, by the run's own fit, or bracketed; never by default."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from replay_rows import item, rank
from typed import run_of

from cclbench.card.model import Hardware
from cclbench.errors import InputError, UsageError
from cclbench.hardware import catalog
from cclbench.hardware.calibration import OF_RUN, Calibration, write_calibration
from cclbench.hardware.collectives import Prediction, price
from cclbench.hardware.collectives.transport import software
from cclbench.hardware.sweep import Sweep
from cclbench.machine import Machine, machine_of
from cclbench.replay import nodes as n
from cclbench.replay.graph import Graph, build
from cclbench.replay.pricing import Ratios, changed, ratios
from cclbench.replay.scenario import scenario

GROUPS = {"0-1": (0, 1)}
TWO_A_NODE = Machine(Hardware(per_node=2))
CARD = """\
version: 2
id: card
description: Two ranks of a machine that was swept.
workload: {phase: training}
hardware: {system: dgx-h100, calibration: mine.yaml}
"""
COMM = (0, 20)


def transfers(times: list[float], sizes: list[int], **more: object) -> Graph:
    """Two ranks with all-reduces of those times (µs) and sizes, that both reach together."""
    work, at = [], 0.0
    for call, time in enumerate(times):
        work.append(item("nccl", at, at + time, lane=COMM, call=call, corr=call, category="communication"))
        at += time + 10
    work.append(item("gemm", at, at + 100, category="gemm"))
    work.append(item("add", at + 100, at + 150, category="elementwise"))
    work.append(item("odd", at + 150, at + 160, category="other"))
    instances = more.pop("instances", range(len(times)))
    made = [rank(r, work=work, instances=list(instances), nbytes=sizes, **more) for r in (0, 1)]
    return build(made)


def of_transfers(graph: Graph, found: Ratios) -> tuple[list[float], list[float], list[float]]:
    at = np.flatnonzero((graph.nodes.kind == n.TRANSFER) & (graph.nodes.rank == 0))
    return found.expected[at].tolist(), found.low[at].tolist(), found.high[at].tolist()


def test_factors_act_on_the_runs_own_fit() -> None:
    # t = 10 + S / 1000, S in bytes, t in µs
    sizes = [1_000, 10_000, 20_000, 50_000, 90_000]
    graph = transfers([10 + s / 1000 for s in sizes], sizes)
    found = ratios(graph, scenario(["scale_up.bandwidth=x2"]), TWO_A_NODE, GROUPS)
    expected = [(10 + s / 2000) / (10 + s / 1000) for s in sizes]
    assert of_transfers(graph, found)[0] == pytest.approx(expected)
    assert of_transfers(graph, found)[1] == pytest.approx(expected)
    late = ratios(graph, scenario(["scale_up.latency=x3"]), TWO_A_NODE, GROUPS)
    assert of_transfers(graph, late)[0] == pytest.approx([(30 + s / 1000) / (10 + s / 1000) for s in sizes])
    assert (found.expected[graph.nodes.kind != n.TRANSFER] == 1).all()


def test_without_a_fit_latency_is_at_most_the_shortest_transfer() -> None:
    graph = transfers([20, 100], [1_000, 9_000])
    found = ratios(graph, scenario(["scale_up.bandwidth=x2"]), TWO_A_NODE, GROUPS)
    expected, low, high = of_transfers(graph, found)
    assert np.isnan(expected).all()
    assert low == [0.5, 0.5]
    assert high == pytest.approx([1.0, (20 + 80 / 2) / 100])
    assert found.basis == ("latency's share is not known: bracketed by the shortest transfer",)


def test_a_transfer_of_unknown_size_is_bracketed() -> None:
    sizes = [1_000, 10_000, 20_000, 50_000, 90_000]
    graph = transfers([*(10 + s / 1000 for s in sizes), 50.0], [*sizes, -1])
    expected, low, high = of_transfers(
        graph, ratios(graph, scenario(["scale_up.bandwidth=x2"]), TWO_A_NODE, GROUPS)
    )
    assert np.isnan(expected[-1])
    assert low[-1] == 0.5
    assert high[-1] == pytest.approx((10 + 40 / 2) / 50)


def test_a_part_without_rendezvous_may_be_waiting_altogether() -> None:
    sizes = [1_000, 10_000, 20_000, 50_000, 90_000]
    graph = transfers([10 + s / 1000 for s in sizes], sizes, instances=[-1] * 5)
    expected, low, high = of_transfers(
        graph, ratios(graph, scenario(["scale_up.bandwidth=x2"]), TWO_A_NODE, GROUPS)
    )
    assert np.isnan(expected).all()
    assert high == [1.0] * 5
    assert max(low) < 1


def test_the_other_tier_is_left_alone() -> None:
    graph = transfers([20, 100], [1_000, 9_000])
    found = ratios(graph, scenario(["scale_out.bandwidth=x2"]), TWO_A_NODE, GROUPS)
    assert of_transfers(graph, found) == ([1.0, 1.0],) * 3
    across = ratios(graph, scenario(["scale_out.bandwidth=x2"]), Machine(Hardware(per_node=1)), GROUPS)
    assert of_transfers(graph, across)[1] == [0.5, 0.5]


def test_the_catalogs_machine_gives_the_ratio_of_its_prices() -> None:
    graph = transfers([20, 100], [1 << 20, 1 << 26])
    machine = catalog.system("dgx-h100")
    change = scenario(["scale_up.bandwidth=x2"])
    found = ratios(graph, change, Machine(Hardware(system="dgx-h100")), GROUPS)
    new = price("all_reduce", [1 << 20, 1 << 26], (0, 1), changed(machine, change))
    old = price("all_reduce", [1 << 20, 1 << 26], (0, 1), machine)
    expected, low, high = of_transfers(graph, found)
    assert expected == pytest.approx((new.time_s / old.time_s).tolist())
    assert all(a <= b <= c for a, b, c in zip(low, expected, high, strict=True))
    assert 0.5 <= expected[1] < expected[0] <= 1


@pytest.mark.parametrize("change", ["scale_up.bandwidth=x2", "scale_up.bandwidth=x0.25", "system=dgx-a100"])
def test_a_calibration_cancels(tmp_path: Path, change: str) -> None:
    """What takes three times the specification's time, and is calibrated so, does by other links too."""
    machine, sizes = catalog.system("dgx-h100"), (1 << 20, 1 << 26)
    new, old = (
        price("all_reduce", sizes, (0, 1), m) for m in (changed(machine, scenario([change])), machine)
    )
    assert isinstance(new, Prediction)
    assert isinstance(old, Prediction)
    swept = Sweep("all_reduce", 2, 1, sizes, tuple((3 * old.time_s).tolist()))
    write_calibration(Calibration(machine.id, (swept,)), tmp_path / OF_RUN)
    (tmp_path / "card.yaml").write_text(CARD)
    graph = transfers((3e6 * old.time_s).tolist(), list(sizes))
    found = ratios(graph, scenario([change]), machine_of(run_of(tmp_path, ["0", "1"])), GROUPS)
    at = np.flatnonzero((graph.nodes.kind == n.TRANSFER) & (graph.nodes.rank == 0))
    predicted = graph.nodes.dur[at] * found.expected[at] / 1e9
    assert predicted == pytest.approx(3 * new.time_s, rel=1e-3)  # the graph's times are whole ns


def test_another_fabric_and_latency_are_that_of_the_machine() -> None:
    machine = catalog.system("dgx-h100")
    made = changed(machine, scenario(["scale_out=infiniband-xdr", "scale_out.latency=5us"]))
    assert made.scale_out is not None
    assert made.scale_out.bytes_per_s == catalog.fabric("infiniband-xdr").link_bytes_per_s
    assert made.scale_out.hop_latency_s == 5e-6
    assert made.scale_up == machine.scale_up


@pytest.mark.parametrize(
    ("machine", "latency", "why"),
    [
        ("dgx-h100", "x0.5", "is 0 beyond what NCCL counts, so no factor can act on it; give a value"),
        ("google-tpu-v5e-pod", "5us", "cannot be set: what drives its network is not known"),
    ],
)
def test_a_latency_that_would_change_no_price_is_refused(machine: str, latency: str, why: str) -> None:
    with pytest.raises(InputError, match=f"{machine}: scale_out.latency {why}"):
        changed(catalog.system(machine), scenario([f"scale_out.latency={latency}"]))


def test_a_stated_latency_is_priced() -> None:
    machine = catalog.system("dgx-h100")
    assert changed(machine, scenario(["scale_out.latency=x1"])).scale_out is not None
    late = changed(machine, scenario(["scale_out.latency=50us"]))
    new, old = (price("all_reduce", [8], range(16), one) for one in (late, machine))
    assert isinstance(new, Prediction)
    assert isinstance(old, Prediction)
    assert new.time_s[0] - old.time_s[0] > 1.9 * 50e-6  # there and back, of two nodes


@pytest.mark.parametrize(
    ("machine", "latency", "hop"),
    [
        ("aws-p5", "x0.5", (4e-6, 10e-6, 20e-6)),  # aws-ofi-nccl: 8, 20 and 40 us
        ("aws-p5", "50us", (20e-6, 50e-6, 100e-6)),
        ("gcp-a3-mega", "x2", (30e-6, 78e-6, 200e-6)),  # tcpxo: 15, 39 and 100 us
        ("dgx-h100", "5us", (5e-6, 5e-6, 5e-6)),  # verbs: nothing beyond what NCCL counts
        ("dgx-h100", "x1", (0.0, 0.0, 0.0)),
    ],
)
def test_a_latency_between_nodes_acts_on_what_the_software_adds(
    machine: str, latency: str, hop: tuple[float, float, float]
) -> None:
    made = changed(catalog.system(machine), scenario([f"scale_out.latency={latency}"]))
    found = software(made, None)
    assert found is not None
    assert found.hop == pytest.approx(hop)


def test_half_the_latency_on_efa_saves_what_its_hops_took() -> None:
    machine = catalog.system("aws-p5")
    less = changed(machine, scenario(["scale_out.latency=x0.5"]))
    new, old = (price("all_reduce", [8], range(16), one) for one in (less, machine))
    assert isinstance(new, Prediction)
    assert isinstance(old, Prediction)
    assert old.formula_s[0] - new.formula_s[0] == pytest.approx(
        2 * 10e-6, rel=0.01
    )  # there and back, of two nodes


def test_kernels_on_another_accelerator() -> None:
    graph = transfers([20], [1_000])
    used = Machine(Hardware(accelerator="nvidia-h100-sxm", per_node=2))
    found = ratios(graph, scenario(["accelerator=h200"]), used, GROUPS, precision="bf16")
    old, new = catalog.accelerator("nvidia-h100-sxm"), catalog.accelerator("nvidia-h200-sxm")
    flops = old.peak_flops_per_s["bf16"] / new.peak_flops_per_s["bf16"]
    memory = old.hbm_bytes_per_s / new.hbm_bytes_per_s
    at = np.flatnonzero((graph.nodes.kind == n.COMPUTE) & (graph.nodes.rank == 0))
    categories = [graph.categories[c] for c in graph.nodes.category[at]]
    by_category = dict(zip(categories, found.expected[at].tolist(), strict=True))
    assert by_category["gemm"] == pytest.approx(flops)
    assert by_category["elementwise"] == pytest.approx(memory)
    assert np.isnan(by_category["other"])
    assert set(found.low[at]) == {min(flops, memory)}
    assert set(found.high[at]) == {max(flops, memory)}


def test_one_ranks_compute() -> None:
    graph = transfers([20], [1_000])
    found = ratios(graph, scenario(["rank.1.compute=x0.5", "compute=x4"]), Machine(), GROUPS)
    compute = graph.nodes.kind == n.COMPUTE
    assert set(found.expected[compute & (graph.nodes.rank == 0)]) == {4.0}
    assert set(found.expected[compute & (graph.nodes.rank == 1)]) == {2.0}
    assert (found.expected[~compute] == 1).all()


@pytest.mark.parametrize(
    ("text", "machine", "kind", "says"),
    [
        ("scale_up.bandwidth=x2", Machine(), InputError, "which ranks share a node"),
        ("scale_up.bandwidth=900GB/s", TWO_A_NODE, InputError, "needs a machine to start from"),
        ("collective.all_reduce=tree", TWO_A_NODE, InputError, "needs a machine to start from"),
        ("rank.7.compute=x2", Machine(), UsageError, "no rank 7"),
        ("accelerator=h200", TWO_A_NODE, InputError, "which one the run used"),
        (
            "collective.all_reduce=tree",
            Machine(Hardware(system="google-tpu-v5e-8")),
            InputError,
            "cannot be priced",
        ),
    ],
)
def test_what_cannot_be_priced_is_refused(
    text: str, machine: Machine, kind: type[Exception], says: str
) -> None:
    graph = transfers([20], [1_000])
    with pytest.raises(kind, match=says):
        ratios(graph, scenario([text]), machine, GROUPS)
