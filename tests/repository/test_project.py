# SPDX-License-Identifier: Apache-2.0
"""The project says the same everywhere: which Pythons it supports, and where its pages are."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


def test_the_workflow_tests_the_versions_that_the_package_names() -> None:
    pythons = (
        re.match(r"Programming Language :: Python :: (3\.\d+)", word) for word in PROJECT["classifiers"]
    )
    named = [match[1] for match in pythons if match]
    assert named == ["3.11", "3.12", "3.13", "3.14"]
    assert PROJECT["requires-python"] == f">={named[0]}"
    workflow = yaml.safe_load((REPOSITORY / ".github" / "workflows" / "tests.yml").read_text())
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python-version"] == named


@pytest.mark.parametrize(
    "path", sorted((REPOSITORY / ".github" / "workflows").iterdir()), ids=lambda p: p.stem
)
def test_a_workflow_is_valid_and_may_only_read(path: Path) -> None:
    """Except jobs that publish, which run nothing of the repository and keep no secret."""
    command = ["check-jsonschema", "--builtin-schema", "vendor.github-workflows", str(path)]
    subprocess.run([str(Path(sys.executable).with_name(command[0])), *command[1:]], check=True)
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    assert "secrets." not in path.read_text()
    for name, job in workflow["jobs"].items():
        if "permissions" in job:
            assert (name, job["needs"]) == ("publish", "build")
            assert not [step for step in job["steps"] if "run" in step or "checkout" in step["uses"]]


def test_the_image_is_pinned_and_not_root() -> None:
    lines = (REPOSITORY / "Dockerfile").read_text().splitlines()
    images = [line for line in lines if line.startswith("FROM ")]
    assert [image for image in images if not re.search(r"@sha256:[0-9a-f]{64}( AS build)?$", image)] == []
    assert "USER 1000:1000" in lines


@pytest.mark.parametrize(
    "statement", ["import cclbench", "import runpy; runpy.run_module('cclbench', run_name='__main__')"]
)
def test_an_older_interpreter_is_told_in_one_line(statement: str) -> None:
    older = f"import sys; sys.version_info = (3, 9, 18, 'final', 0); {statement}"
    done = subprocess.run([sys.executable, "-c", older], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "cclbench needs Python 3.11 or newer, this is 3.9.18\n"
    assert done.stdout == ""
    tree = ast.parse((REPOSITORY / "cclbench" / "__init__.py").read_text(), feature_version=(3, 7))
    imports = [node.module for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert "__future__" not in imports


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md"])
def test_what_a_page_links_to_is_there(page: str) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", (REPOSITORY / page).read_text())
    assert links
    for target in links:
        assert target.startswith("https://") or (REPOSITORY / target).exists(), target
