# SPDX-License-Identifier: Apache-2.0
"""The FLOPs that a step of the card's model takes, by the sizes that the card states."""

from __future__ import annotations

from cclbench.analyzers.view.platform import Platform, card_field, samples_per_step, tokens_per_sample

_HEAD = "without which the output head's product cannot be counted"


def flops_per_step(of: Platform) -> dict[str | None, int]:
    """FLOPs of one step over all ranks, multiply and add as two: of a sequence of S tokens, by N_mm,

        training   6·N_mm·S + 6·L·H·(Q + V)·pairs
        inference  2·(N_mm − head)·S + 2·head + 2·L·H·(Q + V)·pairs

    with pairs = S² under None, the convention (PaLM, arXiv:2204.02311, appendix B), and beside it, under
    the card's `attention` where that is `causal` or `window`, the pairs of tokens that attend.
    Not applicable where the card lacks a size.
    """
    samples, tokens = samples_per_step(of), tokens_per_sample(of)
    products = matmul_parameters(of) * tokens
    passes = 3
    if card_field(of, "workload.phase") == "inference":
        # Only the last token's logits are needed.
        passes, products = 1, products - _head_parameters(of) * (tokens - 1)
    pair = _attention_flops_per_pair(of)
    return {
        stat: samples * passes * (2 * products + pair * pairs)
        for stat, pairs in _attended_pairs(of, tokens).items()
    }


def matmul_parameters(of: Platform) -> int:
    """N_mm: parameters that a token is multiplied by, N − embedding + the head where it shares the table."""
    model = card_field(of, "workload.model")
    dense = model.active_parameters is None and not model.moe
    size = card_field(of, "workload.model.parameters" if dense else "workload.model.active_parameters")
    multiplied = size - card_field(of, "workload.model.embedding_parameters")
    tied = card_field(of, "workload.model.tied_embeddings", use=_HEAD)
    return int(multiplied + _head_parameters(of) if tied else multiplied)


def _head_parameters(of: Platform) -> int:
    vocabulary, hidden = (card_field(of, f"workload.model.{f}", use=_HEAD) for f in ("vocabulary", "hidden"))
    return int(vocabulary * hidden)


def _attention_flops_per_pair(of: Platform) -> int:
    """2·L·H·(Q + V): the products of query and key, and of weight and value, of a token with another."""
    layers, heads = (card_field(of, f"workload.model.{f}") for f in ("layers", "heads"))
    return int(2 * layers * heads * head_elements(of))


def head_elements(of: Platform) -> int:
    """Q + V: elements of a token's key, or query, and value in one head."""
    model = card_field(of, "workload.model")
    return sum(
        int(card_field(of, "workload.model.head_dim")) if own is None else own
        for own in (model.query_key_dim, model.value_dim)
    )


def _attended_pairs(of: Platform, tokens: int) -> dict[str | None, int]:
    """Pairs of tokens of a sequence: S², and those of which the earlier is within the card's attention.

    causal: S(S + 1) / 2; a window of w tokens, the token itself among them: with w ≤ S,
    w(w + 1) / 2 + (S − w)·w, else as causal.
    """
    model = card_field(of, "workload.model")
    pairs: dict[str | None, int] = {None: tokens * tokens}
    if model.attention in ("causal", "window"):
        reach = tokens if model.attention == "causal" else min(model.attention_window, tokens)
        pairs[model.attention] = reach * (reach + 1) // 2 + (tokens - reach) * reach
    return pairs
