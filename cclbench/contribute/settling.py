# SPDX-License-Identifier: Apache-2.0
"""A contribution's card from begin to end: asked for is what the schema requires and what metrics need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Final

from cclbench.card import CardFacts
from cclbench.card.fields import card_field, drop_empty, put_field
from cclbench.card.model_config import NAME as CONFIG
from cclbench.card.model_config import read_model_config
from cclbench.card.read import read_card
from cclbench.card.standard import STANDARD
from cclbench.contribute.completion import (
    LAUNCH,
    LICENCE,
    Ask,
    CardGap,
    Value,
    ask_for_gap,
    card_gaps,
    complete_from_standard,
    draft_card,
    gap_of_field,
    refuse_open_gaps,
)
from cclbench.contribute.needs import NeededFields
from cclbench.engine import Engine
from cclbench.ground.errors import InputError
from cclbench.ground.file_names import path_of
from cclbench.ingestion.source import Source
from cclbench.record.run import Run

_MODEL_NAME: Final = "workload.model.name"
_NEEDED: Final = ("workload.", "hardware.accelerator", "hardware.count")
"""Fields that metrics need and that nobody else knows; prices and machines are optional."""
_LISTED: Final = 3


def begin_card(card: Path | None, ask: Ask | None) -> Value:
    """The card as given; without one its id alone, which is asked for."""
    if card is not None:
        return draft_card(read_card(card), card.absolute().parent)
    gap = replace(gap_of_field("id", "every data point has one", optional=False), required=True)
    identity = ask(gap) if ask else None
    if identity is None:
        refuse_open_gaps([gap], allow_gaps=False)
    return {"version": 2, "id": identity}


def configured_sizes(source: Source, config: Path | None) -> Value:
    """Sizes of the model by its configuration, the given one or the only one in the traces' folder."""
    if config is not None:
        sizes = read_model_config(config)
        if sizes is None:
            raise InputError("is no Hugging Face configuration of a model", where=str(config))
        return sizes
    folder = source.path if source.path.is_dir() else source.path.parent
    names = [name for name in source.ignored if PurePosixPath(name).name == CONFIG]
    places = [folder / path_of(name) for name in names] if source.path.is_dir() else [folder / CONFIG]
    candidates = [sizes for path in places if path.is_file() and (sizes := read_model_config(path))]
    return candidates[0] if len(candidates) == 1 else {}


@dataclass(frozen=True)
class SettledCard:
    """The card with the answers; `launch` is the launch script, None without scripts."""

    card: Value
    launch: str | None
    licence: str
    gaps: tuple[CardGap, ...]


def settle_card(
    card: Value,
    run: Run,
    facts: CardFacts,
    programs: Sequence[str],
    licence: str | None,
    name: str,
    ask: Ask | None,
    *,
    allow_gaps: bool,
    engine: Engine,
) -> SettledCard:
    """Ask for what the card lacks; `CheckFailed` with the gaps that may not stay open.

    `programs` are the names of the scripts, `name` is the card's in messages.
    """
    stated = str(card.get("evidence", {}).get("launch", ""))
    evidence = {key: value for key, value in card.get("evidence", {}).items() if key != "launch"}
    answers: dict[str, str | None] = {LAUNCH: _launch_script(stated, programs), LICENCE: licence}
    interview = _Interview({**card, "evidence": evidence}, answers, ask, allow_gaps)
    files = [drop_empty(path=f"traces/{n}", ranks=list(t.ranks) or None) for n, t in enumerate(facts.traces)]
    traces = {"traces": files or [{"path": "traces/0"}]}

    def schema_gaps() -> list[CardGap]:
        return card_gaps({**interview.card, "evidence": {**evidence, **traces}}, name, Path())

    for gap in [*_required_of_evidence(answers, programs), *schema_gaps()]:
        interview.ask(gap)
    if ask and card_field(card, *_MODEL_NAME.split("."), kind=str) is None:
        interview.ask(gap_of_field(STANDARD, "Enter if it is none of them", optional=True), reported=False)
        interview.card = complete_from_standard(interview.card)
    if interview.card.get("workload", {}).get("model") and interview.lacks(_MODEL_NAME):
        interview.ask(_model_name_gap())
    needs = NeededFields(run, _presentable(interview.card), engine)
    while fields := needs.next_fields():
        for gap in _needed_gaps(fields, interview):
            answer = interview.ask(gap)
            if answer is None and ask and not gap.optional:
                needs.decline(gap.path)
            else:
                needs.answer(gap.path, answer)
    if (facts.world_size or 1) > 1 and not card.get("parallelism"):
        interview.ask(gap_of_field("parallelism", "what a process group spans", optional=True))
    refuse_open_gaps(interview.gaps, allow_gaps=allow_gaps)
    schema_gaps()  # answers may contradict one another
    if not programs:
        why = "without it nobody can record such traces again (--scripts)"
        interview.gaps.append(CardGap(LAUNCH, "launch script", "run.sh", why, False, optional=True))
    return SettledCard(interview.card, answers[LAUNCH], answers[LICENCE] or "", tuple(interview.gaps))


