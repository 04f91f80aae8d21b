# SPDX-License-Identifier: Apache-2.0
"""The machine of a run: by the card, by what traces say and count, by the files that hold several ranks."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import cclbench
from cclbench.card.model import Card, card_of
from cclbench.machine import Machine, machine_of, machine_of_ranks
from cclbench.record.facts import TraceFacts

FOUR_FILES = ["a", "b", "c", "d"]
TWO_FILES = ["b.nsys", "b.nsys", "a.nsys", "a.nsys"]
H100 = "NVIDIA H100 80GB HBM3"


def card(**hardware: Any) -> Card:
    """A card that says this of the hardware alone."""
    raw = {"version": 2, "id": "x", "description": "x", "workload": {"phase": "training"}}
    return card_of(raw | {"hardware": hardware}, Path())


def machine(files: list[str], of: Card | None = None, per_node: int | None = None, **facts: Any) -> Machine:
    """The machine of a run whose ranks' traces are those files and say the same."""
    told = TraceFacts(works_on="device", **facts)
    ranks = range(len(files))
    return machine_of_ranks(
        of, dict.fromkeys(ranks, told), dict(zip(ranks, files, strict=True)), per_node=per_node
    )


def tiers(of: Machine, *groups: tuple[int, ...]) -> list[str | None]:
    return [of.tier(group).value for group in groups]


def test_a_file_of_several_ranks_is_of_one_node() -> None:
    found = machine(TWO_FILES)
    assert found.nodes == {0: 1, 1: 1, 2: 0, 3: 0}
    assert [found.device(rank) for rank in range(4)] == [(1, 0), (1, 1), (0, 0), (0, 1)]
    expected = ["scale_up", "scale_up", "scale_out", "scale_out"]
    assert tiers(found, (0, 1), (2, 3), (0, 2), (0, 1, 2, 3)) == expected
    assert found.tier((0, 1)).learned_from == "capture"


def test_what_is_asked_or_counted_goes_before_it() -> None:
    counted = machine(TWO_FILES, device_count=4, world_size=4)
    assert counted.tier((0, 2)).value == "scale_up"
    assert counted.tier((0, 2)).learned_from == "trace"
    asked = machine(TWO_FILES, per_node=1, device_count=4, world_size=4)
    assert asked.tier((0, 1)).value == "scale_out"
    assert asked.tier((0, 1)).learned_from == "option"


@pytest.mark.parametrize(
    ("files", "facts"),
    [
        (FOUR_FILES, {}),
        # the links of TPUs do not end with the node
        (TWO_FILES, {"vendor": "google"}),
    ],
)
def test_files_need_not_tell(files: list[str], facts: dict[str, Any]) -> None:
    found = machine(files, **facts).tier((0, 1))
    assert found.value is None
    assert found.reason == "neither a card nor the traces tell which ranks share a node"


def test_a_rank_that_is_in_no_file_is_on_no_known_node() -> None:
    found = Machine(captures={0: 0, 1: 0})
    assert tiers(found, (0, 1), (0, 1, 2)) == ["scale_up", None]
    assert "which ranks share a node" in (found.tier((0, 1, 2)).reason or "")


def test_processes_of_a_real_capture(test_data: Path, tmp_path: Path) -> None:
    capture = test_data / "nsys" / "nsysai_mfu_2gpu_before_c8f71e.sqlite"
    assert machine_of(cclbench.ingest(capture, store=tmp_path)).tier((0, 1)).value == "scale_up"


def test_a_system_alone_says_accelerator_and_nodes() -> None:
    found = machine(FOUR_FILES, card(system="dgx-h100"), world_size=16)
    assert (found.accelerator.value.id, found.accelerator.learned_from) == ("nvidia-h100-sxm", "catalog")
    assert (found.per_node.value, found.per_node.learned_from) == (8, "catalog")
    assert (found.system.value.id, found.system.learned_from) == ("dgx-h100", "card")
    assert found.nodes == dict.fromkeys(range(4), 0)
    assert tiers(found, (0, 7), (0, 8), (3,)) == ["scale_up", "scale_out", "scale_up"]


def test_devices_that_a_trace_counts_are_a_nodes() -> None:
    found = machine(FOUR_FILES, device_name=H100, device_count=8, world_size=16)
    assert (found.per_node.value, found.per_node.learned_from) == (8, "trace")
    assert [found.device(rank) for rank in (0, 7, 8, 15)] == [(0, 0), (0, 7), (1, 0), (1, 7)]
    assert tiers(found, (0, 7), (0, 8)) == ["scale_up", "scale_out"]
    assert found.system.learned_from == "assumption"
    assert (found.accelerator.value.id, found.accelerator.learned_from) == ("nvidia-h100-sxm", "trace")


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (
            {"device_count": 1, "world_size": 16},
            "neither a card nor the traces tell which ranks share a node",
        ),
        ({"device_count": 8, "world_size": 12}, "8 devices, of which 12 ranks fill no whole number of nodes"),
    ],
)
def test_devices_that_are_no_nodes_tell_no_ranks_node(facts: dict[str, int], reason: str) -> None:
    found = machine(FOUR_FILES, **facts)
    assert found.nodes == {}
    assert reason in (found.tier((0, 1)).reason or "")


def test_traces_that_count_differently_tell_no_node() -> None:
    facts = {0: TraceFacts(device_count=8, world_size=16), 1: TraceFacts(device_count=4)}
    found = machine_of_ranks(None, facts, {0: "a", 1: "b"})
    assert found.per_node.reason == "the traces count 4 and 8 devices in a node"
    assert found.node(0) is None


