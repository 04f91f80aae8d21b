# SPDX-License-Identifier: Apache-2.0
"""Rows as a workbook, whose one sheet is read back as XML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from io import BytesIO
from typing import Any
from xml.etree import ElementTree
from zipfile import ZipFile

import pytest

from cclbench.ground.errors import UsageError
from cclbench.present import workbook as module
from cclbench.present.workbook import workbook_bytes

NAMESPACE = {"s": "http://schemas.openxmlformats.org/spreadsheetml/2006/main"}


def read(rows: Iterable[Mapping[str, Any]], columns: list[str]) -> dict[str, tuple[str, str]]:
    """Type and text of each cell, by its place."""
    written = workbook_bytes(rows, columns, lambda value: value)
    sheet = ElementTree.fromstring(ZipFile(BytesIO(written)).read("xl/worksheets/sheet1.xml"))  # noqa: S314
    return {
        cell.get("r", ""): (cell.get("t", "n"), "".join(cell.itertext()))
        for cell in sheet.iterfind(".//s:c", NAMESPACE)
    }


def test_numbers_stay_numbers_and_texts_texts() -> None:
    """An integer that a double would round is a text; one that is too long is marked at its end."""
    exact, rounded = 2**53, 2**53 + 1
    rows = [{"a": 1.5, "b": "aten::mm", "c": None}, {"a": -3, "b": "1e5", "c": True}]
    rows += [{"a": exact, "b": "x" * 40_000}, {"a": rounded}, {"a": -rounded}]
    cells = read(rows, ["a", "b", "c"])
    assert cells.pop("B4") == ("inlineStr", "x" * 32_766 + "…")
    assert cells == {
        "A1": ("inlineStr", "a"),
        "B1": ("inlineStr", "b"),
        "C1": ("inlineStr", "c"),
        "A2": ("n", "1.5"),
        "B2": ("inlineStr", "aten::mm"),
        "A3": ("n", "-3"),
        "B3": ("inlineStr", "1e5"),
        "C3": ("b", "1"),
        "A4": ("n", str(exact)),
        "A5": ("inlineStr", str(rounded)),
        "A6": ("inlineStr", str(-rounded)),
    }
    assert read([], ["a"]) == {"A1": ("inlineStr", "a")}


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(1)", "{=1}", "https://example.org", "12"])
def test_no_text_is_a_formula_a_link_or_a_number(text: str) -> None:
    assert read([{"a": text}], ["a"])["A2"] == ("inlineStr", text)


def test_more_rows_than_a_sheet_holds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 2)
    assert read([{"a": 1}] * 2, ["a"])["A3"] == ("n", "1")
    with pytest.raises(UsageError, match="at most 2 rows"):
        workbook_bytes([{"a": 1}] * 3, ["a"], lambda value: value)
