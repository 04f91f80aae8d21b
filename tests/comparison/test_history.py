# SPDX-License-Identifier: Apache-2.0
"""Histories of runs: order in time, verdicts of changes, and checks of the newest run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.machine_trace import product, write_trace

import cclbench
from cclbench.comparison.history import FigureHistory, history
from cclbench.comparison.history_document import history_document
from cclbench.ground.errors import UsageError
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


def test_an_empty_store_and_an_unknown_figure_are_refused(
    nightly: Callable[..., Path], tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="has no runs"):
        history(store=tmp_path / "nothing")
    store = nightly([1000.0])
    with pytest.raises(UsageError, match=r"no metric is called time\.stap"):
        history(store=store, metrics=["time.stap"])
    with pytest.raises(UsageError, match="is not a metric or a part"):
        history(store=store, metrics=["time.step["])
