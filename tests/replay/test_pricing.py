# SPDX-License-Identifier: Apache-2.0
"""Ratios of times: by the catalog's model, by the run's own fit, or bracketed; never by default."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from helpers.replay_rows import alone, item, rank
from helpers.replay_subjects import subject
from helpers.typed import run_of

from cclbench.card.model import Hardware
from cclbench.ground.errors import InputError, UsageError
from cclbench.hardware import catalog
from cclbench.hardware.calibration import OF_RUN, Calibration, write_calibration
from cclbench.hardware.collectives import Prediction, price_collective
from cclbench.hardware.collectives.algorithm import ALGORITHMS
from cclbench.hardware.collectives.transport import network_software
from cclbench.hardware.sweep import Sweep
from cclbench.hardware.system import System
from cclbench.machine import Machine, machine_of
from cclbench.replay import nodes as n
from cclbench.replay.change import change_named
from cclbench.replay.graph import Graph, build_graph
from cclbench.replay.kernel_costs import KernelCosts
from cclbench.replay.other_system import changed_system
from cclbench.replay.pricing import TimeRatios, hockney_line, ring_growth, time_ratios
from cclbench.replay.regroup import RegroupedGroup
from cclbench.replay.scenario import parse_scenario

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
    return build_graph(made)


def ratios(
    graph: Graph, *texts: str, machine: Machine = TWO_A_NODE, groups: Any = GROUPS, **more: Any
) -> TimeRatios:
    return time_ratios(graph, parse_scenario(texts), machine, groups, **more)


def node_ratios(graph: Graph, found: TimeRatios) -> tuple[list[float], list[float], list[float]]:
    at = np.flatnonzero((graph.nodes.kind == n.TRANSFER) & (graph.nodes.rank == 0))
    return found.expected[at].tolist(), found.low[at].tolist(), found.high[at].tolist()


def changed(machine: System | str, *texts: str) -> System:
    own = catalog.system(machine) if isinstance(machine, str) else machine
    return changed_system(own, parse_scenario(texts))


SIZES = [1_000, 10_000, 20_000, 50_000, 90_000]
LINE = [10 + size / 1000 for size in SIZES]
"""t = 10 + S / 1000, S in bytes, t in µs."""
HALF = "scale_up.bandwidth=x2"


def test_factors_act_on_the_runs_own_fit() -> None:
    graph = transfers(LINE, SIZES)
    found = ratios(graph, HALF)
    expected = [(10 + s / 2000) / (10 + s / 1000) for s in SIZES]
    assert node_ratios(graph, found)[:2] == (pytest.approx(expected), pytest.approx(expected))
    late = ratios(graph, "scale_up.latency=x3")
    assert node_ratios(graph, late)[0] == pytest.approx([(30 + s / 1000) / (10 + s / 1000) for s in SIZES])
    assert (found.expected[graph.nodes.kind != n.TRANSFER] == 1).all()


def test_what_the_fit_does_not_tell_is_bracketed() -> None:
    """Without a fit latency is at most the shortest transfer."""
    graph = transfers([20, 100], [1_000, 9_000])
    found = ratios(graph, HALF)
    expected, low, high = node_ratios(graph, found)
    assert np.isnan(expected).all()
    assert (low, high) == ([0.5, 0.5], pytest.approx([1.0, (20 + 80 / 2) / 100]))
    assert found.basis == ("the share of latency is unknown: bounds by the shortest transfer",)
    # a transfer of unknown size
    graph = transfers([*LINE, 50.0], [*SIZES, -1])
    expected, low, high = node_ratios(graph, ratios(graph, HALF))
    assert np.isnan(expected[-1])
    assert (low[-1], high[-1]) == (0.5, pytest.approx((10 + 40 / 2) / 50))
    # a part without rendezvous may be waiting altogether
    graph = transfers(LINE, SIZES, instances=[-1] * 5)
    expected, low, high = node_ratios(graph, ratios(graph, HALF))
    assert np.isnan(expected).all()
    assert high == [1.0] * 5
    assert max(low) < 1


def test_the_other_tier_is_left_alone() -> None:
    graph = transfers([20, 100], [1_000, 9_000])
    assert node_ratios(graph, ratios(graph, "scale_out.bandwidth=x2")) == ([1.0, 1.0],) * 3
    across = ratios(graph, "scale_out.bandwidth=x2", machine=Machine(Hardware(per_node=1)))
    assert node_ratios(graph, across)[1] == [0.5, 0.5]


def test_the_catalogs_machine_gives_the_ratio_of_its_prices() -> None:
    sizes = [1 << 20, 1 << 26]
    graph = transfers([20, 100], sizes)
    found = ratios(graph, HALF, machine=Machine(Hardware(system="dgx-h100")))
    old, new = (
        price_collective("all_reduce", sizes, (0, 1), changed("dgx-h100", *texts)) for texts in ((), (HALF,))
    )
    expected, low, high = node_ratios(graph, found)
    assert expected == pytest.approx((new.time_s / old.time_s).tolist())
    assert all(a <= b <= c for a, b, c in zip(low, expected, high, strict=True))
    assert 0.5 <= expected[1] < expected[0] <= 1


@pytest.mark.parametrize("change", [HALF, "scale_up.bandwidth=x0.25", "system=dgx-a100"])
def test_a_calibration_cancels(tmp_path: Path, change: str) -> None:
    """What takes three times the specification's time, and is calibrated so, does by other links too."""
    machine, sizes = catalog.system("dgx-h100"), (1 << 20, 1 << 26)
    new, old = (price_collective("all_reduce", sizes, (0, 1), m) for m in (changed(machine, change), machine))
    swept = Sweep("all_reduce", 2, 1, sizes, tuple((3 * old.time_s).tolist()))
    write_calibration(Calibration(machine.id, (swept,)), tmp_path / OF_RUN)
    (tmp_path / "card.yaml").write_text(CARD)
    graph = transfers((3e6 * old.time_s).tolist(), list(sizes))
    found = ratios(graph, change, machine=machine_of(run_of(tmp_path, ["0", "1"])))
    at = np.flatnonzero((graph.nodes.kind == n.TRANSFER) & (graph.nodes.rank == 0))
    predicted = graph.nodes.dur[at] * found.expected[at] / 1e9
    assert predicted == pytest.approx(3 * new.time_s, rel=1e-3)  # the graph's times are whole ns


