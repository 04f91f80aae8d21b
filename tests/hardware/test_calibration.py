# SPDX-License-Identifier: Apache-2.0
"""Calibration on sweeps whose truth is known, because they were made from the model itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cclbench.ground.errors import InputError, UsageError
from cclbench.ground.evidence_schema import TIMINGS
from cclbench.hardware.calibration import (
    Calibration,
    LeftOut,
    calibrate,
    left_out_by_nodes,
    left_out_by_size,
    read_calibration,
    sweep_deviations,
    write_calibration,
)
from cclbench.hardware.collectives import NoPrice, Prediction, algorithm_costs, group_of
from cclbench.hardware.collectives.cost import EXPECTED
from cclbench.hardware.deviation import BANDS
from cclbench.hardware.fabric import Fabric, Transport
from cclbench.hardware.residuals import KeptShares, Residuals, replaced_residuals
from cclbench.hardware.sweep import Sweep, sweeps_of
from cclbench.hardware.system import ScaleOut, ScaleUp, System

UP = Fabric("up", "fabric", "scale_up", "switch", 25e9, usable_fraction=0.8)
VERBS = {"ib-verbs": Transport(None)}
OUT = Fabric("out", "fabric", "scale_out", "fat-tree", 25e9, usable_fraction=0.9, transports=VERBS)
LINKS = ScaleUp(UP, "switch", 4, links=12, bytes_per_s=300e9)
NETWORK = ScaleOut(OUT, nics=4, bytes_per_s=25e9, transport="ib-verbs")
NODE = System("node", "system", "an-accelerator", 4, LINKS, NETWORK, "ampere", "intel")
HALVES = tuple(0.5**octaves for octaves in range(1, 17))
"""Half is kept at twice the size, a quarter at four times, ..."""
SIZES = tuple(4**power for power in range(2, 16))
LEARNED = Residuals(
    {}, low=(0.3, 0.3, 0.3), high=(0.6, 0.6, 0.6), kept=KeptShares(ranks=(0.5, 0.25), kind=0.25, sizes=HALVES)
)
"""Formulas right in the middle; half of a deviation is left on twice the ranks, and at twice the size."""


@pytest.fixture(autouse=True)
def learned() -> Iterator[None]:
    """Figures for a pencil in place of those learned from public sweeps."""
    with replaced_residuals(LEARNED):
        yield


def swept(nodes: int, bump: float = 1.0, kind: str = "all_reduce") -> Sweep:
    """What a machine measures that takes `bump` times the formulas' time at every size."""
    group = group_of(NODE, range(4 * nodes))
    sizes = np.array(SIZES, np.float64)
    times = np.min([cost.time_s(sizes) for cost in algorithm_costs(kind, group, EXPECTED)], axis=0)
    return Sweep(kind, 4 * nodes, nodes, SIZES, tuple((times * bump).tolist()))


def calibrated(*given: Sweep) -> Calibration:
    return calibrate(given, NODE)  # type: ignore[return-value]


def predicted(by: Calibration, size: float, ranks: int, kind: str = "all_reduce") -> Prediction:
    return by.price_collective(kind, size, range(ranks), NODE)  # type: ignore[return-value]


def ratio(found: Prediction) -> float:
    return float(found.time_s[0] / found.formula_s[0])


def test_a_machine_like_the_model_is_the_model() -> None:
    """Whose sweeps are the formulas' times is predicted by them, on node counts between and beyond."""
    found = calibrated(swept(2), swept(8))
    for nodes in (4, 16):
        own = sweep_deviations(swept(nodes), NODE, found)
        assert max(abs(each.relative_error) for each in own) < 1e-9
    assert predicted(found, 1e6, 16).basis == "calibrated"
    # twice the model on 2 nodes, eight times on 8: four times on 4, in equal steps of log ranks
    found = predicted(Calibration("node", (swept(2, 2.0), swept(8, 8.0))), SIZES[5], 16)
    assert found.time_s[0] == pytest.approx(swept(4, 4.0).seconds[5])
    assert "8 ranks on 2, 32 ranks on 8 node(s)" in str(found.reason)


def factors(*by_size: float, first: int = 6) -> Sweep:
    """A sweep of four ranks at SIZES[6], SIZES[7], ... that takes so many times the formulas' time."""
    return some_sizes(swept(1), range(first, first + len(by_size)), by_size)