class _Interview:
    """Asks for each gap once, and puts the answers into the card; `gaps` are those that stay open."""

    def __init__(
        self, card: Value, answers: dict[str, str | None], ask: Ask | None, allow_gaps: bool
    ) -> None:
        self.card, self.gaps = card, list[CardGap]()
        self._answers, self._ask, self._allow_gaps = answers, ask, allow_gaps

    def ask(self, gap: CardGap, *, reported: bool = True) -> Any:
        """The answer; None if the gap stays open, which is `reported` at the end."""
        answer = ask_for_gap(gap, self._ask, self.card, allow_gaps=self._allow_gaps)
        if answer is None:
            said_none = self._ask is not None and not gap.required
            self.gaps += [replace(gap, optional=gap.optional or said_none)] if reported else []
        elif gap.path in self._answers:
            self._answers[gap.path] = answer
        else:
            put_field(self.card, gap.path, answer)
        return answer

    def lacks(self, path: str) -> bool:
        """Whether the card has no such text, and nobody was asked for it."""
        is_gap = any(gap.path == path for gap in self.gaps)
        return not is_gap and card_field(self.card, *path.split("."), kind=str) is None


def _required_of_evidence(answers: Mapping[str, str | None], programs: Sequence[str]) -> Iterator[CardGap]:
    if programs and answers[LAUNCH] is None:
        why = "which of the scripts produces the traces?"
        yield CardGap(LAUNCH, "launch script", min(programs), why, True, tuple(programs))
    if answers[LICENCE] is None:
        why = "nobody may use traces without one"
        yield CardGap(LICENCE, "licence of the traces (--licence)", "Apache-2.0", why, True)


def _presentable(card: Value) -> Value:
    """The card, with stand-ins for what every card has: needs are listed although it is not yet a card."""
    workload = {"phase": "training", **card.get("workload", {})}
    return {"version": 2, "id": "card", "description": "a card", **card, "workload": workload}


def _needed_gaps(fields: Mapping[str, Sequence[str]], interview: _Interview) -> Iterator[CardGap]:
    """A gap for each field; the model's name before the first of its sizes."""
    for path, metrics in fields.items():
        if path.startswith("workload.model.") and interview.lacks(_MODEL_NAME):
            yield _model_name_gap()
        more = len(metrics) - _LISTED
        why = f"needed for {', '.join(metrics[:_LISTED])}" + (f" and {more} more" if more > 0 else "")
        yield gap_of_field(path, why, optional=not path.startswith(_NEEDED))


def _model_name_gap() -> CardGap:
    return gap_of_field(_MODEL_NAME, "which model the sizes are of", optional=False)


def _launch_script(stated: str, programs: Sequence[str]) -> str | None:
    """The script that the card names, else the only one or `run.sh`; None if ambiguous."""
    fitting = [name for name in programs if stated == name or stated.endswith(f"/{name}")]
    if stated:
        return max(fitting, key=len, default=None)
    return programs[0] if len(programs) == 1 else "run.sh" if "run.sh" in programs else None
