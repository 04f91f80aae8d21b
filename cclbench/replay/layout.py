# SPDX-License-Identifier: Apache-2.0
"""How a job's ranks are laid out: parallel degrees, and which ranks a group of a dimension has.

Dimensions are numbered one inside the other: the ranks of a group of dimension d are s_d apart, s_d being the
product of the degrees of the dimensions inside it.  Degrees come from the process groups that traces
describe and from the card; data parallelism is what is left of the world, as launchers have it.
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
"""The one whose neighbours are adjacent ranks first, where traces do not tell otherwise."""
MOST_RANKS: Final = 1 << 20
_SUPPLY: Final = "a card with `parallelism`, or process groups with descriptions (mesh_tp, ...), tell them"


@dataclass(frozen=True, slots=True)
class Layout:
    """Degrees by dimension, from the innermost out; of `nested` ones experts are spread over replicas, so
    that their degree is part of `dp`."""

    degrees: Mapping[Dimension, int]
    nested: bool = False

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        return prod(size for name, size in self.degrees.items() if not (self.nested and name == "ep"))

    @property
    def model_size(self) -> int:
        """Ranks that hold one replica of the model."""
        return self.world_size // self.degrees["dp"]

    @property
    def batch_groups(self) -> int:
        """Ranks, or groups of them, that each take other samples."""
        return self.degrees["dp"] * (1 if self.nested else self.degrees["ep"])

    def group_stride(self, dimension: Dimension) -> int:
        """How far apart the ranks of its groups are; experts of replicas are apart as these are."""
        inner: int = 1
        for name, size in self.degrees.items():
            if name == dimension or (self.nested and {name, dimension} == {"ep", "dp"}):
                return inner
            if not (self.nested and name == "ep"):
                inner *= size
        return inner

    def place_along(self, rank: int, dimension: Dimension) -> int:
        """The rank's place along the dimension."""
        return rank // self.group_stride(dimension) % self.degrees[dimension]

    def with_degrees(self, **degrees: int) -> Layout:
        """The same order with other degrees."""
        return replace(self, degrees={name: degrees.get(name, size) for name, size in self.degrees.items()})

    def __str__(self) -> str:
        several = [f"{name} {size}" for name, size in self.degrees.items() if size > 1]
        return " x ".join(several) or "one rank"


