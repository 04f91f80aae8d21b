# SPDX-License-Identifier: Apache-2.0
"""The shared options: what they take and what they hand on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from helpers.command_line import Call

from cclbench import api
from cclbench.cli import options
from cclbench.cli.options import RankList, Size, StepRange
from cclbench.engine import Serial
from cclbench.engine.processes import Processes

ACCEPTED = {
    StepRange: {"2:5": (2, 5), "3:": (3, None), ":10": (None, 10), ":": (None, None)},
    RankList: {"0": [0], "0,2,4-7": [0, 2, 4, 5, 6, 7], "5,1-2, 1": [1, 2, 5]},
    Size: {"1GB": 10**9, "50 MB": 5 * 10**7, "1.5GiB": 3 << 29, "64KiB": 1 << 16},
}


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind in ACCEPTED for text in ACCEPTED[kind]])
def test_what_a_text_is(kind: Any, text: str) -> None:
    assert kind.convert(text, None, None) == ACCEPTED[kind][text]


REFUSED = {
    StepRange: ["", "3", "5:2", "-1:3", "1:2:3", "a:b", "1:99999999999"],
    RankList: ["", ",", "a", "3-1", "-1", "0-9999999999", "1-2-3"],
    Size: ["", "1", "GB", "1 furlong", "0 GB", "-1 GB"],
}


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind in REFUSED for text in REFUSED[kind]])
def test_what_a_text_is_not(kind: Any, text: str) -> None:
    with pytest.raises(click.BadParameter):
        kind.convert(text, None, None)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch, fake_run: Any) -> dict[str, Any]:
    """The keywords with which `run` was called."""
    seen: dict[str, Any] = {}

    def compute(source: str, **options: Any) -> Any:
        seen.update(options, source=source)
        return fake_run

    monkeypatch.setattr(api, "run", compute)
    return seen


def test_options_reach_the_api(call: Call, recorded: dict[str, Any], tmp_path: Path) -> None:
    """And their defaults; the store's is from $CCLBENCH_STORE."""
    words = "--metric time.* --metric mfu --window trace --steps 2:5 --ranks 0,4-5 --jobs 3 --allow-truncated"
    words += " --step-annotation ^it --no-inference --store"
    answer = call("run", "traces/tiny", *words.split(), tmp_path / "s")
    assert answer.code == 0, answer.err
    engine = recorded.pop("engine")
    assert isinstance(engine, Processes)
    assert engine.workers == 3
    common = {"source": "traces/tiny", "model": True, "labels": {}, "progress": None}
    given = {"metrics": ("time.*", "mfu"), "window": "trace", "steps": (2, 5), "ranks": [0, 4, 5]}
    given |= {"allow_truncated": True, "step_annotation": "^it", "inference": False, "store": tmp_path / "s"}
    assert recorded == common | given
    assert call("run", "traces/tiny").code == 0
    assert isinstance(recorded.pop("engine"), Serial | Processes)
    defaults = {"metrics": ("*",), "window": "steps", "steps": None, "ranks": None, "allow_truncated": False}
    defaults |= {"step_annotation": None, "inference": True, "store": tmp_path / "store"}
    assert recorded == common | defaults


@pytest.mark.parametrize("command", ["run", "metrics"])
def test_models_can_be_switched_off(
    call: Call, monkeypatch: pytest.MonkeyPatch, fake_run: Any, command: str
) -> None:
    seen: list[bool] = []

    def compute(_: str, *, model: bool, **__: Any) -> Any:
        seen.append(model)
        return fake_run

    monkeypatch.setattr(api, command, compute)
    assert call(command, "tiny").code == 0
    assert call(command, "tiny", "--no-model").code == 0
    assert seen == [True, False]


def test_an_engine_prepares_for_the_text_of_a_source(tmp_path: Path) -> None:
    class Noted(Serial):
        def prepare(self, size_bytes: int) -> None:
            sizes.append(size_bytes)

    sizes: list[int] = []
    (tmp_path / "a.json").write_bytes(bytes(7))
    (tmp_path / "b.json.gz").write_bytes(bytes(3))
    for source in ("a.json", "b.json.gz", ".", "absent", "nul\0"):
        options.prepare_engine(Noted(), str(tmp_path / source))
    assert sizes == [7, 30, 37]
