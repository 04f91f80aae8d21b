# SPDX-License-Identifier: Apache-2.0
"""Routing of tokens to experts on a rank that holds all of them, by the recorded calls of its routers."""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from cclbench.ground.errors import InputError
from cclbench.operators.call import NoModel, parse_call
from cclbench.replay.change import ChangeSubject

_ROUTER: Final = "aten::topk"


class Routing(NamedTuple):
    """Experts of a layer, how many of them a token goes to; routers' calls in a step, and tokens over all."""

    experts: int
    chosen: int
    calls: float
    tokens: float

    def held_share(self, parameters: float, active: float, ranks: int) -> float:
        """Share of a model's parameters on each of `ranks` ranks over which experts are spread.

        P parameters are N + X, of which X belong to experts, and a token uses N + X · chosen / experts.
        """
        used = self.chosen / self.experts
        others = max((active - parameters * used) / (1 - used), 0.0)
        return (others + (parameters - others) / ranks) / parameters


def token_routing(subject: ChangeSubject) -> Routing:
    """The routing by `aten::topk(scores [tokens, experts], chosen)`; `InputError` where it is unknown.

    A choice of tokens from the vocabulary is none; recomputed calls do not count.
    """
    card, run = subject.run.card, subject.run
    vocabulary = card.workload.model.vocabulary if card else None
    table = run.rank(run.ranks[0]).operators(("name", "step", "shapes", "dtypes", "values", "recomputed"))
    chosen = pc.and_(pc.equal(table["name"].cast(pa.string()), _ROUTER), pc.invert(table["recomputed"]))
    rows = table.filter(pc.and_(chosen, table["step"].is_valid())).to_pylist()
    tokens_by_choice: dict[tuple[int, int], list[int]] = {}
    for row in rows:
        call = parse_call(_ROUTER, row["shapes"], row["dtypes"], None, row["values"])
        try:
            scores, count = call.tensor(0), call.value(1)
        except NoModel:
            continue
        experts = scores.shape[-1] if len(scores.shape) > 1 else 0
        if experts != vocabulary and isinstance(count, int) and 0 < count < experts:
            tokens_by_choice.setdefault((experts, count), []).append(scores.elements // experts)
    if len(tokens_by_choice) != 1:
        raise InputError(
            "parallelism.ep: the trace does not show to how many experts a token goes",
            hint=f"trace steps whose routers call {_ROUTER}, with shapes, or a run with ep of at least 2",
        )
    ((experts, count), of_calls), steps = next(iter(tokens_by_choice.items())), {row["step"] for row in rows}
    return Routing(experts, count, len(of_calls) / len(steps), sum(of_calls) / len(steps))
