# SPDX-License-Identifier: Apache-2.0
"""Complete a card: fields that it lacks are taken from the traces or asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from cclbench.card.consistency import layout_products
from cclbench.card.fields import card_field, card_leaves, put_field
from cclbench.card.infer import CardFacts, infer_card
from cclbench.card.json_schema import schema_part, value_misfit
from cclbench.card.read import Document, parse_card, scalar
from cclbench.card.validate import card_problems
from cclbench.card.write import render_card
from cclbench.ground.diagnostics import Problem, check
from cclbench.ground.errors import CheckFailed
from cclbench.ground.text import shown

Value = dict[str, Any]
LICENCE: Final = "evidence.traces.licence"
LAUNCH: Final = "evidence.launch"
_NOT_LEARNT: Final = ("version", "id", "description", "evidence", "workload.steps")
"""Not taken from traces: their steps are not all steps of the run, and people write descriptions."""


@dataclass(frozen=True)
class CardGap:
    """A field that the card lacks; `path` is its place, `why` what needs it, `choices` its allowed values."""

    path: str
    title: str
    example: str
    why: str
    required: bool
    choices: tuple[str, ...] = ()

    def parse_answer(self, answer: str) -> Any:
        """The value of the answer; `CheckFailed` with the reason if it does not fit."""
        if self.choices:
            if answer not in self.choices:
                raise CheckFailed(f"is {shown(answer)}; known: {', '.join(self.choices)}")
            return answer
        text = self.path == LICENCE or schema_part(self.path)["type"] == "string"
        try:
            value = answer if text else scalar(answer)
        except ValueError as error:
            raise CheckFailed(f"is {error}") from None
        if self.path != LICENCE and (reason := value_misfit(value, self.path)):
            raise CheckFailed(reason)
        return value

    def __str__(self) -> str:
        return f"{self.path}: {self.title}; {self.why}"


Ask = Callable[[CardGap], Any]
"""Asks for a field; None leaves it open."""


@dataclass(frozen=True)
class LearntCard:
    """A card completed from traces: the fields taken from them, and those that contradict them."""

    card: Value
    inferred: tuple[str, ...]
    contradictions: tuple[str, ...]


def draft_card(document: Document, root: Path) -> Value:
    """The card as given, without its traces; `CheckFailed` lists its errors other than gaps."""
    wrong = [
        problem
        for problem in card_problems(document, root, contents=False)
        if problem.severity == "error"
        and not problem.path.startswith("evidence.traces")
        and not _is_gap(problem, document.value)
    ]
    check(wrong)
    card: Value = deepcopy(dict(document.value))
    card = {"version": 2, "id": Path(document.file).stem, **_without_nulls(card)}
    card.get("evidence", {}).pop("traces", None)
    return card


def learn_from_traces(card: Value, facts: CardFacts) -> LearntCard:
    """The card, with fields that it lacks taken from the traces.

    Parallel degrees only if the card has none at all and those of the traces account for every rank.
    """
    traced = dict(parse_card(infer_card(facts, card["id"]), "the traces").value)
    if facts.world_size not in layout_products(traced).values() and not card.get("parallelism"):
        traced.pop("parallelism", None)
    merged = deepcopy(card)
    inferred, contradictions = [], []
    for keys, value in card_leaves(traced):
        path = ".".join(map(str, keys))
        if path.startswith(_NOT_LEARNT):
            continue
        stated = card_field(card, *keys, kind=object)
        if stated is not None:
            if stated != value:
                contradictions.append(f"{path}: the card says {shown(stated)}, the traces {shown(value)}")
        elif not (path.startswith("parallelism.") and card.get("parallelism")):
            put_field(merged, path, value)
            inferred.append(f"{path}: {shown(value)}")
    return LearntCard(merged, tuple(inferred), tuple(contradictions))


def card_gaps(card: Value, name: str, root: Path) -> list[CardGap]:
    """Fields that the schema or a metric needs and the card lacks; `CheckFailed` lists other errors.

    `card` has its traces already.
    """
    document = parse_card(render_card(card, gaps=False), name)
    problems = card_problems(document, root, contents=False)
    lacking = [problem for problem in problems if _is_gap(problem, card)]
    check([replace(p, line=None) for p in problems if p not in lacking])
    return [gap for problem in lacking for gap in _problem_gaps(problem, card)]


def settle_gaps(gaps: Sequence[CardGap], ask: Ask | None, card: Value, *, open_ones: bool) -> list[CardGap]:
    """Put answers into the card, and return the gaps that stay open.

    If `ask` is None, or a required gap stays open, `CheckFailed` lists the open gaps; `open_ones` permits
    gaps that only metrics need.
    """
    open_gaps = []
    for gap in gaps:
        answer = ask(gap) if ask else None
        if answer is None:
            open_gaps.append(gap)
        else:
            put_field(card, gap.path, answer)
    missing = [gap for gap in open_gaps if gap.required or (ask is None and not open_ones)]
    if missing:
        hint = "fill them in" if any(g.required for g in missing) else "fill them in, or give --allow-gaps"
        heading = f"the card lacks fields that the traces do not state; {hint}:"
        raise CheckFailed([heading, *(f"  {gap}" for gap in missing)])
    return open_gaps


def _is_gap(problem: Problem, card: Mapping[str, Any]) -> bool:
    return bool(problem.path) and card_field(card, *problem.path.split("."), kind=object) is None


def _problem_gaps(problem: Problem, card: Value) -> Iterator[CardGap]:
    """The gap that a problem names; for a mapping, each field that it must or may have."""
    part = schema_part(problem.path)
    if "properties" not in part:
        required = problem.severity == "error"
        example = shown(part["examples"][0]).strip('"') if part.get("examples") else ""
        choices = tuple(part.get("enum", ()))
        why = "every card has it" if required else problem.message.partition("; ")[2] or problem.message
        yield CardGap(problem.path, part["title"], example, why, required, choices)
        return
    for name in part.get("required", part["properties"]):
        below = replace(problem, path=f"{problem.path}.{name}")
        if _is_gap(below, card):
            yield from _problem_gaps(below, card)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(below) for key, below in value.items() if below is not None}
    return value
