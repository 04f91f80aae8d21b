# SPDX-License-Identifier: Apache-2.0
"""Summary of all tables of a mapping: ranks and their places, ranks of each operator, times of steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from cclbench.formats.timeline.mapping import FILE, TimelineMapping, TimelineOperator, mapping_at
from cclbench.formats.timeline.tables import table_batches
from cclbench.formats.trace import DeviceStep
from cclbench.ground.errors import InputError
from cclbench.ground.scratch import stamp_of
from cclbench.ground.text import printable

_MOST_RANKS: Final = 1 << 20
_MOST_OPERATORS: Final = 1 << 12

Coordinates = tuple[int | None, ...]
"""A rank's place in each dimension of the mapping's `place`, in that order."""


@dataclass(slots=True, eq=False)
class Survey:
    """Summary of a folder's tables, read once: an entry for each rank, operator and step."""

    mapping: TimelineMapping
    places: dict[int, Coordinates] = field(default_factory=dict)
    """Places by rank."""
    files: dict[str, set[int]] = field(default_factory=dict)
    """Ranks in each table, by the table's name."""
    operators: dict[str, TimelineOperator] = field(default_factory=dict)
    """Operators by name, sorted."""
    runs: dict[str, set[int]] = field(default_factory=dict)
    """Ranks that run each operator."""
    groups: dict[str, set[int]] = field(default_factory=dict)
    """Ranks of each process group, by the tables' group column."""
    spans: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)
    """Begin of the first row and end of the last, ns, by step and rank."""

    @property
    def is_complete(self) -> bool:
        """Whether all ranks of the job are present; True if the mapping does not state their number."""
        return self.mapping.ranks in (None, len(self.places))

    def step_origins(self) -> dict[int, int]:
        """Offsets of times that are relative to each step's beginning, ns: steps are put end to end."""
        origins: dict[int, int] = {}
        at = 0
        for step in sorted(self.spans):
            begin = min(span[0] for span in self.spans[step].values())
            origins[step] = at - begin
            at += max(span[1] for span in self.spans[step].values()) - begin
        return origins

    def rank_steps(self, rank: int) -> list[DeviceStep]:
        """The rank's steps.

        A step begins with its first row and ends where the step with the next number begins, or with its last
        row if that step is missing.  If times are relative to each step: from the first row of any rank to
        the rank's last row.
        """
        own_spans = {step: spans[rank] for step, spans in sorted(self.spans.items()) if rank in spans}
        origins = self.step_origins() if self.mapping.time.origin == "step" else None
        last = max(own_spans, default=0)
        steps = []
        for step, (begin, end) in own_spans.items():
            if origins is None:
                following = own_spans.get(step + 1)
                end, closed = following[0] if following else end, step != last
            else:
                begin = min(span[0] for span in self.spans[step].values()) + origins[step]
                end, closed = end + origins[step], True
            name = f"step {step}"
            steps.append(DeviceStep(name=name, number=step, start_ns=begin, end_ns=end, closed=closed))
        return steps

    def operator_members(self, name: str, rank: int, group: str | None) -> tuple[int, ...] | None:
        """The ranks that run the operator together with this one, None if the tables do not state them."""
        over = self.operators[name].over
        if group is not None and self.is_complete:
            return tuple(sorted(self.groups[group]))
        if over is None or not self.is_complete:
            return None
        return self._ranks_differing_in(over, self.runs[name], rank)

    def ranks_along(self, dimension: str, rank: int) -> tuple[int, ...]:
        """The ranks that differ from this one only in this dimension."""
        return self._ranks_differing_in((dimension,), self.places, rank)

    def _ranks_differing_in(self, over: Sequence[str], ranks: Iterable[int], rank: int) -> tuple[int, ...]:
        fixed = [i for i, dimension in enumerate(self.mapping.place) if dimension not in over]
        coordinates = self.places[rank]
        return tuple(sorted(r for r in ranks if all(self.places[r][i] == coordinates[i] for i in fixed)))

    def peer_rank(self, name: str, rank: int) -> int | None:
        """The other rank of a send or receive by its place, None if there is none or it is not stated."""
        offsets = self.operators[name].peer
        coordinates = self.places[rank]
        if offsets is None or None in coordinates:
            return None
        target = tuple(
            (at or 0) + offsets.get(dimension, 0)
            for dimension, at in zip(self.mapping.place, coordinates, strict=True)
        )
        return next((peer for peer, place in self.places.items() if place == target), None)


