# SPDX-License-Identifier: Apache-2.0
"""A redactor that can be seen at a glance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping


class PlainRedactor:
    """Replaces the word `secret`, keeps what its field `kept` holds; remembers what it counted."""

    def __init__(self) -> None:
        self.counted = Counter[tuple[str, str]]()

    def publishes(self, key: str) -> bool:
        """All are but `private`."""
        return key != "private"

    def reveals(self, key: str) -> bool:
        return key == "kept"

    def text(self, text: str, field: str = "") -> tuple[str, Counter[str]]:
        found = "secret" in text and not self.keeps(field, text)
        return text.replace("secret", "?") if found else text, Counter(word=int(found))

    def keeps(self, field: str, _text: str) -> bool:
        return field == "kept"

    def count(self, place: str, counts: Mapping[str, int]) -> None:
        for kind, number in counts.items():
            if number:
                self.counted[place, kind] += number
