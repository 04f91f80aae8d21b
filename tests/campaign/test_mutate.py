# SPDX-License-Identifier: Apache-2.0
"""The mutation campaign: what it changes, which tests it runs first, and one mutant from draw to table."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = b"""
from __future__ import annotations

def f(a: int | None, b: float = 2.5) -> int | None:
    if a is not None and not b < 3:
        print(f"{a - 1} of 3")
        return max(a, b) - (a
            # about - and +
            + 1)
    return ~a & b
"""


@pytest.fixture
def mutate(repository: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program, as a module."""
    monkeypatch.syspath_prepend(repository / "scripts" / "campaign")
    return importlib.import_module("mutate")


def changes(mutate: ModuleType, text: bytes) -> list[tuple[int, str, str]]:
    """Line, text and replacement of each mutant."""
    found = mutate.Mutants("x.py", text).found
    return [(one.line, text[one.begin : one.end].decode(), one.new) for one in found]


def test_every_kind_of_change_and_nothing_that_is_not_run(mutate: ModuleType) -> None:
    """Annotations and texts stay; a comment between operands is no operator."""
    assert sorted(changes(mutate, SOURCE)) == [
        *((4, "2.5", "1.5"), (4, "2.5", "3.5")),
        *((5, "3", "2"), (5, "3", "4"), (5, "<", "<="), (5, "and", "or")),
        *((5, "is not", "is"), (5, "not b < 3", "b < 3")),
        (6, 'print(f"{a - 1} of 3")', "pass"),
        *((7, "-", "+"), (7, "a, b", "b, a"), (7, "max", "min")),
        *((9, "+", "-"), (9, "1", "0"), (9, "1", "2")),
        *((10, "&", "|"), (10, "~a", "a")),
    ]


def test_mutants_are_programs_of_different_lines_and_follow_from_the_seed(mutate: ModuleType) -> None:
    drawn = mutate.draw_mutants(12, 3, ("normalize", "ground"))
    assert drawn == mutate.draw_mutants(12, 3, ("normalize", "ground"))
    assert drawn != mutate.draw_mutants(12, 4, ("normalize",))
    assert len({(one.path, one.line) for one in drawn}) == 12
    for one in drawn:
        compile(one.applied((mutate.REPOSITORY / one.path).read_bytes()), one.path, "exec")


def test_the_nearest_tests_come_first(mutate: ModuleType) -> None:
    named, others, whole = mutate.closest_tests("cclbench/normalize/clocks.py")
    assert named == ["tests/normalize/test_clocks.py"]
    assert "tests/normalize/test_steps.py" in others
    assert "tests/golden" in whole
    assert "tests/test_machine.py" in mutate.closest_tests("cclbench/machine.py")[0]


def test_with_coverage_only_tests_that_run_the_line(mutate: ModuleType, tmp_path: Path) -> None:
    """Nearest first, of those further off four sets of parameters; for lines of importing all of the file."""
    path = "cclbench/normalize/clocks.py"
    text = (mutate.REPOSITORY / path).read_text().splitlines()
    constant, function = (
        next(i for i, line in enumerate(text, 1) if line.startswith(word))
        for word in ("_ROUNDS", "def _inner")
    )
    one, other = function + 1, function + 2
    coverage = mutate.CoverageData(str(tmp_path / "coverage"))
    near, golden = "tests/normalize/test_clocks.py::test_a", "tests/golden/test_b.py::test_b"
    named = [f"{near}[{i}|y]" for i in range(6)]
    # The first test that imports the module late is the context of its constants.
    lines = {golden: [one], "tests/cli/test_c.py::test_c": [constant, other], "": [one]}
    lines |= {test: [one] for test in named}
    lines |= {f"tests/normalize/test_steps.py::test_d[{i}]": [other] for i in range(9)}
    for test, numbers in lines.items():
        coverage.set_context(f"{test}|run" if test else "")
        coverage.add_lines({f"/a/checkout/{path}": numbers})
    coverage.write()
    by_line = mutate.TestsByLine(tmp_path / "coverage")
    sets = [f"tests/normalize/test_steps.py::test_d[{i}]" for i in range(4)]
    selected = {
        line: by_line.select(mutate.Mutant(path, line, 0, 1, "")) for line in (1, constant, one, other)
    }
    assert selected[one] == [named, [golden]]
    assert selected[other] == [sets, ["tests/cli/test_c.py::test_c"]]
    assert selected[1] == selected[constant] == [named, sets, [golden], ["tests/cli/test_c.py::test_c"]]


def test_equivalent_mutants_are_mutants_and_argued(mutate: ModuleType) -> None:
    known = mutate.yaml.safe_load(mutate.EQUIVALENT.read_text())
    assert known
    made = {}
    for path in {one["path"] for one in known}:
        text = (mutate.REPOSITORY / path).read_bytes()
        made[path] = {mutant.diff(text) for mutant in mutate.Mutants(path, text).found}
    for one in known:
        assert (one["before"], one["after"]) in made[one["path"]]
        assert one["why"].strip()


def test_a_change_is_shown_by_the_lines_that_it_spans(mutate: ModuleType) -> None:
    shown = [one.diff(SOURCE) for one in mutate.Mutants("x.py", SOURCE).found]
    assert ("+ 1)", "- 1)") in shown
    assert ("return ~a & b", "return a & b") in shown
    text = b"f(\n    a,\n    b,\n)\n"
    expected = [("f(\na,\nb,\n)", "pass"), ("a,\nb,", "b,\na,")]
    assert [one.diff(text) for one in mutate.Mutants("x.py", text).found] == expected


def test_one_mutant_from_draw_to_table(repository: Path, tmp_path: Path) -> None:
    """Of the interval algebra, whose tests take a second; what is done is not done again."""
    out = tmp_path / "mutants.jsonl"
    command = [sys.executable, repository / "scripts" / "campaign" / "mutate.py", "--mutants", "1"]
    command += ["--seed", "1", "--modules", "ground/intervals.py", "--limit", "60", "--out", out]
    environment = {**os.environ, "PYTHONPATH": str(repository)}
    first, again = (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True) for _ in range(2)
    )
    (line,) = out.read_text().splitlines()
    result = json.loads(line)
    assert (result["path"], result["outcome"]) == ("cclbench/ground/intervals.py", "killed")
    assert result["by"].startswith("tests/ground/test_intervals.py::")
    assert "| ground | 1 | 1 | 0 | 100 |" in first.stdout
    assert again.stdout == first.stdout
    assert again.stderr == ""
