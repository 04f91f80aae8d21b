# SPDX-License-Identifier: Apache-2.0
"""Predicted beside measured times: bands of sizes, what a band holds, which runs are suspect, their rows."""

from __future__ import annotations

import pytest

from cclbench.hardware import catalog
from cclbench.hardware.calibration import Calibration
from cclbench.hardware.collectives import NoPrice
from cclbench.hardware.deviation import Deviation, summarise_deviations
from cclbench.hardware.sweep import Sweep
from cclbench.hardware.validation import SweepValidation, validate_sweeps, validation_rows


@pytest.mark.parametrize(
    ("size", "band"),
    [
        *((1, "below 64 KiB"), (2**16 - 1, "below 64 KiB")),
        *((2**16, "64 KiB to 16 MiB"), (2**24, "64 KiB to 16 MiB")),
        *((2**24 + 1, "above 16 MiB"), (2**40, "above 16 MiB")),
    ],
)
def test_bands_of_sizes(size: int, band: str) -> None:
    assert Deviation(size, 1.0, 1.0, 1.0, 1.0).size_band == band


@pytest.mark.parametrize(
    ("low", "high", "within"), [(1.0, 2.0, True), (0.5, 1.0, True), (1.1, 2.0, False), (0.5, 0.9, False)]
)
def test_a_band_holds_its_ends(low: float, high: float, within: bool) -> None:
    assert Deviation(8, 1.0, 1.0, low, high).is_within_band is within


@pytest.mark.parametrize(
    ("measured", "held", "suspect"), [(4.0, 0, False), (4.1, 0, True), (4.1, 1, True), (4.1, 2, False)]
)
def test_a_run_more_than_four_times_slower_and_mostly_outside_its_band_is_suspect(
    measured: float, held: int, suspect: bool
) -> None:
    found = summarise_deviations(
        [Deviation(8, measured, 1.0, 0.5, 9.0 if at < held else 2.0) for at in range(4)]
    )
    assert (found.slower, found.within, found.is_suspect) == (measured, held / 4, suspect)


def test_errors_are_of_the_measured_time() -> None:
    """Half of it and a half more: 50 % each, and twice and two thirds of the model in the middle."""
    found = summarise_deviations([Deviation(8, 2.0, 1.0, 1.0, 1.0), Deviation(8, 2.0, 3.0, 1.0, 1.0)])
    assert (found.count, found.median, found.p90) == (2, 0.5, 0.5)
    assert found.slower == pytest.approx((2 + 2 / 3) / 2)
    # rows of a sweep are by size
    rows = validation_rows([swept("all_reduce", 2.0)])
    assert [row["sizes"] for row in rows] == ["below 64 KiB", "64 KiB to 16 MiB", "all sizes"]
    swept_by = {"sweep": "a.csv", "collective": "all_reduce", "ranks": 4, "nodes": 2}
    swept_by |= {"library_version": "2.27.3", "sizes": "all sizes", "count": 2}
    errors = {"median_error": 0.5, "p90_error": 0.5, "within_band": 1.0, "measured_over_model": 2.0}
    assert rows[-1] == swept_by | errors | {"suspect": False, "basis": "spec", "reason": None}


def swept(kind: str, times: float, *, name: str = "a.csv") -> SweepValidation:
    """A sweep of 8 B and 1 MiB that the model of 1 s says takes so many seconds, each band ±1 s."""
    sweep = Sweep(kind, 4, 2, (8, 2**20), (times, times), "2.27.3", name)
    found = [Deviation(size, times, 1.0, 0.0, 2.0) for size in sweep.bytes]
    return SweepValidation(sweep, found)


