# SPDX-License-Identifier: Apache-2.0
"""The skill for agents: its head is as clients read it, its commands run, and its fields exist."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.command_line import Answer, call  # noqa: F401 - a fixture
from helpers.page_commands import blocks

from cclbench.present.brief import BRIEF_BYTES

DDP, FSDP = "traces/tiny-llama-ddp4-gloo-cpu", "traces/tiny-llama-fsdp4-gloo-cpu"
FIELDS = (
    *("findings", "claim", "gain", "try", "whatif", "verdicts", "outcome", "work", "runs", "next"),
    "window",
)


def test_the_skill_works_as_it_says(
    repository: Path,
    call: Any,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    skill = (repository / "skills" / "cclbench" / "SKILL.md").read_text("utf-8")
    _, head, body = skill.split("---\n", 2)
    stated = yaml.safe_load(head)
    assert (stated.keys(), stated["name"]) == ({"name", "description"}, "cclbench")
    assert 100 < len(stated["description"]) <= 1024
    monkeypatch.chdir(repository)
    printed, ran = "", 0
    for language, _, block in blocks(body):
        assert language == "sh"
        for line in block.strip().splitlines():
            placed = re.sub("TRACES|BEFORE", DDP, line).replace("AFTER", FSDP)
            answer: Answer = call(*shlex.split(placed, comments=True)[1:])
            assert answer.code == 0, (line, answer.err)
            assert json.loads(answer.out)
            assert "--brief" not in line or len(answer.out.encode()) <= BRIEF_BYTES + 1
            printed, ran = printed + answer.out, ran + 1
    assert ran == 10
    for field in FIELDS:
        assert f"`{field}" in body, field
        assert f'"{field}": ' in printed, field
