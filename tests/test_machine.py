# SPDX-License-Identifier: Apache-2.0
"""The machine of a run: by the card, by what traces say and count, by the files that hold several ranks."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import cclbench
from cclbench.card.model import Card, Hardware, card_of
from cclbench.ground.errors import UsageError
from cclbench.hardware import catalog
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
    return [of.tier_of(group).value for group in groups]


NOBODY = "neither a card nor the traces tell which ranks share a node"
NOT_WHOLE = "the traces count 8 devices, of which 12 ranks fill no whole number of nodes"
OF_CARD = "the card says 4 a node (hardware.per_node), the traces count 8 devices"
OF_SYSTEM = "the card's system dgx-h100 has 8 a node, the traces count 4 devices"
OF_BOTH = "the card says 8 a node (hardware.per_node), and its system gb200-nvl72 has 4"


def test_a_file_of_several_ranks_is_of_one_node() -> None:
    """Unless the traces count a node's devices, or the caller does."""
    found = machine(TWO_FILES)
    assert found.node_by_rank == {0: 1, 1: 1, 2: 0, 3: 0}
    assert [found.device_of(rank) for rank in range(4)] == [(1, 0), (1, 1), (0, 0), (0, 1)]
    expected = ["scale_up", "scale_up", "scale_out", "scale_out"]
    assert tiers(found, (0, 1), (2, 3), (0, 2), (0, 1, 2, 3)) == expected
    assert found.tier_of((0, 1)).learned_from == "capture"
    counted = machine(TWO_FILES, device_count=4, world_size=4).tier_of((0, 2))
    assert (counted.value, counted.learned_from) == ("scale_up", "trace")
    asked = machine(TWO_FILES, per_node=1, device_count=4, world_size=4).tier_of((0, 1))
    assert (asked.value, asked.learned_from) == ("scale_out", "option")
    # a rank that is in no file is on no known node
    known = Machine(captures={0: 0, 1: 0})
    assert tiers(known, (0, 1), (0, 1, 2)) == ["scale_up", None]
    assert "which ranks share a node" in (known.tier_of((0, 1, 2)).reason or "")
    facts = dict.fromkeys(range(3), TraceFacts())
    assert machine_of_ranks(None, facts, {0: "b", 1: "a", 2: "b"}).captures == {0: 1, 1: 0, 2: 1}
    assert machine_of_ranks(None, facts, {0: "b", 1: "a", 2: "c"}).captures == {}
    # devices of a file are numbered by its ranks
    of = Machine(captures={0: 0, 2: 0, 3: 1, 7: 0})
    assert [of.device_of(rank) for rank in (0, 2, 3, 7, 1)] == [(0, 0), (0, 1), (1, 0), (0, 2), None]


@pytest.mark.parametrize(
    ("files", "facts", "reason"),
    [
        (FOUR_FILES, {}, NOBODY),
        # the links of TPUs do not end with the node
        (TWO_FILES, {"vendor": "google"}, NOBODY),
        (FOUR_FILES, {"device_count": 1, "world_size": 16}, NOBODY),
        (FOUR_FILES, {"device_count": 8, "world_size": 12}, NOT_WHOLE),
    ],
)
def test_files_and_counts_need_not_tell(files: list[str], facts: dict[str, Any], reason: str) -> None:
    found = machine(files, **facts)
    assert files is TWO_FILES or found.node_by_rank == {}
    assert (found.tier_of((0, 1)).value, found.tier_of((0, 1)).reason) == (None, reason)


def test_processes_of_a_real_capture(test_data: Path, tmp_path: Path) -> None:
    capture = test_data / "nsys" / "nsysai_mfu_2gpu_before_c8f71e.sqlite"
    assert machine_of(cclbench.ingest(capture, store=tmp_path)).tier_of((0, 1)).value == "scale_up"