def layout_of(run: Run) -> Layout:
    """The layout of a run; `InputError` where neither traces nor the card tell it, or contradict each
    other."""
    card = run.card
    world = max((run.rank(r).facts.world_size or 0 for r in run.ranks), default=0) or len(run.ranks)
    stride: dict[Dimension, int] = {}
    found: dict[Dimension, int] = {}
    for dimension, members in described_groups(run):
        if len(members) > found.get(dimension, 1):
            found[dimension], stride[dimension] = len(members), members[1] - members[0]
    if card is not None and "parallelism" in card.raw:
        told = card.parallelism
        stated: dict[Dimension, int] = {"tp": told.tp, "pp": told.pp, "cp": told.cp, "ep": told.ep}
        other = [name for name, size in stated.items() if found.get(name, size) != size]
        if other:
            what = ", ".join(
                f"{name} {found[name]} in the traces, {stated[name]} in the card" for name in other
            )
            raise InputError(f"parallel degrees contradict each other: {what}", where=run.id)
        found |= stated
        replicas = told.dp_replicate * told.dp_shard
    elif not found:
        raise InputError("the parallel degrees that were traced are not known", where=run.id, hint=_SUPPLY)
    else:
        replicas = None
    model = found.get("tp", 1) * found.get("cp", 1) * found.get("pp", 1)
    experts = found.get("ep", 1)
    data = found.get("dp", 1) if replicas is None else replicas
    nested = experts > 1 and data * model == world and data % experts == 0
    rest = model if nested else model * experts
    if world % rest or (replicas is not None and replicas * rest != world):
        asked = "" if replicas is None else f"dp {replicas} x "
        raise InputError(
            f"{asked}{rest} ranks of each replica do not make the {world:,} ranks of the job", where=run.id
        )
    degrees = {name: found.get(name, 1) for name in DIMENSIONS} | {"dp": world // rest}
    order = sorted(DIMENSIONS, key=lambda name: _sort_key(name, stride))
    return Layout({name: degrees[name] for name in order}, nested)


def _sort_key(name: Dimension, stride: Mapping[Dimension, int]) -> tuple[float, int]:
    """By stride where the traces show it; others stand where they usually do."""
    place = DIMENSIONS.index(name)
    known = [stride[other] for other in DIMENSIONS[:place] if other in stride]
    return float(stride.get(name, max(known, default=1))), place


def described_groups(run: Run) -> list[tuple[Dimension, tuple[int, ...]]]:
    """Dimension and ranks, in order, of the process groups whose description names one."""
    found: list[tuple[Dimension, tuple[int, ...]]] = []
    for group in run.groups().to_pylist():
        named = {dimension_of(text) for text in group["descriptions"]} - {None}
        if len(named) == 1 and (name := named.pop()) in DIMENSIONS:
            found.append((name, tuple(sorted(group["ranks"]))))
    return found


@dataclass(frozen=True, slots=True)
class Relayout:
    """From one layout to another: who is taken out, who stands elsewhere (rank to place), and whether the
    global batch stays (else each replica's does)."""

    old: Layout
    new: Layout
    fixed_batch: bool = False
    removed: frozenset[int] = frozenset()
    places: Mapping[int, int] | None = None

    def degree_growth(self, dimension: Dimension) -> float:
        """New degree over old one."""
        return self.new.degrees[dimension] / self.old.degrees[dimension]

    @property
    def sample_share(self) -> float:
        """Samples of a replica in a step, new over old."""
        return self.old.batch_groups / self.new.batch_groups if self.fixed_batch else 1.0

    def new_members(self, group: Sequence[int], dimension: Dimension | None) -> tuple[int, ...]:
        """The new members of a traced group: those of the dimension's first group, of a group of all ranks
        all, of any other the same ones.

        Of groups that are a part of a dimension the inner ones stay as large as they are.
        """
        moved = self.places or {}
        old, new = self.old, self.new
        if dimension is None and len(group) == old.world_size > 1:
            several = [name for name, size in old.degrees.items() if size > 1]
            if len(several) > 1 or several[0] == "dp":
                everyone = [rank for rank in range(old.world_size) if rank not in self.removed]
                kept = everyone if self.removed else range(new.world_size)
                return tuple(moved.get(rank, rank) for rank in kept)
            dimension = several[0]
        if dimension is None or old == new:
            kept = [rank for rank in group if rank not in self.removed]
            return tuple(moved.get(rank, rank) for rank in kept)
        if self.removed and dimension == "dp":
            kept = [rank for rank in group if rank not in self.removed]
            return tuple(moved.get(rank, rank) for rank in kept)
        size, degree = len(group), old.degrees[dimension]
        stride, apart = new.group_stride(dimension), old.group_stride(dimension)
        if size < degree:
            inner = group[1] - group[0] == apart if size > 1 else True
            if inner:
                return tuple(place * stride for place in range(size))
            within = degree // size
            count, rest = divmod(new.degrees[dimension], within)
            if rest or not count:
                raise UsageError(
                    f"{dimension} {new.degrees[dimension]} is no multiple of the {within} ranks that"
                    " share a part"
                )
            return tuple(place * within * stride for place in range(count))
        return tuple(moved.get(rank, rank) for rank in range(0, new.degrees[dimension] * stride, stride))


_DATA: Final = ("parallelism.dp", "ranks", "ranks.add", "ranks.remove")
"""Settings that say how many replicas there are."""
BATCHES: Final = ("rank", "global")
"""What stays when the number of replicas changes: each replica's samples, or all replicas' together."""
_KEYS: Final = (*(f"parallelism.{name}" for name in DIMENSIONS), *_DATA[1:], "ranks.replace", "batch")


def changes_layout(settings: Iterable[str]) -> bool:
    """Whether any of the settings is about how ranks are laid out."""
    return any(key in _KEYS for key in settings)


def asked_relayout(old: Layout, settings: Mapping[str, Any]) -> Relayout:
    """The new layout that settings ask for together; `UsageError` where there is none."""
    asked = [key for key in _DATA if key in settings]
    if len(asked) > 1:
        raise UsageError(
            f"{' and '.join(asked)} both say how many replicas there are", hint="set one of them"
        )
    degrees = {name: int(settings.get(f"parallelism.{name}", size)) for name, size in old.degrees.items()}
    new = replace(old, degrees=degrees)
    removed: frozenset[int] = frozenset()
    if "ranks" in settings or "ranks.add" in settings:
        world = int(settings.get("ranks", 0)) or old.world_size + int(settings["ranks.add"])
        each = new.model_size
        if world % each:
            raise UsageError(f"{world:,} ranks are no multiple of the {each} that hold a replica ({new})")
        new = new.with_degrees(dp=world // each)
    elif "ranks.remove" in settings:
        removed = _with_replicas(old, settings["ranks.remove"])
        if new != old:
            raise UsageError("ranks.remove takes ranks out of the layout that was traced, no other one")
        new = old.with_degrees(dp=old.degrees["dp"] - len(removed) // old.model_size)
    if new.world_size > MOST_RANKS:
        raise UsageError(f"{new.world_size:,} ranks are more than {MOST_RANKS:,}")
    if new.nested and new.degrees["dp"] % new.degrees["ep"]:
        raise UsageError(f"experts over {new.degrees['ep']} ranks do not divide dp {new.degrees['dp']}")
    places = dict(settings.get("ranks.replace", ()))
    absent = [rank for rank in places if rank >= old.world_size or rank in removed]
    if absent:
        raise UsageError(f"the job has no rank {absent[0]} to replace")
    own = [place for place in places.values() if place < old.world_size]
    if own:
        raise UsageError(
            f"place {own[0]} is that of a rank of the job", hint=f"spares are from {old.world_size} on"
        )
    return Relayout(old, new, BATCHES[int(settings.get("batch", 0))] == "global", removed, places)


def _with_replicas(old: Layout, ranks: Sequence[int]) -> frozenset[int]:
    """Those ranks, and all others of the replicas that cannot go on without them."""
    absent = [rank for rank in ranks if rank >= old.world_size]
    if absent:
        raise UsageError(f"the job has no rank {absent[0]}: it has {old.world_size:,}")
    if old.nested:
        raise InputError("ranks.remove: experts are spread over replicas, so that none can go on without it")
    lost = {old.place_along(rank, "dp") for rank in ranks}
    if len(lost) == old.degrees["dp"]:
        raise InputError(
            f"ranks.remove: no replica of the model is left ({old})",
            hint="ranks.replace=RANK:PLACE puts a spare in its place",
        )
    return frozenset(rank for rank in range(old.world_size) if old.place_along(rank, "dp") in lost)
