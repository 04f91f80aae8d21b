# SPDX-License-Identifier: Apache-2.0
"""The repository keeps its own rules: evidence whole, licence stated, files short, public names explained."""

from __future__ import annotations

import ast
import json
import os
import re
from contextlib import suppress
from functools import cache
from hashlib import sha256
from operator import itemgetter
from pathlib import Path

import pytest

from cclbench.card import load_card, validate_card

REPOSITORY = Path(__file__).resolve().parents[2]
CARDS = sorted((REPOSITORY / "workload_cards").glob("*.yaml"))
PACKAGE = sorted((REPOSITORY / "cclbench").rglob("*.py"))
PYTHON = [
    *PACKAGE,
    *sorted((REPOSITORY / "tests").rglob("*.py")),
    *sorted((REPOSITORY / "scripts").rglob("*.py")),
    *sorted((REPOSITORY / "docs").rglob("*.py")),
]
SPDX = "# SPDX-License-Identifier: Apache-2.0"
LONGEST = 400
EVIDENCE_BYTES = 3_000_000


def place(path: Path) -> str:
    """A path in the repository."""
    return path.relative_to(REPOSITORY).as_posix()


@pytest.mark.parametrize("card", CARDS, ids=lambda path: path.stem)
def test_a_card_is_valid_and_its_evidence_is_there(card: Path) -> None:
    assert [str(p) for p in validate_card(card) if p.severity == "error"] == []
    loaded = load_card(card)
    assert loaded.id == card.stem
    assert loaded.evidence.traces
    for trace in loaded.evidence.traces:
        content = (REPOSITORY / trace.path).read_bytes()
        assert trace.path.startswith(f"traces/{card.stem}/")
        assert (len(content), sha256(content).hexdigest()) == (trace.bytes, trace.sha256), trace.path
        assert len(content) < EVIDENCE_BYTES
        assert trace.licence


@pytest.mark.parametrize("card", CARDS, ids=lambda path: path.stem)
def test_a_manifest_lists_the_evidence_and_nothing_else(card: Path) -> None:
    folder = REPOSITORY / "traces" / card.stem
    listed = json.loads((folder / "manifest.json").read_text())["files"]
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != "manifest.json":
            content = path.read_bytes()
            name = path.relative_to(folder).as_posix()
            found.append({"path": name, "sha256": sha256(content).hexdigest(), "bytes": len(content)})
    listed, found = (sorted(files, key=itemgetter("path")) for files in (listed, found))
    assert listed == found
    paths = {f"traces/{card.stem}/{file['path']}" for file in found}
    assert paths >= {trace.path for trace in load_card(card).evidence.traces}


def test_every_folder_of_traces_has_a_card() -> None:
    assert [path.name for path in sorted((REPOSITORY / "traces").iterdir())] == [card.stem for card in CARDS]


@pytest.mark.parametrize("card", CARDS, ids=lambda path: path.stem)
def test_a_script_makes_the_evidence_again(card: Path) -> None:
    script = REPOSITORY / "scripts" / card.stem / "run.sh"
    assert os.access(script, os.X_OK)
    assert load_card(card).evidence.launch == place(script)
    text = script.read_text()
    assert text.splitlines()[:2] == ["#!/usr/bin/env bash", SPDX]
    assert "set -euo pipefail" in text
    for program in re.findall(r"\$workloads/([\w./]+)", text):
        assert (REPOSITORY / "scripts" / "workloads" / program).is_file()


def test_files_state_their_licence() -> None:
    first = {place(path): path.read_text().partition("\n")[0] for path in PYTHON}
    assert [name for name, line in first.items() if line != SPDX] == []


@cache
def parsed(path: Path) -> ast.Module:
    """A file's tree; once more where another thread parsed meanwhile, of which Python 3.11 makes an error."""
    text = path.read_text()
    with suppress(SystemError):
        return ast.parse(text)
    return ast.parse(text)


def test_files_can_be_read_in_one_go() -> None:
    lines = {place(path): len(path.read_text().splitlines()) for path in PACKAGE}
    assert {name: count for name, count in lines.items() if count > LONGEST} == {}


def test_what_is_public_is_explained() -> None:
    """A metric's function is explained by its `definition`, a finding's by its `rule`."""
    silent = [
        f"{place(path)}:{node.lineno} {node.name}"
        for path in PACKAGE
        for node in _public(parsed(path))
        if not ast.get_docstring(node) and not _is_metric(node)
    ]
    assert silent == []


Named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _public(scope: ast.Module | ast.ClassDef) -> list[Named]:
    """Classes, functions and methods that can be reached by names without an underscore."""
    found: list[Named] = []
    for node in scope.body:
        if isinstance(node, Named) and not node.name.startswith("_"):
            found.append(node)
            if isinstance(node, ast.ClassDef):
                found += _public(node)
    return found


def test_arrays_that_can_be_empty_state_their_type() -> None:
    """numpy takes an empty list for floats, which index nothing."""
    untyped = [
        f"{place(path)}:{node.lineno} {ast.unparse(node)}"
        for path in PACKAGE
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("np.array", "np.asarray")
        and len(node.args) == 1
        and not any(keyword.arg == "dtype" for keyword in node.keywords)
        and _can_be_empty(node.args[0])
    ]
    assert untyped == []


def _can_be_empty(values: ast.expr) -> bool:
    """Whether an expression is a comprehension, unpacked alone, or a list made of something."""
    if isinstance(values, ast.List | ast.Tuple):
        return all(isinstance(value, ast.Starred) for value in values.elts)
    made = isinstance(values, ast.Call) and ast.unparse(values.func) in ("list", "sorted", "tuple")
    return made or isinstance(values, ast.ListComp)


def _is_metric(node: Named) -> bool:
    return any(
        isinstance(decorator, ast.Call)
        and isinstance(decorator.func, ast.Name)
        and any(keyword.arg in ("definition", "rule") for keyword in decorator.keywords)
        for decorator in node.decorator_list
    )


def fenced(text: str) -> list[str]:
    """The lines of a Markdown text that are in fenced code."""
    return [
        line for block in re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S) for line in block.splitlines()
    ]


@pytest.mark.parametrize("what", ["cclbench run", "pytest"])
def test_the_readme_has_the_two_commands_that_ci_runs(what: str) -> None:
    """One line each for a bare machine: a new environment, an install, the main job or the tests."""
    commands = [
        line
        for line in fenced((REPOSITORY / "README.md").read_text())
        if line.startswith("python3 -m venv ") and what in line
    ]
    assert len(commands) == 1
    assert "pip install" in commands[0]
    ci = (REPOSITORY / ".ci" / "run").read_text()
    assert f"command_with '{what}'" in ci  # which takes the line from the README, word for word
    assert re.search(r"command_with\(\).*README\.md", ci)
    assert os.access(REPOSITORY / ".ci" / "run", os.X_OK)


def test_the_readmes_data_point_and_pictures_are_shipped_and_the_package_is_typed_and_licensed() -> None:
    text = (REPOSITORY / "README.md").read_text()
    shown = re.findall(r"cclbench run (workload_cards/\S+)", "\n".join(fenced(text)))
    assert shown
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
    files = [card for card in shown if "my-job" not in card] + pictures + ["cclbench/py.typed"]
    assert [name for name in files if not (REPOSITORY / name).is_file()] == []
    assert "Apache License" in (REPOSITORY / "LICENSE").read_text()[:200]
    assert (len(CARDS) >= 3, len(PACKAGE) >= 50) == (True, True)
