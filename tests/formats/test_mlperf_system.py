# SPDX-License-Identifier: Apache-2.0
"""System descriptions of MLPerf: counts of accelerators, what is none, and what is published."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.refused import refused

from cclbench.contribute.redaction import redact_evidence
from cclbench.formats import recognise_format
from cclbench.formats.mlperf_system import MlperfSystem

SYSTEM: dict[str, Any] = {"submitter": "Moonshot Computing", "system_name": "moonshot-7"}
SYSTEM |= {"number_of_nodes": "9", "accelerators_per_node": 8, "host_networking": "moonshot-fabric"}
Written = Callable[..., Path]


def test_a_system_has_its_nodes_times_their_accelerators(written: Written) -> None:
    path = written(json.dumps(SYSTEM))
    assert recognise_format(path, path.read_bytes()).name == "mlperf_system"
    assert MlperfSystem().read(path).facts == {"nodes": 9, "accelerators_per_node": 8, "system_devices": 72}


@pytest.mark.parametrize("value", ["N/A", "", 0, -1, "1e3", 1 << 40, "９"])
def test_what_is_no_count_is_not_one(written: Written, value: object) -> None:
    found = MlperfSystem().read(written(json.dumps(SYSTEM | {"number_of_nodes": value})))
    assert (found.facts, len(found.notes)) == ({}, 1)


@pytest.mark.parametrize(
    "text", ["{", "[]", json.dumps({"number_of_nodes": 1}), json.dumps(SYSTEM | {"number_of_nodes": [1]})]
)
def test_damage_is_an_error_that_names_the_file(written: Written, text: str) -> None:
    refused(MlperfSystem().read, written(text))


def test_only_the_counts_are_published(tmp_path: Path) -> None:
    source, target = tmp_path / "system.json", tmp_path / "copy.json"
    source.write_text(json.dumps(SYSTEM))
    redact_evidence(source, target)
    assert "oonshot" not in target.read_text()
    assert MlperfSystem().read(target).facts == MlperfSystem().read(source).facts