def test_another_fabric_and_latency_are_that_of_the_machine() -> None:
    machine = catalog.system("dgx-h100")
    made = changed(machine, "scale_out=infiniband-xdr", "scale_out.latency=5us")
    assert made.scale_out.bytes_per_s == catalog.fabric("infiniband-xdr").link_bytes_per_s
    assert made.scale_out.hop_latency_s == 5e-6
    assert made.scale_up == machine.scale_up


def test_a_fabric_inside_a_node_brings_its_links_and_its_topology() -> None:
    """PCIe 4 has one link of 31.5 GB/s where NVLink 4 has 18 of 25: 19.4 ms for 1.04."""
    made = changed("dgx-h100", "scale_up=pcie4")
    up = made.scale_up
    assert (up.links, up.bytes_per_s, up.peers, up.in_network_reduction) == (1, 31.5e9, "pcie-tree", False)
    assert seconds(made) == pytest.approx(seconds(catalog.system("rtx4090-8gpu")))
    assert seconds(made) > 0.014 > 10 * seconds(catalog.system("dgx-h100"))
    mesh = changed("dgx-h100", "scale_up=xgmi-mi300x").scale_up
    assert (mesh.links, mesh.links_per_pair, mesh.peers, mesh.bytes_per_s) == (7, 1, "mesh", 448e9)
    with pytest.raises(UsageError, match="the number of its links per accelerator; system=aws-p6-b200"):
        changed("dgx-h100", "scale_out=efa-v4")


@pytest.mark.parametrize(
    ("times", "split", "said"), [(10.0, False, True), (0.9, False, False), (10.0, True, False)]
)
def test_a_call_beyond_its_band_says_why_its_bounds_are_wide(times: float, split: bool, said: bool) -> None:
    """All-reduces that are not split into wait and transfer and take ten times the band's upper end."""
    sizes = [1 << 20, 64 << 20]
    price = price_collective("all_reduce", sizes, (0, 1), catalog.system("dgx-h100"))
    taken = [round(times * own * 1e6, 3) for own in price.high_s.tolist()]
    graph = transfers(taken, sizes, instances=[0, 1] if split else [-1, -1])
    found = ratios(graph, HALF, machine=Machine(Hardware(system="dgx-h100")))
    notes = [line for line in found.basis if "the upper end of its modelled band" in line]
    assert len(notes) == said
    assert all(note.startswith("all_reduce of 2 ranks takes 10.0 times ") for note in notes)


