# SPDX-License-Identifier: Apache-2.0
"""A redactor whose rules can be seen at a glance."""

from __future__ import annotations

from collections import Counter

from cclbench.formats.rewriting import ENVIRONMENT, HOST, JOB


class PlainRedactor:
    """Replaces the word `secret` and what some fields hold; remembers what it counted."""

    learns = False

    def __init__(self) -> None:
        self.counted = Counter[tuple[str, str]]()

    def publishes(self, key: str) -> bool:
        del key
        return True

    def text(self, text: str, _field: str = "") -> tuple[str, Counter[str]]:
        return text.replace("secret", "?"), Counter(word=1) if "secret" in text else Counter()

    def kind_of_field(self, name: str) -> str | None:
        return {"host": HOST, "Hostname": HOST, "env": ENVIRONMENT, "job": JOB}.get(name)

    def field(self, kind: str, _text: str, *, name: str = "") -> tuple[str, Counter[str]]:
        return f"{kind} {name}".strip(), Counter({kind: 1})

    def keeps(self, *_: object) -> bool:
        return False

    def count(self, place: str, counts: dict[str, int]) -> None:
        for kind, number in counts.items():
            self.counted[place, kind] += number
