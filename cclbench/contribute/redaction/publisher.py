# SPDX-License-Identifier: Apache-2.0
"""The `Redactor` of a file: of all texts only public names and read figures stay."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

from cclbench.contribute.redaction.public_names import PublicNames
from cclbench.contribute.redaction.redactions import Redaction
from cclbench.ground.text import printable

UNLISTED: Final = "text that is no public name"
VERSION: Final = re.compile(r"v?\d{1,2}(?:\.\d{1,3}){1,3}(?:\+(?:cu|cuda|rocm)[\d.]{2,5})?", re.ASCII)
_LONGEST_PLACE: Final = 60


class Publisher:
    """Publishes the texts of one file; `figures` are those of its format."""

    def __init__(self, names: PublicNames, figures: re.Pattern[str] | None = None) -> None:
        self._names, self._figures = names, figures
        self._counts: Counter[tuple[str, str]] = Counter()
        self._columns = list[str]()

    def text(self, text: str, field: str = "") -> tuple[str, Counter[str]]:
        """A text as it is published, and whether it was replaced; `field` is its field's name."""
        if self.keeps(field, text) or self._names.is_figure(text, field or text, self._figures):
            return text, Counter()
        new = self._names.publish(text)
        return new, Counter({UNLISTED: int(new != text)})

    def keeps(self, field: str, text: str) -> bool:
        """Whether a text stays: a figure or version, by the name of its field, or revealed."""
        is_version = "version" in field.lower() and VERSION.fullmatch(text) is not None
        return is_version or self.reveals(field) or self._names.is_figure(text, field, self._figures)

    def publishes(self, key: str) -> bool:
        """Whether a field of that name is published with its value."""
        is_read = self._names.is_revealed(key) or self._names.is_figure(key, key, self._figures)
        return is_read or self._names.publish(key) == key

    def reveals(self, key: str) -> bool:
        """Whether the owner asks to publish the values of fields of that name."""
        return self._names.is_revealed(key)

    def line(self, line: str) -> str:
        """A line of a log or script as it is published."""
        return self._names.publish_line(line, self._figures)

    def table_line(self, line: str) -> str:
        """A line of a table of cells between commas, which begins with its heading."""
        cells = _split_cells(line)
        texts = [cell.strip(' "\r') for cell in cells]
        if len(cells) > 2 and all(text and not text[0].isdigit() for text in texts):
            self._columns = texts
            return ",".join(map(self._names.publish, cells))
        if not cells or len(cells) != len(self._columns):
            return self.line(line)
        return ",".join(
            self._names.publish_cell(cell, column, self._figures)
            for cell, column in zip(cells, self._columns, strict=True)
        )

    def count(self, place: str, counts: Mapping[str, int]) -> None:
        """Add the replacements at a place of the file, by kind."""
        shown = printable(place)
        at = shown if len(shown) <= _LONGEST_PLACE else f"{shown[:_LONGEST_PLACE]}…"
        for kind, count in counts.items():
            self._counts[at, kind] += count

    def list_redactions(self, file: str) -> list[Redaction]:
        """Replacements by place and kind, in order of occurrence, of a file of that published name."""
        return [Redaction(printable(file), place, kind, n) for (place, kind), n in self._counts.items() if n]


def _split_cells(line: str) -> list[str]:
    """Cells of a line of a table, with their quotes."""
    cells, quoted = list[str](), False
    for part in line.split(","):
        if quoted:
            cells[-1] += f",{part}"
        else:
            cells.append(part)
        quoted ^= part.count('"') % 2 == 1
    return cells
