# SPDX-License-Identifier: Apache-2.0
"""Which ranks share a node: as asked, by the card, by devices counted, by the files that hold several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typed import run_of

import cclbench
from cclbench.errors import InputError
from cclbench.replay.place import place_of
from cclbench.replay.pricing import Place

TWO_FILES = ["b.nsys", "b.nsys", "a.nsys", "a.nsys"]


def test_a_file_of_several_ranks_is_of_one_node(tmp_path: Path) -> None:
    place = place_of(run_of(tmp_path, TWO_FILES))
    assert place.hosts == {0: 1, 1: 1, 2: 0, 3: 0}
    assert [place.tier(group) for group in ((0, 1), (2, 3), (0, 2), (0, 1, 2, 3))] == [
        "scale_up",
        "scale_up",
        "scale_out",
        "scale_out",
    ]


def test_what_is_asked_or_counted_goes_before_it(tmp_path: Path) -> None:
    run = run_of(tmp_path, TWO_FILES, device_count=4, world_size=4)
    assert place_of(run).tier((0, 2)) == "scale_up"
    assert place_of(run, per_node=1).tier((0, 1)) == "scale_out"


@pytest.mark.parametrize(
    ("files", "facts"),
    [
        (["a", "b", "c", "d"], {}),
        # the links of TPUs do not end with the node
        (TWO_FILES, {"vendor": "google"}),
    ],
)
def test_files_need_not_tell(files: list[str], facts: dict[str, Any], tmp_path: Path) -> None:
    place = place_of(run_of(tmp_path, files, **facts))
    assert place.hosts == {}
    with pytest.raises(InputError, match="which ranks share a node"):
        place.tier((0, 1))


def test_a_rank_that_is_in_no_file_is_on_no_known_node() -> None:
    place = Place(hosts={0: 0, 1: 0})
    assert place.tier((0, 1)) == "scale_up"
    with pytest.raises(InputError, match="which ranks share a node"):
        place.tier((0, 1, 2))


def test_processes_of_a_real_capture(test_data: Path, tmp_path: Path) -> None:
    capture = test_data / "nsys" / "nsysai_mfu_2gpu_before_c8f71e.sqlite"
    assert place_of(cclbench.ingest(capture, store=tmp_path)).tier((0, 1)) == "scale_up"
