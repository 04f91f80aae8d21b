# SPDX-License-Identifier: Apache-2.0
"""Scenarios as files: what they say, what is refused with its line, and that they come back as written."""

from __future__ import annotations

from pathlib import Path

import pytest
from jsonschema import Draft7Validator

from cclbench.ground.errors import CclbenchError, InputError
from cclbench.ground.json_schema import packaged_schema
from cclbench.replay.scenario import parse_scenario
from cclbench.replay.scenario_file import is_scenario_file, read_scenario, write_scenario


def test_the_schema_is_one() -> None:
    Draft7Validator.check_schema(dict(packaged_schema("scenario")))


def test_a_file_says_what_settings_say(tmp_path: Path) -> None:
    path = tmp_path / "doubled.yaml"
    path.write_text("description: why\nset:\n  scale_out.bandwidth: 400Gb/s\n  rank[1].kernels.time: x0.5\n")
    name, texts = read_scenario(path)
    assert name == "doubled"
    assert tuple(parse_scenario(texts).changes) == ("scale_out.bandwidth", "rank[1].kernels.time")
    path.write_text("name: two times\nset: {kernels.time: x2}\n")
    assert read_scenario(path) == ("two times", ("kernels.time=x2",))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("set: {}\n", "bad.yaml:1: set"),
        ("name: x\n", "set: is missing"),
        ("sets:\n  compute: x2\n", "bad.yaml:1: sets: unknown key; did you mean set?"),
        ("set:\n  compute: 2\n", "bad.yaml:2: set.compute: is 2 but must be text"),
        ("set:\n  compute: x2\n  compute: x3\n", "bad.yaml:3: set.compute: is there twice, first in line 2"),
        (
            "set:\n  kernels.time: x2\n  kernel.time: x3\n",
            "bad.yaml:3: there is no setting 'kernel.time'; did you mean kernels.time",
        ),
        ("set:\n  kernels.time: 1us\n", "bad.yaml:2: kernels.time=1us: '1us' is not a time"),
        ("set: &a {compute: x2}\n", "bad.yaml:1: uses a YAML anchor"),
        ("- compute\n", "is a list"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as failed:
        read_scenario(path)
    assert says in str(failed.value)


def test_no_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(CclbenchError, match=r"none\.yaml"):
        read_scenario(tmp_path / "none.yaml")


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "kept.yaml"
    texts = ("scale_up.bandwidth=900GB/s", "kernels.time=x0.5", "collective.all_reduce=tree")
    for label in ("plain", '1e5: "quoted" \\ # no', "x2"):
        write_scenario(parse_scenario(texts, label), path, "because\nit is so")
        assert read_scenario(path) == (label, texts)


def test_what_sets_nothing_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there are no settings to write"):
        write_scenario(parse_scenario([], "unchanged"), tmp_path / "none.yaml")


def test_a_file_is_told_from_settings() -> None:
    assert is_scenario_file("a/b.yaml")
    assert is_scenario_file(Path("anything"))
    assert not is_scenario_file("kernels.time=x2")
    assert not is_scenario_file("system=my.yaml")
