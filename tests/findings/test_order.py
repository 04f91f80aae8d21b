# SPDX-License-Identifier: Apache-2.0
"""The order of findings, and their registry."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import pytest
from helpers.hand_results import Row, WithoutReplay, by_rank, case, found, record, results, row
from msgspec.structs import replace

from cclbench.findings.diagnosis import (
    Diagnosis,
    GainLimit,
    ranked_findings,
    reword_for_capture,
    unknown_step,
)
from cclbench.findings.finding import FINDINGS, Detector, Finding
from cclbench.findings.gains import StepGain
from cclbench.findings.groups import shape_of
from cclbench.ground.errors import UsageError
from cclbench.present.words import gain_words

LOADER = "host[loader].time=0"
EVEN = "kernels.time=mean"
STEP = by_rank("time.step", 1.0, 1.0, 1.0)


class Written(WithoutReplay):
    """Shares of a step of 1 s by the first of the settings."""

    def __init__(self, shares: Mapping[str, tuple[float, float]]) -> None:
        self.shares = shares

    def gain_without(self, settings: Sequence[str]) -> StepGain | str:
        shares = self.shares[settings[0]]
        return StepGain(shares, shares)


def said(shares: Mapping[str, tuple[float, float]], *rows: Row) -> list[Finding]:
    return ranked_findings(results([*STEP, *rows]), record({}), Written(shares))


def waiting_for_a_loader(*seconds: float) -> list[Row]:
    """Ranks that wait 0.3 s for one another, and so long for their loaders."""
    loader = by_rank("time.idle_host_by", *seconds, category="loader")
    return [*loader, *by_rank("time.exposed_wait", 0.3, 0.3, 0.3)]


SLOW_LOADER = waiting_for_a_loader(0.2, 0.2, 0.2)


@pytest.mark.parametrize(
    ("loader", "even", "seconds", "first"),
    [
        # one rank's loader explains that ranks wait, if it gains about as much
        (0.28, 0.30, (0.0, 0.3, 0.0), "data_loading"),
        (0.25, 0.30, (0.0, 0.3, 0.0), "uneven_ranks"),
        # loaders of all ranks at different times: that they differ is what there is to gain
        (0.31, 0.30, (0.2, 0.3, 0.2), "uneven_ranks"),
        (0.40, 0.30, (0.2, 0.3, 0.2), "data_loading"),
    ],
)
def test_of_two_that_gain_about_the_same_the_one_that_says_more_is_first(
    loader: float, even: float, seconds: tuple[float, ...], first: str
) -> None:
    shares = {LOADER: (loader, loader), EVEN: (even, even)}
    found = said(shares, *waiting_for_a_loader(*seconds))
    assert [found[0].name, {one.name for one in found}] == [first, {"data_loading", "uneven_ranks"}]


@pytest.mark.parametrize(("allocation", "first"), [(0.3, "data_loading"), (0.41, "device_allocation")])
def test_of_two_causes_of_a_gap_the_one_that_owns_most_of_it_is_first(allocation: float, first: str) -> None:
    """Without either the step gains about as much; loading takes 0.2 s of it."""
    rows = [row for name, s in (("loader", 0.2), ("allocation", allocation)) for row in held(name, s)]
    found = said({LOADER: (0.21, 0.21), "host[allocation].time=0": (0.20, 0.20)}, *rows)
    assert found[0].name == first


def test_time_that_a_finding_takes_counts_between_causes_of_gaps_alone() -> None:
    """Transfers take twice what a loader takes and gain less: the loader stays first."""
    transfers = {"transfers[all_reduce&group=0-2].time=0": (0.20, 0.20)}
    transfers |= {"transfers[all_reduce&group=0-2].time=x0.400": (0.20, 0.20)}
    rows = [*held("loader", 0.2), *exposed("all_reduce", 0.5)]
    found = said({LOADER: (0.21, 0.21)} | transfers, *rows)
    assert [one.name for one in found] == ["data_loading", "exposed_communication"]
    # uneven ranks say more than a loader of all ranks, and stay first
    found = said({LOADER: (0.29, 0.29), EVEN: (0.30, 0.30)}, *SLOW_LOADER)
    assert [one.name for one in found] == ["uneven_ranks", "data_loading"]


def held(cause: str, seconds: float) -> list[Row]:
    return by_rank("time.idle_host_by", seconds, seconds, seconds, category=cause)


def exposed(kind: str, seconds: float, calls: float = 5.0) -> list[Row]:
    keys = {"collective": kind, "group": "0-2"}
    rows = by_rank("time.exposed_transfer", *[seconds] * 3, **keys)
    return [*rows, row("comm.count", calls, **keys), row("comm.transfer", seconds, **keys)]


def test_compute_hides_all_calls_of_a_step_but_the_first_and_the_last() -> None:
    """Of 5 calls three; none of an exchange, whose result is needed at once, nor of two."""
    reduce, exchange = (f"transfers[{kind}&group=0-2].time" for kind in ("all_reduce", "all_to_all"))
    shares = {f"{exchange}=0": (0.3, 0.3), f"{reduce}=0": (0.1, 0.1), f"{reduce}=x0.400": (0.06, 0.06)}
    (both,) = said(shares, *exposed("all_to_all", 0.2), *exposed("all_reduce", 0.1))
    assert (both.whatif, both.surely) == ([f"{exchange}=0", f"{reduce}=0"], [f"{reduce}=x0.400"])
    assert (both.gain_s, both.gain_share) == ((0.06, 0.3), 0.3)
    assert "none of all_to_all, whose result is needed at once" in both.because
    (alone,) = said(shares, *exposed("all_to_all", 0.2))
    assert (alone.gain_s, alone.surely) == ((0.0, 0.3), [])
    (two,) = said(shares, *exposed("all_reduce", 0.1, calls=2.0))
    assert (two.gain_s, two.surely) == ((0.0, 0.1), [])
    assert "needed at once" not in two.because


def test_why_a_step_is_not_known() -> None:
    absent = {"metric": "time.step", "status": "not_applicable", "provenance": "measured"}
    assert unknown_step(results(STEP)) is None
    assert unknown_step(results([{**absent, "reason": "no rows of a device"}])) == "no rows of a device"
    assert unknown_step(results([])) == "time.step was not computed"


def test_one_that_fails_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger's function that raises, behind one that has found something."""

    def looks(_: object) -> Iterator[Finding]:
        raise ZeroDivisionError("by 0")
        yield

    broken = dataclasses.replace(FINDINGS.get("uneven_ranks"), detect=looks)
    monkeypatch.setattr(FINDINGS, "get", lambda name: broken if name == "uneven_ranks" else get(name))
    get = type(FINDINGS).get.__get__(FINDINGS)
    with pytest.warns(UserWarning, match="'uneven_ranks' failed: ZeroDivisionError: by 0"):
        found = said({LOADER: (0.2, 0.2)}, *SLOW_LOADER)
    assert [one.name for one in found] == ["data_loading"]


