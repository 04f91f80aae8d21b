# SPDX-License-Identifier: Apache-2.0
"""Model bandwidth utilisation: what decode has to read of memory, over what memory could deliver."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from cclbench.analyzers.benchmarks import Benchmark
from cclbench.analyzers.iterations import iteration_names
from cclbench.analyzers.metric import Coverage, Failed, NotApplicable, Value, metric, no_value
from cclbench.analyzers.serving import latency_values, of_each_benchmark, output_tokens, rate_value
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
"""Of a weight, by the card's precision."""
_CACHED: Final = 2.0
"""Least bytes of a cached element: engines keep 16 bits beside narrower weights unless told otherwise."""


class Reads(NamedTuple):
    """Bytes that a device reads for one more token of each sequence that it decodes."""

    weights: float
    of_token: float
    """Key and value of one token of one sequence, in all layers."""

    @property
    def read_words(self) -> str:
        """What is read, for people."""
        weights, cached = (humanise(size, "B") for size in self)
        return f"a device reads {weights} of weights, and {cached} of KV cache for each token in it"


@metric(
    "memory.mbu",
    definition="Model bandwidth utilisation of decode: weights and KV cache that a device must read for one"
    " more token of each sequence, over what its memory delivers in that time at its peak. Weights: N_mm (see"
    " compute.mfu) at the card's precision; of a mixture of experts those of one token, a lower bound."
    " Cache: keys and values of all layers L and H_kv heads, of 2 bytes an element or more, of every token in"
    " context. Both are split over tp devices. In a trace the time is that of decode iterations, and the"
    " engine's names of them tell their sequences and, of vLLM's detailed ones, their tokens in context; else"
    " a sequence has its input and half of its output, by the card. Without such a trace the time is"
    " serving.tpot, in which prefills run, too, and serving.output_throughput · serving.tpot sequences decode"
    " at once, over hardware.count / tp replicas.",
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
    not_applicable="neither a trace nor a client's file tells what a token takes, the card lacks a field or"
    " there is none, the catalog lacks the memory's bandwidth, or more than tensor parallelism splits the"
    " model",
)
def mbu(rank: RankView) -> Value:
    names, lengths = iteration_names(rank), rank.windows.ends - rank.windows.starts
    decodes = np.array([name is not None and serving_phase(name) == "decode" for name in names], np.bool_)
    if not decodes.any():
        raise NotApplicable("no iteration of the trace is one of decode alone")
    reads = _decode_reads(rank)
    tokens = np.array([_tokens_in_context(rank, name or "") for name in names], np.float64)
    used = decodes & ~np.isnan(tokens)
    if not used.any():
        raise NotApplicable("no name of a decode iteration tells how many requests it decodes")
    could = int(lengths[used].sum()) / NS_PER_S * hbm_bytes_per_s(rank)
    read = used.sum() * reads.weights + tokens[used].sum() * reads.of_token
    return Value(
        value=_checked_share(float(read / could)),
        weight=could,
        provenance="derived",
        reason=f"{reads.read_words}; {ALL_OPEN}" if rank.windows.open else reads.read_words,
        coverage=Coverage.of_rows(used[decodes], lengths[decodes]),
    )


@from_evidence("memory.mbu")
def mbu_of_clients(run: RunView) -> Iterable[Value]:
    """By each client's time per output token."""
    return of_each_benchmark(run, lambda one: iter([_of_client(run, one)]))


def _of_client(run: RunView, one: Benchmark) -> Value:
    each = next(iter(latency_values(one, "tpot")))
    rate = rate_value(one, "output_throughput", output_tokens)
    for name, told in (("tpot", each), ("output_throughput", rate)):
        if told.value is None:
            return no_value(f"the client tells no serving.{name}: {told.reason}")
    assert each.value is not None and rate.value is not None  # noqa: S101, PT018 - else there is no value
    reads = _decode_reads(run)
    replicas = card_field(run, "hardware.count") / card_field(run, "parallelism.tp")
    sequences = rate.value * each.value / replicas
    read = reads.weights + sequences * _mean_context(run) * reads.of_token
    return Value(
        value=_checked_share(read / (each.value * catalog_hbm_bytes_per_s(run))),
        provenance="derived",
        reason=f"{reads.read_words}; {sequences:.3g} sequences decode at once, by the client's rates",
        coverage=each.coverage,
    )


def _decode_reads(of: Platform) -> Reads:
    """By the card's model, precision and tensor parallelism; not applicable where the card lacks a field."""
    size = _BYTES[card_field(of, "workload.precision")]
    plan = card_field(of, "parallelism")
    if plan.pp > 1 or plan.cp > 1 or plan.ep > plan.tp:
        raise NotApplicable(
            "what a device reads is known where tensor parallelism alone splits the model: the card has"
            f" pp {plan.pp}, cp {plan.cp}, ep {plan.ep}, tp {plan.tp}"
        )
    weights = matmul_parameters(of) * size
    layers, heads = (card_field(of, f"workload.model.{field}") for field in ("layers", "kv_heads"))
    # Heads that are fewer than devices are on several of them.
    cached = layers * max(heads / plan.tp, 1) * head_elements(of) * max(size, _CACHED)
    return Reads(weights / plan.tp, cached)


def _tokens_in_context(of: Platform, name: str) -> float:
    """Of all requests in an iteration, by its name and the card; NaN where the name tells no requests."""
    lengths, requests = request_lengths(name), batch_size(name)
    if lengths is not None:
        return lengths.keys
    return np.nan if requests is None else requests * _mean_context(of)


def _mean_context(of: Platform) -> float:
    """Tokens in a request's context while it is decoded, on average."""
    given, made = (card_field(of, f"workload.batch.{field}_length") for field in ("input", "output"))
    return float(given + made / 2)


def _checked_share(share: float) -> float:
    if share > 1:
        raise Failed(f"decode would read {share:.3g} of what memory can deliver: card and evidence disagree")
    return share
