# SPDX-License-Identifier: Apache-2.0
"""Complete a card: fields that it lacks are taken from traces, configuration and standard, or asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from cclbench.card.fields import card_field, card_leaves, put_field
from cclbench.card.infer import CardFacts, infer_card
from cclbench.card.json_schema import schema_part, value_misfit
from cclbench.card.read import Document, parse_card, scalar
from cclbench.card.standard import STANDARD, standard_workloads
from cclbench.card.validate import card_problems
from cclbench.card.write import render_card
from cclbench.ground.diagnostics import Problem, check
from cclbench.ground.errors import CheckFailed
from cclbench.ground.text import quoted_value

Value = dict[str, Any]
LICENCE: Final = "evidence.traces.licence"
LAUNCH: Final = "evidence.launch"
_BOOLEANS: Final = {"yes": True, "y": True, "no": False, "n": False}
"""Answers to a field that is true or false, besides those words."""
_NOT_LEARNT: Final = ("version", "id", "description", "evidence", "workload.steps")
"""Not taken from traces: their steps are not all steps of the run, and people write descriptions."""


@dataclass(frozen=True)
class CardGap:
    """A field that the card lacks; `path` is its place, `why` what needs it, `choices` its allowed values.

    A `required` one cannot stay open; nor can one that metrics need, unless gaps are allowed or somebody says
    that there is none; an `optional` one can.  `refused` is the reason against an answer to it.
    """

    path: str
    title: str
    example: str
    why: str
    required: bool
    choices: tuple[str, ...] = ()
    optional: bool = False
    refused: str | None = None

    def parse_answer(self, answer: str) -> Any:
        """The value of the answer; `CheckFailed` with the reason if it does not fit."""
        if self.choices:
            if answer not in self.choices:
                raise CheckFailed(f"is {quoted_value(answer)}; known: {', '.join(self.choices)}")
            return answer
        if self.path == LICENCE:
            return answer
        kind = schema_part(self.path)["type"]
        if kind == "boolean" and answer.lower() in _BOOLEANS:
            return _BOOLEANS[answer.lower()]
        try:
            value = (
                _named_numbers(answer) if kind == "object" else answer if kind == "string" else scalar(answer)
            )
        except ValueError as error:
            raise CheckFailed(f"is {error}") from None
        if reason := value_misfit(value, self.path):
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
    """The card as given, with the work of the standard that it names, without its traces.

    `CheckFailed` lists its errors other than gaps.
    """
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
    return complete_from_standard(card)


def complete_from_standard(card: Value) -> Value:
    """The card with the work of the standard workload that it names, as far as it lacks it."""
    standard = standard_workloads().get(str(card_field(card, *STANDARD.split("."), kind=str)))
    completed = deepcopy(card)
    for path, _ in standard.contradictions(card) if standard else ():
        if standard and card_field(card, *path.split("."), kind=object) is None:
            put_field(completed, path, standard.equal[path])
    return completed


def complete_model_sizes(card: Value, sizes: Mapping[str, Any]) -> tuple[Value, tuple[str, ...]]:
    """The card with sizes of its model that it lacks, and what was taken."""
    completed, additions = deepcopy(card), []
    for name, value in sizes.items():
        path = f"workload.model.{name}"
        if card_field(card, *path.split("."), kind=object) is None:
            put_field(completed, path, value)
            additions.append(f"{path}: {quoted_value(value)}")
    return completed, tuple(additions)


def learn_from_traces(card: Value, facts: CardFacts) -> LearntCard:
    """The card, with fields that it lacks taken from the traces.

    Parallel degrees only if the card has none at all and the number of ranks is known.
    """
    traced = dict(parse_card(infer_card(facts, card["id"]), "the traces").value)
    if facts.world_size is None and not card.get("parallelism"):
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
                contradictions.append(
                    f"{path}: the card says {quoted_value(stated)}, the traces {quoted_value(value)}"
                )
        elif not (path.startswith("parallelism.") and card.get("parallelism")):
            put_field(merged, path, value)
            inferred.append(f"{path}: {quoted_value(value)}")
    return LearntCard(merged, tuple(inferred), tuple(contradictions))


def card_gaps(card: Value, name: str, root: Path) -> list[CardGap]:
    """Fields that the schema requires and the card lacks; `CheckFailed` lists other errors.

    `card` has its traces already.
    """
    document = parse_card(render_card(card, gaps=False), name)
    problems = card_problems(document, root, contents=False)
    errors = [problem for problem in problems if problem.severity == "error"]
    lacking = [problem for problem in errors if _is_gap(problem, card)]
    check([replace(p, line=None) for p in errors if p not in lacking])
    return [gap for problem in lacking for gap in _problem_gaps(problem, card)]


def ask_for_gap(gap: CardGap, ask: Ask | None, card: Value, *, allow_gaps: bool) -> Any:
    """The answer, which contradicts nothing in the card; None if the gap stays open."""
    if ask is None:
        return None
    question = replace(gap, optional=gap.optional or allow_gaps)
    while (answer := ask(question)) is not None and (reason := _new_contradiction(card, gap.path, answer)):
        question = replace(question, refused=reason)
    return answer


def refuse_open_gaps(gaps: Sequence[CardGap], *, allow_gaps: bool) -> None:
    """`CheckFailed` with the gaps that may not stay open, if there are any."""
    missing = [gap for gap in gaps if gap.required or not (gap.optional or allow_gaps)]
    if missing:
        hint = "fill them in" if any(g.required for g in missing) else "fill them in, or give --allow-gaps"
        heading = f"the card lacks fields that the traces do not state; {hint}:"
        raise CheckFailed([heading, *(f"  {gap}" for gap in missing)])


def gap_of_field(path: str, why: str, *, optional: bool) -> CardGap:
    """The gap of a field that is no mapping, unless it is `parallelism`."""
    part = schema_part(path)
    if "properties" in part:
        example = " ".join(f"{name}={number}" for name, number in part["examples"][0].items())
    else:
        example = quoted_value(part["examples"][0]).strip('"') if part.get("examples") else ""
        example = "true or false" if part["type"] == "boolean" else example
    return CardGap(path, part["title"], example, why, False, tuple(part.get("enum", ())), optional)


def _new_contradiction(card: Value, path: str, answer: Any) -> str | None:
    """The first error that the card has only with the answer, without an unfinished card's gaps."""
    if path in (LICENCE, LAUNCH):
        return None
    answered = deepcopy(card)
    put_field(answered, path, answer)
    before, after = (_errors_of(value) for value in (card, answered))
    new = [error for error in after if error not in before]
    if not new:
        return None
    where, message = new[0]
    return message if where == path else f"{where} {message}"


