# SPDX-License-Identifier: Apache-2.0
"""Whatever a file holds, reading it ends in an answer or in one of our errors."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cclbench.card import card_schema, load_card, upgrade_card, validate_card
from cclbench.ground.errors import CclbenchError


def survives(card: Path) -> None:
    """All three readers answer, in messages that no terminal obeys."""
    for reader in (load_card, validate_card, upgrade_card):
        try:
            result: Any = reader(card)
        except CclbenchError as error:
            said = str(error).splitlines()
        else:
            said = [str(problem) for problem in result] if isinstance(result, list) else []
        assert all(line.isprintable() for line in said)


@given(content=st.binary(max_size=300))
def test_any_bytes(tmp_path: Path, content: bytes) -> None:
    card = tmp_path / "card.yaml"
    card.write_bytes(content)
    survives(card)


@given(text=st.text(alphabet="ab:-[]{}#&*!|>'\"%@`,?~ \n\t\\x0.\u2028\ufeff", max_size=80))
def test_any_yaml_like_text(tmp_path: Path, text: str) -> None:
    card = tmp_path / "card.yaml"
    card.write_text("version: 1\n" + text, encoding="utf-8")
    survives(card)


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)


def names(part: Any) -> set[str]:
    found = set(part.get("properties", {}))
    return found.union(*(names(below) for below in part.get("properties", {}).values())) if found else found


V2_NAMES = sorted(names(card_schema()))
V1_NAMES = [
    *("Model-executor", "model", "data", "model_arch", "batch_size", "network_topo", "bandwidth_gbps"),
    *("topology", "xpu_spec", "total_count", "count_per_node", "communication_library", "env"),
    *("model_plan_parallelization", "pp_mb", "iteration", "epochs", "protocol_selection", "trace_url"),
    "driver_version",
]


@given(data=st.data(), version=st.sampled_from([1, 2]))
def test_the_right_keys_with_any_values(tmp_path: Path, data: st.DataObject, version: int) -> None:
    known = st.sampled_from(V2_NAMES + V1_NAMES)
    tree = st.recursive(values, lambda inner: st.dictionaries(known, inner, max_size=6), max_leaves=12)
    mapping = data.draw(st.dictionaries(known, tree, max_size=6))
    card = tmp_path / "card.yaml"
    card.write_text(
        yaml.safe_dump({"version": version, **mapping}, allow_unicode=True), "utf-8", "surrogatepass"
    )
    survives(card)


@pytest.mark.parametrize("seed", range(3))
def test_real_cards_with_bytes_changed(tmp_path: Path, test_data: Path, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 -- chooses bytes to break, no secret
    card = tmp_path / "card.yaml"
    for path in sorted((test_data / "ccl_bench" / "cards").glob("*.yaml")):
        content = bytearray(path.read_bytes())
        for _ in range(rng.randint(1, 4)):
            content[rng.randrange(len(content))] = rng.choice(b":-[]{}\"'\n\t#&*!\x00\xff0")
        card.write_bytes(content[: rng.randint(len(content) // 2, len(content))])
        survives(card)
