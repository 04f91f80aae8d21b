# SPDX-License-Identifier: Apache-2.0
"""The machine of a run: by the card, by what traces say and count, by the files that hold several ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cclbench
from cclbench.card.model import Card, card_of
from cclbench.facts import TraceFacts
from cclbench.machine import Machine, machine_of, machine_of_ranks

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
    assert machine_of(cclbench.ingest(capture, store=tmp_path)._stored).tier((0, 1)).value == "scale_up"
