# SPDX-License-Identifier: Apache-2.0
"""The picture of the claims shows what the claims hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cclbench.ground.errors import UsageError
from cclbench.present.picture import save_picture
from cclbench.studies.claims.claim import Claim
from cclbench.studies.claims.picture import draw_claims

HOSTILE = "$\\frac{1}{0}$ \x1b[31m" + "x" * 500


def claim(key: Any, summary: list[dict[str, Any]], rows: list[dict[str, Any]]) -> Claim:
    """A claim with that table and evidence."""
    outcome = "holds" if rows else "cannot be examined"
    said = {"statement": "A statement.", "outcome": outcome, "verdict": "nothing is known"}
    return Claim(key=key, counts={}, summary=summary, rows=rows, caveats=(), **said)  # type: ignore[arg-type]


def pair(outcome: str, ratio: float, overlaps: tuple[float, float]) -> dict[str, Any]:
    higher, lower = overlaps
    return {"outcome": outcome, "step_ratio": ratio, "higher_overlap": higher, "lower_overlap": lower}


def gain(value: float | None, provenance: str = "published", accelerator: str = "a") -> dict[str, Any]:
    band = (value - 0.01, value + 0.01) if value is not None and provenance == "modelled" else (None, None)
    found = {"gain": value, "provenance": provenance, "accelerator": accelerator}
    found |= {"phase": "training", "basis": "b"}
    return found | dict(zip(("gain_low", "gain_high"), band, strict=True))


def accelerator(name: str, told: int) -> dict[str, Any]:
    found = {"accelerator": name, "phase": "training", "kind": "GPU", "basis": "b", "known": told, "runs": 2}
    return found | {"median": 0.02 if told else None}


def best(framework: str, behind: float, basis: str = "step time, equal work") -> dict[str, Any]:
    found = {"basis": basis, "framework": framework, "behind": behind, "model": "m", "accelerator": "a"}
    found |= {"devices": 8, "batch": 4, "sequence_length": 512}
    return found | {"step_s": 1.0, "tokens_per_s_per_device": 2.0}


SHORTER, EQUAL = pair("shorter", 0.5, (0.5, 0.49)), pair("equal overlap", 1.1, (0.0, 0.0))
PAIRS = claim("overlap", [{}], [pair("longer", 1.5, (0.8, 0.4)), SHORTER, EQUAL])
GAINS = claim(
    "bandwidth",
    [accelerator("a", 2), accelerator("b", 0)],
    [gain(0.01), gain(0.03, "modelled"), gain(None), gain(None, accelerator="b")],
)
BEST = claim("frameworks", [best("swift", 1.0), best("calm", 2.5)], [{}])


def test_pairs_lie_where_they_should() -> None:
    axes = draw_claims([PAIRS]).axes[0]
    marks = [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.get_lines()]
    assert marks == [([pytest.approx(40.0)], [1.5]), ([pytest.approx(1.0)], [0.5]), ([0.0], [1.1])]
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend == ["longer step: 1", "shorter step: 1", "equal overlap: 1"]


def test_modelled_gains_look_different_and_missing_ones_are_said() -> None:
    axes = draw_claims([GAINS]).axes[0]
    lines = [(line, list(line.get_xdata())) for line in axes.get_lines()]
    marks = {line.get_fillstyle(): x for line, x in lines if line.get_marker() == "o" and x}
    assert marks == {"full": [1.0], "none": [3.0]}
    bands = [x for line, x in lines if line.get_linewidth() == 3]
    assert bands == [[pytest.approx(2.0), pytest.approx(4.0)]]
    assert [text.get_text() for text in axes.texts] == ["not known"]
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert labels == ["a, training: 2 of 2", "b, training: 0 of 2"]


def test_bars_are_as_long_as_they_are_behind() -> None:
    axes = draw_claims([BEST]).axes[0]
    assert [bar.get_width() for bar in axes.patches] == [1.0, 2.5]
    title, *bars = [text.get_text() for text in axes.texts]
    assert title == "step time, equal work, 8 a"
    assert bars == [" 1.00×, 1.00 s, 2 tokens/s/device", " 2.50×, 1.00 s, 2 tokens/s/device"]


def test_what_there_is_no_room_for_is_counted() -> None:
    many = [best(name, 1.0, f"basis {n}") for n in range(12) for name in ("swift", "calm")]
    axes = draw_claims([claim("frameworks", many, [{}])]).axes[0]
    assert len(axes.patches) == 16
    assert axes.get_xlabel().endswith("; 8 more lines in the table")
    axes = draw_claims([claim("bandwidth", [accelerator(str(n), 0) for n in range(30)], [])]).axes[0]
    assert axes.get_xlabel().endswith("; 6 more lines in the table")


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_hostile_and_empty_claims_are_drawn(tmp_path: Path, suffix: str) -> None:
    """In no other format."""
    hostile = best(HOSTILE, 1.0) | {"model": HOSTILE, "accelerator": HOSTILE}
    empty = [claim(key, [], []) for key in ("overlap", "bandwidth", "frameworks")]
    claims = [claim("frameworks", [hostile], [{}]), claim("bandwidth", [accelerator(HOSTILE, 0)], []), *empty]
    one, other = tmp_path / f"one{suffix}", tmp_path / f"other{suffix}"
    for path in (one, other):
        save_picture(lambda: draw_claims(claims), path)
    assert one.read_bytes() == other.read_bytes()
    with pytest.raises(UsageError, match=r"use \.png"):
        save_picture(lambda: draw_claims([PAIRS]), tmp_path / "claims.gif")
