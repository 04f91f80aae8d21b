# SPDX-License-Identifier: Apache-2.0
"""A published row's flat metadata as a workload card, as far as cards have fields for it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cclbench.card.fields import put_field
from cclbench.card.upgrade import upgrade_card
from cclbench.ground.errors import CclbenchError
from cclbench.ground.text import printable
from cclbench.studies.published.leaderboard import PublishedRow

HOMES: Final = {
    "description": "description",
    "hf_url": "hf_url",
    "trace_url": "trace_url",
    **{
        key: f"workload.model.{key}"
        for key in ("model_family", "phase", "precision", "moe", "granularity", "epochs", "iteration")
    },
    **{
        key: f"workload.data.{key}" for key in ("batch_size", "seq_len", "input_len", "output_len", "dataset")
    },
    "hardware_type": "workload.hardware.xpu_spec.type",
    "hardware_model": "workload.hardware.xpu_spec.model",
    "total_count": "workload.hardware.xpu_spec.total_count",
    "count_per_node": "workload.hardware.xpu_spec.count_per_node",
    "network_topology": "workload.hardware.network_topo.topology",
    "driver_version": "workload.hardware.driver_version",
    "framework": "Model-executor.framework.name",
    "compiler": "Model-executor.framework.compiler_tool_selection",
    **{
        key: f"Model-executor.model_plan_parallelization.{key}"
        for key in ("tp", "pp", "pp_mb", "dp_replicate", "dp_shard", "ep", "cp")
    },
    "comm_library": "Model-executor.communication_library.name",
    "comm_library_ver": "Model-executor.communication_library.version",
    "comm_env": "Model-executor.communication_library.env",
    "protocol_selection": "Model-executor.protocol_selection",
}
"""Card field of each flat key of the leaderboard."""
_IN_MANIFEST: Final = ("workload_name", "trace_types", "metric_traces", "search", "trial", "settings")
"""Keys that are no fields of a card: the manifest keeps all metadata."""
_SIDES: Final = ("bandwidth_scaleout", "bandwidth_scaleup")


@dataclass(frozen=True, slots=True)
class PublishedCard:
    """The card's text, None if it would be invalid; and what it leaves out, or why there is none."""

    text: str | None
    left_out: tuple[str, ...]


def card_of(row: PublishedRow, run: str, folder: Path) -> PublishedCard:
    """The row's metadata as a card with the id `run`; `folder` is for a temporary file."""
    path = folder / f"{run}.yaml"
    # A JSON document is a YAML document.
    path.write_text(json.dumps(_version_1_card(row.metadata), ensure_ascii=False, indent=1), "utf-8")
    try:
        upgraded = upgrade_card(path)
    except CclbenchError as error:
        return PublishedCard(None, (f"no card: {printable(error.what)}",))
    finally:
        path.unlink()
    warnings = tuple(f"{p.path}: {p.message}" if p.path else p.message for p in upgraded.warnings)
    if upgraded.problems:
        problems = "; ".join(f"{p.path}: {p.message}" for p in upgraded.problems)
        return PublishedCard(None, (f"no card: it would be invalid: {problems}", *warnings))
    return PublishedCard(upgraded.text, (*warnings, *_unknown_fields(row.metadata)))


def _version_1_card(metadata: Mapping[str, Any]) -> dict[str, Any]:
    card: dict[str, Any] = {"version": 1, "description": metadata["workload_name"]}
    for key, home in HOMES.items():
        if metadata.get(key) not in (None, "", [], {}):
            put_field(card, home, metadata[key])
    sides = [metadata.get(key, "") for key in _SIDES]
    if any(sides):
        put_field(card, "workload.hardware.network_topo.bandwidth_gbps", sides)
    return card


def _unknown_fields(metadata: Mapping[str, Any]) -> Iterator[str]:
    fields = {*HOMES, *_IN_MANIFEST, *_SIDES}
    yield from (f"{printable(key)}: cards have no field for it" for key in metadata if key not in fields)
