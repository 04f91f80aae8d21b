# SPDX-License-Identifier: Apache-2.0
"""What is learned of residuals: shrinkage and ratio bands by hand, the table, and machines left out."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace as replace_struct

from cclbench.hardware.catalog import system
from cclbench.hardware.collectives import Prediction, price_collective
from cclbench.hardware.collectives.price import MOST_SWEPT_RANKS
from cclbench.hardware.collectives.ratio import ratio_half_widths, time_ratio
from cclbench.hardware.deviation import BANDS
from cclbench.hardware.residual_learning import (
    ObservedSweep,
    largest_between_domains,
    learn_residuals,
    median_slope,
    shrunk_medians,
    weighted_quantile,
)
from cclbench.hardware.residuals import (
    KNOTS,
    KeptShares,
    Residuals,
    ResidualSetting,
    current_residuals,
    replaced_residuals,
    residual_table,
)
from cclbench.hardware.weak_classes import machine_class

HERE = ResidualSetting("here", True, "ib-verbs", "all_reduce", 16)
LEARNED = Residuals(
    {"rings and trees": (0.1, 0.2, 0.3), "ib-verbs": (0.0, 0.1, 0.0), "switch": (1.0, 1.0, 1.0)},
    low=(0.3, 0.3, 0.3),
    high=(0.4, 0.4, 0.4),
    kept=KeptShares(ranks=(0.5, 0.25), kind=0.25, sizes=tuple(0.5**n for n in range(1, 9))),
)
MIDDLE = np.array([KNOTS[1]])


def test_medians_slopes_and_quantiles() -> None:
    """Of s² = 0.02 · 2/π a median of one has v = 0.02, of four 0.005; τ² = mean(0.04 − 0.02, 0.01 − 0.005).
    That is 0.0125: weights 0.0125 / 0.0325 and 0.0125 / 0.0175.  Medians within their noise are 0."""
    variances = np.full(2, 0.02 * 2 / np.pi)
    found = shrunk_medians(np.array([0.2, -0.1]), np.array([1, 4]), variances)
    assert found == pytest.approx([0.2 * 0.0125 / 0.0325, -0.1 * 0.0125 / 0.0175])
    assert shrunk_medians(np.array([0.1, -0.05]), np.array([1, 4]), variances).tolist() == [0.0, 0.0]
    assert shrunk_medians(np.array([0.2]), np.array([1]), np.zeros(1)).tolist() == [0.2]
    # y/x of −1, 0.5 and 2 with weights 1, 4 and 2: half of 7 is passed at 0.5; never below 0 or above 1
    assert median_slope([(1.0, -1.0), (4.0, 2.0), (-2.0, -4.0)]) == 0.5
    assert (median_slope([(1.0, -1.0)]), median_slope([(1.0, 3.0)]), median_slope([])) == (0.0, 1.0, 0.0)
    # weights 1, 2 and 1: their middles are at 1/8, 1/2 and 7/8
    values, weights = np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 2.0])
    found = [weighted_quantile(values, weights, share) for share in (0.0, 0.125, 0.5, 0.6875, 1.0)]
    assert found == pytest.approx([1.0, 1.0, 2.0, 2.5, 3.0])


def sweeps(systems: int, factor: float, network: str = "ib-verbs") -> list[ObservedSweep]:
    """Sweeps of so many systems that all take `factor` times what formulas say of three sizes."""
    found = []
    for name in (f"{network}{number}" for number in range(systems)):
        setting = replace(HERE, machine=name, network=network)
        found.append(ObservedSweep(name, name, name, setting, np.array(KNOTS), np.full(3, np.log(factor))))
    return found


def test_what_all_machines_have_in_common_is_the_centre() -> None:
    """Nine that take twice as long, all alike: no variance, so no shrinkage, and no band."""
    found = learn_residuals(sweeps(9, 2.0))
    assert found.log_correction(HERE, MIDDLE) == pytest.approx(np.log(2.0), abs=1e-4)
    assert (*found.low, *found.high) == pytest.approx([0.0] * 6, abs=1e-3)
    # four of another network teach nothing of that network; a fifth does
    four, five = (learn_residuals([*sweeps(11, 1.0), *sweeps(n, 3.0, "tcpx")]) for n in (4, 5))
    assert four.centre == {}
    assert set(five.centre) == {"tcpx"}
    # of two racks that take 3 and 1/4 times as long, log 4; centre, band and shares are those of others
    alone = learn_residuals(sweeps(9, 2.0))
    racks = [
        replace(sweep, setting=replace(sweep.setting, between_domains=True))
        for sweep in (*sweeps(1, 3.0, "a"), *sweeps(1, 0.25, "b"))
    ]
    found = learn_residuals([*sweeps(9, 2.0), *racks])
    assert found == replace_struct(alone, between_domains=round(float(np.log(4)), 4))


def test_the_correction_is_the_sum_over_regimes() -> None:
    """At 1 MiB 0.2 + 0.1, half-way to 128 MiB 0.3; nothing where no sweep is published of such machines,
    nor of transfers between pairs."""
    assert LEARNED.log_correction(HERE, MIDDLE) == pytest.approx([0.3])
    assert LEARNED.log_correction(HERE, np.array([2.0**23.5, 1.0, 2.0**40])) == pytest.approx([0.3, 0.1, 0.3])
    for other in (replace(HERE, swept=False), replace(HERE, kind="all_to_all")):
        assert LEARNED.log_correction(other, MIDDLE).tolist() == [0.0]
    # 0.1, 0.3 and 0.3 there; straight in between, level beyond, also of nothing
    sizes = np.array([0.0, 2.0**13, 2.0**16.5, 2.0**20, 2.0**27, 2.0**30])
    assert LEARNED.log_correction(HERE, sizes) == pytest.approx([0.1, 0.1, 0.2, 0.3, 0.3, 0.3])
    wider = replace_struct(LEARNED, low=(0.1, 0.2, 0.4), high=(0.2, 0.2, 0.8))
    spread = wider.band_half_widths(HERE, np.array([2.0**23.5]))
    assert [float(side[0]) for side in spread] == pytest.approx([0.3, 0.5])
    # at all sizes 0.4 below, and √(0.8² + 0.6²) = 1 above
    by = replace_struct(LEARNED, low=(0.1, 0.2, 0.4), high=(0.8, 0.2, 0.3), between_domains=0.6)
    low, high = by.band_half_widths(replace(HERE, between_domains=True), np.array([8.0, 2.0**30]))
    assert (low.tolist(), high.tolist()) == ([0.4, 0.4], pytest.approx([1.0, 1.0]))


def test_what_two_predictions_share() -> None:
    """A doubling of ranks keeps 1/2, another collective 1/4, two doublings of the size 1/4; elsewhere 0."""
    wider, gather = replace(HERE, ranks=32), replace(HERE, kind="all_gather")
    assert LEARNED.deviation_correlation(HERE, HERE, 0) == 1
    assert LEARNED.deviation_correlation(HERE, wider, 0) == 0.5
    assert LEARNED.deviation_correlation(HERE, gather, 2) == 0.25 * 0.25
    for other in (replace(HERE, machine="there"), replace(HERE, several_nodes=False)):
        assert LEARNED.deviation_correlation(HERE, other, 0) == 0
    # shares of 1/2 and 1/4 at one doubling and two: straight in between, none from three on
    found = LEARNED.kept.share_among_ranks([0.0, 0.5, 1.0, 2.0, 2.5, 3.0, 8.0])
    assert found.tolist() == [1.0, 0.75, 0.5, 0.25, 0.125, 0.0, 0.0]
    # what is remembered counts doublings both ways
    for ranks in (8, 32):
        assert LEARNED.deviation_correlation(HERE, replace(HERE, ranks=ranks), 0) == 0.5
    assert LEARNED.deviation_correlation(HERE, HERE, np.array([-2.0, 1.0])) == pytest.approx([0.25, 0.5])
    there = replace(HERE, machine="there")
    assert LEARNED.deviation_correlation(HERE, there, np.array([0.0, 1.0])).tolist() == [0.0, 0.0]


def scaled(machine: str, by_ranks: dict[int, float]) -> list[ObservedSweep]:
    """Sweeps of one machine that take so many times what formulas say, by ranks."""
    here = replace(HERE, machine=machine)
    return [
        ObservedSweep(
            machine, machine, machine, replace(here, ranks=n), np.array(KNOTS), np.full(3, np.log(times))
        )
        for n, times in by_ranks.items()
    ]


def test_the_shares_by_doublings_of_the_ranks_are_those_of_several_machines() -> None:
    """Two machines deviate by 2, then √2, then by 2 again: four times the ranks keep no more than twice do.
    The machine with eight times the ranks is one alone."""
    here, there = {8: 2.0, 16: 2.0**0.5, 32: 2.0}, {8: 0.5, 16: 0.5**0.5, 32: 0.5}
    both = [*scaled("here", here), *scaled("there", there)]
    once, twice, thrice = learn_residuals([*both, *scaled("far", {8: 3.0, 64: 3.0})]).kept.ranks
    assert 0.5 <= once < 1
    assert (twice, thrice) == (once, 0.0)


def test_the_band_of_a_ratio() -> None:
    """Two machines: above √(0.4² + 0.3²) = 0.5, and as much below; one machine: none, and √(1/2) of it."""
    for other, width in (
        (replace(HERE, machine="there"), 0.5),
        (HERE, 0.0),
        (replace(HERE, ranks=32), 0.5 * 0.5**0.5),
    ):
        below, above = ratio_half_widths(LEARNED, HERE, MIDDLE, other, MIDDLE)
        assert (below[0], above[0]) == pytest.approx((width, width))
    # seven doublings apart they share 1/2^7: the rest adds, of what is shared the difference counts
    by = replace_struct(LEARNED, low=(0.1, 0.3, 0.3), high=(0.2, 0.4, 0.4))
    small, large, shared = np.array([2.0**13]), np.array([2.0**20]), 1 / 128
    below, above = ratio_half_widths(by, HERE, small, HERE, large)
    assert above**2 == pytest.approx((1 - shared) * (0.2**2 + 0.3**2) + shared * 0.2**2)
    assert below**2 == pytest.approx((1 - shared) * (0.1**2 + 0.4**2) + shared * 0.2**2)
    back_below, back_above = ratio_half_widths(by, HERE, large, HERE, small)
    assert (back_below, back_above) == (pytest.approx(above), pytest.approx(below))
    none = np.array([0.0])
    assert ratio_half_widths(by, HERE, none, HERE, np.array([1.0]))[0] == pytest.approx(0.0)


def test_regimes_and_what_is_current() -> None:
    assert HERE.regime_names == ("rings and trees", "several nodes", "ib-verbs", "all_reduce")
    inside = replace(HERE, several_nodes=False, network="switch", kind="broadcast")
    assert inside.regime_names == ("rings and trees", "one node", "switch", "broadcast")
    assert replace(HERE, kind="send").regime_names == ("pairs",)
    assert replace(HERE, swept=False).regime_names == ()
    # one within another, and what was there before afterwards
    own = current_residuals()
    other = replace_struct(LEARNED, low=(1.0, 1.0, 1.0))
    with replaced_residuals(LEARNED):
        with replaced_residuals(other):
            assert current_residuals() is other
        assert current_residuals() is LEARNED
    assert current_residuals() is own


def predicted(machine: str, size: int = 2**20, **more: str) -> Prediction:
    """An all-reduce of 16 ranks on two nodes of a machine of the catalog."""
    found = price_collective("all_reduce", [size], range(16), system(machine), **more)
    assert isinstance(found, Prediction)
    return found


def test_a_ratio_of_two_predictions() -> None:
    """Between machines by the learned widths; on one machine only by the edges of what nobody states."""
    p5, p5en = predicted("aws-p5"), predicted("aws-p5en")
    with replaced_residuals(LEARNED):
        between, same = time_ratio(p5en, p5), time_ratio(p5, p5)
        tree = predicted("aws-p5", algorithm="tree", protocol="Simple")
        other = time_ratio(tree, p5)
    assert between.expected == pytest.approx(p5en.formula_s / p5.formula_s)
    assert np.log(between.high / between.expected) == pytest.approx(0.5)
    assert np.log(between.expected / between.low) == pytest.approx(0.5)
    assert [float(each[0]) for each in same] == [1.0, 1.0, 1.0]
    edges = [tree.fastest_s / p5.fastest_s, tree.slowest_s / p5.slowest_s, tree.formula_s / p5.formula_s]
    assert other.expected == pytest.approx(edges[2])
    assert (other.low, other.high) == (pytest.approx(np.min(edges)), pytest.approx(np.max(edges)))
    # a prediction is the formula corrected and what is asked for is not
    with replaced_residuals(LEARNED):
        chosen, asked = predicted("dgx-h100"), predicted("dgx-h100", algorithm="ring")
    assert chosen.time_s == pytest.approx(chosen.formula_s * np.exp(0.3))
    assert chosen.high_s == pytest.approx(chosen.time_s * np.exp(0.4))
    assert chosen.low_s == pytest.approx(chosen.time_s * np.exp(-0.3))
    assert asked.time_s == pytest.approx(asked.formula_s)


@pytest.fixture(autouse=True)
def scripts(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(repository / "scripts")


def program(name: str) -> ModuleType:
    return importlib.import_module(name)


def test_the_table_is_what_its_script_makes(test_data: Path) -> None:
    """But for its date, which is that of the last time it was made."""
    kept = residual_table()
    made = program("hardware_residuals").table(
        test_data / "nccl_tests", test_data / "nccl_tests_more", kept.date
    )
    assert msgspec.to_builtins(made) == msgspec.to_builtins(kept)
    assert len(kept.sweeps) > 50
    assert not any("tcp_fallback" in each.name for each in kept.sweeps)


GOALS = {"below 64 KiB": 0.25, "64 KiB to 16 MiB": 0.25, "above 16 MiB": 0.17}


def test_on_machines_left_out(test_data: Path) -> None:
    """Medians 25, 25 and 17 %, bias 5 %, bands that hold 75 to 88 % and 65 % of every class of machines."""
    unseen = program("unseen_machines")
    known = [own for _, own in program("public_sweeps").priced_sweeps(test_data / "nccl_tests")]
    by = unseen.residuals_without_system(known)
    for band, name in enumerate(BANDS):
        found = unseen.concatenate_errors(
            [unseen.held_out_errors(own, by[own.system], band=band) for own in known]
        )
        assert found.median <= GOALS[name], name
        assert abs(found.bias) <= 0.05, name
        assert 0.75 <= found.within <= 0.88, name
    for of in {machine_class(own.setting) for own in known}:
        parts = [own for own in known if machine_class(own.setting) == of]
        assert (
            unseen.concatenate_errors([unseen.held_out_errors(own, by[own.system]) for own in parts]).within
            >= 0.65
        ), of
    # Pairs of the first and the last three systems; the script prints all.
    chosen = [*dict.fromkeys(own.system for own in known)]
    some = [own for own in known if own.system in (*chosen[:3], *chosen[-3:])]
    pairs = [each.errors for each in unseen.ratios_between_machines(some)]
    assert unseen.concatenate_errors(pairs).within >= 0.75


def test_on_the_most_ranks_a_calibration_is_no_worse_than_the_specification(test_data: Path) -> None:
    """By the median error on each machine's largest group."""
    unseen = program("unseen_machines")
    known = program("public_sweeps").priced_sweeps(test_data / "nccl_tests")
    found = list(unseen.most_ranks(known, unseen.residuals_without_system([own for _, own in known])))
    worse = {each.public.file: each.calibrated.median - each.catalog.median for each in found}
    assert len(worse) == 6
    assert max(worse.values()) <= 0


