# SPDX-License-Identifier: Apache-2.0
"""Facts about a running PyTorch job for its card; uncertain ones are left out."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.distributed as dist

from cclbench.capture.begun_card import check_phase, environment_variables, on_device
from cclbench.card import CardFacts
from cclbench.card.fields import drop_empty
from cclbench.card.model_config import model_sizes

_VARIABLES: Final = ("NCCL_", "TORCH_NCCL_", "GLOO_")
_SHARDED_BY: Final = ("tensor_model_parallel", "ds_numel")
"""Attributes of parameters of which a rank has only a shard, in Megatron-LM and DeepSpeed."""

_PUBLISHED: Final = re.compile(r"[\w.-]+(/[\w.-]+)?")
"""A model's name on the Hugging Face Hub."""
_WRAPPERS: Final = {
    "DataParallel": "module",
    "DeepSpeedEngine": "module",
    "DistributedDataParallel": "module",
    "FullyShardedDataParallel": "module",
    "OptimizedModule": "_orig_mod",
}
"""Attribute of the wrapped module, by wrapper."""
_REPLICATED: Final = "DistributedDataParallel"
_SHARDED: Final = "FSDPModule"


def rank_and_world() -> tuple[int, int]:
    """This process's rank and the number of ranks: torch.distributed's, else the launcher's, else 0 of 1."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def default_backend() -> str | None:
    """The backend of the default process group; None without one."""
    return dist.get_backend() if dist.is_available() and dist.is_initialized() else None


@dataclass(frozen=True)
class CapturedJob:
    """Facts about the job that the caller gives; see `cclbench.torch.profile`."""

    model: Any = None
    mesh: Any = None
    global_batch: int | None = None
    sequence_length: int | None = None
    phase: str | None = None

    def __post_init__(self) -> None:
        check_phase(self.phase)

    def card_facts(self, *, trained: bool) -> CardFacts:
        """All facts for the card; `trained` is whether an optimizer took a step."""
        per_node = os.environ.get("LOCAL_WORLD_SIZE")
        library, version = _collective_library()
        facts = CardFacts(
            (),
            world_size=rank_and_world()[1],
            per_node=int(per_node) if per_node else None,
            framework="pytorch",
            framework_version=str(torch.__version__),
            communication_library=library,
            communication_version=version,
            groups=tuple(self._dimension_groups()),
            phase=self.phase or ("training" if trained else None),
            model={} if self.model is None else self._model_facts(),
            batch=drop_empty(**{"global": self.global_batch, "sequence_length": self.sequence_length}),
            environment=environment_variables(*_VARIABLES),
        )
        return self._with_device(facts)

    def _with_device(self, facts: CardFacts) -> CardFacts:
        """Add the device of the model; without a model the CUDA device, if the process used it."""
        first = None if self.model is None else next(iter(self.model.parameters()), None)
        kind = first.device.type if first is not None else "cuda" if torch.cuda.is_initialized() else None
        if kind == "cuda":
            device = torch.cuda.get_device_properties(torch.cuda.current_device())
            return on_device(facts, device.name, device.total_memory)
        return on_device(facts, "CPU") if kind == "cpu" or default_backend() == "gloo" else facts

    def _model_facts(self) -> dict[str, Any]:
        """Name and sizes of the model."""
        model = _unwrap_model(self.model)
        config = getattr(model, "config", None)
        sizes = {} if config is None else model_sizes(lambda key: getattr(config, key, None))
        if getattr(model, "get_output_embeddings", lambda: None)() is None:
            sizes.pop("tied_embeddings", None)  # without an output head nothing is tied
        name = str(getattr(config, "_name_or_path", ""))
        published = _PUBLISHED.fullmatch(name) is not None and not os.path.exists(name)
        return drop_empty(
            name=name if published else _class_name(model), parameters=self._parameter_count(), **sizes
        )

    def _parameter_count(self) -> int | None:
        """Number of parameters of the model; None if this rank may have only a shard of them."""
        names = tuple(getattr(self.mesh, "mesh_dim_names", None) or ())
        parameters = list(self.model.parameters())
        in_parts = any(hasattr(parameter, mark) for parameter in parameters for mark in _SHARDED_BY)
        flat = any(type(module).__name__ == "FullyShardedDataParallel" for module in self.model.modules())
        # The size of a DTensor is that of all its shards.
        return (
            None
            if in_parts or flat or "pp" in names
            else sum(parameter.numel() for parameter in parameters) or None
        )

    def _dimension_groups(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Process groups of known dimension: those of the mesh, and of DistributedDataParallel."""
        replicated = (
            getattr(self.model, "process_group", None) if _is_named(self.model, _REPLICATED) else None
        )
        sharded = _is_named(self.model, _SHARDED)
        names = tuple(getattr(self.mesh, "mesh_dim_names", None) or ())
        for name in names:
            ranks = tuple(dist.get_process_group_ranks(self.mesh.get_group(name)))
            dimension = "dp_replicate" if replicated is not None else "dp_shard" if sharded else name
            yield f"mesh_{dimension if name == 'dp' else name}", ranks
        if replicated is not None and not names:
            yield "dp_replicate", tuple(dist.get_process_group_ranks(replicated))


def _is_named(model: Any, name: str) -> bool:
    return any(base.__name__ == name for base in type(model).__mro__)


def _unwrap_model(model: Any) -> Any:
    """The module as its author has it, out of DistributedDataParallel, torch.compile and their like."""
    while (inside := _WRAPPERS.get(type(model).__name__)) is not None:
        model = getattr(model, inside)
    return model


def _class_name(model: Any) -> str:
    """The name of its class: FSDP2 derives one, FSDPLlama, from what it shards."""
    bases = type(model).__bases__
    return bases[-1].__name__ if bases[0].__name__ == _SHARDED else type(model).__name__


def _collective_library() -> tuple[str | None, str | None]:
    """The library that moves the default group's bytes, as cards call it, and its version."""
    name = default_backend()
    if name == "nccl":
        version = ".".join(map(str, torch.cuda.nccl.version()))
        return ("rccl" if torch.version.hip else "nccl"), version
    return (name, None) if name in ("gloo", "mpi") else (None, None)