@pytest.mark.parametrize(
    ("hardware", "facts", "said"),
    [
        (
            {"per_node": 4},
            {"device_count": 8, "world_size": 16},
            "the card says 4 a node (hardware.per_node)",
        ),
        ({"system": "dgx-h100"}, {"device_count": 4, "world_size": 16}, "system dgx-h100 has 8 a node"),
        ({"system": "gb200-nvl72", "per_node": 8}, {}, "and its system gb200-nvl72 has 4"),
        ({"accelerator": "nvidia-a100-sxm-40gb"}, {"device_name": H100}, "the traces name nvidia-h100-sxm"),
        ({"system": "dgx-a100"}, {"device_name": H100}, "dgx-a100 has nvidia-a100-sxm-80gb, the traces name"),
        # a node that is used in part, a process that sees its own device alone
        ({"per_node": 4}, {"device_count": 8, "world_size": 4}, None),
        ({"per_node": 4}, {"device_count": 1, "world_size": 16}, None),
        ({"accelerator": "nvidia-h100-sxm", "per_node": 8}, {"device_name": H100, "device_count": 8}, None),
    ],
)
def test_what_contradicts_the_card_is_said(
    hardware: dict[str, Any], facts: dict[str, Any], said: str | None
) -> None:
    found = machine(FOUR_FILES, card(**hardware), **facts)
    assert len(found.contradicts) == (said is not None)
    assert (said or "") in "".join(found.contradicts)
    if "per_node" in hardware:
        assert found.per_node.value == hardware["per_node"]


def test_nodes_that_are_used_in_part_keep_their_places_in_the_system() -> None:
    """Four of a node's eight devices: ranks 4 to 7 are on the second node."""
    found = machine(FOUR_FILES, card(system="dgx-h100", per_node=4), world_size=8)
    assert found.numbered_in(found.system.value, range(8)) == [0, 1, 2, 3, 8, 9, 10, 11]
    assert tiers(found, (0, 3), (0, 4)) == ["scale_up", "scale_out"]


def test_links_may_join_nodes() -> None:
    found = machine(FOUR_FILES, card(accelerator="nvidia-gb200", per_node=4), world_size=144)
    assert tiers(found, (0, 4), (0, 72)) == ["scale_up", "scale_out"]


@pytest.mark.parametrize(
    ("of", "facts", "reason"),
    [
        (None, {}, "neither the card (hardware.accelerator) nor the trace names the accelerator"),
        (None, {"device_name": "XPU 9"}, "the catalog knows no accelerator 'XPU 9'"),
        (card(accelerator="xpu-9"), {}, "the catalog knows no accelerator 'xpu-9'"),
    ],
)
def test_an_accelerator_that_nobody_knows(of: Card | None, facts: dict[str, Any], reason: str) -> None:
    assert reason in (machine(FOUR_FILES, of, **facts).accelerator.reason or "")


def test_traces_that_name_several_accelerators_tell_none() -> None:
    names = (H100, "NVIDIA A100-SXM4-40GB")
    facts = {rank: TraceFacts(device_name=name) for rank, name in enumerate(names)}
    found = machine_of_ranks(None, facts, {0: "a", 1: "b"})
    assert found.accelerator.reason == "the traces name several: nvidia-h100-sxm, nvidia-a100-sxm-40gb"
    assert found.device_names == names


def test_a_cpu_is_the_device_of_ranks_without_an_accelerator() -> None:
    found = machine_of_ranks(None, {0: TraceFacts(works_on="host")}, {0: "a"})
    assert (found.accelerator.value.id, found.device_names) == ("generic-cpu", ("CPU",))


def test_what_a_rank_needs_of_it_does_not_grow_with_the_ranks() -> None:
    def sent(ranks: int, **more: Any) -> int:
        names = [f"{rank // 8}.nsys" for rank in range(ranks)]
        return len(pickle.dumps(machine(names, world_size=ranks, **more).without_captures()))

    assert abs(sent(8000, of=card(per_node=8)) - sent(80, of=card(per_node=8))) < 10
    many = machine(FOUR_FILES * 8, per_node=4)
    assert tiers(many.without_captures(), (0, 1), (0, 4)) == tiers(many, (0, 1), (0, 4))
    alone = machine(TWO_FILES)
    assert alone.without_captures().nodes == alone.nodes


@pytest.mark.parametrize(
    ("device", "memory", "system", "other"),
    [
        ("NVIDIA H100 80GB HBM3", 85 * 10**9, "dgx-h100", False),
        ("NVIDIA H100 80GB HBM3", None, "aws-p5", False),
        ("NVIDIA H100 80GB HBM3", 42 * 10**9, "dgx-h100", True),
        ("NVIDIA H100 80GB HBM3", 85 * 10**9, "dgx-a100", True),
        ("Tesla T4", None, "dgx-h100", True),
    ],
)
def test_a_system_of_another_device_than_the_traces_name(
    device: str, memory: int | None, system: str, other: bool
) -> None:
    machine = Machine(devices=((device, memory),), system_option=system)
    assert (machine.other_device is not None) is other
    if other:
        assert (
            machine.other_device == f"{system} has {machine.accelerator.value.id}, the traces name {device}"
        )  # type: ignore[union-attr]
    assert Machine(devices=((device, memory),)).other_device is None


def test_a_run_on_cpus_is_of_no_system() -> None:
    machine = Machine(on_host=True, system_option="dgx-h100")
    assert machine.other_device == "dgx-h100 has nvidia-h100-sxm, the traces name CPU"
