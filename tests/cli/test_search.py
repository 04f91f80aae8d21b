# SPDX-License-Identifier: Apache-2.0
"""`cclbench search` on a small run."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from helpers.command_line import Answer, Call
from helpers.synthetic import Collective, Compute, Layout, Link, Network, Program, simulate, write

from cclbench.ground.json_schema import packaged_schema

SPACE = "space:\n  scale_up.bandwidth: [x1, x2]\n  collective.all_reduce: [unchanged, tree]\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Traces of two ranks, and a space with costs."""
    place = tmp_path_factory.mktemp("search")
    ops = [op for i in range(1, 6) for op in (Compute(20_000), Collective("all_reduce", "dp", i << 20))]
    program = Program((*ops, Compute(20_000)), steps=2)
    write(simulate(Layout(dp=2, gpus_per_host=2), program, Network(Link(0, 100))), place / "traces")
    (place / "space.yaml").write_text(SPACE + "cost:\n  scale_up.bandwidth: {x2: 40}\ncost_unit: EUR/h\n")
    (place / "free.yaml").write_text(SPACE)
    return place


@pytest.fixture
def search(call: Call, folder: Path) -> Call:
    """The command on those traces, two ranks a node, in the space with costs unless another is given."""

    def run(*words: object) -> Answer:
        space = () if "--space" in words else ("--space", folder / "space.yaml")
        return call("search", folder / "traces", "--store", folder / "store", "--per-node", 2, *space, *words)

    return run


def test_the_page_ranks_scenarios_and_says_why_some_are_infeasible(search: Call, tmp_path: Path) -> None:
    code, out, _ = search()
    assert code == 0
    text = " ".join(out.split())
    for words in ("replayed unchanged", "EUR/h", "4 of 4 scenarios examined", "infeasible: 2", "--system ID"):
        assert words in text
    assert text.index("bandwidth=x2") < text.index("bandwidth=x1")
    code, out, _ = search("--json")
    assert code == 0
    found = json.loads(out)
    jsonschema.validate(found, dict(packaged_schema("result")))
    steps = [row for row in found["results"] if row["metric"] == "search.step" and row["stat"] is None]
    assert [row["value"] is None for row in steps] == [False, False, True, True]
    assert all(row["reason"] for row in steps if row["value"] is None)
    best, plot = tmp_path / "best.yaml", tmp_path / "front.png"
    assert search("--best", best, "--plot", plot).code == 0
    assert "scale_up.bandwidth" in best.read_text()
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--constraint", "price<=3"), 2, "is not KEY<=VALUE"),
        (("--objective", "tokens_per_second_per_device"), 3, "tokens per second unknown"),
        (("--constraint", "step<=1us", "--best", "best.yaml"), 3, "no point of the space is feasible"),
        (("--plot", "front.docx"), 2, "unsupported picture format"),
        (("--space", "FREE", "--plot", "front.png"), 2, "have no cost to plot"),
    ],
)
def test_what_cannot_be_is_a_clear_error(
    search: Call, folder: Path, arguments: tuple[str, ...], code: int, says: str
) -> None:
    found, _, err = search(*(folder / "free.yaml" if word == "FREE" else word for word in arguments))
    assert found == code
    assert says in err
