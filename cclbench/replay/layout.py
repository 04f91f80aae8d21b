# SPDX-License-Identifier: Apache-2.0
"""Layout of a job's ranks: parallel degrees, and the ranks of each dimension's groups.

Dimensions are nested: ranks of a group of dimension d are s_d apart, s_d being the product of the degrees of
the dimensions inside it. Degrees come from the process groups that traces describe and from the card; data
parallelism is the rest of the world size, as in launchers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final, Literal

from cclbench.ground.errors import InputError, UsageError
from cclbench.normalize.collectives import dimension_of
from cclbench.record.run import Run

Dimension = Literal["tp", "cp", "ep", "dp", "pp"]
DIMENSIONS: Final[tuple[Dimension, ...]] = ("tp", "cp", "ep", "dp", "pp")
"""From the innermost, whose neighbours are adjacent ranks, unless traces state otherwise."""
MOST_RANKS: Final = 1 << 20
_SUPPLY: Final = "add a card with `parallelism`, or traces with process group descriptions (mesh_tp, ...)"


@dataclass(frozen=True, slots=True)
class Layout:
    """Degrees by dimension, from the innermost; `nested`: experts are spread over replicas, so their degree
    is part of `dp`."""

    degrees: Mapping[Dimension, int]
    nested: bool = False

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return prod(size for name, size in self.degrees.items() if not (self.nested and name == "ep"))

    @property
    def model_size(self) -> int:
        """Number of ranks of one replica of the model."""
        return self.world_size // self.degrees["dp"]

    @property
    def batch_groups(self) -> int:
        """Number of ranks, or groups of ranks, with different samples."""
        return self.degrees["dp"] * (1 if self.nested else self.degrees["ep"])

    def group_stride(self, dimension: Dimension) -> int:
        """Distance of the ranks of its groups; for nested experts that of replicas."""
        inner: int = 1
        for name, size in self.degrees.items():
            if name == dimension or (self.nested and {name, dimension} == {"ep", "dp"}):
                return inner
            if not (self.nested and name == "ep"):
                inner *= size
        return inner

    def first_group(self, *dimensions: Dimension) -> tuple[int, ...]:
        """Ranks of the first group over these dimensions together, sorted."""
        ranks = [0]
        for dimension in dimensions:
            stride = self.group_stride(dimension)
            ranks = [rank + place * stride for place in range(self.degrees[dimension]) for rank in ranks]
        return tuple(sorted(ranks))

    def place_along(self, rank: int, dimension: Dimension) -> int:
        """The rank's coordinate in the dimension."""
        return rank // self.group_stride(dimension) % self.degrees[dimension]

    def with_degrees(self, **degrees: int) -> Layout:
        """The same layout with other degrees."""
        return replace(self, degrees={name: degrees.get(name, size) for name, size in self.degrees.items()})

    def __str__(self) -> str:
        several = [f"{name} {size}" for name, size in self.degrees.items() if size > 1]
        return " x ".join(several) or "one rank"


def layout_of(run: Run) -> Layout:
    """The layout of a run; `InputError` where traces and card do not state it, or contradict each other."""
    card = run.card
    world = max((run.rank(r).facts.world_size or 0 for r in run.ranks), default=0) or len(run.ranks)
    stride: dict[Dimension, int] = {}
    degrees_found: dict[Dimension, int] = {}
    for dimension, members in described_groups(run):
        if len(members) > degrees_found.get(dimension, 1):
            degrees_found[dimension], stride[dimension] = len(members), members[1] - members[0]
    if card is not None and "parallelism" in card.raw:
        plan = card.parallelism
        stated: dict[Dimension, int] = {"tp": plan.tp, "pp": plan.pp, "cp": plan.cp, "ep": plan.ep}
        conflicts = [name for name, size in stated.items() if degrees_found.get(name, size) != size]
        if conflicts:
            contradictions = ", ".join(
                f"{name} {degrees_found[name]} in the traces, {stated[name]} in the card"
                for name in conflicts
            )
            raise InputError(f"parallel degrees contradict each other: {contradictions}", where=run.id)
        degrees_found |= stated
        replicas = plan.dp_replicate * plan.dp_shard
    elif not degrees_found and not is_single_rank(run):
        raise InputError("the run's parallel degrees are unknown", where=run.id, hint=_SUPPLY)
    else:
        replicas = None
    layout = stated_layout(degrees_found, replicas, world, run.id)
    order = sorted(DIMENSIONS, key=lambda name: _sort_key(name, stride))
    return replace(layout, degrees={name: layout.degrees[name] for name in order})


