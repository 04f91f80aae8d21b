# SPDX-License-Identifier: Apache-2.0
"""Consistency of a card's fields: degrees with the count, parts with the whole.

Fields of the wrong type are treated as absent; the schema check reports them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from cclbench.card.fields import card_field
from cclbench.ground.diagnostics import Path, Problem, dotted_path
from cclbench.ground.yaml_file import Document

DEGREES = ("dp_replicate", "dp_shard", "tp", "pp", "cp")

Finding = tuple[Path, str]


def consistency_problems(document: Document) -> list[Problem]:
    """Every contradiction between fields of the card."""
    card = document.value
    parts = (
        _node_contradictions,
        layout_contradictions,
        _parameter_contradictions,
        _attention_contradictions,
        _rank_contradictions,
    )
    findings = [finding for part in parts for finding in part(card)]
    return [Problem("error", document.file, document.line(p), dotted_path(p), m) for p, m in findings]


def _node_contradictions(card: Mapping[str, Any]) -> Iterator[Finding]:
    count, per_node = card_field(card, "hardware", "count"), card_field(card, "hardware", "per_node")
    if count and per_node and per_node > count:
        yield (("hardware", "per_node"), f"is {per_node}, more than hardware.count, {count}")
    elif count and per_node and count % per_node:
        yield ("hardware", "per_node"), f"is {per_node}, which does not divide hardware.count, {count}"


def layout_contradictions(card: Mapping[str, Any]) -> Iterator[Finding]:
    """Contradictions of the parallel degrees with the number of accelerators and with one another."""
    yield from _degree_contradictions(card)
    yield from _expert_contradictions(card)


def _degree_contradictions(card: Mapping[str, Any]) -> Iterator[Finding]:
    count = card_field(card, "hardware", "count")
    if not count or card_field(card, "parallelism", kind=Mapping) is None:
        return
    products = _layout_products(card)
    if count not in products.values():
        rules = " or ".join(f"{formula} = {product}" for formula, product in products.items())
        yield ("parallelism",), f"{rules}, but hardware.count is {count}; a degree left out is 1"


def _layout_products(card: Mapping[str, Any]) -> dict[str, int]:
    """Number of accelerators by each formula that the card's framework may use.

    PyTorch meshes and Megatron-LM: the product of all five degrees.  MaxText has a separate expert axis
    (ici_expert_parallelism).  vLLM's decode context parallelism, SGLang's context parallelism and its data
    parallelism with DP attention reuse the ranks of tp.
    """
    degree = {name: card_field(card, "parallelism", name) or 1 for name in (*DEGREES, "ep")}
    framework = framework_of(card)

    def degree_product(*names: str) -> tuple[str, int]:
        return " × ".join(names), math.prod(degree[name] for name in names)

    if framework == "maxtext":
        return dict([degree_product(*DEGREES, "ep")])
    products = dict([degree_product(*DEGREES)])
    if framework in {"vllm", "sglang"} and degree["cp"] > 1 and degree["tp"] % degree["cp"] == 0:
        products |= [degree_product("dp_replicate", "dp_shard", "tp", "pp")]
    inside = degree["dp_replicate"] * degree["dp_shard"] * degree["cp"]
    if framework == "sglang" and inside > 1 and degree["tp"] % inside == 0:
        products |= [degree_product("tp", "pp")]
    return products


def framework_of(card: Mapping[str, Any]) -> str:
    """The framework's name in lower case with hyphens; empty if the card has none."""
    name: str | None = card_field(card, "software", "framework", "name", kind=str)
    return (name or "").strip().lower().replace(" ", "-").replace("_", "-")


def _expert_contradictions(card: Mapping[str, Any]) -> Iterator[Finding]:
    ep = card_field(card, "parallelism", "ep") or 1
    if ep == 1:
        return
    rule, holds = _expert_rule(card, ep)
    if not holds:
        yield ("parallelism", "ep"), f"is {ep}, but {rule}"


