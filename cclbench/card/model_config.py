# SPDX-License-Identifier: Apache-2.0
"""Sizes of a model from its Hugging Face configuration; what it does not state with certainty is left out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeGuard

from cclbench.card.fields import drop_empty
from cclbench.card.json_schema import value_misfit
from cclbench.ground.errors import InputError

NAME: Final = "config.json"
_LARGEST_BYTES: Final = 1_000_000
_SIZES: Final = {
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "head_dim": "head_dim",
    "hidden_size": "hidden",
    "vocab_size": "vocabulary",
    "tie_word_embeddings": "tied_embeddings",
}
"""Fields of a configuration, and the corresponding fields of the card."""
_EXPERTS: Final = ("num_local_experts", "num_experts", "n_routed_experts")
_COUNTED: Final = ("llama", "mistral", "mixtral", "qwen2", "qwen3")
"""Values of `model_type` whose parameters are counted: tokens embedded by a table, blocks of attention
(grouped queries), a gated MLP or experts of them, and two norms."""


def model_sizes(lookup: Callable[[str], Any]) -> dict[str, Any]:
    """Fields of `workload.model` by a configuration's fields; empty for an encoder with a decoder.

    Models that cache a latent vector (multi-head latent attention) have no `kv_heads`.
    """
    if lookup("is_encoder_decoder"):
        return {}
    sizes = {ours: value for theirs, ours in _SIZES.items() if isinstance(value := lookup(theirs), int)}
    if lookup("kv_lora_rank"):
        sizes.pop("kv_heads", None)
    return sizes


def read_model_config(path: Path) -> dict[str, Any] | None:
    """Fields of `workload.model` by the configuration at `path`; None if it is no model's.

    Of the families `llama`, `mistral`, `mixtral`, `qwen2` and `qwen3` also the parameters.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_BYTES + 1)
        config = json.loads(content) if len(content) <= _LARGEST_BYTES else None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except (ValueError, RecursionError):
        return None
    if not isinstance(config, dict) or value_misfit(config.get("model_type"), "workload.model.family"):
        return None
    stated = model_sizes(config.get)
    sizes = {
        name: value for name, value in stated.items() if not value_misfit(value, f"workload.model.{name}")
    }
    if not sizes:
        return None
    routed = any(_is_count(config.get(key)) and config[key] > 1 for key in _EXPERTS)
    fields = {"family": config["model_type"], **({"moe": True} if routed else {}), **sizes}
    return fields | _counted_parameters(config, sizes)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and value > 0


def _counted_parameters(config: Mapping[str, Any], sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of a model of a known family; empty if a size is missing or the family is another.

    embedding  V·h, once more for an output head of its own
    a layer    attention h·d·(2·H + 2·KV) + biases; MLP 3·h·f, of each expert, + router h·E; norms 2·h
    the end    a norm, h
    """
    family = config["model_type"]
    names = ("vocabulary", "hidden", "layers", "heads", "kv_heads", "tied_embeddings")
    width = config.get("intermediate_size")
    if family not in _COUNTED or not all(name in sizes for name in names) or not _is_count(width):
        return {}
    vocabulary, hidden, layers, heads, kv_heads, tied = (sizes[name] for name in names)
    size = sizes.get("head_dim") or (hidden // heads if family != "qwen3" else None)
    is_moe = family == "mixtral"
    keys = ("num_local_experts", "num_experts_per_tok")
    experts, used = (config.get(key) if is_moe else 1 for key in keys)
    if size is None or not (_is_count(experts) and _is_count(used)):
        return {}
    query, key = heads * size, kv_heads * size
    attention = 2 * hidden * (query + key)
    if family == "qwen2":
        attention += query + 2 * key
    elif config.get("attention_bias"):
        attention += query + 2 * key + hidden
    if family == "qwen3":
        attention += 2 * size  # norms of queries and keys
    mlp = 3 * hidden * width + ((2 * width + hidden) if config.get("mlp_bias") else 0)
    table = vocabulary * hidden

    def total(mlps: Any) -> int:
        router = hidden * experts if is_moe else 0
        return int(
            table * (1 if tied else 2) + layers * (attention + mlps * mlp + router + 2 * hidden) + hidden
        )

    return drop_empty(
        head_dim=size,
        moe=is_moe,
        parameters=total(experts),
        active_parameters=total(used) if is_moe else None,
        embedding_parameters=table,
    )