def test_a_system_alone_says_accelerator_and_nodes() -> None:
    found = machine(FOUR_FILES, card(system="dgx-h100"), world_size=16)
    assert (found.accelerator.value.id, found.accelerator.learned_from) == ("nvidia-h100-sxm", "catalog")
    assert (found.per_node.value, found.per_node.learned_from) == (8, "catalog")
    assert (found.system.value.id, found.system.learned_from) == ("dgx-h100", "card")
    assert found.node_by_rank == dict.fromkeys(range(4), 0)
    assert tiers(found, (0, 7), (0, 8), (3,)) == ["scale_up", "scale_out", "scale_up"]


def test_devices_that_a_trace_counts_are_a_nodes() -> None:
    found = machine(FOUR_FILES, device_name=H100, device_count=8, world_size=16)
    assert (found.per_node.value, found.per_node.learned_from) == (8, "trace")
    assert [found.device_of(rank) for rank in (0, 7, 8, 15)] == [(0, 0), (0, 7), (1, 0), (1, 7)]
    assert tiers(found, (0, 7), (0, 8)) == ["scale_up", "scale_out"]
    assert found.system.learned_from == "assumption"
    assert (found.accelerator.value.id, found.accelerator.learned_from) == ("nvidia-h100-sxm", "trace")


@pytest.mark.parametrize(
    ("hardware", "facts", "said"),
    [
        ({"per_node": 4}, {"device_count": 8, "world_size": 16}, OF_CARD),
        # as many ranks as the smaller number are on one node by either
        ({"per_node": 4}, {"device_count": 8, "world_size": 5}, OF_CARD),
        ({"system": "dgx-h100"}, {"device_count": 4, "world_size": 5}, OF_SYSTEM),
        ({"system": "gb200-nvl72", "per_node": 8}, {}, OF_BOTH),
        ({"system": "dgx-h100", "per_node": 8}, {}, None),
        ({"per_node": 8}, {"device_count": 4, "world_size": 4}, None),
        # a node that is used in part, a process that sees its own device alone
        ({"per_node": 4}, {"device_count": 8, "world_size": 4}, None),
        ({"per_node": 4}, {"device_count": 1, "world_size": 16}, None),
        ({"accelerator": "nvidia-h100-sxm", "per_node": 8}, {"device_name": H100, "device_count": 8}, None),
    ],
)
def test_numbers_that_contradict_the_card_are_said(
    hardware: dict[str, Any], facts: dict[str, Any], said: str | None
) -> None:
    found = machine(FOUR_FILES, card(**hardware), **facts)
    sentences = [sentence.removesuffix(": the card's number is used") for sentence in found.contradictions]
    assert sentences == ([] if said is None else [said])
    if "per_node" in hardware:
        assert found.per_node.value == hardware["per_node"]


def test_nodes_that_are_used_in_part_keep_their_places_in_the_system() -> None:
    """Four of a node's eight devices: ranks 4 to 7 are on the second node."""
    found = machine(FOUR_FILES, card(system="dgx-h100", per_node=4), world_size=8)
    assert found.numbered_in(found.system.value, range(8)) == [0, 1, 2, 3, 8, 9, 10, 11]
    assert tiers(found, (0, 3), (0, 4)) == ["scale_up", "scale_out"]
    # links may join nodes
    joined = machine(FOUR_FILES, card(accelerator="nvidia-gb200", per_node=4), world_size=144)
    assert tiers(joined, (0, 4), (0, 72)) == ["scale_up", "scale_out"]


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


def test_traces_that_name_or_count_several_tell_none_and_a_cpu_is_a_device() -> None:
    names, files = (H100, "NVIDIA A100-SXM4-40GB"), {0: "a", 1: "b"}
    facts = {rank: TraceFacts(device_name=name) for rank, name in enumerate(names)}
    found = machine_of_ranks(None, facts, files)
    assert found.accelerator.reason == "the traces name several: nvidia-h100-sxm, nvidia-a100-sxm-40gb"
    assert found.device_names == names
    facts = {0: TraceFacts(device_count=8, world_size=16), 1: TraceFacts(device_count=4)}
    found = machine_of_ranks(None, facts, files)
    assert found.per_node.reason == "the traces count 4 and 8 devices in a node"
    assert found.node_of(0) is None
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
    assert alone.without_captures().node_by_rank == alone.node_by_rank


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
        own = machine.accelerator.value.id  # type: ignore[union-attr]
        assert machine.other_device == f"{system} has {own}, the traces name {device}"
    assert Machine(devices=((device, memory),)).other_device is None
    on_host = Machine(on_host=True, system_option="dgx-h100")
    assert on_host.other_device == "dgx-h100 has nvidia-h100-sxm, the traces name CPU"


