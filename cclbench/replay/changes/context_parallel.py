# SPDX-License-Identifier: Apache-2.0
"""`parallelism.cp=4`: sequences split over more or fewer ranks."""

from __future__ import annotations

from cclbench.ground.errors import InputError
from cclbench.hardware.collectives.p2p import PAIRS
from cclbench.replay.change import AddedCommunication, ChangeSubject, LayoutEffect, change, count_of
from cclbench.replay.gradient_exchange import gradient_exchange, spread_dimensions, trains
from cclbench.replay.key_values import key_value_elements, key_value_exchange
from cclbench.replay.layout import Dimension
from cclbench.replay.rescale import (
    SAME_LAYOUT,
    card_sizes,
    layer_passes,
    layout_change,
    scale_nodes,
    token_nodes,
)


@change(
    "parallelism.cp",
    values="4",
    definition="sequences are split over this many ranks: kernels except the optimizer's, and activations of"
    " other dimensions, scale as 1 / cp; all-gathers of keys and values stay the same, and rings have cp - 1"
    " turns of 1 / cp; from a rank with whole sequences they are added, hidden in attention or before it",
    read=count_of,
)
def context(subject: ChangeSubject, _: int) -> LayoutEffect | str:
    """Tokens of a rank scale as 1 / cp, and with them FLOPs and bytes of work on each token.

    So do a rank's pairs of causal attention, where ranks take parts from both ends.
    """
    layouts = layout_change(subject)
    old, new = layouts.old.degrees["cp"], layouts.new.degrees["cp"]
    if old == new:
        return SAME_LAYOUT
    chosen, kernel_words = token_nodes(subject)
    factor = old / new
    kinds = zip(subject.graph.transfers.kind, subject.graph.transfers.group, strict=True)
    ring = any(kind in PAIRS for kind, group in kinds if subject.dimensions.get(group or "") == "cp")
    payload: dict[Dimension | None, float] = {"tp": factor, "ep": factor, "pp": factor}
    repeats: dict[Dimension | None, float] = {}
    if ring:
        payload["cp"], repeats["cp"] = factor, (new - 1) / (old - 1)
    added: tuple[AddedCommunication, ...] = ()
    notes: tuple[str, ...] = (
        f"tokens of a rank scale as 1 / cp: {kernel_words} {subject.window_share(chosen):.1%}"
        f" of the step, take {factor:g} of their time, by the ratio of work",
    )
    if old == 1:
        added, more = _split_sequences(subject)
        notes += more
    return LayoutEffect(
        subject.graph, scale_nodes(chosen, factor), payload, repeats, added=added, notes=notes
    )


def _split_sequences(subject: ChangeSubject) -> tuple[tuple[AddedCommunication, ...], tuple[str, ...]]:
    """Exchanges of a rank that held whole sequences: keys and values, and the gradients of its parameters,
    which all ranks of a sequence have."""
    if not trains(subject):
        raise InputError(
            "parallelism.cp: whether a step of inference reads prompts, which can be split, or generates"
            " single tokens is unknown",
            hint="trace a run with cp of at least 2",
        )
    layouts = layout_change(subject)
    new = layouts.new.degrees
    if layouts.old.batch_groups > 1:
        raise InputError(
            f"parallelism.cp: {layouts.old} exchange gradients among replicas, and split sequences among all"
            " their ranks",
            hint="trace one replica, or a run with cp of at least 2",
        )
    fields = ("batch.micro", "batch.sequence_length", "model.layers", "model.hidden", "element")
    size = card_sizes(
        subject.run.card, "the exchange of keys and values, which whole sequences do not need,", *fields
    )
    tokens, passes = layer_passes(subject, size)
    nbytes = tokens * new["cp"] * key_value_elements(subject.run.card) * size["element"] / new["tp"]
    time = key_value_exchange(subject.price, layouts.new.first_group("cp"), nbytes)
    what = f"exchange of {nbytes / 1e6:.4g} MB of keys and values among {new['cp']} ranks"
    added = (AddedCommunication(what, time.times_count(passes), in_stage=True),)
    notes = (
        f"{what}, {passes:g} times a step, is not in the trace: bounds are a ring hidden by attention, and"
        " all-gathers before it, which also come again in backward",
    )
    if new["dp"] == 1 and spread_dimensions(layouts) == ("cp",):
        exchange, exchange_notes = gradient_exchange(subject)
        return (*added, *exchange), (*notes, *exchange_notes)
    return added, notes