def survey_beside(path: Path) -> Survey:
    """Summary of all tables in the folder of `path`, read again when one changes."""
    mapping_path = path.with_name(FILE)
    mapping = mapping_at(mapping_path)
    tables = sorted(p for p in path.parent.iterdir() if p.is_file() and p.name != FILE)
    mapped = [table for table in tables if fnmatchcase(table.name, mapping.files)]
    stamps = tuple((str(file), stamp_of(file.stat())) for file in (mapping_path, *mapped))
    return _survey_tables(mapping_path, stamps)


@lru_cache(maxsize=2)
def _survey_tables(mapping_path: Path, stamps: tuple[tuple[str, tuple[int, ...]], ...]) -> Survey:
    mapping = mapping_at(mapping_path)
    survey = Survey(mapping)
    for name, _ in stamps[1:]:
        _add_table(survey, Path(name))
    _require_operators(survey, mapping_path)
    survey.operators = {name: survey.operators[name] for name in sorted(survey.operators)}
    if mapping.ranks is not None and len(survey.places) > mapping.ranks:
        message = f"states {mapping.ranks} ranks, and the tables have {len(survey.places)}"
        raise InputError(message, where=str(mapping_path))
    if mapping.place:
        _require_one_place_each(survey.places, mapping_path)
    return survey


def _add_table(survey: Survey, path: Path) -> None:
    """Add one table; `InputError` if a rank has two places."""
    places = [f"place.{dimension}" for dimension in survey.mapping.place]
    ranks = survey.files.setdefault(path.name, set())
    optional = [name for name in ("step", "group") if getattr(survey.mapping.columns, name) is not None]
    for batch in table_batches(path, survey.mapping):
        ends = pc.add(batch["start"], pc.max_element_wise(batch["duration"], 0))
        table = pa.Table.from_batches([batch]).append_column("end", ends)
        keys = ["rank", "operator", *optional, *places]
        for row in table.group_by(keys).aggregate([("start", "min"), ("end", "max")]).to_pylist():
            rank, name = row["rank"], row["operator"]
            _require_rank(rank, path)
            at = tuple(row[place] for place in places)
            if survey.places.setdefault(rank, at) != at:
                message = f"rank {rank} has two places, {survey.places[rank]} and {at}"
                raise InputError(message, where=str(path), hint=f"places: {', '.join(survey.mapping.place)}")
            ranks.add(rank)
            operator = survey.operators.get(name) or survey.mapping.operator_named(name)
            # Operators without an entry are rejected together, once all are known.
            survey.runs.setdefault(name, set()).add(rank)
            if len(survey.runs) > _MOST_OPERATORS:
                raise InputError(f"has more than {_MOST_OPERATORS:,} operators", where=str(path))
            if operator is None:
                continue
            if operator.communicates and row.get("group") is not None:
                survey.groups.setdefault(row["group"], set()).add(rank)
            survey.operators[name] = operator
            if row.get("step") is not None:
                spans = survey.spans.setdefault(row["step"], {})
                begin, end = spans.get(rank, (row["start_min"], row["end_max"]))
                spans[rank] = min(begin, row["start_min"]), max(end, row["end_max"])


def _require_rank(rank: int, path: Path) -> None:
    if not 0 <= rank < _MOST_RANKS:
        raise InputError(
            f"has the rank {rank}", where=str(path), hint=f"ranks are from 0 to {_MOST_RANKS - 1:,}"
        )


def _require_operators(survey: Survey, mapping_path: Path) -> None:
    missing = sorted(set(survey.runs) - set(survey.operators))
    if missing:
        names = ", ".join(printable(name[:60]) for name in missing[:5]) + (
            ", ..." if len(missing) > 5 else ""
        )
        hint = "add it below operators, with `does: ignore` to leave its rows out"
        raise InputError(f"has no entry for {names}", where=str(mapping_path), hint=hint)


def _require_one_place_each(places: Mapping[int, Coordinates], mapping_path: Path) -> None:
    at: dict[Coordinates, int] = {}
    for rank, place in sorted(places.items()):
        if place in at:
            message = f"ranks {at[place]} and {rank} have the same place, {place}"
            raise InputError(
                message, where=str(mapping_path), hint="name the columns of all dimensions below place"
            )
        at[place] = rank
