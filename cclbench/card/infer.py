# SPDX-License-Identifier: Apache-2.0
"""A new card from facts in traces, with gaps marked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import structs

from cclbench.card.consistency import layout_contradictions
from cclbench.card.fields import drop_empty
from cclbench.card.model import CardTrace
from cclbench.card.write import render_card
from cclbench.ground.errors import UsageError
from cclbench.ground.file_names import stored_name
from cclbench.ground.text import quoted_value


@dataclass(frozen=True)
class CardFacts:
    """Facts for a card, from the traces of a run or from a running job; None and () if unknown.

    `per_node` is the number of devices that a node holds, whether all are used or not;
    `accelerator` is a catalog id, `accelerator_name` the name as the trace prints it; `groups` are
    process groups, each with its description (`mesh_tp`) and global ranks; `degrees` are the parallel degrees
    that a job's log states, for dimensions that no group names; `precision` is a number
    format of the card (bf16), `phase` training, inference or serving.  A trace's `path` is as the card will
    name it, its `ranks` are those found inside.
    """

    traces: tuple[CardTrace, ...]
    world_size: int | None = None
    accelerator: str | None = None
    accelerator_name: str | None = None
    per_node: int | None = None
    framework: str | None = None
    framework_version: str | None = None
    communication_library: str | None = None
    communication_version: str | None = None
    groups: tuple[tuple[str, tuple[int, ...]], ...] = ()
    precision: str | None = None
    phase: str | None = None
    steps: int | None = None
    model: Mapping[str, Any] = field(default_factory=dict)
    batch: Mapping[str, Any] = field(default_factory=dict)
    degrees: Mapping[str, int] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


# Words in a process group's description that name one parallel dimension, as PyTorch device meshes
# (`mesh_tp`), Megatron-LM (`TENSOR_MODEL_PARALLEL_GROUP`) and vLLM (`tp:0`) write them.
_DIMENSIONS = {
    "dp_replicate": "dp_replicate",
    "dp_shard": "dp_shard",
    "fsdp": "dp_shard_cp",
    "dp_shard_cp": "dp_shard_cp",
    "dp": "dp",
    "data_parallel": "dp",
    "tp": "tp",
    "tensor_model_parallel": "tp",
    "pp": "pp",
    "pipeline_model_parallel": "pp",
    "cp": "cp",
    "context_parallel": "cp",
    "ep": "ep",
    "expert_model_parallel": "ep",
}
_DECORATION = re.compile(r"^mesh_|_group$|:\d+$")
_DP_UNKNOWN = "the trace names a group dp of {n} ranks; if it shards (FSDP, ZeRO), dp_shard is {n} instead"


def infer_card(facts: CardFacts, card_id: str | None = None) -> str:
    """YAML of a version 2 card with `facts`, and comments to fill in for missing fields.

    `card_id` is the data point's id; by default it is taken from the folder under `traces/`.  Parallel
    degrees that contradict the number of ranks, or one another, are gaps, too.
    """
    notes: dict[str, str] = {}
    if facts.accelerator is None and facts.accelerator_name:
        notes["hardware.accelerator"] = f"the trace says {quoted_value(facts.accelerator_name)}"
    traces = [drop_empty(**{**structs.asdict(trace), "ranks": list(trace.ranks)}) for trace in facts.traces]
    card: dict[str, Any] = {
        "version": 2,
        "id": card_id or _data_point_id(facts),
        "description": _card_description(facts),
        "workload": drop_empty(
            phase=facts.phase,
            model=facts.model,
            precision=facts.precision,
            batch=facts.batch,
            steps=facts.steps,
        ),
        "hardware": drop_empty(
            accelerator=facts.accelerator, count=facts.world_size, per_node=_per_node(facts, notes)
        ),
        "software": drop_empty(
            framework=drop_empty(name=facts.framework, version=facts.framework_version),
            communication=drop_empty(
                library=facts.communication_library,
                version=facts.communication_version,
                environment=facts.environment,
            ),
        ),
        "parallelism": {**facts.degrees, **_group_degrees(facts, notes)},
        "evidence": drop_empty(traces=traces),
    }
    if contradiction := next(layout_contradictions(card), None):
        degrees = card.pop("parallelism")
        notes["parallelism"] = f"with the degrees that the traces state {contradiction[1]}"
        notes |= {f"parallelism.{name}": f"the traces state {number}" for name, number in degrees.items()}
    notes["description"] = "purpose of the workload"
    if facts.steps is not None:
        notes["workload.steps"] = "steps in the traces; the run may have taken more"
    return render_card(card, notes)


def _data_point_id(facts: CardFacts) -> str | None:
    """The `<id>` of `traces/<id>/...`, if all files share it."""
    places = {PurePosixPath(trace.path).parts[:2] for trace in facts.traces}
    place = places.pop() if len(places) == 1 else ()
    return place[1] if len(place) == 2 and place[0] == "traces" else None


def _card_description(facts: CardFacts) -> str:
    ranks = "one rank" if facts.world_size == 1 else f"{facts.world_size or 'an unknown number of'} ranks"
    device = facts.accelerator or facts.accelerator_name or "an unknown accelerator"
    return f"Traces of {ranks} on {device}."


def _per_node(facts: CardFacts, notes: dict[str, str]) -> int | None:
    """Devices used per node: those of a node, unless the ranks do not fill whole nodes."""
    holds, ranks = facts.per_node, facts.world_size
    if holds is not None and ranks is not None and ranks % holds:
        notes["hardware.per_node"] = f"a node has {holds}, and there are {ranks} ranks"
        return None
    return holds


def _group_degrees(facts: CardFacts, notes: dict[str, str]) -> dict[str, int]:
    """Parallel degrees: sizes of the groups whose description names a dimension.

    A dimension whose groups differ in size is left as a gap.
    """
    sizes: dict[str, set[int]] = {}
    for description, ranks in facts.groups:
        name = _DIMENSIONS.get(_DECORATION.sub("", _DECORATION.sub("", description.strip().lower())))
        if name is not None:
            sizes.setdefault(name, set()).add(len(ranks))
    degrees = {name: size.pop() for name, size in sizes.items() if len(size) == 1}
    if "dp_shard_cp" in degrees:  # torchtitan's FSDP groups hold the context-parallel ranks too
        degrees.setdefault("dp_shard", max(degrees.pop("dp_shard_cp") // degrees.get("cp", 1), 1))
    if "dp" in degrees:
        n = degrees.pop("dp")
        if "dp_shard" not in degrees and "dp_replicate" not in degrees:
            degrees["dp_replicate"] = n
            notes["parallelism.dp_replicate"] = _DP_UNKNOWN.format(n=n)
    return degrees


def relative_to_root(facts: CardFacts, root: Path) -> CardFacts:
    """`facts` with the traces' paths relative to `root`, the folder that the card's paths are relative to.

    Raises `UsageError` for a trace outside `root`.
    """
    traces = []
    for trace in facts.traces:
        path = Path(trace.path).resolve()
        if not path.is_relative_to(root.resolve()):
            raise UsageError(
                f"is outside {root}, so a card there cannot name it",
                where=trace.path,
                hint="put the card (-o) into a folder above the traces",
            )
        traces.append(structs.replace(trace, path=stored_name(path.relative_to(root.resolve()))))
    return replace(facts, traces=tuple(traces))