def stated_layout(stated: Mapping[Dimension, int], replicas: int | None, world: int, where: str) -> Layout:
    """The layout of so many ranks with these degrees, in the usual order; `replicas`: of the model, if known.
    `InputError` where they do not make these ranks."""
    model = stated.get("tp", 1) * stated.get("cp", 1) * stated.get("pp", 1)
    experts = stated.get("ep", 1)
    data = stated.get("dp", 1) if replicas is None else replicas
    nested = experts > 1 and data * model == world and data % experts == 0
    other_ranks = model if nested else model * experts
    if world % other_ranks or (replicas is not None and replicas * other_ranks != world):
        replica_words = "" if replicas is None else f"dp {replicas} x "
        raise InputError(
            f"{replica_words}{other_ranks} ranks of each replica do not make the {world:,} ranks of the job",
            where=where,
        )
    degrees = {name: stated.get(name, 1) for name in DIMENSIONS} | {"dp": world // other_ranks}
    return Layout(degrees, nested)


def is_single_rank(run: Run) -> bool:
    """Whether the job has a single rank: one was traced, and neither trace nor card states others."""
    if len(run.ranks) != 1 or (run.rank(run.ranks[0]).facts.world_size or 1) > 1:
        return False
    counted = run.card.hardware.count if run.card else None
    return (counted or 1) == 1 and not any(size != 1 for size in run.collectives()["group_size"].to_pylist())


def _sort_key(name: Dimension, stride: Mapping[Dimension, int]) -> tuple[float, int]:
    """By stride, where traces show it; others in their usual order."""
    place = DIMENSIONS.index(name)
    inner_strides = [stride[other] for other in DIMENSIONS[:place] if other in stride]
    return float(stride.get(name, max(inner_strides, default=1))), place


def described_groups(run: Run) -> list[tuple[Dimension, tuple[int, ...]]]:
    """Dimension and sorted ranks of the process groups whose description names a dimension."""
    groups: list[tuple[Dimension, tuple[int, ...]]] = []
    for group in run.groups().to_pylist():
        dimensions = {dimension_of(text) for text in group["descriptions"]} - {None}
        if len(dimensions) == 1 and (name := dimensions.pop()) in DIMENSIONS:
            groups.append((name, tuple(sorted(group["ranks"]))))
    return groups


@dataclass(frozen=True, slots=True)
class Relayout:
    """A change of layout: removed ranks, places of replaced ranks, and whether the global batch stays (else
    each replica's)."""

    old: Layout
    new: Layout
    fixed_batch: bool = False
    removed: frozenset[int] = frozenset()
    places: Mapping[int, int] | None = None

    def degree_growth(self, dimension: Dimension) -> float:
        """New over old degree."""
        return self.new.degrees[dimension] / self.old.degrees[dimension]

    @property
    def sample_share(self) -> float:
        """New over old samples of a replica in a step."""
        return self.old.batch_groups / self.new.batch_groups if self.fixed_batch else 1.0

    def new_members(self, group: Sequence[int], dimension: Dimension | None) -> tuple[int, ...]:
        """The new members of a traced group: those of the dimension's first group; all ranks for a group of
        all ranks; else the same ones.

        Of groups that are part of a dimension, the inner ones keep their size.
        """
        moved = self.places or {}
        old, new = self.old, self.new
        if dimension is None and len(group) == old.world_size > 1:
            several = [name for name, size in old.degrees.items() if size > 1]
            if len(several) > 1 or several[0] == "dp":
                remaining = [rank for rank in range(old.world_size) if rank not in self.removed]
                ranks_left = remaining if self.removed else range(new.world_size)
                return tuple(moved.get(rank, rank) for rank in ranks_left)
            dimension = several[0]
        if dimension is None or old == new:
            ranks_left = [rank for rank in group if rank not in self.removed]
            return tuple(moved.get(rank, rank) for rank in ranks_left)
        if self.removed and dimension == "dp":
            ranks_left = [rank for rank in group if rank not in self.removed]
            return tuple(moved.get(rank, rank) for rank in ranks_left)
        size, degree = len(group), old.degrees[dimension]
        stride, apart = new.group_stride(dimension), old.group_stride(dimension)
        if size < degree:
            inner = group[1] - group[0] == apart if size > 1 else True
            if inner:
                return tuple(place * stride for place in range(size))
            within = degree // size
            count, remainder = divmod(new.degrees[dimension], within)
            if remainder or not count:
                raise UsageError(
                    f"{dimension} {new.degrees[dimension]} is no multiple of the {within} ranks that"
                    " share a part"
                )
            return tuple(place * within * stride for place in range(count))
        return tuple(moved.get(rank, rank) for rank in range(0, new.degrees[dimension] * stride, stride))


_DATA: Final = ("parallelism.dp", "ranks", "ranks.add", "ranks.remove")
"""Settings of the number of replicas."""
BATCHES: Final = ("rank", "global")
"""What stays when the number of replicas changes: each replica's samples, or the total."""
_KEYS: Final = (*(f"parallelism.{name}" for name in DIMENSIONS), *_DATA[1:], "ranks.replace", "batch")


def changes_layout(settings: Iterable[str]) -> bool:
    """Whether any of the settings changes the layout."""
    return any(key in _KEYS for key in settings)


def target_relayout(old: Layout, settings: Mapping[str, Any]) -> Relayout:
    """The change of layout by the settings together; `UsageError` where they contradict."""
    data_keys = [key for key in _DATA if key in settings]
    if len(data_keys) > 1:
        raise UsageError(f"{' and '.join(data_keys)} both set the number of replicas", hint="set one of them")
    degrees = {name: int(settings.get(f"parallelism.{name}", size)) for name, size in old.degrees.items()}
    new = replace(old, degrees=degrees)
    removed: frozenset[int] = frozenset()
    if "ranks" in settings or "ranks.add" in settings:
        world = int(settings.get("ranks", 0)) or old.world_size + int(settings["ranks.add"])
        each = new.model_size
        if world % each:
            raise UsageError(f"{world:,} ranks are not a multiple of the {each} of a replica ({new})")
        new = new.with_degrees(dp=world // each)
    elif "ranks.remove" in settings:
        removed = _with_replicas(old, settings["ranks.remove"])
        if new != old:
            raise UsageError("ranks.remove removes ranks from the traced layout only")
        new = old.with_degrees(dp=old.degrees["dp"] - len(removed) // old.model_size)
    if new.world_size > MOST_RANKS:
        raise UsageError(f"{new.world_size:,} ranks are more than {MOST_RANKS:,}")
    if new.nested and new.degrees["dp"] % new.degrees["ep"]:
        raise UsageError(f"experts over {new.degrees['ep']} ranks do not divide dp {new.degrees['dp']}")
    places = dict(settings.get("ranks.replace", ()))
    absent = [rank for rank in places if rank >= old.world_size or rank in removed]
    if absent:
        raise UsageError(f"the job has no rank {absent[0]} to replace")
    taken_places = [place for place in places.values() if place < old.world_size]
    if taken_places:
        raise UsageError(
            f"place {taken_places[0]} belongs to a rank of the job",
            hint=f"spares are from {old.world_size} on",
        )
    return Relayout(old, new, BATCHES[int(settings.get("batch", 0))] == "global", removed, places)


def _with_replicas(old: Layout, ranks: Sequence[int]) -> frozenset[int]:
    """The ranks, and all others of their replicas."""
    absent = [rank for rank in ranks if rank >= old.world_size]
    if absent:
        raise UsageError(f"the job has no rank {absent[0]}: it has {old.world_size:,}")
    if old.nested:
        raise InputError(
            "ranks.remove: experts are spread over replicas, so no replica can continue without it"
        )
    lost = {old.place_along(rank, "dp") for rank in ranks}
    if len(lost) == old.degrees["dp"]:
        raise InputError(
            f"ranks.remove: no replica of the model is left ({old})",
            hint="ranks.replace=RANK:PLACE puts a spare in its place",
        )
    return frozenset(rank for rank in range(old.world_size) if old.place_along(rank, "dp") in lost)
