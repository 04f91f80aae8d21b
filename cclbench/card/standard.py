# SPDX-License-Identifier: Apache-2.0
"""Standard workloads: what cards that name one must have in common, so that their steps do equal work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct, convert

from cclbench.card.fields import card_field
from cclbench.ground import yaml_file
from cclbench.ground.diagnostics import Path, Problem
from cclbench.ground.errors import near
from cclbench.ground.text import letters_and_digits, quoted_value
from cclbench.ground.yaml_file import Document

STANDARD: Final = "workload.standard"
"""The card field that names a standard workload."""
_INPUT_LENGTH: Final = "workload.batch.input_length"
_SEQUENCE_LENGTH: Final = "workload.batch.sequence_length"
_MODEL_NAME: Final = "workload.model.name"


class StandardWorkload(Struct, frozen=True, forbid_unknown_fields=True):
    """One file of `cclbench/card/workloads`; fields of cards are dotted paths.

    `equal`: values that a card must have; `open`: fields of the work that nobody states, and why: two cards
    do equal work only if both state them, with the same value; `vary`: fields and sections that may differ;
    `capture`: rules for the traces; `source`: who defined it.
    """

    name: str
    title: str
    source: str
    equal: Mapping[str, Any]
    vary: tuple[str, ...]
    capture: tuple[str, ...]
    open: Mapping[str, str] = {}

    def contradictions(self, card: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Path and message of each field in which a card differs from the standard or lacks its value."""
        for path, value in self.equal.items():
            stated = _stated_value(card, path)
            if stated is None:
                yield path, f"is not filled in; {quoted_value(value)} by the standard workload {self.name}"
            elif not _is_same(path, stated, value):
                yield (
                    path,
                    f"is {quoted_value(stated)}, but {quoted_value(value)}"
                    f" by the standard workload {self.name}",
                )

    def open_difference(self, cards: Mapping[str, Mapping[str, Any]]) -> str | None:
        """The first open field that the cards, by label, do not state with one value; None if there is none.

        In words: `workload.batch.output_length, A 128, B not stated`.
        """
        for path in self.open:
            values = {label: _stated_value(card, path) for label, card in cards.items()}
            first = next(iter(values.values()))
            if any(value is None or not _is_same(path, value, first) for value in values.values()):
                labelled = (
                    f"{label} {'not stated' if v is None else quoted_value(v)}" for label, v in values.items()
                )
                return ", ".join((path, *labelled))
        return None


@cache
def standard_workloads() -> Mapping[str, StandardWorkload]:
    """All standard workloads by name, sorted."""
    entries = sorted((files("cclbench.card") / "workloads").iterdir(), key=lambda entry: entry.name)
    texts = ((entry.name, entry.read_text("utf-8")) for entry in entries if entry.name.endswith(".yaml"))
    documents = (yaml_file.parse(text, name, "standard workload") for name, text in texts)
    standards = [convert(document.value, StandardWorkload) for document in documents]
    return MappingProxyType({standard.name: standard for standard in standards})


def standard_problems(document: Document) -> Iterator[Problem]:
    """An error for an unknown standard workload, and for each field that contradicts the one it names."""
    name = card_field(document.value, *STANDARD.split("."), kind=str)
    if name is None:
        return
    standards = standard_workloads()
    problems = [(STANDARD, f"is {quoted_value(name)}, no standard workload; {near(name, standards)}")]
    if name in standards:
        problems = list(standards[name].contradictions(document.value))
    for path, message in problems:
        keys: Path = tuple(path.split("."))
        yield Problem("error", document.file, document.line(keys), path, message)


def _stated_value(card: Mapping[str, Any], path: str) -> Any:
    """The card's value; of the input length, as metrics count tokens, the sequence length without one."""
    value = card_field(card, *path.split("."), kind=object)
    if value is None and path == _INPUT_LENGTH:
        return card_field(card, *_SEQUENCE_LENGTH.split("."))
    return value


def _is_same(path: str, stated: Any, value: Any) -> bool:
    """Whether two values are equal; of a model's name without its publisher, by letters and digits."""
    if path == _MODEL_NAME and isinstance(stated, str):
        return letters_and_digits(stated.rpartition("/")[2]) == letters_and_digits(value.rpartition("/")[2])
    return bool(stated == value)
