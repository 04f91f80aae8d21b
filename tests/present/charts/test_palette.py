# SPDX-License-Identifier: Apache-2.0
"""Ink on the parts of a step can be read in both themes."""

from __future__ import annotations

import pytest

from cclbench.present.charts.palette import COLOURS, SLICES
from cclbench.present.charts.phases import _COLOURS


def luminance(colour: str) -> float:
    """Relative luminance, as WCAG 2.1 defines it."""
    channels = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = (v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in channels)
    return sum(weight * v for weight, v in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


PAIRS = {
    *((one.colour, one.ink) for part in SLICES for one in (part, *part.finer)),
    *_COLOURS.values(),
}


@pytest.mark.parametrize("theme", [0, 1])
@pytest.mark.parametrize(("colour", "ink"), sorted(PAIRS))
def test_ink_stands_out(colour: str, ink: str, theme: int) -> None:
    bright, dark = sorted((luminance(COLOURS[name][theme]) for name in (colour, ink)), reverse=True)
    assert (bright + 0.05) / (dark + 0.05) >= 3
