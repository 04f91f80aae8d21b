# SPDX-License-Identifier: Apache-2.0
"""Model bandwidth utilisation: bytes that decode must read, over what memory could deliver."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from cclbench.analyzers.benchmarks import Benchmark
from cclbench.analyzers.iterations import iteration_names
from cclbench.analyzers.metric import Coverage, Failed, NotApplicable, Value, metric, no_value
from cclbench.analyzers.serving import latency_values, output_tokens, rate_value, values_by_benchmark
from cclbench.analyzers.stand_ins import from_evidence
from cclbench.analyzers.view.model_flops import head_elements, matmul_parameters
from cclbench.analyzers.view.platform import Platform, card_field, catalog_hbm_bytes_per_s, hbm_bytes_per_s
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.run_view import RunView
from cclbench.analyzers.view.values import ALL_OPEN, NS_PER_S
from cclbench.classify.serving_steps import batch_size, request_lengths, serving_phase
from cclbench.ground.units import humanise

_BYTES: Final = {
    **dict.fromkeys(("fp4", "int4"), 0.5),
    **dict.fromkeys(("fp8", "int8"), 1.0),
    **dict.fromkeys(("bf16", "fp16"), 2.0),
    **dict.fromkeys(("fp32", "tf32"), 4.0),
    "fp64": 8.0,
}
"""Bytes of a weight, by the card's precision."""
_CACHED: Final = 2.0
"""Least bytes of a cached element: engines cache 16 bits even with narrower weights, by default."""


class Reads(NamedTuple):
    """Bytes that a device reads to decode one token of each sequence."""

    weights: float
    of_token: float
    """Key and value of one token of one sequence, in all layers."""

    @property
    def read_words(self) -> str:
        """What is read, in words."""
        weights, cached = (humanise(size, "B") for size in self)
        return f"a device reads {weights} of weights, and {cached} of KV cache for each token in context"


@metric(
    "memory.mbu",
    definition="Model bandwidth utilisation of decode: bytes of weights and KV cache that a device must read"
    " for the next token of each sequence, over what its memory could deliver in that time at peak. Weights:"
    " N_mm (see compute.mfu) at the card's precision; for a mixture of experts those of one token, a lower"
    " bound. Cache: keys and values of all layers L and H_kv heads for every token in context, at least 2"
    " bytes an element. Both are split over tp devices. In a trace, the time is that of decode iterations,"
    " whose annotations state the sequences and, in vLLM's detailed form, the tokens in context; else a"
    " sequence has its input and half of its output, by the card. Without such a trace, the time is"
    " serving.tpot, which includes prefills, and serving.output_throughput · serving.tpot sequences decode at"
    " once, over hardware.count / tp replicas.",
    formula="(N_mm · bytes + tokens in context · L · H_kv · (Q + V) · bytes) / (tp · time · peak)",
    unit="1",
    better="higher",
    inputs=(
        "events",
        "steps",
        "requests",
        "serving",
        "card: workload.model, workload.precision, workload.batch, parallelism, hardware.count",
        "catalog: memory bandwidth",
    ),
    not_applicable="neither a trace nor a client's file states the time of a token, there is no card or it"
    " lacks a field, the catalog lacks the memory bandwidth, or more than tensor parallelism splits the"
    " model",
)
def mbu(rank: RankView) -> Value:
    names, lengths = iteration_names(rank), rank.windows.ends - rank.windows.starts
    decodes = np.array([name is not None and serving_phase(name) == "decode" for name in names], np.bool_)
    if not decodes.any():
        raise NotApplicable("no iteration of the trace is a pure decode")
    reads = _decode_reads(rank)
    tokens = np.array([_tokens_in_context(rank, name or "") for name in names], np.float64)
    used = decodes & ~np.isnan(tokens)
    if not used.any():
        raise NotApplicable("no annotation of a decode iteration states the number of requests")
    could = int(lengths[used].sum()) / NS_PER_S * hbm_bytes_per_s(rank)
    read = used.sum() * reads.weights + tokens[used].sum() * reads.of_token
    return Value(
        value=_checked_share(float(read / could)),
        weight=could,
        provenance="derived",
        reason=f"{reads.read_words}; {ALL_OPEN}" if rank.windows.open else reads.read_words,
        coverage=Coverage.from_rows(used[decodes], lengths[decodes]),
    )


@from_evidence("memory.mbu")
def mbu_of_clients(run: RunView) -> Iterable[Value]:
    """From each client's time per output token."""
    return values_by_benchmark(run, lambda client: iter([_client_share(run, client)]))


def _client_share(run: RunView, client: Benchmark) -> Value:
    tpot = next(iter(latency_values(client, "tpot")))
    rate = rate_value(client, "output_throughput", output_tokens)
    for name, figure in (("tpot", tpot), ("output_throughput", rate)):
        if figure.value is None:
            return no_value(f"the client states no serving.{name}: {figure.reason}")
    assert tpot.value is not None and rate.value is not None  # noqa: S101, PT018 - else there is no value
    reads = _decode_reads(run)
    replicas = card_field(run, "hardware.count") / card_field(run, "parallelism.tp")
    sequences = rate.value * tpot.value / replicas
    read = reads.weights + sequences * _mean_context(run) * reads.of_token
    return Value(
        value=_checked_share(read / (tpot.value * catalog_hbm_bytes_per_s(run))),
        provenance="derived",
        reason=f"{reads.read_words}; {sequences:.3g} sequences decode at once, by the client's rates",
        coverage=tpot.coverage,
    )


def _decode_reads(platform: Platform) -> Reads:
    """Bytes read, by the card's model, precision and parallelism; `NotApplicable` where it lacks a field."""
    size = _BYTES[card_field(platform, "workload.precision")]
    plan = card_field(platform, "parallelism")
    if plan.pp > 1 or plan.cp > 1 or plan.ep > plan.tp:
        raise NotApplicable(
            "what a device reads is known only where tensor parallelism alone splits the model: the card has"
            f" pp {plan.pp}, cp {plan.cp}, ep {plan.ep}, tp {plan.tp}"
        )
    weights = matmul_parameters(platform) * size
    layers, heads = (card_field(platform, f"workload.model.{field}") for field in ("layers", "kv_heads"))
    # with fewer heads than devices, heads are replicated
    cached = layers * max(heads / plan.tp, 1) * head_elements(platform) * max(size, _CACHED)
    return Reads(weights / plan.tp, cached)


def _tokens_in_context(platform: Platform, name: str) -> float:
    """Tokens in context of an iteration's requests, by its name and the card; NaN without requests."""
    lengths, requests = request_lengths(name), batch_size(name)
    if lengths is not None:
        return lengths.keys
    return np.nan if requests is None else requests * _mean_context(platform)


def _mean_context(platform: Platform) -> float:
    """Mean number of tokens in a request's context while it is decoded."""
    input_tokens, produced_tokens = (
        card_field(platform, f"workload.batch.{field}_length") for field in ("input", "output")
    )
    return float(input_tokens + produced_tokens / 2)


def _checked_share(share: float) -> float:
    if share > 1:
        raise Failed(f"decode would need {share:.3g} of the memory's peak: card and evidence disagree")
    return share