def test_the_table_says_something_and_not_too_much() -> None:
    """Corrections are modest, and bands of large messages narrower than those of small ones."""
    table = current_residuals()
    assert all(abs(figure) < 0.2 for own in table.centre.values() for figure in own)
    assert table.low[2] < table.low[0] < 1
    assert table.high[2] < table.high[0] < 1.5
    assert all(0 < share < 1 for share in (table.kept.ranks[0], table.kept.kind, *table.kept.sizes))
    assert table.kept.ranks == tuple(sorted(table.kept.ranks, reverse=True))


def test_predictions_beyond_all_sweeps_say_so(test_data: Path) -> None:
    """More ranks than the largest sweep, and two racks: the sweeps of two racks take what the note says."""
    public_sweeps = program("public_sweeps")
    known = public_sweeps.priced_sweeps(test_data / "nccl_tests")
    assert max(public.sweep.ranks for public, _ in known) == MOST_SWEPT_RANKS

    def reason(machine: str, ranks: int) -> str:
        own = system(machine)
        return price_collective("all_reduce", 2**20, own.group_members(ranks), own).reason or ""

    assert "extrapolation" not in reason("dgx-h100", 256) + reason("gb200-nvl72", 72)
    assert "no sweep of more than 256 ranks" in reason("dgx-h100", 264)
    assert "between scale-up domains of several nodes" in reason("gb200-nvl72", 144)
    more = public_sweeps.folder_sweeps(test_data / "nccl_tests_more")
    racks = list(public_sweeps.with_formulas(public for public in more if "2racks" in public.file))
    most = {public.sweep.kind: float(np.exp(observed.residual.max())) for public, observed in racks}
    assert most == pytest.approx({"all_reduce": 1.9, "all_to_all": 3.5}, abs=0.05)
    kept = current_residuals()
    assert kept.between_domains == pytest.approx(np.log(3.46), abs=0.01)
    # each within the band that the other leaves
    for _, observed in racks:
        others = [other for _, other in racks if other.machine != observed.machine]
        by = replace_struct(kept, between_domains=largest_between_domains(others))
        low, high = by.band_half_widths(observed.setting, observed.sizes)
        off = observed.residual - by.log_correction(observed.setting, observed.sizes)
        assert ((-low <= off) & (off <= high)).all(), observed.name