@pytest.mark.parametrize(
    ("machine", "size", "weak"),
    [("alps-gh200", 2**20, True), ("alps-gh200", 64, False), ("aws-p5", 2**20, False)],
)
def test_ratios_carry_the_marks_of_weak_classes(machine: str, size: int, weak: bool) -> None:
    """Between nodes of Alps, whose predictions of 1 MiB were far off, of 64 B not."""
    own = Machine(Hardware(system=machine))
    groups = {"0-1": (0, catalog.system(machine).per_node)}
    found = time_ratios(transfers([1e5], [size]), parse_scenario(["scale_out.bandwidth=x2"]), own, groups)
    assert any(line.startswith("weak class: NVIDIA, Slingshot, ") for line in found.basis) == weak
    assert found.basis[-1].startswith("weak class" if weak else "times scale as those of")


def seconds(machine: System, size: int = 256 << 20, ranks: int = 8, **asked: str) -> float:
    found = price_collective(asked.pop("kind", "all_reduce"), [size], range(ranks), machine, **asked)
    return float(found.time_s[0])


@pytest.mark.parametrize(
    ("machine", "fabric", "nics", "rate", "transport"),
    [
        ("aws-p5", "infiniband-ndr", 8, 50e9, "ib-verbs"),
        ("dgx-h100", "efa-v2", 32, 12.5e9, "aws-ofi-nccl"),
        ("alps-gh200", "infiniband-ndr", 4, 50e9, "ib-verbs"),
        ("dgx-h100", "gcp-tcpxo", 8, 25e9, "tcpxo"),
        ("dgx-h100", "slingshot-11", 8, 25e9, "cxi"),
    ],
)
def test_a_network_brings_its_own(machine: str, fabric: str, nics: int, rate: float, transport: str) -> None:
    old = catalog.system(machine)
    assert old.scale_out.transport != transport or machine == "alps-gh200"
    out = changed(old, f"scale_out={fabric}").scale_out
    assert (out.nics, out.bytes_per_s, out.transport) == (nics, rate, transport)
    assert out.transport_latency_s is None


@pytest.mark.parametrize("id", sorted(catalog.systems()))
def test_the_fabric_that_a_machine_has_changes_nothing(id: str) -> None:  # noqa: A002
    machine = catalog.system(id)
    for tier in ("scale_up", "scale_out"):
        part = getattr(machine, tier)
        if part is not None:
            assert changed(machine, f"{tier}={part.fabric.id}") == machine
            if part.fabric.links is not None and tier == "scale_up":
                cut = 10 if id == "h800-8gpu" else 0  # sold with fewer links than others of its generation
                assert part.links == part.fabric.links - cut


@pytest.mark.parametrize(
    "machine", ["dgx-h100", "dgx-a100", "mi300x-8gpu", "rtx4090-8gpu", "google-tpu-v5e-8"]
)
@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "all_to_all", "send_recv", "broadcast"])
def test_latency_inside_a_node_acts_on_every_algorithm(machine: str, kind: str) -> None:
    old = catalog.system(machine)
    new = changed(old, "scale_up.latency=x2")
    priced = 0
    for name in ALGORITHMS:
        pair = [price_collective(kind, [4096], range(8), one, algorithm=name) for one in (old, new)]
        if isinstance(pair[0], Prediction):
            assert pair[1].time_s[0] > pair[0].time_s[0], name
            priced += 1
    assert priced or (machine, kind) == ("google-tpu-v5e-8", "broadcast")


def test_a_time_for_the_latency_inside_a_node_is_refused_where_there_are_several() -> None:
    says = r"dgx-h100: scale_up.latency is not a single time: .* give a factor"
    with pytest.raises(InputError, match=says):
        changed("dgx-h100", "scale_up.latency=1us")
    torus = catalog.system("google-tpu-v5e-8")
    assert seconds(changed(torus, "scale_up.latency=100us"), 4096) > 100e-6 > seconds(torus, 4096)


