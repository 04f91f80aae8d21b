# SPDX-License-Identifier: Apache-2.0
"""Which fields of a card the metrics of a run need: those that the reasons of missing values name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from pathlib import Path
from typing import Any, Final

from cclbench.analyzers.metric import METRICS, resolve_metrics
from cclbench.card.fields import card_field, put_field
from cclbench.card.json_schema import card_schema, schema_part
from cclbench.card.model import card_of
from cclbench.engine import SERIAL, Engine
from cclbench.record.run import Run
from cclbench.record.selection import Selection
from cclbench.results import compute_metrics

_FIELD: Final = re.compile(r"\b(?:(?:workload|hardware)(?:\.[a-z_]+)+|parallelism\.microbatches)\b")
_SELECTION: Final = Selection(model=False)


class NeededFields:
    """The fields that metrics of a run need and its card lacks, found round by round.

    A metric names one field at a time, so a field left open gets a stand-in, for the metric to name the next.
    """

    def __init__(self, run: Run, card: Mapping[str, Any], engine: Engine = SERIAL) -> None:
        self._run, self._engine = run, engine
        self._probe: dict[str, Any] = deepcopy(dict(card))
        self._needs: dict[str, dict[str, None]] = {}
        declared = (METRICS.get(name) for name in METRICS)
        self._lacking: Sequence[str] = [
            m.name for m in declared if any(i.startswith(("card", "catalog")) for i in m.inputs)
        ]

    def next_fields(self) -> dict[str, list[str]]:
        """The fields that are needed next, in a card's order, and the metrics that need each."""
        run = copy(self._run)
        vars(run)["card"] = card_of(self._probe, Path())  # instead of the stored card; nothing is written
        chosen = resolve_metrics(self._lacking) if self._lacking else []
        needs: dict[str, dict[str, None]] = {}
        if chosen:
            for row in compute_metrics(run, chosen, _SELECTION, engine=self._engine)[0]:
                for path in [] if row.has_value else self._lacking_fields(row.reason or ""):
                    needs.setdefault(path, {})[row.metric] = None
        self._lacking = list(dict.fromkeys(metric for metrics in needs.values() for metric in metrics))
        self._needs = needs
        return {path: list(needs[path]) for path in sorted(needs, key=_place_in_card)}

    def answer(self, path: str, value: Any) -> None:
        """Take the value of a field; None leaves it open."""
        if value is None:
            examples = schema_part(path).get("examples", [])
            value = False if schema_part(path)["type"] == "boolean" else examples[0]
        put_field(self._probe, path, value)

    def decline(self, path: str) -> None:
        """Look for no more fields of the metrics that need this one, which the work does not have."""
        self._lacking = [metric for metric in self._lacking if metric not in self._needs.get(path, {})]

    def _lacking_fields(self, reason: str) -> list[str]:
        """The field that a reason names and the card lacks; of alternatives the last, the simplest."""
        named = [path for path in _FIELD.findall(reason) if _is_leaf(path)]
        lacking = [path for path in named if card_field(self._probe, *path.split("."), kind=object) is None]
        return lacking[-1:]


def _is_leaf(path: str) -> bool:
    try:
        return "properties" not in schema_part(path)
    except KeyError:
        return False


def _place_in_card(path: str) -> tuple[int, ...]:
    """Where the schema has the field, so that questions follow the card's order."""
    keys = path.split(".")
    parents = [schema_part(".".join(keys[:depth])) if depth else card_schema() for depth in range(len(keys))]
    return tuple(list(part["properties"]).index(key) for part, key in zip(parents, keys, strict=True))
