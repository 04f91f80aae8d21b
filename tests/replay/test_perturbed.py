# SPDX-License-Identifier: Apache-2.0
"""Worlds that deviate from the model; `scripts/bench/replay.py bands` counts over more."""

from __future__ import annotations

import pytest
from helpers.perturbed import Draws, held


def drawn(value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """All draws are that many standard deviations; of an unspecified figure none."""
    monkeypatch.setattr(Draws, "_normal", lambda _, of: 0.0 if of == "assumed" else value)


def test_a_world_as_the_model_has_it_is_within_all_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn(0.0, monkeypatch)
    found = held(4, 3, "scale_up.bandwidth=x2", whole=True)
    assert found.inside == found.layouts > 0


def test_what_deviates_alike_before_and_after_cancels(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn(3.0, monkeypatch)
    found = held(4, 3, "scale_up.bandwidth=x2", whole=True)
    assert found.inside == found.layouts > 0


def test_a_machine_that_alone_is_far_slower_is_above_its_band(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Draws, "_normal", lambda _, of: 20.0 if "aws-p5" in of else 0.0)
    found = held(3, 3, "system=aws-p5", whole=True)
    assert found.above > 0
    assert found.below == 0