def _expert_rule(card: Mapping[str, Any], ep: int) -> tuple[str, bool]:
    """The framework's rule for ep > 1 in words, and whether it holds."""
    degree = {name: card_field(card, "parallelism", name) or 1 for name in DEGREES}
    shard, tp, cp = degree["dp_shard"], degree["tp"], degree["cp"]
    dp = degree["dp_replicate"] * shard
    match framework_of(card):
        case (
            "torchtitan"
        ):  # torchtitan/distributed/parallel_dims.py: ep borrows all of cp, and dp_shard and tp
            product = shard * cp * tp
            rule = f"in torchtitan ep divides dp_shard × cp × tp = {product} and is a multiple of cp = {cp}"
            return rule, product % ep == 0 and ep % cp == 0
        case "megatron" | "megatron-lm" | "megatron-core":  # parallel_state.py; tp inside an expert may be 1
            product = dp * cp * tp
            return (
                f"in Megatron-LM ep divides dp_replicate × dp_shard × cp × tp = {product}",
                product % ep == 0,
            )
        case (
            "vllm"
        ):  # Expert Parallel Deployment: EP_SIZE = TP_SIZE × DP_SIZE (× prefill context parallelism)
            rule = f"in vLLM ep is tp × dp_replicate × dp_shard = {tp * dp}, or 1 where it is off"
            return rule, ep in {tp * dp, tp * dp * cp}
        case "sglang":  # tensor parallelism inside an expert is tp / ep
            return f"in SGLang ep divides tp = {tp}", tp % ep == 0
        case "maxtext":  # an axis of its own: counted by `_layout_products`
            return "in MaxText ep multiplies with the other degrees", True
    count = card_field(card, "hardware", "count")
    return f"ep divides hardware.count = {count}", not count or count % ep == 0


def _parameter_contradictions(card: Mapping[str, Any]) -> Iterator[Finding]:
    model: Path = ("workload", "model")

    def model_size(name: str) -> int:
        return card_field(card, *model, name) or 0

    total, embedding = model_size("parameters"), model_size("embedding_parameters")
    for part in ("active_parameters", "embedding_parameters"):
        if model_size(part) > total > 0:
            yield (*model, part), f"is {model_size(part):,}, more than all {total:,} parameters"
    head = model_size("vocabulary") * model_size("hidden")
    if head > embedding > 0:
        message = f"× hidden = {head:,}, more than the {embedding:,} embedding_parameters"
        yield (*model, "vocabulary"), message
    used = model_size("active_parameters") or total
    untied = card_field(card, *model, "tied_embeddings", kind=bool) is False
    if untied and embedding + head > used > 0:
        message = f"is false, but embedding_parameters + vocabulary × hidden = {embedding + head:,}"
        yield (*model, "tied_embeddings"), f"{message}, more than all {used:,} parameters of a token"


def _attention_contradictions(card: Mapping[str, Any]) -> Iterator[Finding]:
    kind = card_field(card, "workload", "model", "attention", kind=str)
    window = card_field(card, "workload", "model", "attention_window")
    if kind == "window" and window is None:
        yield ("workload", "model", "attention"), "is window, but attention_window does not say how long"
    elif kind != "window" and window is not None:
        yield ("workload", "model", "attention_window"), "belongs to attention: window only"


def _rank_contradictions(card: Mapping[str, Any]) -> Iterator[Finding]:
    count = card_field(card, "hardware", "count")
    traces = card_field(card, "evidence", "traces", kind=list) or []
    for i, trace in enumerate(traces):
        ranks = card_field(trace, "ranks", kind=list) if isinstance(trace, Mapping) else None
        high = [rank for rank in ranks or [] if isinstance(rank, int) and count and rank >= count]
        if high:
            path: Path = ("evidence", "traces", i, "ranks")
            yield path, f"names rank {high[0]}, but hardware.count is {count}: ranks go from 0 to {count - 1}"
