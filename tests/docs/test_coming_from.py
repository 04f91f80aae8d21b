# SPDX-License-Identifier: Apache-2.0
"""Pages for people who come from other tools: each of their questions has a command that answers it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import call  # noqa: F401 - a fixture

from cclbench.analyzers.aliases import ALIASES, REFUSALS, SYNONYMS

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(DOCS.glob("coming-from-*.md"))
AGENT = Path("job_logs_ccl") / "agent"
TPU = "Llama-3.1-8B-torchxla-vllm-tp1-tpu-group-4"
FILES = {
    "old.yaml": Path("ccl_bench") / "cards" / f"trace_collection__{TPU}__{TPU}.yaml",
    "benchmark_data.json": Path("ccl_bench") / "benchmark_data.json",
    "results.csv": AGENT / "ccl_bench_agent" / "runs" / "20260429_115146_megatron_best" / "results.csv",
    "run.sh": AGENT / "megatron_llama8b" / "scripts" / "run.sh",
    "profile.sqlite": Path("nsys") / "nsysai_mfu_2gpu_before_c8f71e.sqlite",
    "later.sqlite": Path("nsys") / "pipit_saxpy_mpi_cuda_perlmutter0.sqlite",
}
"""Real files that the pages call by other names."""
WITHOUT_VALUE = {
    "compute.moe_share": "workload.model.moe",
    "comm.bandwidth_utilization": "the CPU is the device",
    "bandwidth_utilization_peertopeer_group_6": "the CPU is the device",
    "scale_up_bw_utility": "only bounds are known",
    "comm.nvlink_bytes": "no NVLink counters",
}
"""Metrics of which the evidence has no value, and why it says so."""


def table_rows(page: Path) -> Iterator[list[str]]:
    """Cells of the rows of the page's tables."""
    for line in page.read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 4 and cells[0].strip("-") and cells[2] != "cclbench":
            yield cells


def page_commands() -> list[Any]:
    """Each command of the pages, once."""
    commands = {
        command: page.stem.removeprefix("coming-from-")
        for page in PAGES
        for cells in table_rows(page)
        for command in re.findall(r"`(cclbench [^`]+)`", cells[2])
    }
    return [pytest.param(command, id=f"{tool} {command[9:80]}") for command, tool in commands.items()]


@pytest.fixture(scope="module")
def folder(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a reader of the pages has: the repository's data points, and one store for all commands."""
    folder = tmp_path_factory.mktemp("coming")
    for name in ("traces", "workload_cards", "scripts"):
        shutil.copytree(repository / name, folder / name)
    return folder


@pytest.fixture
def command_words(
    command: str, folder: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """The words; what they name is in the working folder, or the test is skipped without the test data."""
    words = shlex.split(command)[1:]
    for name in FILES.keys() & set(words):
        if not (folder / name).exists():
            shutil.copy(request.getfixturevalue("test_data") / FILES[name], folder / name)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("CCLBENCH_STORE", str(folder / "store"))
    return words


@pytest.mark.parametrize("command", [one for one in page_commands() if " --metric " not in one.values[0]])
def test_a_command_answers(command_words: list[str], folder: Path, call: Any) -> None:  # noqa: F811
    answer = call(*command_words)
    assert answer.code == 0, answer.err
    assert answer.out.strip() or "-o" in command_words
    if "-o" in command_words:
        assert (folder / command_words[command_words.index("-o") + 1]).stat().st_size


@pytest.mark.parametrize("command", [one for one in page_commands() if " --metric " in one.values[0]])
def test_a_metric_has_a_value_or_says_why_not(command_words: list[str], call: Any) -> None:  # noqa: F811
    answer = call(*command_words, "--json")
    assert answer.code == 0, answer.err
    rows = json.loads(answer.out)["results"]
    asked = {command_words[n + 1] for n, word in enumerate(command_words) if word == "--metric"}
    expected = [reason for name, reason in WITHOUT_VALUE.items() if name in asked]
    own = [row for row in rows if row["rank"] is None and row["stat"] is None]
    assert own
    assert any(row["value"] is not None for row in own) != bool(expected)
    assert [reason for reason in expected if reason not in str([row["reason"] for row in own])] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_row_has_a_question_theirs_and_ours(page: Path) -> None:
    rows = list(table_rows(page))
    assert len(rows) >= 15
    assert [cells for cells in rows if not cells[0] or "`cclbench " not in cells[2]] == []
    assert page.name in (DOCS.parent / "mkdocs.yml").read_text()
    assert page.name in (DOCS / "index.md").read_text()


def test_all_names_of_ccl_bench_are_on_its_page_with_their_metric() -> None:
    page = DOCS / "coming-from-ccl-bench.md"
    stated = {
        name: cells
        for cells in table_rows(page)
        for name in re.findall(r"`(\w+)`", cells[1])
        if "/" not in name
    }
    names = {*ALIASES, *REFUSALS, "throughput"}
    assert names <= stated.keys()
    assert {"throughput"} <= SYNONYMS.keys()
    for name, alias in ALIASES.items():
        words = " ".join(stated[name][2:])
        assert alias.metric in words or name in words or alias.metric.partition(".")[2] in words, name
    for name, refusal in REFUSALS.items():
        assert refusal.instead in stated[name][3]
