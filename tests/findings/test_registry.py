# SPDX-License-Identifier: Apache-2.0
"""Findings are plug-ins that explain themselves, and one that fails does not take the others along."""

from __future__ import annotations

import pytest
from helpers.hand_results import by_rank, found, row
from msgspec.structs import replace

from cclbench.findings.diagnosis import Diagnosis, GainLimit
from cclbench.findings.finding import FINDINGS, Detector
from cclbench.findings.groups import shape_of
from cclbench.ground.errors import UsageError


def test_findings_explain_themselves() -> None:
    for name in FINDINGS:
        one = FINDINGS.get(name)
        assert one.name == name
        assert all(len(text) > 10 for text in (one.title, one.rule, one.gain)), name
        assert one.actions, name
        assert set(one.actions) <= {"any", "pytorch", "jax", "cpu"}, name
        assert all(len(action) > 15 for listed in one.actions.values() for action in listed), name


def test_a_plug_in_that_raises_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(_: object) -> None:
        raise ValueError("no")

    broken = Detector(name="broken", title="", rule="", gain="", actions={}, detect=raises)  # type: ignore[arg-type]
    assert "host_bound" in FINDINGS  # all are loaded
    monkeypatch.setitem(FINDINGS._known, "broken", broken)
    rows = [*by_rank("time.step", 1.0), *by_rank("time.idle_host_by", 0.3, category="python")]
    with pytest.warns(UserWarning, match="finding 'broken' failed: ValueError: no"):
        assert set(found(*rows)) == {"host_bound"}


def test_advice_for_the_framework_comes_first() -> None:
    one = FINDINGS.get("host_bound")
    assert one.advice("jax")[0] == one.actions["jax"][0]
    assert one.advice("jax")[-1] == one.actions["any"][-1]
    assert one.advice(None) == list(one.actions["any"])


def test_what_rests_on_inferred_groups_says_so() -> None:
    inferred = {"rule": "R1", "group": "0-1", "reason": "in step"}
    rows = [*by_rank("time.step", 1.0, 1.0), *by_rank("time.exposed_wait", 0.4, 0.1)]
    assert "inferred" in found(*rows, inference=inferred)["uneven_ranks"].because
    assert "inferred" not in found(*rows)["uneven_ranks"].because


SHAPES = {"0-7": (8, 1), "0-6:2": (4, 2), "1,3": (2, 2), "5": (1,), "0,1,5": (3, 1, 4), "n24:0123abcd": (24,)}


@pytest.mark.parametrize(("group", "shape"), SHAPES.items())
def test_the_shape_of_a_group(group: str, shape: tuple[int, ...]) -> None:
    assert shape_of(group) == shape


def test_limits() -> None:
    limit = GainLimit.from_text("host_bound > 20%")
    assert limit == GainLimit("host_bound", 0.2)
    rows = [*by_rank("time.step", 1.0), *by_rank("time.idle_host_by", 0.3, category="python")]
    listed = list(found(*rows).values())
    unknown = "its gain is unknown: written by hand"
    assert list(limit.broken_limits(listed)) == [
        f"host_bound takes 30.0 %, above 20.0 % of the step; {unknown}"
    ]
    gains = [replace(one, gain_s=(0.1, 0.25), gain_share=0.25) for one in listed]
    assert list(limit.broken_limits(gains)) == ["host_bound may gain 25.0 %, above 20.0 % of the step"]
    assert list(GainLimit("host_bound", 0.26).broken_limits(gains)) == []
    assert list(GainLimit("host_bound", 0.31).broken_limits(listed)) == []
    assert len(list(GainLimit("any", 0.1).broken_limits(listed))) == 1
    assert list(GainLimit("any", 0.0).broken_limits([replace(one, share=None) for one in listed])) == []
    for wrong in ("host_bound", "host_bound>x", "host_bound>20", "nonsense>1%", ">1%"):
        with pytest.raises(UsageError):
            GainLimit.from_text(wrong)
    with pytest.raises(UsageError) as raised:
        GainLimit.from_text("host_bund>1%")
    assert "host_bound" in (raised.value.hint or "")


def test_a_diagnosis_as_data() -> None:
    rows = [*by_rank("time.step", 1.0), *by_rank("time.idle_host_by", 0.3, category="python")]
    rows += [row("memory.reserved_unused", 5e9), row("memory.peak_reserved", 10e9)]
    whole = Diagnosis("tiny", list(found(*rows).values()))
    (first,) = whole.top_rows(1)
    assert first["name"] == "host_bound"
    assert (first["lost_s"], first["gain_s"], first["no_gain"]) == (0.3, None, "written by hand")
    assert first["whatif"] == ["host[python+unrecorded+operators+launch].time=0"]
    assert {"claim", "try", "evidence", "query", "confidence", "because", "docs"} <= set(first)
    assert len(whole.top_rows()) == 2