def test_all_sweeps_together_are_without_the_suspect_ones() -> None:
    """And without those that have no price, which have a row with the reason."""
    sound, slow = swept("all_reduce", 2.0), swept("all_gather", 10.0)
    priceless = SweepValidation(sound.sweep, NoPrice("nobody knows"))
    suspect = [[*each.suspect_bands] for each in (slow, sound, priceless)]
    assert suspect == [["below 64 KiB", "64 KiB to 16 MiB"], [], []]
    assert (sound.suspicion, priceless.suspicion, priceless.deviation_summary) == (None, None, None)
    together = validation_rows([sound, slow, priceless])
    assert [row["reason"] for row in together if row["sweep"] == "a.csv"][-1] == "nobody knows"
    last = together[-1]
    assert (last["sweep"], last["sizes"], last["count"]) == (None, "all sizes", 2)
    assert last["reason"] == "excludes sweeps that are suspect or have no price"
    both = validation_rows([sound, sound])
    assert (both[-1]["count"], both[-1]["reason"]) == (4, None)
    assert all(row["sweep"] for row in validation_rows([sound]))


def by_size(nodes: int, **slower: float) -> SweepValidation:
    """A sweep whose sizes take so many times the model's 1 s, in a band of ±0.5 s: b8, k512, m64, m256."""
    units = {"b": 1, "k": 2**10, "m": 2**20}
    sizes = [int(name[1:]) * units[name[0]] for name in slower]
    sweep = Sweep("all_reduce", 4, nodes, tuple(sizes), tuple(slower.values()), None, "a.csv")
    times = zip(sizes, slower.values(), strict=True)
    return SweepValidation(sweep, [Deviation(size, time, 1.0, 0.5, 1.5) for size, time in times])


@pytest.mark.parametrize(
    ("checked", "bands", "cause"),
    [
        (by_size(2, b8=1, b16=1, k512=1.2, m64=5.5), ["above 16 MiB"], "possibly GPUDirect is off"),
        (by_size(1, b8=1, b16=1, k512=1.2, m64=5.5), ["above 16 MiB"], "possibly peer-to-peer access is off"),
        (by_size(2, b8=6, k512=6, m64=1, m256=1), ["below 64 KiB", "64 KiB to 16 MiB"], "share cores"),
        (by_size(2, b8=6, k512=1), ["below 64 KiB"], "share cores; or GPUDirect is off"),
        (by_size(2, m64=5.5, m256=1), [], None),  # the median of the band is 3.25
    ],
)
def test_each_band_of_sizes_is_judged(checked: SweepValidation, bands: list[str], cause: str | None) -> None:
    """Of a run that is right in latency, most rows are; its large messages are suspect nonetheless."""
    assert [*checked.suspect_bands] == bands
    rows = validation_rows([checked])
    assert [row["sizes"] for row in rows if row["suspect"]] == bands + ["all sizes"] * bool(bands)
    assert len({row["reason"] for row in rows}) == 1
    reason = rows[0]["reason"]
    assert reason is None if cause is None else cause in reason
    assert all(f"times {band}" in (reason or "") for band in bands)


def test_a_calibration_by_another_collective_says_so() -> None:
    by = Calibration("node", (swept("all_gather", 1.0).sweep,))
    rows = validation_rows([swept("all_reduce", 1.0), swept("all_gather", 1.0)], by)
    reasons = {row["collective"]: row["reason"] for row in rows}
    why = "the calibration has no sweep of all_reduce: deviations of other collectives apply"
    assert reasons["all_reduce"] == why
    assert reasons["all_gather"] is None
    assert {row["basis"] for row in rows} == {"calibrated"}
    # one that does not fit has no price; the others have a deviation each size
    machine = catalog.system("dgx-h100")
    odd = Sweep("all_reduce", 9, 2, (8,), (1e-5,))
    good, refused = validate_sweeps([Sweep("all_reduce", 8, 1, (8, 16), (1e-5, 1e-5)), odd], machine)
    assert [each.size for each in good.size_deviations] == [8, 16]
    assert refused.size_deviations == []
    assert refused.found == NoPrice("9 ranks on 2 nodes do not fit dgx-h100, which has 8 per node")
