# SPDX-License-Identifier: Apache-2.0
"""FLOPs of a step of the card's model, from the sizes that the card states."""

from __future__ import annotations

from cclbench.analyzers.view.platform import Platform, card_field, samples_per_step, tokens_per_sample

_HEAD = "without which the output head's product cannot be counted"


def flops_per_step(platform: Platform) -> dict[str | None, int]:
    """FLOPs of one step over all ranks, a multiply-add as two; of a sequence of S tokens, by N_mm:

        training   6·N_mm·S + 6·L·H·(Q + V)·pairs
        inference  2·(N_mm − head)·S + 2·head + 2·L·H·(Q + V)·pairs

    with pairs = S² under key None, the convention (PaLM, arXiv:2204.02311, appendix B), and also, under the
    card's `attention` if that is `causal` or `window`, the pairs of tokens that attend.
    `NotApplicable` where the card lacks a size.
    """
    samples, tokens = samples_per_step(platform), tokens_per_sample(platform)
    products = matmul_parameters(platform) * tokens
    passes = 3
    if card_field(platform, "workload.phase") == "inference":
        # only the last token's logits are needed
        passes, products = 1, products - _head_parameters(platform) * (tokens - 1)
    pair = _attention_flops_per_pair(platform)
    return {
        stat: samples * passes * (2 * products + pair * pairs)
        for stat, pairs in _attended_pairs(platform, tokens).items()
    }


def matmul_parameters(platform: Platform) -> int:
    """N_mm: parameters in matrix products, N − embedding + the head where it shares the table."""
    model = card_field(platform, "workload.model")
    dense = model.active_parameters is None and not model.moe
    size = card_field(platform, "workload.model.parameters" if dense else "workload.model.active_parameters")
    multiplied = size - card_field(platform, "workload.model.embedding_parameters")
    tied = card_field(platform, "workload.model.tied_embeddings", use=_HEAD)
    return int(multiplied + _head_parameters(platform) if tied else multiplied)


def _head_parameters(platform: Platform) -> int:
    vocabulary, hidden = (
        card_field(platform, f"workload.model.{f}", use=_HEAD) for f in ("vocabulary", "hidden")
    )
    return int(vocabulary * hidden)


def _attention_flops_per_pair(platform: Platform) -> int:
    """2·L·H·(Q + V): products of query and key, and of weight and value, for a pair of tokens."""
    layers, heads = (card_field(platform, f"workload.model.{f}") for f in ("layers", "heads"))
    return int(2 * layers * heads * head_elements(platform))


def head_elements(platform: Platform) -> int:
    """Q + V: elements of a token's key (or query) and value in one head."""
    model = card_field(platform, "workload.model")
    return sum(
        int(card_field(platform, "workload.model.head_dim")) if dimension is None else dimension
        for dimension in (model.query_key_dim, model.value_dim)
    )


def _attended_pairs(platform: Platform, tokens: int) -> dict[str | None, int]:
    """Pairs of tokens of a sequence: S², and those within the card's attention.

    Causal: S(S + 1) / 2. A window of w tokens, including the token itself: w(w + 1) / 2 + (S − w)·w for
    w ≤ S, else as causal.
    """
    model = card_field(platform, "workload.model")
    pairs: dict[str | None, int] = {None: tokens * tokens}
    if model.attention in ("causal", "window"):
        reach = tokens if model.attention == "causal" else min(model.attention_window, tokens)
        pairs[model.attention] = reach * (reach + 1) // 2 + (tokens - reach) * reach
    return pairs