def test_a_finding_of_a_name_not_registered_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """`explain` and `--fail-on` would not know it."""
    registered = FINDINGS.get("data_loading")
    renamed = [
        msgspec.structs.replace(one, name="theirs") for one in registered.detect(case(*STEP, *SLOW_LOADER))
    ]
    theirs = dataclasses.replace(registered, detect=lambda _: iter(renamed))
    monkeypatch.setattr(FINDINGS, "get", lambda name: theirs if name == "data_loading" else get(name))
    get = type(FINDINGS).get.__get__(FINDINGS)
    says = "'data_loading' failed: UsageError: it yields what it calls 'theirs'"
    with pytest.warns(UserWarning, match=says):
        found = said({LOADER: (0.2, 0.2), EVEN: (0.1, 0.1)}, *SLOW_LOADER)
    assert [one.name for one in found] == ["uneven_ranks"]


def test_of_a_capture_without_steps_the_words_say_so() -> None:
    one = Finding(
        name="host_bound",
        claim="The device waits: 426 µs of a step of 5.98 ms, 562 calls a step, in some steps more.",
        no_gain="the replay gains less than 1 % of the step without it",
        confidence="low",
        because="",
    )
    told = reword_for_capture(one)
    said = "The device waits: 426 µs of the capture of 5.98 ms, 562 calls a capture, in some steps more."
    assert told.claim == said
    assert told.no_gain == "the replay gains less than 1 % of the capture without it"
    gain = msgspec.structs.replace(told, gain_s=(0.1, 0.2), gain_share=0.2)
    assert gain_words(gain) == "gain: 10.0 % to 20.0 % of the capture (100 ms to 200 ms)"
    assert gain_words(msgspec.structs.replace(gain, window="step")).endswith("of the step (100 ms to 200 ms)")


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
