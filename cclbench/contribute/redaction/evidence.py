# SPDX-License-Identifier: Apache-2.0
"""The `Redactor` of evidence: of all texts only public names stay."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from cclbench.contribute.redaction import kinds
from cclbench.contribute.redaction.names import Identities
from cclbench.contribute.redaction.needles import NeedleForm
from cclbench.contribute.redaction.public_names import split_torn_rows
from cclbench.contribute.redaction.scrub import Scrubber

UNLISTED: Final = "text that is no public name"


class EvidenceScrubber(Scrubber):
    """Replaces names that were learnt, so that a host is `host-1` everywhere; then only public names stay."""

    def __init__(
        self,
        identities: Identities,
        present: Iterable[NeedleForm] = (),
        figures: re.Pattern[str] | None = None,
    ) -> None:
        super().__init__(identities, present)
        self._figures = figures
        self.is_table = False
        """Whether the file's lines are those of a table."""
        self._columns = list[str]()

    def text(
        self,
        text: str,
        field: str = "",
        *,
        by_line: bool = False,
        document: bool = False,
        kept: str = "",
        depth: int = 0,
    ) -> tuple[str, Counter[str]]:
        """Publish a text; `by_line` one of tables or a log, whose hosts the rules know by their lines."""
        if by_line:
            text = split_torn_rows(text)
            text, counts = super().text(text, by_line=True, document=document, kept=kept, depth=depth)
            lines = text.split("\n")
            new_lines = [self._publish_line(line) for line in lines]
            counts[UNLISTED] += sum(map(str.__ne__, text.replace("\0", "").split("\n"), new_lines))
            return "\n".join(new_lines), counts
        counts = Counter()
        new = self._replace_names(text, counts)
        names = self.identities.public_names
        if any(map(self.identities.is_revealed, (field, text))) or names.is_figure(
            new, field or new, self._figures
        ):
            return new, counts
        return self._publish(new, counts)

    def _publish_line(self, line: str) -> str:
        """A line of a log, or of a table, which begins with its heading."""
        names = self.identities.public_names
        cells = _split_cells(line) if self.is_table else []
        texts = [cell.strip(' "\r') for cell in cells]
        if len(cells) > 2 and all(text and not text[0].isdigit() for text in texts):
            self._columns = texts
            return ",".join(map(names.publish, cells))
        if not cells or len(cells) != len(self._columns):
            return names.publish_line(line, self._figures)
        return ",".join(
            names.publish_cell(cell, column, self._figures)
            for cell, column in zip(cells, self._columns, strict=True)
        )

    def keeps(self, field: str, counts: Mapping[str, int], text: str) -> bool:
        """Whether the text is a number of a field of figures, or its owner reveals it."""
        del counts
        names = self.identities.public_names
        return names.is_figure(text, field, self._figures) or self.identities.keeps(field, text)

    def publishes(self, key: str) -> bool:
        """Whether a field of that name is published with its value."""
        names = self.identities.public_names
        is_read = self.identities.is_revealed(key) or names.is_figure(key, key, self._figures)
        return is_read or names.publish(key) == key

    def field(self, kind: str, text: str, *, name: str = "") -> tuple[str, Counter[str]]:
        """As any scrubber, and then as any text."""
        new, counts = super().field(kind, text, name=name)
        return (new, counts) if kind == kinds.REVEALED else self._publish(new, counts)

    def _publish(self, text: str, counts: Counter[str]) -> tuple[str, Counter[str]]:
        new = self.identities.public_names.publish(text)
        return new, counts + Counter({UNLISTED: int(new != text)})


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
