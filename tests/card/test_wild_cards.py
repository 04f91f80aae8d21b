# SPDX-License-Identifier: Apache-2.0
"""All version 1 cards as they are found in the wild."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from cclbench.card import upgrade_card
from cclbench.card.read import parse_card
from cclbench.ground.errors import InputError

# Lines and reasons by PyYAML's own safe_load on the same files.
BROKEN = {
    "Mixtral8x7B-vllmEP4-Perlmutter_defaultall2all_32_8192_-group12.yaml": (":18:5:", "starts in line 17"),
    "llama-3.1-8b-torchtitan-dp_2-tp_2-perlmutter_group_5.yaml": (
        ":10:48:",
        "mapping values are not allowed",
    ),
    "llama-3.1-8b-torchtitan-dp_4-perlmutter_group_5.yaml": (":10:48:", "mapping values are not allowed"),
}


@pytest.fixture(scope="module")
def wild(test_data: Path) -> dict[Path, dict[str, Any]]:
    """Every card that is YAML, as PyYAML reads it."""
    cards = {}
    for path in sorted((test_data / "ccl_bench" / "cards").glob("*.yaml")):
        if path.name.rpartition("__")[2] not in BROKEN or "backlog" in path.name:
            cards[path] = yaml.safe_load(path.read_text("utf-8"))
    return cards


def test_the_broken_ones_name_line_and_reason(test_data: Path) -> None:
    found = 0
    for path in (test_data / "ccl_bench" / "cards").glob("*.yaml"):
        place = BROKEN.get(path.name.rpartition("__")[2])
        if place is None or "backlog" in path.name:
            continue
        found += 1
        with pytest.raises(InputError) as caught:
            upgrade_card(path)
        line, reason = place
        assert f"{path}{line}" in str(caught.value)
        assert reason in str(caught.value)
    assert found == 3


def count_matches(card: Mapping[str, Any]) -> bool:
    """Whether the degrees multiply to the count, worked out from the version 1 card."""
    executor = card.get("Model-executor") or card["workload"].get("Model-executor")
    if executor is None:
        return True
    degrees = executor["model_plan_parallelization"]
    product = 1
    for name in ("dp_replicate", "dp_shard", "tp", "pp", "cp"):
        product *= degrees[name]
    if executor["framework"]["name"] == "maxtext":
        product *= degrees["ep"]
    return bool(product == card["workload"]["hardware"]["xpu_spec"]["total_count"])


def test_each_upgrades_or_is_refused_for_exactly_its_faults(wild: Mapping[Path, dict[str, Any]]) -> None:
    outcomes: Counter[str] = Counter()
    for path, card in wild.items():
        expected = set()
        if not card["description"]:
            expected.add("description")
        if not count_matches(card):
            expected.add("parallelism")
        faults = {problem.path for problem in upgrade_card(path).problems}
        assert faults - {"parallelism.ep"} == expected, path.name
        outcomes["refused" if faults else "valid"] += 1
    assert outcomes == {"valid": 54, "refused": 16}


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, dict) and value:
        for key, below in value.items():
            yield from leaves(below, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def test_no_field_is_lost_in_silence(wild: Mapping[Path, dict[str, Any]]) -> None:
    """Every value of every card is in the new card, or its path is in a warning."""
    checked = 0
    for path, card in wild.items():
        result = upgrade_card(path)
        text = repr(parse_card(result.text, "x.yaml").value).lower()
        told = {warning.path for warning in result.warnings}
        for warning in result.warnings:
            if warning.path == "":
                told |= set(warning.message.partition(": ")[2].split(", "))
        for key, value in leaves(card):
            checked += 1
            if key in told or key == "version":
                continue
            if key.endswith(("xpu_spec.type", "batch_size_scope", "model.epochs")):
                continue  # said by the accelerator's id, by `global`, and by the product in `steps`
            last = key.rpartition(".")[2]
            values = value if isinstance(value, list) else [value]
            carried = [str(v).strip().lower() for v in values]
            if last == "model":
                carried = ["google-tpu-v6e" if v == "tpu_v6e" else "nvidia-a100-sxm-40gb" for v in carried]
            if last == "topology" and "torus" in carried[0]:
                carried = ["ici-v6e"]  # which joins these accelerators
            if last == "name":
                carried = [v.replace("++", "pp").removesuffix("-0.1.0") for v in carried]
            assert all(v[:40] in text for v in carried), (path.name, key, value)
    assert checked > 2000


def test_no_bandwidth_is_guessed(wild: Mapping[Path, dict[str, Any]]) -> None:
    """Only pairs whose hardware has those rates are taken over; all others are reported with their value."""
    taken: Counter[tuple[str, str]] = Counter()
    for path, card in wild.items():
        topology = card["workload"].get("hardware", {}).get("network_topo")
        if topology is None:
            continue
        result = upgrade_card(path)
        hardware = parse_card(result.text, "x.yaml").value.get("hardware", {})
        sides = [hardware.get(side, {}).get("bandwidth", "gap") for side in ("scale_out", "scale_up")]
        taken[str(topology["bandwidth_gbps"]), " ".join(sides)] += 1
        reported = any(warning.path.endswith("bandwidth_gbps") for warning in result.warnings)
        assert reported == ("gap" in sides), path.name
    assert taken == {
        ("[200, 2400]", "200 Gb/s 2400 Gb/s"): 33, ("[200, 2000]", "200 Gb/s gap"): 3,
        ("[200, 600]", "200 Gb/s gap"): 2, ("[200, 6400]", "gap gap"): 2, ("['N/A', 800]", "gap gap"): 8,
        ("['N/A', 3200]", "gap 3200 Gb/s"): 1, ("['TBD', 'TBD']", "gap gap"): 8, ("[600]", "gap gap"): 8,
    }  # fmt: skip
