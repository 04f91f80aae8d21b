# SPDX-License-Identifier: Apache-2.0
"""The `Redactor` of evidence: of all texts only public names stay, whatever the rules find in them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

from cclbench.contribute.redaction import kinds
from cclbench.contribute.redaction.scrub import Scrubber

UNLISTED: Final = "text that is no public name"
_RUN: Final = re.compile(rb"[\t\n\r\x20-\x7e\x80-\xff]{3,}")


class EvidenceScrubber(Scrubber):
    """Scrubs texts by the rules first, so that a host is `host-1` everywhere, then keeps what is public."""

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
        """Scrub a text, and replace it by tokens unless it is public; `by_line` one of tables or a log."""
        counts = Counter[str]()
        if not by_line and self.publishes(text):  # no rule has to look at public words
            return self._replace_names(text, counts), counts
        new, counts = super().text(text, field, by_line=by_line, document=document, kept=kept, depth=depth)
        if self.identities.is_revealed(field) or self.identities.is_revealed(text):
            return new, counts
        return self._publish(new, counts, by_line=by_line)

    def keeps(self, field: str, counts: Mapping[str, int], text: str) -> bool:
        """Whether its owner reveals the text."""
        del counts
        return self.identities.keeps(field, text)

    def publishes(self, key: str) -> bool:
        """Whether a field of that name is published with its value."""
        return self.identities.is_revealed(key) or self.identities.public_names.publish(key) == key

    def field(self, kind: str, text: str, *, name: str = "") -> tuple[str, Counter[str]]:
        """As any scrubber, and then as any text."""
        new, counts = super().field(kind, text, name=name)
        return (new, counts) if kind == kinds.REVEALED else self._publish(new, counts)

    def mask_bytes(self, data: bytes) -> tuple[bytes, Counter[str]]:
        """Scrub the texts in bytes, and blank the others that are not public."""
        data, counts = super().mask_bytes(data)

        def blank(match: re.Match[bytes]) -> bytes:
            new, replaced = self._publish(match[0].decode("utf-8", "surrogateescape"), Counter())
            counts.update(replaced)
            return b" " * len(match[0]) if replaced and new else match[0]

        return _RUN.sub(blank, data), counts

    def _publish(self, text: str, counts: Counter[str], *, by_line: bool = False) -> tuple[str, Counter[str]]:
        names = self.identities.public_names
        if by_line:
            lines = text.split("\n")
            new_lines = [names.publish_line(line) for line in lines]
            changed = sum(map(str.__ne__, lines, new_lines))
            return "\n".join(new_lines), counts + Counter({UNLISTED: changed})
        new = names.publish(text)
        return new, counts + Counter({UNLISTED: int(new != text)})
