# SPDX-License-Identifier: Apache-2.0
"""Texts of a page: bounded, escaped, isolated; numbers with what is known of them."""

from __future__ import annotations

import re

import pytest
from helpers.report_run import HOSTILE, row
from helpers.typed import figures
from markupsafe import Markup

from cclbench.present.words import (
    bound_text,
    breakable_name,
    hover_attribute,
    name_markup,
    number_markup,
    quantity_markup,
)


def test_texts_are_cut_isolated_and_cannot_leave_an_attribute() -> None:
    assert bound_text("a" * 7, 7) == "a" * 7
    assert bound_text("a" * 8, 7) == "a" * 7 + "… (cut, 8 characters)"
    assert bound_text("a" * 7, 7, length=1_000_000) == "a" * 7 + "… (cut, 1,000,000 characters)"
    assert hover_attribute('" onmouseover="alert(1)') == ' title="&#34; onmouseover=&#34;alert(1)"'
    assert name_markup("עברית") == '<bdi class="name" title="עברית">עברית</bdi>'


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_a_stranger_writes_markup_or_steers(text: str) -> None:
    for found in (
        name_markup(text),
        hover_attribute(text),
        breakable_name(text),
        number_markup(figures([row(text, 1.0, reason=text, group=text)])[0]),
    ):
        assert isinstance(found, Markup)
        assert "<script" not in found
        assert "<img" not in found
        assert "\u202e" not in found
        assert "\x1b" not in found
        assert "\x00" not in found
        assert len(found) < 20_000


def test_a_long_name_keeps_its_head_and_its_tail() -> None:
    text = "void at::native::vectorized_elementwise_kernel<4, " + "x" * 60 + ", std::array<char*, 3ul> >(int)"
    found = name_markup(text)
    assert f'title="{Markup.escape(text)}"' in found
    pieces = [Markup(piece).unescape() for piece in re.findall(r"<span>(.*?)</span>", found)]  # noqa: S704 - our own
    assert ("".join(pieces), pieces[1]) == (text, text[-24:])
    longest = name_markup("a" * 150 + "b" * 150).striptags()
    assert longest == "a" * 99 + "..." + "b" * 98


def test_the_hover_text_tells_all_of_a_number() -> None:
    told = str(number_markup(figures([row("time.step", 0.00123, reason="of steps 3-5", rank=2)])[0]))
    for part in (
        "time.step = 0.00123 s",
        "rank 2",
        "measured; window: steps; source: kineto; definition version 1",
    ):
        assert part in told
    assert "Length of the window" in told  # the metric's own definition
    assert "of steps 3-5" in told
    assert told.endswith(">1.23 ms</span>")
    missing = number_markup(figures([row("compute.mfu", None, reason="no card")])[0])
    assert "n/a" in missing
    assert "no card" in missing
    failed = figures([row("compute.mfu", None, status="failed", reason="above 1")])
    assert ">failed<" in number_markup(failed[0])


@pytest.mark.parametrize(
    ("provenance", "text"), [("measured", "1.00 s"), ("modelled", "~1.00 s"), ("published", "1.00 s")]
)
def test_provenance_is_seen(provenance: str, text: str) -> None:
    assert quantity_markup(1.0, "s", provenance) == f'<span class="n {provenance}" title="">{text}</span>'
