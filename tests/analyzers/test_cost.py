# SPDX-License-Identifier: Apache-2.0
"""Cost of steps and tokens at a card's price."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from helpers.hand_made import Evidence, a_rank, card, compute, job_values, window
from helpers.hand_values import reason, rows_of, told

import cclbench
from cclbench.analyzers.view.rank_view import RankView
from cclbench.card.json_schema import value_misfit
from cclbench.card.model import Card
from cclbench.ground.units import humanise

S = 10**9
PRICE = "hardware.price_per_device_hour"


def priced(**changes: Any) -> Card:
    """Two devices at 1.80 dollars an hour: a thousandth of a dollar a second; 40 tokens a step."""
    return card(**{"hardware__price_per_device_hour": 1.8} | changes)


def a_job(*lengths: int, rank: int = 0, of: Card | None = None) -> RankView:
    """A rank with steps of those lengths, s, each busy throughout."""
    edges = [S * sum(lengths[:n]) for n in range(len(lengths) + 1)]
    windows = [window(start, end, n) for n, (start, end) in enumerate(pairwise(edges))]
    return a_rank([compute(0, edges[-1])], windows, card=of or priced(), rank=rank)


def test_a_step_costs_what_all_devices_do_while_the_slowest_rank_works() -> None:
    """The slowest rank's steps are 3 and 4 s long."""
    rows = rows_of("cost.step", a_job(3, 1), a_job(2, 4, rank=1))
    assert told(rows) == pytest.approx({None: 3.5e-3, 0: 3e-3, 1: 4e-3})
    assert {(row["unit"], row["provenance"]) for row in rows} == {("USD", "derived")}
    of_token, *_ = rows_of("cost.token", a_job(3, 1), a_job(2, 4, rank=1))
    # 3.5 thousandths of a dollar over 40 tokens: 87.5 dollars per million tokens
    assert of_token["value"] == pytest.approx(87.5e-6)
    assert humanise(of_token["value"], of_token["unit"]) == "87.5 USD per million tokens"


@pytest.mark.parametrize(
    ("stated", "origin"),
    [
        ({}, "whose source the card does not state"),
        ({"hardware__price_source": "a cloud, on demand"}, "a cloud, on demand"),
        ({"hardware__price_source": "a cloud", "hardware__price_date": "2026-10-01"}, "a cloud, 2026-10-01"),
    ],
)
def test_a_cost_says_where_its_price_is_from(stated: dict[str, str], origin: str) -> None:
    ranks = a_job(3, of=priced(**stated)), a_job(2, rank=1, of=priced(**stated))
    for name in ("cost.step", "cost.token"):
        whole, *steps = rows_of(name, *ranks)
        assert whole["reason"] == f"at 1.8 USD per accelerator and hour, {origin}"
        assert [row["reason"] for row in steps] == [None]


def test_without_a_price_there_is_no_cost() -> None:
    assert reason(a_job(1, of=card()), "cost.step") == f"the workload card lacks {PRICE}"
    whole = a_rank([compute(0, S)], [window(0, S, source="whole_trace")], card=priced(), policy="trace")
    assert "the window is the whole trace" in reason(whole, "cost.step")


@pytest.mark.parametrize(("price", "fits"), [(2, True), (2.49, True), (0, False), (float("nan"), False)])
def test_a_price_is_a_finite_number_above_zero(price: float, fits: bool) -> None:
    assert (value_misfit(price, PRICE) is None) == fits


def test_a_served_token_by_the_clients_rate(test_data: Path, tmp_path: Path) -> None:
    """One device at 3.60 dollars an hour over the file's own output tokens per second."""
    file = test_data / "serving_repeats/A0_baseline_rep1.json"
    (tmp_path / "bench.json").write_bytes(file.read_bytes())
    (tmp_path / "served.yaml").write_text(
        "version: 2\nid: served\ndescription: a server\nworkload: {phase: serving}\n"
        "hardware: {count: 1, price_per_device_hour: 3.6, price_source: a list, price_date: 2026-10-01}\n"
        "evidence: {traces: [{path: bench.json}]}\n"
    )
    asked = ["cost.token", "serving.output_throughput"]
    run = cclbench.run(tmp_path / "served.yaml", store=tmp_path / "store", metrics=asked)
    found = {row["metric"]: row for row in run.rows}
    rate = found["serving.output_throughput"]["value"]
    assert found["cost.token"]["value"] == pytest.approx(1e-3 / rate)
    assert (found["cost.token"]["status"], found["cost.token"]["provenance"]) == ("ok", "derived")
    assert found["cost.token"]["reason"].endswith("at 3.6 USD per accelerator and hour, a list, 2026-10-01")


def test_a_client_without_a_rate_says_why_it_has_no_cost() -> None:
    ttft = {
        "source": "serving", "file": "a.json", "benchmark": 0, "unit": "s", "figure": "ttft", "value": 0.5,
    }  # fmt: skip
    (none,) = job_values("cost.token", Evidence(serving=[ttft]), card=priced())
    assert (none.value, none.status) == (None, "not_applicable")
    assert (none.reason or "").startswith("the file states none; it needs the duration")