@pytest.mark.parametrize(
    ("of", "count"),
    [
        (Machine(Hardware(count=16), stated_world=8, ranks=range(4)), (16, "card", None)),
        (Machine(stated_world=8, ranks=range(4)), (8, "trace", None)),
        (Machine(ranks=range(4)), (4, "assumption", "one for each rank that has a trace")),
        (Machine(), (None, None, "neither the card (hardware.count) nor a trace tells how many there are")),
    ],
)
def test_how_many_accelerators_there_are(of: Machine, count: tuple[object, ...]) -> None:
    found = of.accelerator_count
    assert (found.value, found.learned_from, found.reason) == count


def test_the_world_is_as_traces_state_it_and_devices_have_their_names() -> None:
    """Else the card's number of accelerators; the largest where traces differ."""
    assert Machine(Hardware(count=16), stated_world=8).world_size == 8
    assert Machine(Hardware(count=16)).world_size == 16
    assert Machine().world_size is None
    facts = {0: TraceFacts(world_size=8), 1: TraceFacts(world_size=16), 2: TraceFacts()}
    assert machine_of_ranks(None, facts, {0: "a", 1: "b", 2: "c"}).stated_world == 16
    of = Machine(devices=(("A", 1), ("B", None), ("A", 2)), on_host=True)
    assert of.device_names == ("A", "B")
    assert Machine().device_names == ()
    other = Machine(devices=(("A", 1), ("B", None)), system_option="dgx-h100").other_device
    assert other == "dgx-h100 has nvidia-h100-sxm, the traces name A, B"


def test_a_card_names_the_accelerator() -> None:
    found = machine(FOUR_FILES, card(accelerator="nvidia-a100-sxm-40gb"), device_name=H100).accelerator
    assert (found.value.id, found.learned_from) == ("nvidia-a100-sxm-40gb", "card")
    assert "the traces name nvidia-h100-sxm: nvidia-a100-sxm-40gb is used" in found.contradicts[0]
    by_system = machine(FOUR_FILES, card(system="dgx-a100"), device_name=H100).accelerator
    assert by_system.contradicts[0].startswith("the system dgx-a100 has nvidia-a100-sxm-80gb, the traces")
    # a system asked for by name is the caller's, who knows; what the traces name is still said of it
    asked = machine_of_ranks(None, {0: TraceFacts(device_name=H100)}, {0: "a"}, system="dgx-a100")
    assert asked.accelerator.contradicts
    assert asked.contradictions == []


def test_a_system_is_asked_for_before_the_card_s() -> None:
    of = machine_of_ranks(card(system="dgx-a100"), {0: TraceFacts()}, {0: "a"}, system="dgx-h100")
    assert (of.named_system.value.id, of.named_system.learned_from) == ("dgx-h100", "option")
    with pytest.raises(UsageError, match="the catalog has no system 'dgx-h1000'"):
        machine_of_ranks(None, {}, {}, system="dgx-h1000")
    nobody_s = Machine().named_system
    assert (nobody_s.value, nobody_s.learned_from, nobody_s.reason) == (None, None, None)
    unknown = machine(FOUR_FILES, card(system="dgx-h1000"), device_name=H100, device_count=8, world_size=16)
    reason = "the catalog knows no system 'dgx-h1000' (card: hardware.system)"
    assert (unknown.system.value, unknown.system.reason) == (None, reason)
    assert unknown.accelerator.learned_from == "trace"