def _errors_of(card: Value) -> list[tuple[str, str]]:
    document = parse_card(render_card(card, gaps=False), "the card")
    problems = card_problems(document, Path(), contents=False)
    return [(p.path, p.message) for p in problems if p.severity == "error" and not _is_gap(p, card)]


def _named_numbers(text: str) -> Value:
    """`dp_shard=2 tp=4` as a mapping; `ValueError` otherwise."""
    pairs = [word.partition("=") for word in text.replace(",", " ").split()]
    if not pairs or not all(name and value for name, _, value in pairs):
        raise ValueError(f"{quoted_value(text)}, not names and numbers like dp_shard=2 tp=4")
    return {name: scalar(value) for name, _, value in pairs}


def _is_gap(problem: Problem, card: Mapping[str, Any]) -> bool:
    return bool(problem.path) and card_field(card, *problem.path.split("."), kind=object) is None


def _problem_gaps(problem: Problem, card: Value) -> Iterator[CardGap]:
    """The gap that an error names; for a mapping, each field that it must have."""
    part = schema_part(problem.path)
    if "properties" not in part:
        yield replace(gap_of_field(problem.path, "every card has it", optional=False), required=True)
        return
    for name in part.get("required", ()):
        below = replace(problem, path=f"{problem.path}.{name}")
        if _is_gap(below, card):
            yield from _problem_gaps(below, card)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(below) for key, below in value.items() if below is not None}
    return value
