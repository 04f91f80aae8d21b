# SPDX-License-Identifier: Apache-2.0
"""What a contributor writes: cards keep what their fields state, scripts only public words and options."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cclbench.contribute import redaction
from cclbench.ground.errors import UsageError

STAND_IN = re.compile(r"x[jqvwxyz]{14}")
CARD: dict[str, Any] = {
    "id": "my-job-7",
    "description": "Llama-like, 54 million parameters (0.5 s), on acme-17 by ada@acme.org; see /home/ada/x.",
    "workload": {
        "model": {"name": "Moonshot-9B", "url": "https://example.org/m"},
        "dataset": "c4 of s3://b7/x",
    },
    "software": {"communication": {"environment": {"NCCL_ALGO": "Ring", "ACME_KEY7": "hunter2x"}}},
    "contributor": {"name": "Ada L.", "contact": "ada@acme.org"},
}


def test_a_card_keeps_its_fields_and_of_its_prose_words_of_letters() -> None:
    new, told = redaction.redact_statements(CARD, redaction.PublicNames(), "card.yaml")
    kept = ("id", "contributor")
    assert {key: new[key] for key in kept} == {key: CARD[key] for key in kept}
    assert new["workload"]["model"] == CARD["workload"]["model"]
    prose = STAND_IN.sub("_", new["description"])
    assert prose == "Llama-like, 54 million parameters (0.5 s), on _ by _; see _."
    assert STAND_IN.sub("_", new["workload"]["dataset"]) == "c4 of _"
    variables = new["software"]["communication"]["environment"]
    assert variables["NCCL_ALGO"] == "Ring"
    assert not re.search(r"ACME|hunter", str(variables))
    assert {(one.place, one.count) for one in told} == {("description", 1), ("dataset", 1), ("ACME_KEY7", 1)}


@pytest.mark.parametrize("address", ["https://ada:pw@example.org/x", "https://example.org/x?X-Signature=1"])
def test_an_address_that_may_give_access_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="has a login or a query"):
        redaction.redact_statements(
            {"evidence": {"source_url": address}}, redaction.PublicNames(), "card.yaml"
        )


def test_a_name_that_a_card_states_is_public_in_evidence_but_not_one_of_its_description() -> None:
    names = redaction.PublicNames(stated=redaction.card_texts(CARD))
    assert names.publish("Moonshot-9B") == "Moonshot-9B"
    assert names.publish("acme-17") != "acme-17"


def test_a_script_keeps_public_words_and_numbers_of_options(tmp_path: Path) -> None:
    source, target = tmp_path / "run.sh", tmp_path / "copy.sh"
    lines = (
        "#!/usr/bin/env bash",
        "export ACME_TOKEN=hunter2x",
        'cd /home/ada/llama && torchrun --nproc-per-node 8 --lr 3e-4 --seq-len=131072 "$ACMEVAR7" \\',
        "  --pin 4711 # call 4711 0815",
    )
    source.write_text("\n".join(lines))
    source.chmod(0o755)
    told = redaction.redact_script(source, target, redaction.PublicNames(kept=["llama*"]))
    text = target.read_text()
    assert not re.search(r"ACME|hunter|ada|VAR7|0815", text)
    new = STAND_IN.sub("_", text).split("\n")
    assert new[0] == lines[0]
    assert new[2].startswith("cd ")
    for kept in ("torchrun --nproc-per-node 8", "3e-4", "131072", '"', " \\"):
        assert kept in new[2]
    assert sum(one.count for one in told) == 3
    assert target.stat().st_mode & 0o777 == 0o755


def test_equal_texts_of_two_files_have_one_token_and_a_version_stays(tmp_path: Path) -> None:
    names, tokens = redaction.PublicNames(), []
    for name in ("a", "b"):
        source, target = tmp_path / f"{name}.log", tmp_path / f"{name}.copy"
        source.write_text("acmehost:12:34 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n")
        redaction.redact_evidence(source, target, names)
        tokens += STAND_IN.findall(target.read_text())
        assert "2.21.5+cuda12.4" in target.read_text()
    assert len(tokens) == 2
    assert len(set(tokens)) == 1
