# SPDX-License-Identifier: Apache-2.0
"""Histories of runs: order in time, verdicts of changes, and checks of the newest run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.machine_trace import product, write_trace

import cclbench
from cclbench.comparison.change_points import LEAST_RUNS, find_levels
from cclbench.comparison.history import FigureHistory, history
from cclbench.comparison.history_document import history_document
from cclbench.ground.errors import UsageError
from cclbench.present.brief.comparisons import brief_history
from cclbench.present.terminal.history import history_page
from cclbench.record.store import Store

LEVELS = [1000.0, 1004.0] * 6
"""Twelve runs of products of some 1 ms, 0.2 % of noise."""


@pytest.fixture
def nightly(tmp_path: Path) -> Callable[..., Path]:
    """Writes one trace a night into a store, with that duration of its kernels; returns the store."""

    def write(us: Sequence[float], *, labels: Sequence[dict[str, str]] = (), **last: Any) -> Path:
        for night, duration in enumerate(us):
            other = last if night >= len(LEVELS) else {}
            size = other.get("size", 1024)
            folder = tmp_path / f"night-{night:02d}"
            write_trace(folder, [product(size, "gemm", duration)] * 3, device=other.get("device", "a100"))
            extra = labels[night] if labels else {}
            cclbench.ingest(
                folder, store=tmp_path / "store", labels={"date": f"2026-10-{31 - night:02d}", **extra}
            )
        return tmp_path / "store"

    return write


def one_history(store: Path, **options: Any) -> FigureHistory:
    (found,), _ = history(store=store, metrics=["time.step"], **options)
    return found


def test_runs_stand_in_the_order_of_their_dates(nightly: Callable[..., Path]) -> None:
    found = one_history(nightly([1000.0, 1100.0, 1200.0]))
    assert [point.run.id[:8] for point in found.points] == ["night-02", "night-01", "night-00"]
    assert {point.dated_by for point in found.points} == {"label"}
    assert [round(point.value * 1e6) for point in found.valued] == [3600, 3300, 3000]
    assert found.changes == ()


def forward(nights: int) -> list[dict[str, str]]:
    return [{"date": f"2026-10-{1 + night:02d}"} for night in range(nights)]


def test_a_slower_level_is_a_regression_with_what_changed_beside_it(nightly: Callable[..., Path]) -> None:
    labels = [{**dates, "commit": "a" if night < 12 else "b"} for night, dates in enumerate(forward(15))]
    store = nightly([*LEVELS, 1100.0, 1104.0, 1100.0], labels=labels)
    found = one_history(store)
    (change,) = found.changes
    assert (change.first, change.verdict, change.work) == (12, "regression", ())
    assert change.beside == (("label commit", "a", "b"),)
    assert change.low < change.after / change.before < change.high
    assert change.after / change.before == pytest.approx(1.1, rel=0.005)
    document = history_document([found], [])["histories"][0]
    assert document["changes"][0]["run"] == found.points[12].run.id
    assert [run["value"] for run in document["runs"]] == [point.value for point in found.points]
    (faster,), _ = history(store=store, metrics=["compute.kernel_count"])
    assert faster.changes == ()


def test_a_faster_level_is_an_improvement(nightly: Callable[..., Path]) -> None:
    found = one_history(nightly([*LEVELS, 900.0, 904.0, 900.0], labels=forward(15)))
    assert [change.verdict for change in found.changes] == ["improvement"]


def test_a_creeping_figure_is_a_drift_in_all_forms(nightly: Callable[..., Path]) -> None:
    """Three kernels of 1 ms, from the third night on 1 % more a night: 3 ms to 3.35 ms after 11 nights."""
    found = one_history(nightly([1000.0 * 1.01 ** max(n - 2, 0) for n in range(14)], labels=forward(14)))
    run = found.points[2].run.id
    assert found.drift_words is not None
    assert found.drift_words.startswith(
        f"drift: regression, from {run} on, 3.00 ms to 3.35 ms, +11.57 % over 12 runs"
    )
    document = history_document([found], [])
    assert document["histories"][0]["drift"] == pytest.approx([0.003, 0.003 * 1.01**11], rel=1e-4)
    assert document["histories"][0]["drift_from"] == run
    assert brief_history(document)["histories"][0]["drift"] == "3.00 ms to 3.35 ms"
    page = "\n".join(map(str, history_page([found], [], verbosity=-1, unicode=True)))
    assert found.drift_words in page


def test_another_device_is_no_regression(nightly: Callable[..., Path]) -> None:
    found = one_history(nightly([*LEVELS, 1500.0, 1504.0, 1500.0], labels=forward(15), device="v100"))
    (change,) = found.changes
    assert change.verdict == "hardware"
    assert ("devices", "NVIDIA A100-SXM4-80GB", "Tesla V100-SXM2-16GB") in change.beside


def test_other_work_is_no_regression(nightly: Callable[..., Path]) -> None:
    found = one_history(nightly([*LEVELS, 8000.0, 8010.0, 8000.0], labels=forward(15), size=2048))
    (change,) = found.changes
    assert change.verdict == "work"
    assert "GFLOP" in change.work[0]


def outcome(store: Path, expression: str, **options: Any) -> tuple[str, str]:
    _, (check,) = history(store=store, fail_on=[expression], **options)
    return check.outcome, check.reason


def test_the_newest_run_is_checked_against_the_last_ones(nightly: Callable[..., Path]) -> None:
    """Of 12 runs of 3.006 ms; the 13th takes 3.15 ms, 4.8 % more, with noise of 0.2 %."""
    store = nightly([*LEVELS, 1050.0], labels=forward(13))
    assert outcome(store, "time.step > +3%")[0] == "failed"
    assert outcome(store, "time.step > +10%")[0] == "passed"
    kind, reason = outcome(store, "time.step > +4.6%")
    assert (kind, "not wholly beyond" in reason) == ("passed", True)
    assert outcome(store, "time.step > 3.1 ms")[0] == "failed"
    assert outcome(store, "time.step < -3%")[0] == "passed"
    assert outcome(store, "throughput.tokens < -3%")[0] == "failed"  # no run has it


def test_a_run_that_is_not_comparable_is_not_judged(nightly: Callable[..., Path]) -> None:
    store = nightly([*LEVELS, 1500.0], labels=forward(13), device="v100")
    assert outcome(store, "time.step > +3%") == (
        "refused",
        "time.step of " + one_history(store).points[-1].run.id + " is 4.50 ms, but 0 of 12 earlier runs are"
        " comparable (method and hardware), and 3 are needed",
    )


def test_other_work_of_the_newest_is_not_judged(nightly: Callable[..., Path]) -> None:
    kind, reason = outcome(nightly([*LEVELS, 8000.0], labels=forward(13), size=2048), "time.step > +3%")
    assert kind == "refused"
    assert "its work differs" in reason


def test_labels_are_added_and_replaced_and_results_stay(nightly: Callable[..., Path], tmp_path: Path) -> None:
    store = nightly([1000.0], labels=[{"commit": "a"}])
    first = cclbench.run(tmp_path / "night-00", store=store)
    second = cclbench.run(tmp_path / "night-00", store=store, labels={"commit": "b", "driver": "580.82"})
    assert second.record.labels == {"date": "2026-10-31", "commit": "b", "driver": "580.82"}
    assert second.saved_results is not None
    assert second.rows == first.rows
    assert Store(store).get(second.id).verify_files().changes == []


@pytest.mark.parametrize(
    "label", [{"Commit": "a"}, {"commit": ""}, {"commit": "a\nb"}, {"date": "yesterday"}]
)
def test_a_label_that_is_none_is_refused(label: dict[str, str], nightly: Callable[..., Path]) -> None:
    with pytest.raises(UsageError):
        nightly([1000.0], labels=[label])


def test_an_empty_store_or_an_unknown_figure_is_refused(nightly: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no runs"):
        history(store=tmp_path / "nothing")
    for metric, why in (
        ("time.stap", r"no metric is called time\.stap"),
        ("time.step[", "is not a metric or"),
    ):
        with pytest.raises(UsageError, match=why):
            history(store=nightly([1000.0]), metrics=[metric])


SERIES = 100


def noisy(random: np.random.Generator, runs: int, percent: float) -> np.ndarray:
    return 0.4 * np.exp(random.normal(0, percent / 100, runs))


def test_two_levels_by_hand() -> None:
    """8 runs of 100 and 102 ms in turn, then 4 of 110 and 112: geometric means, noise with 10 degrees."""
    found = find_levels(np.array([100.0, 102.0] * 4 + [110.0, 112.0] * 2))
    assert found.changes == (8,)
    assert found.means == pytest.approx((np.sqrt(100 * 102), np.sqrt(110 * 112)), rel=1e-12)
    half_steps = [np.log(102 / 100) / 2] * 8 + [np.log(112 / 110) / 2] * 4
    assert found.noise == pytest.approx(np.sqrt(sum(step**2 for step in half_steps) / 10), rel=1e-12)
    assert (found.freedom, found.outliers, found.logarithmic) == (10, (), True)
    # Student's t of 10 degrees, 97.5 %: 2.2281
    low, high = found.interval(110.0, 1.0)
    assert np.log(high / 110) == pytest.approx(2.2281 * found.noise, rel=1e-4)
    assert low * high == pytest.approx(110.0**2)


def test_a_drift_by_hand() -> None:
    """1 % a run over 12 runs; +, -, -, + is orthogonal to every line, so the fit is the line itself."""
    noise = 0.001 * np.array([1, -1, -1, 1] * 3)
    found = find_levels(100 * np.exp(0.01 * np.arange(12) + noise))
    assert found.drift == pytest.approx((0, 100.0, 100 * np.exp(0.11)), rel=1e-9)
    assert (found.changes, found.freedom) == ((), 10)
    assert found.noise == pytest.approx(0.001 * np.sqrt(12 / 10), rel=1e-9)


@pytest.mark.parametrize("percent", [0.5, 1.0])
def test_steps_are_no_drift_and_a_drift_is_no_step(percent: float) -> None:
    random = np.random.default_rng(35)
    for _ in range(20):
        around = noisy(random, 60, percent)
        steps = np.repeat([1.0, 1.05, 1.1], 20)
        assert (find_levels(around * steps).drift, find_levels(around).drift) == (None, None)
        for first in (0, 30, 45):
            begins_late = np.concatenate([np.ones(first), np.linspace(1.0, 1.1, 60 - first)])
            assert (found := find_levels(around * begins_late)).changes == ()
            assert found.drift is not None
            assert abs(found.drift.first - first) <= 5


def test_short_series_and_values_that_are_not_positive() -> None:
    found = find_levels(np.array([0.0, 1.0] * 5 + [50.0, 51.0] * 3))
    assert (found.logarithmic, found.changes, found.means) == (False, (10,), (0.5, 50.5))
    assert found.interval(3.0, 0.0) == (3.0, 3.0)
    # a change without any noise is one
    assert find_levels(np.array([7.0] * 9 + [8.0] * 3)).changes == (9,)
    # constant series and fewer runs than needed have one level
    assert not any(find_levels(np.array(few)).changes for few in ([], [1.0], [1.0, 2.0], [5.0] * 30))
    values = np.array([100.0, 101.0, 100.0, 101.0, 100.0, 101.0, 200.0, 201.0, 200.0, 201.0])
    assert find_levels(values).changes == (6,)
    assert find_levels(values[: LEAST_RUNS - 1]).changes == ()
    # nor do their neighbours show which run is an outlier
    assert find_levels(np.array([1.0, 1.001, 1.2, 1.201, 1.2])).outliers == ()
    # a single outlier is no change
    values = noisy(np.random.default_rng(1), 30, 1.0)
    values[17] *= 1.5
    found = find_levels(values)
    assert (found.changes, found.outliers) == ((), (17,))


@pytest.mark.parametrize(("percent", "least"), [(0.5, 0.95), (1.0, 0.95), (2.0, 0.0)])
def test_a_step_of_five_percent_is_found_within_three_runs(percent: float, least: float) -> None:
    """The share at 2 % is stated in docs/history.md; no share is promised there."""
    random = np.random.default_rng(20261127)
    found = 0
    for _ in range(SERIES):
        at = int(random.integers(12, 45))
        values = noisy(random, at + 3, percent)
        values[at:] *= 1.05
        found += any(abs(change - at) <= 1 for change in find_levels(values).changes)
    assert found >= least * SERIES
    assert percent < 2 or found < 0.5 * SERIES


def test_at_most_one_false_alarm_in_a_hundred_series_looked_at_after_each_run() -> None:
    random = np.random.default_rng(7)
    alarms = 0
    for _ in range(SERIES):
        values = noisy(random, 60, 1.0)
        found = (find_levels(values[:runs]) for runs in range(LEAST_RUNS, 61))
        alarms += any(one.changes or one.drift for one in found)
    assert alarms <= 1
