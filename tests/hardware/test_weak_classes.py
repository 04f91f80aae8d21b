# SPDX-License-Identifier: Apache-2.0
"""Marks of predictions whose class of machines was far off, or is hardly published."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from cclbench.hardware import weak_classes
from cclbench.hardware.calibration import Calibration
from cclbench.hardware.catalog import system
from cclbench.hardware.collectives import Prediction, price_collective
from cclbench.hardware.deviation import BANDS
from cclbench.hardware.prediction import predict_rows
from cclbench.hardware.residual_learning import ObservedSweep
from cclbench.hardware.residuals import ClassScore, KeptShares, Residuals, ResidualSetting, residual_table
from cclbench.hardware.sweep import Sweep
from cclbench.hardware.weak_classes import class_marks, class_names, machine_class

SIZES = np.array([1024.0, 2.0**20, 2.0**30])
HERE = ResidualSetting("here", True, "cxi", "all_reduce", 16, architecture="hopper")


def with_classes(monkeypatch: pytest.MonkeyPatch, classes: dict[str, ClassScore]) -> None:
    """Scores by class in place of the residual table's."""
    sound = ClassScore((0.1, 0.1, 0.1), (9, 9, 9))
    table = structs.replace(residual_table(), classes={"architecture hopper": sound, **classes})
    monkeypatch.setattr(weak_classes, "residual_table", lambda: table)


def test_classes_are_maker_and_network() -> None:
    inside = replace(HERE, several_nodes=False, network="mesh", architecture="amd")
    assert (machine_class(HERE), machine_class(inside)) == ("NVIDIA, Slingshot", "AMD, one node")
    assert machine_class(replace(HERE, network="a-new-one")) == "NVIDIA, a-new-one"


def test_a_class_is_weak_by_its_error_its_machines_or_where_none_is_published(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """40 % is not weak, 41 % is; nor are three machines, two are; and a band without any."""
    sound = ClassScore((0.1, 0.1, 0.1), (9, 9, 9))
    with_classes(
        monkeypatch,
        {"NVIDIA, Slingshot": ClassScore((0.4, 0.41, None), (3, 3, 0)), "all_reduce": sound},
    )
    small, middle, large = class_marks(HERE, SIZES)
    assert small == ()
    assert middle == (
        "weak class: NVIDIA, Slingshot, 64 KiB to 16 MiB: median error 41%, published machines: 3",
    )
    assert large == ("weak class: NVIDIA, Slingshot, above 16 MiB: published machines: none",)
    with_classes(
        monkeypatch,
        {"NVIDIA, Slingshot": sound, "all_reduce": ClassScore((0.1, 0.1, 0.1), (2, 3, 3))},
    )
    assert class_marks(HERE, SIZES) == (
        ("weak class: all_reduce, below 64 KiB: published machines: 2",),
        (),
        (),
    )
    assert len(class_marks(replace(HERE, kind="gather"), SIZES[:1])[0]) == 1
    assert class_marks(replace(HERE, swept=False), SIZES) == ((), (), ())


def test_predictions_carry_the_marks_of_their_sizes() -> None:
    """Two nodes of Alps: 1 MiB is in a band 44 % off, 8 B in none; in rows of each, and in JSON."""
    alps = system("alps-gh200")
    found = price_collective("all_reduce", [8, 2**20], range(8), alps)
    assert isinstance(found, Prediction)
    assert found.marks[0] == ()
    assert found.all_marks == found.marks[1]
    assert found.marks[1][0].startswith("weak class: NVIDIA, Slingshot, 64 KiB to 16 MiB: median error ")
    rows = predict_rows("all_reduce", [8, 2**20], 8, alps)
    assert [row["marks"] for row in rows] == [None, found.marks[1][0]]
    plain = price_collective("all_reduce", [8, 2**20], range(16), system("dgx-h100"))
    assert isinstance(plain, Prediction)
    assert plain.all_marks == ()


def test_a_machine_that_was_measured_has_no_marks() -> None:
    """Its own sweep says more than its class."""
    alps = system("alps-gh200")
    by = Calibration(alps.id, (Sweep("all_reduce", 8, 2, (2**20,), (1e-3,)),))
    found = by.price_collective("all_reduce", [2**20], range(8), alps)
    assert isinstance(found, Prediction)
    assert (found.basis, found.all_marks) == ("calibrated", ())


def test_no_class_above_forty_percent_is_unmarked(
    repository: Path, test_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all published sweeps, each by the residuals of other systems, by class, collective and size."""
    monkeypatch.syspath_prepend(repository / "scripts")
    board = importlib.import_module("scoreboard")
    folders = (board.PUBLISHED, test_data / "nccl_tests", test_data / "nccl_tests_more")
    scores, _ = board.score_sweeps([each for folder in folders for each in board.folder_sweeps(folder)])
    off: dict[tuple[str, int], list[float]] = {}
    for score in scores:
        setting = score.observed.setting
        for name in class_names(setting):
            for band in range(len(BANDS)):
                errors = np.abs(np.expm1(-score.model.residual[score.observed.size_bands == band]))
                off.setdefault((name, band), []).extend(errors)
    weak = {key for key, errors in off.items() if errors and np.median(errors) > 0.4}
    assert len(weak) >= 2
    known = residual_table().classes
    assert all((known[name].errors[band] or 0) > 0.4 for name, band in weak)


def test_scores_by_hand(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two machines that take 2 and 4 times as long: 50 and 75 % off, 62.5 % in the median of two rows."""
    monkeypatch.syspath_prepend(repository / "scripts")
    unseen = importlib.import_module("unseen_machines")
    sweeps = [
        ObservedSweep(name, name, name, HERE, np.array([1024.0]), np.log([times]))
        for name, times in (("a", 2.0), ("b", 4.0))
    ]
    exact = Residuals({}, (0.1,) * 3, (0.1,) * 3, KeptShares((), 0.0, ()))
    found = unseen.class_scores(sweeps, {"": exact})
    score = ClassScore((0.625, None, None), (2, 0, 0))
    assert found == dict.fromkeys(class_names(HERE), score)


def test_like_machines_by_hand(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three machines of one description take 1, 2 and 8 times as long: by the median of the two others.

    A machine of another rate, and one whose sizes are elsewhere, are not compared.
    """
    monkeypatch.syspath_prepend(repository / "scripts")
    like, public_sweeps = (importlib.import_module(name) for name in ("like_machines", "public_sweeps"))

    def swept(name: str, machine: str, times: float, size: int = 2**20) -> tuple[object, ObservedSweep]:
        sweep = Sweep("all_reduce", 16, 2, (size, 4 * size), (times, 2 * times))
        public = public_sweeps.PublicSweep(Path(name), name, machine, sweep)
        observed = public_sweeps.price_sweep(public)
        assert isinstance(observed, ObservedSweep)
        return public, observed

    found = {
        each.sweep.machine: np.exp(each.residual)
        for each in like.floor_errors(
            [
                *(swept(name, "dgx-h100", times) for name, times in (("a", 1.0), ("b", 2.0), ("c", 8.0))),
                swept("d", "aws-p5", 64.0),
                swept("e", "dgx-h100", 64.0, 2**28),
            ]
        )
    }
    assert found["a"] == pytest.approx([1 / 4, 1 / 4])  # of 2 and 8: their geometric mean
    assert found["b"] == pytest.approx([2 / 8**0.5] * 2)
    assert found["c"] == pytest.approx([8 / 2**0.5] * 2)
    assert np.isnan([found["d"], found["e"]]).all()