def assumed(per_node: int, device: str = H100, **hardware: Any) -> Machine:
    """The machine of a card without a system, with so many devices a node."""
    return machine(FOUR_FILES, card(per_node=per_node, **hardware), device_name=device, world_size=16)


def test_links_are_those_of_systems_with_such_nodes() -> None:
    """Of the six systems of eight H100, whose links are alike; their networks differ."""
    found = assumed(8).system
    assert (found.value.id, found.learned_from) == ("a node of 8 × nvidia-h100-sxm", "assumption")
    assert (found.reason or "").startswith("links as of aws-p5, azure-nd-h100-v5, dgx-h100, gcp-a3-high, ")
    assert found.value.scale_up == catalog.system("dgx-h100").scale_up
    assert found.value.scale_out is None
    # some of them have hosts of AMD's, some of Intel's; all of B200 have Intel's
    assert found.value.host_cpu is None
    alike = assumed(8, "NVIDIA B200").system.value
    assert alike.host_cpu == "intel"


@pytest.mark.parametrize(
    ("per_node", "device", "which"),
    [
        (3, H100, "with 3 × nvidia-h100-sxm in a node are none"),
        (8, "TPU v6 Lite", "8 × google-tpu-v6e in a node differ: google-tpu-v6e-8, google-tpu-v6e-pod"),
    ],
)
def test_no_links_are_assumed_where_no_system_has_such_nodes_or_they_differ(
    per_node: int, device: str, which: str
) -> None:
    found = assumed(per_node, device).system
    assert found.value is None
    assert (found.reason or "").startswith("no card names the system (hardware.system), and the catalog's")
    assert (found.reason or "").endswith(which)


def test_a_system_needs_its_accelerator_and_its_nodes() -> None:
    nobody = machine(FOUR_FILES, device_count=8, world_size=16).system
    assert nobody.reason == "neither the card (hardware.accelerator) nor the trace names the accelerator"
    scattered = machine(FOUR_FILES, device_name=H100, world_size=16).system
    assert "nor the trace says what a node holds" in (scattered.reason or "")


def test_a_card_states_the_rate_of_links_and_the_interfaces() -> None:
    """The rate of the links in place of the catalog's; interfaces with their fabric's rate unless stated."""
    stated = {"fabric": "infiniband-ndr", "nics": 4}
    found = assumed(8, scale_up={"bandwidth": "300 GB/s"}, scale_out=stated).system.value
    assert found.scale_out is not None
    assert found.scale_up.bytes_per_s == 300e9
    out = found.scale_out
    assert (out.fabric.id, out.nics, out.bytes_per_s) == ("infiniband-ndr", 4, 50e9)
    slower = assumed(8, scale_out=stated | {"bandwidth": "200 Gb/s"}).system.value
    assert slower.scale_out.bytes_per_s == 25e9
    # they need their number, and a network of the catalog
    for lacking in (
        {"fabric": "infiniband-ndr"},
        {"fabric": "nvlink4", "nics": 4},
        {"fabric": "x", "nics": 4},
    ):
        assert assumed(8, scale_out=lacking).system.value.scale_out is None


@pytest.mark.parametrize(
    ("world", "counts", "node"),
    [
        (8, (8,), 0),  # one node
        (5, (8,), 0),  # a node that is used in part
        (16, (8,), 0),
        (9, (8,), None),
        (12, (8,), None),
        (1, (1,), 0),  # a process of its own that sees its one device
        (2, (1,), None),
        (8, (4, 8), None),
        (None, (8,), 0),
        (4, (2,), 0),
        (3, (2,), None),
    ],
)
def test_which_devices_are_nodes(world: int | None, counts: tuple[int, ...], node: int | None) -> None:
    of = Machine(ranks=(0,), stated_world=world, counts=counts)
    assert of.node_of(0) == node