def why_idle(graph: Graph, text: str, groups: dict[str, tuple[int, ...]]) -> str | None:
    ((key, value),) = parse_scenario([text]).changes.items()
    made = change_named(key).act(subject(graph, machine=TWO_A_NODE, groups=groups), value)
    return made if isinstance(made, str) else None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("scale_out.bandwidth=x2", "no collective of the run crosses scale_out"),
        ("scale_out.latency=x2", "no collective of the run crosses scale_out"),
        ("collective.broadcast=ring", "the run has no broadcast"),
        *((HALF, None), ("collective.all_reduce=ring", None), ("system=dgx-h200", None)),
        ("accelerator=h200", None),
    ],
)
def test_settings_that_touch_nothing(text: str, why: str | None) -> None:
    assert why_idle(transfers([20, 100], [1_000, 9_000]), text, GROUPS) == why


def test_a_run_without_collectives_has_nothing_that_links_touch() -> None:
    lone = build_graph([alone(item("gemm", 0, 100))])
    for text in (HALF, "system=dgx-h200", "collective.all_reduce=tree"):
        assert why_idle(lone, text, {}) == "the run has no collectives"
    # a group of one moves nothing
    graph, single = transfers([20], [1_000]), {"0-1": (0,)}
    assert why_idle(graph, HALF, single) == "the run has no collectives"
    for machine in (Machine(Hardware(system="dgx-h100")), Machine()):
        assert (ratios(graph, HALF, machine=machine, groups=single).expected == 1).all()


@pytest.mark.parametrize(
    ("machine", "latency", "why"),
    [
        ("dgx-h100", "x0.5", "is 0 beyond NCCL's own figure, so a factor cannot act on it; give a value"),
        ("google-tpu-v5e-pod", "5us", "cannot be set: the network's software is unknown"),
    ],
)
def test_a_latency_that_would_change_no_price_is_refused(machine: str, latency: str, why: str) -> None:
    with pytest.raises(InputError, match=f"{machine}: scale_out.latency {why}"):
        changed(machine, f"scale_out.latency={latency}")


def test_a_stated_latency_is_priced() -> None:
    def taken(machine: str, *texts: str) -> float:
        return float(price_collective("all_reduce", [8], range(16), changed(machine, *texts)).formula_s[0])

    assert changed("dgx-h100", "scale_out.latency=x1").scale_out is not None
    late = taken("dgx-h100", "scale_out.latency=50us") - taken("dgx-h100")
    assert late > 1.9 * 50e-6  # there and back, of two nodes
    saved = taken("aws-p5") - taken("aws-p5", "scale_out.latency=x0.5")
    assert saved == pytest.approx(2 * 10e-6, rel=0.01)


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
def test_latency_acts_on_software(machine: str, latency: str, hop: tuple[float, float, float]) -> None:
    found = network_software(changed(machine, f"scale_out.latency={latency}"), None)
    assert found.hop == pytest.approx(hop)


def test_kernels_on_another_accelerator() -> None:
    graph = transfers([20], [1_000])
    used = Machine(Hardware(accelerator="nvidia-h100-sxm", per_node=2))
    found = ratios(graph, "accelerator=h200", machine=used, costs=Mock(KernelCosts), precision="bf16")
    old, new = catalog.accelerator("nvidia-h100-sxm"), catalog.accelerator("nvidia-h200-sxm")
    flops = old.peak_flops_per_s["bf16"] / new.peak_flops_per_s["bf16"]
    memory = old.hbm_bytes_per_s / new.hbm_bytes_per_s
    at = np.flatnonzero((graph.nodes.kind == n.COMPUTE) & (graph.nodes.rank == 0))
    assert [graph.categories[c] for c in graph.nodes.category[at]] == ["gemm", "elementwise", "other"]
    assert found.expected[at].tolist() == pytest.approx([flops, memory, np.nan], nan_ok=True)
    assert set(found.low[at]) == {min(flops, memory)}
    assert set(found.high[at]) == {max(flops, memory)}


@pytest.mark.parametrize(
    ("text", "machine", "says"),
    [
        (HALF, Machine(), "which ranks share a node"),
        ("scale_up.bandwidth=900GB/s", TWO_A_NODE, "needs a named machine"),
        ("collective.all_reduce=tree", TWO_A_NODE, "needs a named machine"),
        ("accelerator=h200", TWO_A_NODE, "the run's accelerator"),
        ("collective.all_reduce=tree", Machine(Hardware(system="google-tpu-v5e-8")), "cannot be modelled"),
    ],
)
def test_what_cannot_be_priced_is_refused(text: str, machine: Machine, says: str) -> None:
    with pytest.raises(InputError, match=says):
        ratios(transfers([20], [1_000]), text, machine=machine)


