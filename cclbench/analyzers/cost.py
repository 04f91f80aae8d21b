# SPDX-License-Identifier: Apache-2.0
"""Cost: device hours at the card's price."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Final

from cclbench.analyzers.metric import NotApplicable, Value, metric
from cclbench.analyzers.serving import output_tokens, rate_value, values_by_benchmark
from cclbench.analyzers.stand_ins import from_evidence
from cclbench.analyzers.view.platform import Platform, card_field, samples_per_step, tokens_per_sample
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.run_view import RunView
from cclbench.analyzers.view.values import NS_PER_S, by_step

_S_PER_HOUR: Final = 3600
_PRICED: Final = "card: hardware.price_per_device_hour, hardware.count"


def slowest_rank_costs(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """Cost of each step on its slowest rank; mean over steps."""
    longest = {step: max(costs) for step, costs in by_step(ranks).items()}
    reasons = (value.reason for values in ranks.values() for value in values if value.step is None)
    yield Value(value=fmean(longest.values()), provenance="derived", reason=next(reasons, None))
    for step in sorted(step for step in longest if step is not None):
        yield Value(value=longest[step], step=step, provenance="derived")


_cost_metric = partial(
    metric,
    better="lower",
    not_applicable="there is no card or it lacks a field, or the trace marks no steps",
    combine=slowest_rank_costs,
    rank_rows=False,
)


@_cost_metric(
    "cost.step",
    unit="USD",
    definition="Cost of the run's accelerators during a step, at the card's price per device hour. Idle"
    " devices cost the same; time outside the steps is not included.",
    formula="time.step · hardware.count · hardware.price_per_device_hour / 3600",
    inputs=("events", "steps", _PRICED),
)
def cost_of_step(rank: RankView) -> Iterator[Value]:
    return _per_step(rank, _usd_per_second(rank))


@_cost_metric(
    "cost.token",
    unit="USD/token",
    version=2,
    definition="Cost of a step (cost.step) per token of the step, by the card. Without traces, per output"
    " token of a serving client: cost of a second over serving.output_throughput.",
    formula="cost.step / (batch.global · batch.sequence_length)",
    inputs=("events", "steps", "requests", "serving", f"{_PRICED}, workload.phase, workload.batch"),
)
def cost_of_token(rank: RankView) -> Iterator[Value]:
    tokens = samples_per_step(rank) * tokens_per_sample(rank)
    return _per_step(rank, _usd_per_second(rank) / tokens)


@from_evidence("cost.token")
def cost_of_served_token(run: RunView) -> Iterable[Value]:
    """Cost per output token of each client."""

    def client_cost(rate: Value) -> Value:
        if not rate.value:
            return rate
        cost = _usd_per_second(run) / rate.value
        return replace(rate, value=cost, provenance="derived", reason=_with_price(rate.reason, run))

    return values_by_benchmark(
        run, lambda client: iter([client_cost(rate_value(client, "output_throughput", output_tokens))])
    )


def _per_step(rank: RankView, usd_per_second: float) -> Iterator[Value]:
    if rank.windows.policy == "trace":
        raise NotApplicable("a cost per step needs steps: the window is the whole trace")
    costs = [usd_per_second * seconds for seconds in (rank.parts.window / NS_PER_S).tolist()]
    yield Value(value=fmean(costs), provenance="derived", reason=_with_price(None, rank))
    for step, cost in zip(rank.windows.steps, costs, strict=True):
        if step is not None:
            yield Value(value=cost, step=step, provenance="derived")


def _with_price(reason: str | None, platform: Platform) -> str:
    """A reason with the price and where it is from."""
    price = card_field(platform, "hardware.price_per_device_hour")
    hardware = platform.card.hardware if platform.card else None
    dated = (hardware.price_source, hardware.price_date) if hardware else ()
    origin = ", ".join(filter(None, dated)) or "whose source the card does not state"
    return "; ".join(filter(None, (reason, f"at {price:g} USD per accelerator and hour, {origin}")))


def _usd_per_second(platform: Platform) -> float:
    """Cost of all the run's accelerators, USD/s."""
    price = card_field(platform, "hardware.price_per_device_hour")
    return float(price * card_field(platform, "hardware.count") / _S_PER_HOUR)