def test_ranks_that_fill_no_whole_number_of_nodes_are_said() -> None:
    reason = Machine(stated_world=12, counts=(8,)).tier_of((0, 1)).reason
    assert reason == "the traces count 8 devices, of which 12 ranks fill no whole number of nodes"
    for of in (Machine(stated_world=3), Machine(), Machine(captures={0: 0}, counts=(4, 8))):
        assert of.tier_of((0, 1)).reason == NOBODY
    # several that count one device each tell no node, though nobody states the world; one alone is its own
    alone = Machine(ranks=range(2), counts=(1,)).per_node
    assert (alone.value, (alone.reason or "").startswith("neither the card (hardware.system")) == (None, True)
    assert Machine(ranks=range(1), counts=(1,)).per_node.value == 1


def test_ranks_are_numbered_as_the_system_numbers_its_devices() -> None:
    """Nodes of dgx-h100 have eight: of four each ranks 5 and 9 are device 1 of the second and third."""
    system = catalog.system("dgx-h100")
    assert Machine(per_node_option=4).numbered_in(system, [5, 9]) == [9, 17]
    # more a node than it has: they fill its nodes in order
    assert Machine(per_node_option=9).numbered_in(system, [8, 9]) == [8, 9]
    assert Machine(per_node_option=9).numbered_in(system, [7, 9]) == [7, 8]
    assert Machine(per_node_option=8).numbered_in(system, range(9)) == range(9)
    assert Machine(captures={0: 0, 1: 1}).numbered_in(system, [0, 1]) == [0, 8]
    assert Machine(captures={0: 0, 1: 1}).numbered_in(system, [0, 2]) is None


def test_links_of_a_system_that_the_caller_names_tell_the_tier() -> None:
    """TPUs on several hosts: a system that is named says whose links they are, one assumed does not."""
    two = {0: TraceFacts(vendor="google"), 1: TraceFacts(vendor="google")}
    files = {0: "a", 1: "b"}
    named = machine_of_ranks(None, two, files, system="google-tpu-v4-pod", per_node=4)
    assert (named.tier_of((0, 1)).value, named.tier_of((0, 1)).learned_from) == ("scale_up", "option")
    by_card = machine_of_ranks(card(system="google-tpu-v4-pod"), two, files)
    assert by_card.tier_of((0, 1)).learned_from == "card"
    nobody_s = machine_of_ranks(None, two, files).tier_of((0, 1))
    assert nobody_s.reason == NOBODY
    # links leave nodes on several hosts with TPUs alone
    nvidia = dict.fromkeys(files, TraceFacts(vendor="nvidia"))
    assert machine_of_ranks(None, two | {1: nvidia[1]}, files).links_leave_nodes
    assert not machine_of_ranks(None, nvidia, files).links_leave_nodes
    assert not machine_of_ranks(None, two, {0: "a", 1: "a"}).links_leave_nodes


def test_what_traces_say_is_gathered_over_ranks() -> None:
    facts = {
        0: TraceFacts(device_name=H100, device_memory_bytes=85, device_count=8, works_on="host"),
        1: TraceFacts(device_name=H100, device_memory_bytes=85, device_count=4, works_on="device"),
        2: TraceFacts(device_memory_bytes=7, device_count=8),
    }
    found = machine_of_ranks(None, facts, {0: "a", 1: "b", 2: "c"})
    assert (found.devices, found.counts, found.on_host) == (((H100, 85),), (4, 8), False)
    assert machine_of_ranks(None, {}, {}).on_host is False
    assert machine_of_ranks(None, {0: facts[0]}, {0: "a"}).on_host is True


@pytest.mark.parametrize("ranks", [(), (0,), (3, 4, 5), (3, 5), (5, 4, 3), (0, 2, 1)])
def test_ranks_are_a_range_where_they_follow_one_another(ranks: tuple[int, ...]) -> None:
    facts = dict.fromkeys(ranks, TraceFacts())
    found = machine_of_ranks(None, facts, dict.fromkeys(ranks, "a")).ranks
    assert tuple(found) == ranks
    assert isinstance(found, range) is (ranks in ((0,), (3, 4, 5)))
