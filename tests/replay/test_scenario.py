# SPDX-License-Identifier: Apache-2.0
"""Settings as people write them, and scenarios as files."""

from __future__ import annotations

from pathlib import Path

import pytest
from jsonschema import Draft7Validator

from cclbench.ground.errors import CclbenchError, InputError, UsageError
from cclbench.ground.json_schema import packaged_schema
from cclbench.replay.change import CHANGES, Quantity
from cclbench.replay.scenario import parse_scenario, parse_sweep
from cclbench.replay.scenario_file import is_scenario_file, read_scenario, write_scenario
from cclbench.replay.selection import NodeSelection, TimeAmount


def test_all_keys() -> None:
    network = (
        "scale_up.bandwidth=x2 scale_out.bandwidth=400Gb/s scale_out.latency=5us scale_out=infiniband-ndr"
    )
    others = "collective.all_reduce=tree rank[3].kernels.time=x0.9 kernels.time=x0.5"
    found = parse_scenario([*network.split(), "system=dgx-h200", "accelerator=h200", *others.split()])
    assert found.changes == {
        "scale_up.bandwidth": Quantity(factor=2.0),
        "scale_out.bandwidth": Quantity(absolute=5e10),
        "scale_out.latency": Quantity(absolute=5e-6),
        "scale_out": "infiniband-ndr",
        "system": "dgx-h200",
        "accelerator": "nvidia-h200-sxm",
        "collective.all_reduce": ("all_reduce", "tree"),
        "rank[3].kernels.time": (
            NodeSelection("kernels", "time", ranks=(range(3, 4),)),
            TimeAmount(factor=0.9),
        ),
        "kernels.time": (NodeSelection("kernels", "time"), TimeAmount(factor=0.5)),
    }
    assert found.needs_system == "scale_out.bandwidth"
    assert parse_scenario(["scale_up.bandwidth=x2"]).needs_system is None
    assert not parse_scenario(["kernels.time=x2"]).moves_communication


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("scale_up.bandwidth", "is not KEY=VALUE"),
        ("scale_up.bandwidth=", "is not KEY=VALUE"),
        ("scale_up.bandwidth=x0", "not a factor above 0 and up to 1,000,000 with at most 6 decimals"),
        ("scale_up.bandwidth=x1000001", "up to 1,000,000"),
        ("scale_up.bandwidth=x0.0000001", "with at most 6 decimals"),
        ("scale_up.bandwidth=0GB/s", "is zero"),
        ("scale_up.bandwidth=101TB/s", "is more than 100 TB/s"),
        ("scale_out.latency=1001ms", "is more than 1 s"),
        ("scale_up=infiniband-ndr", "infiniband-ndr is a scale_out fabric"),
        ("scale_out=nvlink4", "nvlink4 is a scale_up fabric"),
        ("scale_up.bandwidth=x-1", "not a factor above 0"),
        ("scale_up.bandwidth=xnan", "not a factor above 0"),
        ("scale_up.bandwidth=x9999999", "not a factor above 0"),
        ("scale_up.bandwidth=2", "not a number, one space and a unit"),
        ("scale_up.bandwidth=5us", "no known unit of bandwidth"),
        ("scale_out.latency=400Gb/s", "no known unit of time"),
        ("scale_out=ethernet-9000", "no fabric 'ethernet-9000'"),
        ("scale_upp.bandwidth=x2", "there is no setting 'scale_upp.bandwidth'"),
        ("accelerator=quantum", "no accelerator 'quantum'"),
        ("collective.all_reduced=tree", "no collective 'all_reduced'"),
        ("collective.all_reduce=trea", "there is no algorithm 'trea'; did you mean tree"),
        ("rank[x].kernels.time=x2", "'x' is not a rank"),
        ("rank[5-3].kernels.time=x2", "'5-3' is not a rank"),
        ("step[4:4].kernels.time=x2", "'4:4' is not a range of steps"),
        ("kernels.bandwidth=x2", "there is no setting 'kernels.bandwidth'"),
        ("kernels[gem].time=x2", "did you mean gemm"),
        ("kernels[name~(].time=x2", "is not a regular expression"),
        ("kernels[gemm&attention].time=x2", "'attention' is not a condition of kernels"),
        ("copies.bandwidth=median", "not a factor above 0"),
        ("host[sync].time=early", "is not a time"),
        ("rank[1].kernels.time=0.9", "is not a time"),
        ("copies.bandwidth=x0", "not a factor above 0"),
        ("host[loader].time=off", "is not a time"),
        ("overlap=on", "overlap cannot be 'on'; use off"),
        ("hosts=x0", "did you mean host"),
        ("buckets=0", "not a number of collectives, 1 to 9,999"),
        ("buckets=x2", "not a number of collectives, 1 to 9,999"),
        ("launches=none", "use graph"),
    ],
)
def test_what_means_nothing_is_a_clear_error(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_scenario([text])


def test_limits_are_those_stated() -> None:
    assert parse_scenario(["kernels.time=x1000000"]).changes["kernels.time"][1] == TimeAmount(factor=1e6)
    assert parse_scenario(["kernels.time=x0.000001"]).changes["kernels.time"][1] == TimeAmount(factor=1e-6)
    most = parse_scenario(["scale_up.bandwidth=100TB/s"]).quantity("scale_up", "bandwidth")
    assert most == Quantity(absolute=1e14)
    assert parse_scenario(["scale_out.latency=1s"]).quantity("scale_out", "latency") == Quantity(absolute=1.0)
    assert len(list(parse_sweep("kernels.time=x1..x65536"))) == 17
    with pytest.raises(UsageError, match="at most 65,536 times xA"):
        list(parse_sweep("kernels.time=x1..x65537"))


@pytest.mark.parametrize(
    "texts",
    [
        ("kernels.time=x2", "kernels.time=x2"),
        ("scale_up.bandwidth=x2", "rank[1].kernels.time=x2", "scale_up.bandwidth=900GB/s"),
        ("system=dgx-h100", "system = dgx-h200"),
        ("kernels[name~a=b].time=x2", "kernels[name~a=b].time=x3"),
    ],
)
def test_a_key_given_twice_is_refused(texts: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="is set twice"):
        parse_scenario(texts)


def test_a_sweep_doubles() -> None:
    assert [factor for factor, _ in parse_sweep("scale_out.bandwidth=x0.25..x8")] == [0.25, 0.5, 1, 2, 4, 8]
    assert list(parse_sweep("kernels.time=x1..x3")) == [(n, f"kernels.time=x{n}") for n in (1, 2, 3)]


@pytest.mark.parametrize(
    "text",
    ["compute", "kernels.time=x1", "kernels.time=x2..x1", "kernels.time=1..2", "kernels.time=x1..x999999"],
)
def test_a_sweep_needs_two_factors_in_order(text: str) -> None:
    with pytest.raises(UsageError):
        list(parse_sweep(text))


def test_each_key_names_one_setting() -> None:
    keys = [key for key in CHANGES if "<" not in key] + [
        "collective.all_reduce",
        "rank[3].kernels[gemm].time",
    ]
    for key in keys:
        assert sum(CHANGES.get(name).is_named(key) for name in CHANGES) == 1


def test_a_file_says_what_settings_say(tmp_path: Path) -> None:
    path = tmp_path / "doubled.yaml"
    path.write_text("description: why\nset:\n  scale_out.bandwidth: 400Gb/s\n  rank[1].kernels.time: x0.5\n")
    name, texts = read_scenario(path)
    assert name == "doubled"
    assert tuple(parse_scenario(texts).changes) == ("scale_out.bandwidth", "rank[1].kernels.time")
    path.write_text("name: two times\nset: {kernels.time: x2}\n")
    assert read_scenario(path) == ("two times", ("kernels.time=x2",))
    # the schema is one
    Draft7Validator.check_schema(dict(packaged_schema("scenario")))


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


def test_scenarios_are_written_and_told_from_settings(tmp_path: Path) -> None:
    path = tmp_path / "kept.yaml"
    texts = ("scale_up.bandwidth=900GB/s", "kernels.time=x0.5", "collective.all_reduce=tree")
    for label in ("plain", '1e5: "quoted" \\ # no', "x2"):
        write_scenario(parse_scenario(texts, label), path, "because\nit is so")
        assert read_scenario(path) == (label, texts)
    # what sets nothing is not written
    with pytest.raises(InputError, match="there are no settings to write"):
        write_scenario(parse_scenario([], "unchanged"), tmp_path / "none.yaml")
    # a file is told from settings
    assert is_scenario_file("a/b.yaml")
    assert is_scenario_file(Path("anything"))
    assert not is_scenario_file("kernels.time=x2")
    assert not is_scenario_file("system=my.yaml")
    # no file is told
    with pytest.raises(CclbenchError, match=r"none\.yaml"):
        read_scenario(tmp_path / "none.yaml")
