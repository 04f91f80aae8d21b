# SPDX-License-Identifier: Apache-2.0
"""Convert version 1 cards to version 2: fields that cannot be converted with certainty are reported."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from cclbench.card.bandwidth import believable_bandwidths
from cclbench.card.evidence import root_of
from cclbench.card.fields import card_field as at
from cclbench.card.fields import card_leaves, put_field
from cclbench.card.json_schema import schema_part, value_misfit
from cclbench.card.read import Document, parse_card, read_card
from cclbench.card.references import Tier, accelerators_like, fabrics_like
from cclbench.card.validate import card_problems
from cclbench.card.write import render_card
from cclbench.ground.diagnostics import Path, Problem, check, dotted_path
from cclbench.ground.errors import CheckFailed, UsageError
from cclbench.ground.text import quoted_value

_MOVES = {
    "description": "description",
    "hf_url": "workload.model.url",
    "trace_url": "evidence.source_url",
    "contributor": "contributor.name",
    "contact": "contributor.contact",
    "workload.model.phase": "workload.phase",
    "workload.model.moe": "workload.model.moe",
    "workload.model.model_family": "workload.model.family",
    "workload.model.precision": "workload.precision",
    "workload.data.seq_len": "workload.batch.sequence_length",
    "workload.data.input_len": "workload.batch.input_length",
    "workload.data.output_len": "workload.batch.output_length",
    "workload.data.dataset": "workload.dataset",
    "workload.hardware.xpu_spec.total_count": "hardware.count",
    "workload.hardware.driver_version": "hardware.driver",
}
_SIZES = {
    "num_params": "parameters",
    "num_params_active": "active_parameters",
    "num_active_params": "active_parameters",
    "num_params_embedding": "embedding_parameters",
    "vocab_size": "vocabulary",
    "hidden_size": "hidden",
    "num_layers": "layers",
    "num_heads": "heads",
    "head_dim": "head_dim",
}
_EXECUTOR_MOVES = {
    "framework.version": "software.framework.version",
    "framework.compiler_tool_selection": "software.compiler",
    "communication_library.version": "software.communication.version",
    **{
        f"model_plan_parallelization.{degree}": f"parallelism.{degree}"
        for degree in ("dp_replicate", "dp_shard", "tp", "pp", "cp", "ep")
    },
}
_XPU = ("workload", "hardware", "xpu_spec")
_SCALE_OUT_NAMES = re.compile(r"slingshot|infiniband|roce|ethernet|efa|fat-?tree|dragonfly", re.IGNORECASE)
_SCALE_UP_NAMES = re.compile(r"torus|nvlink|nvswitch|xgmi|ici", re.IGNORECASE)
_NAME_AND_VERSION = re.compile(r"([A-Za-z][A-Za-z_-]*)-v?([0-9]+\.\S+)")


@dataclass(frozen=True)
class UpgradedCard:
    """A version 1 card converted to version 2.

    `text` is its YAML; `warnings` report fields that were not converted; `problems` are the errors that make
    `text` an invalid card.
    """

    text: str
    warnings: tuple[Problem, ...]
    problems: tuple[Problem, ...]


def upgrade_card(path: FilePath | str) -> UpgradedCard:
    """Convert the version 1 card at `path` to version 2.

    Raises `InputError` if the file is unreadable or not YAML, `UsageError` if it is already version 2,
    `CheckFailed` if it is not a card or has duplicate keys.
    """
    path = FilePath(path)
    source = read_card(path)
    check(source.problems)
    version = source.value.get("version")
    if version == 2:
        raise UsageError("is version 2 already; nothing to upgrade", where=source.file)
    if version != 1 and not (version is None and "workload" in source.value):
        raise CheckFailed(f"is no version 1 card: version is {quoted_value(version)}", where=source.file)
    moved = _Move(source, dict(card_leaves(source.value)))
    moved.warn_leftovers(path)
    text = render_card(moved.card, moved.notes)
    upgraded = parse_card(text, f"{source.file} (as version 2)")
    problems = card_problems(upgraded, root_of(path), contents=False)
    errors = tuple(problem for problem in problems if problem.severity == "error")
    return UpgradedCard(text, tuple(sorted(moved.warnings, key=lambda warning: warning.line or 0)), errors)


@dataclass
class _Move:
    """The conversion of one card: fields move from `left` to `card`; the rest of `left` is reported."""

    source: Document
    left: dict[Path, Any]
    card: dict[str, Any] = field(default_factory=lambda: {"version": 2})
    notes: dict[str, str] = field(default_factory=dict)
    warnings: list[Problem] = field(default_factory=list)

    def warn_leftovers(self, path: FilePath) -> None:
        self.left.pop(("version",), None)
        executor = (
            ("Model-executor",) if "Model-executor" in self.source.value else ("workload", "Model-executor")
        )
        self.move_identity(path)
        self.move_environment((*executor, "communication_library", "env"))
        self.drop_empties()
        for old, new in _MOVES.items():
            self.move_field(tuple(old.split(".")), new)
        for old, new in _SIZES.items():
            self.move_field(("workload", "model", old), f"workload.model.{new}")
            self.move_field(("workload", "model", "model_arch", old), f"workload.model.{new}")
        for old, new in _EXECUTOR_MOVES.items():
            self.move_field((*executor, *old.split(".")), new)
        self.move_batch((*executor, "model_plan_parallelization", "pp_mb"))
        self.move_steps()
        self.move_accelerator()
        self.move_network()
        self.move_software(executor)
        for path_left, value in self.left.items():
            self.warn_about(path_left, f"{quoted_value(value)} has no home in version 2; left out")

    def warn_about(self, path: Path, message: str, *homes: str) -> None:
        """Warn about the version 1 `path`, and note the reason at the version 2 paths `homes`."""
        line = self.source.line(path) if path else None
        self.warnings.append(Problem("warning", self.source.file, line, dotted_path(path), message))
        self.notes |= dict.fromkeys(
            homes, f"version 1: {dotted_path(path)} {message.removesuffix('; left out')}"
        )

    def put_home(self, home_path: str, value: Any, path: Path) -> None:
        """Put `value` at its version 2 path, or warn why it is not valid there."""
        there = at(self.card, *home_path.split("."), kind=object)
        if there is not None:
            self.warn_about(
                path, f"{quoted_value(value)} is left out: {home_path} is {quoted_value(there)} already"
            )
        elif reason := value_misfit(value, home_path):
            self.warn_about(path, f"{reason}; left out", home_path)
        else:
            put_field(self.card, home_path, value)

    def take_first(self, *path: str) -> Any:
        return self.left.pop(path, None)

    def take_text(self, *path: str) -> str | None:
        """Take a scalar as written: `2.10` stays 2.10."""
        if path not in self.left or path not in self.source.texts:
            return None
        del self.left[path]
        return self.source.texts[path].strip()

    def move_field(self, path: Path, home_path: str) -> None:
        if path not in self.left:
            return
        value = self.left.pop(path)
        if schema_part(home_path)["type"] == "string" and path in self.source.texts:
            value = self.source.texts[path].strip()
        self.put_home(home_path, value, path)

    def drop_empties(self) -> None:
        empty = [path for path, value in self.left.items() if _is_empty(value)]
        for path in empty:
            del self.left[path]
        if empty:
            names = ", ".join(map(dotted_path, empty))
            self.warn_about((), f"empty in version 1, so left out: {names}")

    def move_identity(self, path: FilePath) -> None:
        name = path.name
        while name.lower().endswith((".yaml", ".yml")):
            name = name.rpartition(".")[0]
        identity = re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip("._-")
        if identity != name:
            self.warn_about((), f"the file's name makes the id {quoted_value(identity)}", "id")
        if identity:
            self.card["id"] = identity

    def move_environment(self, path: Path) -> None:
        """Move the environment variables of communication; explicit empty values are kept."""
        texts = self.source.texts
        home_path = "software.communication.environment"
        variables = {
            str(p[-1]): p for p, v in self.left.items() if p[:-1] == path and p in texts and v is not None
        }
        variables = {name: p for name, p in variables.items() if value_misfit({name: ""}, home_path) is None}
        for p in variables.values():
            del self.left[p]
        if variables:
            self.put_home(home_path, {name: texts[p] for name, p in variables.items()}, path)

    def move_batch(self, micro: Path) -> None:
        path, home_path = ("workload", "data", "batch_size"), "workload.batch.global"
        size, scope = self.take_first(*path), self.take_first("workload", "data", "batch_size_scope")
        if isinstance(size, list):
            self.warn_about(
                path, f"{quoted_value(size)} is several batch sizes, and a card has one; left out", home_path
            )
        elif size is not None and scope not in {None, "global"}:
            self.warn_about(
                path,
                f"{quoted_value(size)} has the scope {quoted_value(scope)}, not global; left out",
                home_path,
            )
        elif size is not None:
            self.put_home(home_path, size, path)
        if (at(self.card, "parallelism", "pp") or 1) > 1:
            self.move_field(micro, "workload.batch.micro")
        elif micro in self.left:
            self.warn_about(
                micro,
                f"{quoted_value(self.left.pop(micro))} is left out: without pipeline stages it says nothing",
            )

    def move_steps(self) -> None:
        epochs, iterations = ("workload", "model", "epochs"), ("workload", "model", "iteration")
        counts = [self.left.get(epochs), self.left.get(iterations)]
        if all(type(count) is int for count in counts):
            self.take_first(*epochs)
            self.take_first(*iterations)
            self.put_home("workload.steps", math.prod(counts), iterations)

    def move_network(self) -> None:
        place = ("workload", "hardware", "network_topo")
        topology = self.take_text(*place, "topology") or ""
        if _SCALE_OUT_NAMES.search(topology):
            self.move_fabric("scale_out", topology, (*place, "topology"))
        elif _SCALE_UP_NAMES.search(topology):
            self.move_fabric("scale_up", topology, (*place, "topology"))
        elif topology:
            message = f"{quoted_value(topology)} is neither a known scale-up nor scale-out fabric; left out"
            self.warn_about(
                (*place, "topology"), message, "hardware.scale_up.fabric", "hardware.scale_out.fabric"
            )
        path = (*place, "bandwidth_gbps")
        values = self.take_first(*path)
        if values is None:
            return
        values = values if isinstance(values, list) else [values]
        model = self.source.texts.get((*_XPU, "model"), "")
        believed, doubts = believable_bandwidths(values, model, topology)
        for side, quantity in believed.items():
            self.put_home(f"hardware.{side}.bandwidth", quantity, path)
        for reason in dict.fromkeys(reason for _, reason in doubts):
            homes = [f"hardware.{side}.bandwidth" for side, why in doubts if why == reason]
            self.warn_about(
                path, f"{quoted_value(values)} {reason}; left out of {' and '.join(homes)}", *homes
            )

    def move_fabric(self, tier: Tier, name: str, path: Path) -> None:
        accelerator = at(self.card, "hardware", "accelerator", kind=str)
        self.put_reference(f"hardware.{tier}.fabric", name, fabrics_like(name, tier, accelerator), path)

    def put_reference(self, home_path: str, name: str, like: list[str], path: Path) -> None:
        """Put the catalog entry that a name matches, if it matches only one."""
        if len(like) == 1:
            self.put_home(home_path, like[0], path)
        else:
            noun = home_path.rpartition(".")[2]
            reason = f"either {' or '.join(like)}" if like else f"no {noun} of the catalog"
            self.warn_about(path, f"{quoted_value(name)} is {reason}; left out", home_path)

    def move_accelerator(self) -> None:
        path = (*_XPU, "model")
        model = self.take_text(*path)
        if model is not None:
            like = accelerators_like(model)
            self.put_reference("hardware.accelerator", model, like, path)
            if len(like) == 1:
                self.take_first(*_XPU, "type")  # the catalog id says it
        count, per_node = at(self.card, "hardware", "count"), self.left.get((*_XPU, "count_per_node"))
        if count and isinstance(per_node, int) and per_node > count:
            reason = f"{per_node} is what a node holds, not what {count} accelerators use of it; left out"
            self.warn_about((*_XPU, "count_per_node"), reason, "hardware.per_node")
            self.take_first(*_XPU, "count_per_node")
        self.move_field((*_XPU, "count_per_node"), "hardware.per_node")

    def move_software(self, executor: tuple[str, ...]) -> None:
        path = (*executor, "framework", "name")
        name = self.take_text(*path)
        versioned = _NAME_AND_VERSION.fullmatch(name or "")
        if versioned and at(self.card, "software", "framework", "version", kind=str) is None:
            name = versioned[1]
            self.put_home("software.framework.version", versioned[2], path)
        if name is not None:
            self.put_home("software.framework.name", name, path)
        path = (*executor, "communication_library", "name")
        library = self.take_text(*path)
        if library is not None:
            self.put_home("software.communication.library", library.lower().replace("++", "pp"), path)
        path = (*executor, "protocol_selection")
        protocols = self.take_first(*path)
        if protocols is not None:
            self.put_home("software.communication.protocols", protocols, path)


def _is_empty(value: Any) -> bool:
    items = value if isinstance(value, list) else [value]
    return all(item is None or item in ("", {}) for item in items)