def test_a_line_by_hand() -> None:
    """10 µs and 1 ns a byte; five points, of two sizes at least, and neither figure below 0."""
    size = np.array([1_000, 10_000, 20_000, 50_000, 90_000])
    assert hockney_line(size, 10_000 + size) == pytest.approx((10_000, 1, 0), abs=1e-6)
    assert hockney_line(size[1:], 10_000 + size[1:]) is None
    assert hockney_line(np.full(5, 1_000), np.arange(5) + 100) is None
    assert hockney_line(np.array([1, 1, 1, 1, 2]) * 1_000, np.array([1, 1, 1, 1, 2]) * 500) is not None
    assert hockney_line(size, 100_000 - size) is None
    assert hockney_line(size, size - 500) is None
    # without latency, to rounding
    assert hockney_line(size, size)[0] == pytest.approx(0, abs=1e-4)  # type: ignore[index]
    # weighted least squares by weights 1 / t², solved otherwise; 1.96 · (1 + 2/3) of three degrees left
    size = np.array([1_000, 2_000, 3_000, 4_000, 5_000])
    taken = np.array([2_100, 2_900, 4_100, 4_900, 6_100])
    alpha, beta, error = hockney_line(size, taken)  # type: ignore[misc]
    design = np.stack([np.ones(5), size], axis=1) / taken[:, None]
    solved, residual, *_ = np.linalg.lstsq(design, np.ones(5), rcond=None)
    assert (alpha, beta) == pytest.approx(tuple(solved))
    covariance = np.linalg.inv(design.T @ design) * residual[0] / 3
    assert error == pytest.approx(1.96 * (1 + 2 / 3) * covariance[0, 0] ** 0.5)


@pytest.mark.parametrize(
    ("old", "new", "growth"),
    [
        (("all_reduce", 2), ("all_reduce", 4), (3, 1.5)),
        (("all_gather", 4), ("all_reduce", 4), (2, 2)),
        (("send_recv", 2), ("all_gather", 4), (3, 0.75)),
        (("all_reduce", 4), ("send_recv", 2), (1 / 6, 1 / 1.5)),
    ],
)
def test_rings_by_size(old: tuple[str, int], new: tuple[str, int], growth: tuple[float, float]) -> None:
    assert ring_growth(*old, *new) == pytest.approx(growth)


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        *((HALF, 0.5, 1.0), ("scale_up.bandwidth=x0.5", 1.0, 2.0)),
        *(("scale_out.latency=x3", 1.0, 3.0), ("scale_out.latency=x0.25", 0.25, 1.0)),
    ],
)
def test_what_is_of_no_known_group_may_be_of_any_tier(text: str, low: float, high: float) -> None:
    graph = transfers([20, 100], [1_000, 9_000])
    found = ratios(graph, text, groups={})
    expected, lows, highs = node_ratios(graph, found)
    assert np.isnan(expected).all()
    assert (lows, highs) == ([low] * 2, [high] * 2)
    assert found.basis == ("collectives of unknown kind or group have bounds only",)
    with pytest.raises(InputError) as refused:
        ratios(graph, "scale_up.bandwidth=900GB/s", groups={})
    assert "scale_up.bandwidth: collectives of unknown kind or group cannot be modelled" in str(refused.value)
    assert "use factors such as x2" in str(refused.value.hint)


def test_parts_without_a_rendezvous_are_said_to_be_bracketed() -> None:
    graph = transfers([20, 100], [1_000, 9_000], instances=[0, -1])
    found = ratios(graph, "scale_up.latency=x3")
    assert found.basis[-1] == "collectives that are not split into wait and transfer have bounds only"
    expected, low, high = node_ratios(graph, found)
    assert (low[0], high[0]) == (1.0, 3.0)
    assert (low[1], high[1]) == pytest.approx((1.0, (3 * 20 + 80) / 100))
    assert np.isnan(expected).all()
    slow = ratios(graph, "scale_up.bandwidth=x0.5", "scale_up.latency=x2")
    # all of it twice as long, but of the part that may be waiting: that is between 1 and 2
    assert node_ratios(graph, slow)[0][0] == 2
    assert (node_ratios(graph, slow)[1], node_ratios(graph, slow)[2]) == ([2, 1], [2, 2])