def some_sizes(sweep: Sweep, at: Sequence[int], times: Sequence[float] | None = None) -> Sweep:
    """The sweep at some of its sizes, so many times as long."""
    longer = times or [1.0] * len(at)
    seconds = tuple(sweep.seconds[i] * factor for i, factor in zip(at, longer, strict=True))
    return msgspec.structs.replace(sweep, bytes=tuple(SIZES[i] for i in at), seconds=seconds)


def test_the_deviation_is_interpolated_between_sizes() -> None:
    """Twice and eight times the model, two doublings apart: half-way it is four times."""
    by = Calibration("node", (factors(2.0, 8.0),))
    found = predicted(by, 2 * SIZES[6], 4)
    assert found.time_s[0] / found.formula_s[0] == pytest.approx(4.0)
    assert found.reason == "measured among 4 ranks on 1 node(s)"
    at = predicted(by, SIZES[7], 4)
    assert at.time_s[0] / at.formula_s[0] == pytest.approx(8.0)
    # four times the model, 16 doublings apart: 6 from one, r = 1/2, and 10 from the other, r = 1/6
    found = predicted(Calibration("node", (some_sizes(swept(1), [2, 10], [4, 4]),)), SIZES[5], 4)
    assert found.time_s[0] / found.formula_s[0] == pytest.approx(4 ** (2 / 3))
    assert np.log(found.high_s[0] / found.time_s[0]) == pytest.approx(0.6 * (1 - 1 / 4 - 1 / 36) ** 0.5)
    # at both sizes its own times; they agree by log 3 / log 8: at half of the least the reach is 6.81
    by = Calibration("node", (factors(8.0, 3.0),))
    found = [ratio(predicted(by, size, 4)) for size in (SIZES[6], SIZES[7], SIZES[6] // 2)]
    assert found == pytest.approx([8.0, 3.0, 8 ** (1 - 1 / (1 + 11 * np.log(3) / np.log(8)))])
    assert "beyond the measured sizes" in (predicted(by, SIZES[6] // 2 - 1, 4).reason or "")
    assert predicted(by, 0, 4).time_s[0] == pytest.approx(predicted(by, 1, 4).time_s[0], rel=0.1)


@pytest.mark.parametrize(
    ("deviations", "octaves", "kept"),
    [
        ((4.0, 4.0), 3, 3 / 4),  # both alike: a reach of twelve doublings
        ((4.0, 2.0), 3, 1 - 3 / 6.5),  # half as much there: 1 + 11/2 doublings
        ((4.0, 0.5), 1, 0.0),  # slower here, faster there: one doubling
        ((4.0, 0.5), 0, 1.0),
        ((4.0,), 3, 1 - 3 / 6.5),  # one size alone: half-way
        ((4.0, 0.5, 0.5), 1, 1 - 1 / 2.5),  # one of three sizes: two and a half
        ((4.0, 0.5, 0.5, 0.5), 3, 1 / 4),  # one of four sizes: four doublings
        ((4.0, *(0.5,) * 6), 3, 2 / 5),  # one of seven: five, as of six
    ],
)
def test_contradicting_deviations_say_less(deviations: tuple[float, ...], octaves: int, kept: float) -> None:
    """Log 4 at the least size measured, so many doublings below it; the next one is two doublings above."""
    found = predicted(Calibration("node", (factors(*deviations),)), SIZES[6] // 2**octaves, 4)
    assert found.time_s[0] / found.formula_s[0] == pytest.approx(4**kept)


@pytest.mark.parametrize(
    ("times", "count", "octaves", "kept"),
    [
        (1.03, 2, 1, 0.0),  # log 1.03 is below 5 % / √2
        (1.03, 2, 0, 1.0),  # at the size itself it is as measured
        (1.04, 1, 1, 0.0),  # of a single size all of 5 %
        (1.04, 4, 1, 11 / 12 * (np.log(1.04) / 0.025 - 1)),  # of four sizes a half of 5 %
        (0.92, 2, 1, 11 / 12),  # above twice 5 % / √2: as it is
    ],
)
def test_a_deviation_within_scatter_is_none(times: float, count: int, octaves: int, kept: float) -> None:
    found = predicted(Calibration("node", (factors(*(times,) * count),)), SIZES[6] // 2**octaves, 4)
    assert found.time_s[0] / found.formula_s[0] == pytest.approx(times**kept)


@settings(max_examples=200, deadline=None)
@given(
    slower=st.floats(1.0, 100.0),
    faster=st.floats(0.01, 1.0),
    first=st.integers(0, 12),
    exchanged=st.booleans(),
    size=st.floats(0, 40).map(lambda power: 2.0**power),
)
def test_contradicting_sizes(slower: float, faster: float, first: int, exchanged: bool, size: float) -> None:
    """One slower, one faster than the model: from a doubling beside each, predictions are the model's."""
    sweep = factors(*((faster, slower) if exchanged else (slower, faster)), first=first)
    assume(min(abs(np.log2(size / own)) for own in sweep.bytes) >= 1)
    with replaced_residuals(LEARNED):
        found = predicted(Calibration("node", (sweep,)), size, 4)
    assert found.time_s[0] == pytest.approx(found.formula_s[0], rel=1e-9)


@settings(max_examples=200, deadline=None)
@given(
    times=st.lists(st.floats(0.1, 10), min_size=1, max_size=6),
    size=st.floats(0, 40).map(lambda power: 2.0**power),
)
def test_a_prediction_is_between_the_model_and_the_sizes_measured(times: list[float], size: float) -> None:
    """Two sizes can be worse than none only where the truth is nearer to the model than to half of them."""
    with replaced_residuals(LEARNED):
        found = predicted(Calibration("node", (factors(*times),)), size, 4)
    factor = float(found.time_s[0] / found.formula_s[0])
    assert min(1.0, *times) - 1e-9 <= factor <= max(1.0, *times) + 1e-9


@pytest.mark.parametrize("known", [(0,), (7,), (13,), (0, 13), (0, 6, 13)])
def test_a_machine_like_the_model_is_the_model_by_any_sizes(known: tuple[int, ...]) -> None:
    """Its latency and its rate are in the model, and in no straight line between two sizes."""
    model = swept(2)
    found = sweep_deviations(model, NODE, Calibration("node", (some_sizes(model, known),)))
    assert max(abs(each.relative_error) for each in found) < 1e-9


@pytest.mark.parametrize(("nodes", "times"), [(8, 2.0), (16, 2**0.5), (1, None), (2, 4.0), (4, 4.0)])
def test_beyond_the_nodes_measured_it_returns_to_the_specification(nodes: int, times: float | None) -> None:
    """Four times the model on 2 and on 4 nodes: with half kept a doubling 4^(1/2) on 8 and 4^(1/4) on 16."""
    found = predicted(Calibration("node", (swept(2, 4.0), swept(4, 4.0))), SIZES[5], 4 * nodes)
    assert found.time_s[0] == pytest.approx(swept(nodes, times or 1.0).seconds[5])


@pytest.mark.parametrize(("octaves", "times"), [(1, 4 ** (11 / 12)), (9, 4 ** (1 / 4)), (12, 1.0), (14, 1.0)])
def test_beyond_the_sizes_measured_it_returns_to_the_specification(octaves: int, times: float) -> None:
    """Four times the model at the largest size: 11/12 of its logarithm at twice that, none at 4,096 times."""
    size = SIZES[-1] * 2**octaves
    found = predicted(Calibration("node", (swept(2, 4.0),)), size, 8)
    group = group_of(NODE, range(8))
    model = min(cost.time_s(np.array([size]))[0] for cost in algorithm_costs("all_reduce", group, EXPECTED))
    assert found.time_s[0] == pytest.approx(times * model)


def test_another_collective_takes_the_share_that_is_kept() -> None:
    """16 times the model in all-reduce: with a quarter kept 16^(1/4) = 2 times in all-gather."""
    found = predicted(Calibration("node", (swept(2, 16.0),)), SIZES[5], 8, "all_gather")
    assert found.time_s[0] == pytest.approx(swept(2, 2.0, "all_gather").seconds[5])
    assert "of all_reduce" in str(found.reason)
    # sweeps of the same collective go before those of others
    both = Calibration("node", (swept(2, 16.0), swept(2, 3.0, "all_gather")))
    found = predicted(both, SIZES[5], 8, "all_gather")
    assert found.time_s[0] == pytest.approx(swept(2, 3.0, "all_gather").seconds[5])
    assert found.reason == "measured among 8 ranks on 2 node(s)"
    alone = predicted(Calibration("node", (swept(2), swept(4))), SIZES[5], 8, "all_gather")
    assert alone.reason == "measured among 8 ranks on 2, 16 ranks on 4 node(s), of all_reduce"
    # it is an all-reduce of a byte: four doublings below the least size, 3^(2/3) times the model
    found = predicted(Calibration("node", (swept(2, 3.0),)), 0, 8, "barrier")
    group = group_of(NODE, range(8))
    model = min(cost.time_s(np.ones(1))[0] for cost in algorithm_costs("all_reduce", group, EXPECTED))
    assert found.time_s[0] == pytest.approx(3 ** (2 / 3) * model)


def test_the_band_grows_to_that_of_a_machine_nobody_measured() -> None:
    """Half kept: √(1 − 1/4) of the learned widths; a quarter: √(1 − 1/16), each beside what sizes missed."""
    exact = dict.fromkeys(BANDS, LeftOut(0.0, 0.0))
    by = Calibration("node", (swept(2), swept(4)), by_size=exact)
    for nodes, forgotten in ((8, 0.75), (16, 1 - 1 / 16)):
        found = predicted(by, 1e6, 4 * nodes)
        up, down = (np.log(edge[0] / found.time_s[0]) for edge in (found.high_s, found.low_s))
        assert up**2 == pytest.approx(forgotten * 0.6**2 + 0.05**2)
        assert down**2 == pytest.approx(forgotten * 0.3**2 + 0.05**2)
    alone = predicted(by, 1e6, 4)
    assert np.log(alone.high_s[0] / alone.time_s[0]) == pytest.approx(0.6)
    # where it was measured: a factor 1 + p90, of five per cent at least, also where nothing was left out
    for p90, factor in ((0.01, np.exp(0.05)), (0.2, 1.2)):
        errors = dict.fromkeys(BANDS, LeftOut(0.0, p90))
        found = predicted(Calibration("node", (swept(2),), by_size=errors), 2**20, 8)
        assert found.high_s[0] / found.time_s[0] == pytest.approx(factor)
    bare = predicted(Calibration("node", (swept(2),)), 2**20, 8)
    assert bare.high_s[0] / bare.time_s[0] == pytest.approx(np.exp(0.05))
    # from 64 KiB on the second, from beyond 16 MiB the third; none is twice
    sweep = swept(2)
    errors = {"below 64 KiB": LeftOut(0.0, 0.1), "64 KiB to 16 MiB": LeftOut(0.0, 0.3)}
    by = Calibration("node", (sweep,), by_size=errors)
    for size, factor in ((2**16 - 1, 1.1), (2**16, 1.3), (2**24, 1.3), (2**26, np.exp(0.05))):
        found = predicted(by, size, 8)
        assert found.high_s[0] / found.time_s[0] == pytest.approx(factor, rel=1e-6)
        assert found.time_s[0] / found.low_s[0] == pytest.approx(factor, rel=1e-6)
    # errors by size are of each sweep
    found = calibrated(swept(2), swept(4))
    assert set(found.by_size) == set(found.by_nodes) == set(BANDS)
    assert calibrated(swept(2)).by_nodes == {}


def test_leave_one_out_errors_are_reported() -> None:
    """A machine that is the model: nothing is missed; one wild size is missed by what it is off."""
    clean = calibrated(swept(2), swept(4), swept(8))
    assert max(own.p90 for own in clean.by_nodes.values()) < 1e-9
    sweep = factors(2.0, 16.0, 4.0)
    left = left_out_by_size(sweep, NODE)
    assert left[1].relative_error == pytest.approx(8**0.5 / 16 - 1)
    reported = calibrated(sweep).by_size["64 KiB to 16 MiB"]
    low, middle, high = sorted(abs(one.relative_error) for one in left)
    assert low < middle < high
    assert (reported.median, reported.p90) == pytest.approx((middle, 0.2 * middle + 0.8 * high))
    assert set(left_out_by_nodes([swept(2), swept(4)], NODE)) == {2, 4}
    assert left_out_by_nodes([sweep], NODE) == {}
    # each of three sizes; none of one alone. Node counts: both sweeps of the one left out
    sweep = Sweep("all_reduce", 4, 1, (2**20, 2**21, 2**22), (1e-3, 2e-3, 4e-3))
    found = left_out_by_size(sweep, NODE)
    assert [each.size for each in found] == list(sweep.bytes)
    assert [each.measured_s for each in found] == list(sweep.seconds)
    assert left_out_by_size(Sweep("all_reduce", 4, 1, (8,), (1e-5,)), NODE) == []
    left = left_out_by_nodes([swept(2), swept(2, kind="all_gather"), swept(4, 2.0)], NODE)
    assert {nodes: len(own) for nodes, own in left.items()} == {2: 2 * len(SIZES), 4: len(SIZES)}
    # twice on four nodes, of which half is kept on two: √2 of the model
    assert left[2][5].predicted_s == pytest.approx(2**0.5 * swept(2).seconds[5])


def test_a_calibration_is_of_its_system() -> None:
    """Another system's is refused; ranks that do not fit the nodes too."""
    found = calibrated(swept(2))
    other = msgspec.structs.replace(NODE, id="other")
    with pytest.raises(UsageError, match="for node, not for other"):
        found.price_collective("all_reduce", 8, range(8), other)
    with pytest.raises(UsageError, match="the calibration is for node, not for other"):
        sweep_deviations(swept(2), other, found)
    odd = Sweep("all_reduce", 9, 2, (8,), (1e-5,))
    assert isinstance(calibrate([odd], NODE), NoPrice)
    assert isinstance(calibrate([], NODE), NoPrice)
    # what cannot be calibrated says why
    assert calibrate([], NODE) == NoPrice("no sweeps to calibrate with")
    reason = "9 ranks on 2 nodes do not fit node, which has 4 per node"
    assert calibrate([swept(2), odd], NODE) == NoPrice(reason)
    unjoined = msgspec.structs.replace(NODE, scale_out=None)
    assert isinstance(sweep_deviations(swept(2), unjoined), NoPrice)
    assert isinstance(left_out_by_size(swept(2), unjoined), NoPrice)


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "\0", "kind: calibration"),
        "system: node\nsweeps: []\nmore: 1",
        "system: node\nlaunch_s: 0\nlatency: 1\nrate: 1\nsweeps: []",
        "system: node\nsweeps: []\nby_size: {all: {median: .nan, p90: 1}}",
        "!!python/object/apply:os.system ['true']",
        "{" * 5000,
        "system: node\nsweeps:\n- {kind: all_reduce, ranks: 2, nodes: 1, bytes: [8, 4], seconds: [1, 1]}",
    ],
)
def test_what_is_no_calibration(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text, "utf-8")
    with pytest.raises(InputError) as error:
        read_calibration(path)
    assert "c.yaml" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_huge_or_wordy_calibration(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_calibration(tmp_path / "none.yaml")
    path = tmp_path / "huge.yaml"
    path.write_bytes(b" " * ((1 << 24) + 1))
    with pytest.raises(InputError, match="too large"):
        read_calibration(path)
    # an error of the file is one line of 200 letters at most, and says how to make it anew
    path = tmp_path / "c.yaml"
    path.write_text("system: node\nsweeps: []\n" + "x" * 500 + ": 1\n")
    with pytest.raises(InputError) as raised:
        read_calibration(path)
    assert 0 < len(str(raised.value).partition("is not a calibration: ")[2].partition("; ")[0]) <= 200


def test_sweeps_of_a_timings_table() -> None:
    """Medians by size out of place; rows that cannot be placed are counted by reason."""

    def timing(size: int | None, ns: int | None, **fields: object) -> dict[str, object]:
        base = {"kind": "all_reduce", "group_size": 4, "nodes": 1, "in_place": False}
        return dict.fromkeys(TIMINGS.names) | base | {"bytes": size, "dur_ns": ns} | fields

    rows = [timing(16, 3000), timing(8, 1000), timing(8, 2000, in_place=None), timing(8, 5000)]
    rows += [timing(8, 1, in_place=True), timing(32, None), timing(None, 1000), timing(0, 1000)]
    rows += [timing(8, 1000, nodes=None), timing(8, 9000, kind="all_gather")]
    (gather, reduce), left_out = sweeps_of(pa.Table.from_pylist(rows, schema=TIMINGS), "2.27.3")
    assert (gather.kind, gather.bytes, gather.seconds) == ("all_gather", (8,), (9e-6,))
    assert (reduce.bytes, reduce.seconds) == ((8, 16), (2e-6, 3e-6))
    assert reduce.library_version == "2.27.3"
    assert left_out == {
        "in place (only out-of-place is compared)": 1,
        "without collective, ranks, nodes, size or time": 3,
        "with zero bytes, zero time or a single rank": 1,
    }
    assert sweeps_of(TIMINGS.empty_table()) == ([], {})


def test_beyond_the_sizes_measured_it_says_so() -> None:
    """Twice the model inside, without a word; four doublings on 2^(2/3) times, less surely."""
    fitted = calibrated(swept(2, 2.0))
    inside, beyond = (
        fitted.price_collective("all_reduce", size, range(8), NODE) for size in (SIZES[-1], SIZES[-1] * 16)
    )
    assert "beyond the measured sizes" not in (inside.reason or "")
    assert "beyond the measured sizes it returns" in (beyond.reason or "")
    assert beyond.high_s[0] / beyond.time_s[0] > inside.high_s[0] / inside.time_s[0]
    assert beyond.time_s[0] == pytest.approx(16 * 2 ** (-1 / 3) * inside.time_s[0], rel=0.1)
    # a calibrated bandwidth is of its own time
    found = predicted(Calibration("node", (swept(2, 4.0),)), SIZES[5], 8)
    assert found.algbw == pytest.approx(SIZES[5] / found.time_s)
    assert found.busbw == pytest.approx(2 * 7 / 8 * found.algbw)


@pytest.mark.parametrize("size", [-1, float("nan"), float("inf"), 2**61])
def test_sizes_are_bounded(size: float) -> None:
    fitted = calibrated(swept(2))
    with pytest.raises(UsageError):
        fitted.price_collective("all_reduce", size, range(8), NODE)


def test_sizes_are_bounded_and_the_library_is_the_sweeps(tmp_path: Path) -> None:
    """Of 2.10 a plateau of 1.9: its formulas take longer than the newest's."""
    by = Calibration("node", (msgspec.structs.replace(swept(2), library_version="2.10.3"),))

    def formula(version: str | None) -> float:
        found = by.price_collective("all_reduce", 8, range(8), NODE, library_version=version)
        return float(found.formula_s[0])

    assert formula(None) == formula("2.10.3") != formula("2.29.2")
    nothing = Calibration("node", ()).price_collective("all_reduce", 8, range(1), NODE)
    assert nothing == NoPrice("a group of one rank moves no data")
    # what is written is read back; it is small and says what it is
    found = calibrated(swept(2), swept(4))
    path = tmp_path / "calibration.yaml"
    write_calibration(found, path)
    assert read_calibration(path) == found
    assert path.stat().st_size < 10_000
    assert "kind: calibration" in path.read_text("utf-8")


def test_only_sweeps_of_such_groups_tell() -> None:
    """Of one rank a node those of four a node tell nothing, in one node any number tells of any other."""
    scattered = Sweep("all_reduce", 2, 2, SIZES, tuple(3 * time for time in swept(2).seconds))
    by = Calibration("node", (scattered,))
    reason = "the calibration has no sweep of such a group on several nodes: from the catalog alone"
    assert (predicted(by, 1e6, 8).basis, predicted(by, 1e6, 8).reason) == ("spec", reason)
    own = by.price_collective("all_reduce", 1e6, [0, 4], NODE)
    assert (own.basis, own.reason) == ("calibrated", "measured among 2 ranks on 2 node(s)")
    pair = predicted(Calibration("node", (swept(1, 4.0),)), SIZES[5], 2)
    assert pair.time_s / pair.formula_s == pytest.approx(2.0)
    assert pair.reason == "measured among 4 ranks on 1 node(s), carried over by the model"
    # across nodes all is twice as slow: inside one node that says nothing, and so does the answer
    by = Calibration("node", (swept(2, 2.0),))
    found = predicted(by, SIZES[5], 4)
    assert found.time_s[0] == pytest.approx(swept(1).seconds[5])
    assert (found.basis, "on one node: from the catalog alone" in str(found.reason)) == ("spec", True)


@pytest.mark.parametrize(("median", "p90", "fits"), [(0, 0, True), (1e6, 1e6, True), (-1, 0, False)])
def test_errors_are_shares_from_0_on(median: float, p90: float, fits: bool) -> None:
    for where in ("by_size", "by_nodes"):
        for error in (LeftOut(median, p90), LeftOut(p90, median)):
            if fits:
                assert Calibration("node", (), **{where: {"x": error}}).system == "node"
            else:
                with pytest.raises(InputError, match="by nodes must be between 0 and 1,000,000"):
                    Calibration("node", (), **{where: {"x": error}})
    with pytest.raises(InputError):
        Calibration("node", (), by_size={"x": LeftOut(0, 1e6 + 1)})