def test_latency_s_share_is_bracketed_by_the_shortest_transfer_that_is_told() -> None:
    """20 of 100 µs at most may be latency; a part of 10 µs that may be waiting does not count."""
    untold = transfers([100, 10, 20], [9_000, 1_000, 1_000], instances=[0, -1, 1])
    found = ratios(untold, HALF)
    assert node_ratios(untold, found)[2] == pytest.approx([(20 + 40) / 100, 1, 1])
    # where no size is known the shortest of all does
    unsized = transfers([100, 10], [-1, -1])
    found = ratios(unsized, HALF)
    assert node_ratios(unsized, found)[2] == pytest.approx([(10 + 45) / 100, 1])


def test_the_bounds_of_a_fit_are_those_of_its_latency() -> None:
    times, sizes = [taken + (2 if i % 2 else -2) for i, taken in enumerate(LINE)], np.array(SIZES)
    graph = transfers(times, SIZES)
    alpha, beta, error = hockney_line(sizes, np.rint(np.array(times) * 1_000))  # type: ignore[misc]
    found = node_ratios(graph, ratios(graph, HALF))
    for which, latency in zip(found, (alpha, alpha - error, alpha + error), strict=True):
        share = np.clip(latency / (alpha + beta * sizes), 0, 1)
        assert which == pytest.approx((share + (1 - share) / 2).tolist())


def test_a_group_in_another_layout_is_scaled_by_its_ring() -> None:
    """All latency or all bandwidth, of four ranks for two: 3 and 1.5 times as long, half of the payload
    and twice as often."""
    graph = transfers([20], [1_000])
    new = {"0-1": RegroupedGroup((0, 1, 2, 3), 0.5, 2.0, "dp")}
    found = ratios(graph, "kernels.time=x2", machine=Machine(Hardware(per_node=4)), regrouped=new)
    assert node_ratios(graph, found)[1:] == ([1.5], [6.0])
    gone = ratios(graph, "kernels.time=x2", regrouped={"0-1": RegroupedGroup((0,), dimension="dp")})
    assert node_ratios(graph, gone) == ([0.0],) * 3
    assert gone.basis == ("groups of one rank move nothing",)
    # groups that stay are not priced
    found = ratios(graph, "kernels.time=x2", machine=Machine(), regrouped={"x": RegroupedGroup((0, 1))})
    assert (node_ratios(graph, found), found.basis) == (([1.0],) * 3, ())
    # other links than those measured have no price
    new = {"0-1": RegroupedGroup((0, 1, 2, 3), dimension="dp")}
    with pytest.raises(InputError, match="all_reduce of 4 ranks leaves scale_up, and no other links were"):
        ratios(graph, "kernels.time=x2", regrouped=new)
    known = Machine(ranks=(0, 1), captures={0: 0, 1: 0})
    with pytest.raises(InputError, match="which ranks share a node; give --per-node N"):
        ratios(graph, "kernels.time=x2", machine=known, regrouped=new)


def test_a_larger_domain_takes_groups_off_the_network() -> None:
    """Of 16 ranks on two nodes of eight: from a domain of 16 on all is over links; one of 8 changes none.
    Racks of 72 become nodes of four; a domain that splits nodes, or has no switches, is refused."""
    h100, rack = catalog.system("dgx-h100"), catalog.system("gb200-nvl72")

    def tier(system: System, domain: int) -> str | None:
        return changed(system, f"scale_up.domain={domain}").tier_of(range(16))

    assert [tier(h100, domain) for domain in (8, 16, 72)] == ["scale_out", "scale_up", "scale_up"]
    assert [tier(rack, domain) for domain in (4, 8, 36)] == ["scale_out", "scale_out", "scale_up"]
    assert changed(h100, "scale_up.domain=8") == h100
    with pytest.raises(InputError, match=r"scale_up\.domain=12 is not a multiple of the 8 in a node"):
        tier(h100, 12)
    with pytest.raises(InputError, match="needs accelerators behind switches, not mesh"):
        tier(catalog.system("mi300x-8gpu"), 16)
    for text in ("0", "x2", "-8", "9" * 9):
        with pytest.raises(UsageError, match="not a number of accelerators"):
            parse_scenario([f"scale_up.domain={text}"])
