# SPDX-License-Identifier: Apache-2.0
"""Stand-ins: modelled transfers of hand-made ranks, their bands, and that nothing measured gives way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.hand_made import a_rank, card, collective, comm, rows_of, values, window
from msgspec import structs

from cclbench.analyzers.metric import METRICS, Coverage, Value
from cclbench.analyzers.rows import metric_rows, rank_rows
from cclbench.analyzers.stand_ins import FROM_EVIDENCE, STAND_INS, stand_in
from cclbench.analyzers.view.rank_view import RankView
from cclbench.ground.errors import UsageError
from cclbench.hardware import catalog
from cclbench.hardware.calibration import OF_RUN, Calibration, write_calibration
from cclbench.hardware.collectives import price_collective
from cclbench.hardware.sweep import Sweep
from cclbench.record.rows import builtins

METRIC = "comm.transfer"
MS = 10**6
NODE = {"group": "0-7", "group_size": 8}
P4DE = "aws-p4de"


def a_talk(*calls: dict[str, Any], **options: Any) -> RankView:
    """A rank of two 10 ms steps whose collectives are these, on a p4de unless `options` say otherwise."""
    options = {"card": card(hardware__system=P4DE), **options}
    steps = [window(0, 10 * MS, 0), window(10 * MS, 20 * MS, 1)]
    return a_rank([comm(c["start_ns"], c["end_ns"]) for c in calls], steps, calls, **options)


def reduce(size: int, start: int, ns: int, **columns: Any) -> dict[str, Any]:
    """An all-reduce of a node, never matched."""
    full = {"in_bytes": size, "out_bytes": size, **NODE, **columns}
    return collective("all_reduce", start, start + ns, **full)


def modelled(rank: RankView, metric: str = METRIC) -> list[Value]:
    """What the metric says of the rank where stand-ins are wanted."""
    return rank_rows(rank, [METRICS.get(metric)], model=True)[metric]


def band(values: list[Value], collective: str | None = None, category: str | None = None) -> list[float]:
    """low, value, high of the rank or of one kind or dimension; fails where one lacks or they are no band."""
    own = {v.stat: v for v in values if (v.collective, v.category) == (collective, category)}
    assert {v.provenance for v in own.values()} == {"modelled"}
    found = [own[stat].value or 0.0 for stat in ("low", None, "high")]
    assert found == sorted(found)
    return found


def priced(kind: str, size: int) -> list[float]:
    """The model's own low, time and high among the eight of a node, s."""
    found = price_collective(kind, size, range(8), catalog.system(P4DE))
    return [float(times[0]) for times in (found.low_s, found.time_s, found.high_s)]


def test_an_unmatched_transfer_takes_what_the_model_says() -> None:
    """64 MiB among 8 A100: 7/4 · 64 MiB at about 240 GB/s is 0.49 ms and its latency, and 5 % learned."""
    found = modelled(a_talk(reduce(64 << 20, 0, 5 * MS), reduce(64 << 20, 10 * MS, 5 * MS)))
    low, value, high = band(found)
    assert value == pytest.approx(1.05 * 1.75 * (64 << 20) / 240e9, rel=0.2)
    assert low < value < high < 5e-3
    assert found[0].value == value
    said = found[0].reason or ""
    assert said.startswith("modelled, since no collective in the window is matched")
    assert (
        "modelled on aws-p4de by its specification without contention, at most each collective's own" in said
    )
    assert "the duration of collectives that took less" not in said


def test_it_is_a_sum_per_step_and_by_kind() -> None:
    gather = collective("all_gather", 6 * MS, 9 * MS, in_bytes=1 << 20, out_bytes=8 << 20, **NODE)
    found = modelled(a_talk(reduce(1 << 20, 0, 2 * MS), reduce(4 << 20, 10 * MS, 2 * MS), gather))
    one, other, third = (
        np.array(priced(*told))
        for told in (("all_reduce", 1 << 20), ("all_reduce", 4 << 20), ("all_gather", 8 << 20))
    )
    assert band(found, "all_reduce") == pytest.approx((one + other) / 2)
    assert band(found, "all_gather") == pytest.approx(third / 2)
    assert band(found) == pytest.approx((one + other + third) / 2)


SHORTER = "the duration of collectives that took less"
UNMODELLED = "of libraries whose algorithms are not modelled"


def test_no_transfer_is_longer_than_its_call() -> None:
    """Of three calls one took less than the model says: that one's duration stands in the whole band."""
    low, value, high = priced("all_reduce", 64 << 20)
    short = int(low * 0.5e9)
    long = [reduce(64 << 20, n * 6 * MS, 5 * MS) for n in range(2)]
    found = modelled(a_talk(*long, reduce(64 << 20, 18 * MS, short)))
    assert band(found) == pytest.approx([(2 * s + short / 1e9) / 2 for s in (low, value, high)])
    assert SHORTER in (found[0].reason or "")
    # One shorter than the model says and longer than its least bounds what is above.
    ns = round((low + value) / 2 * 1e9)
    found = modelled(a_talk(reduce(64 << 20, 0, ns)))
    assert band(found) == pytest.approx([low / 2, ns / 2e9, ns / 2e9])
    assert ns / 1e9 < high
    assert SHORTER not in (found[0].reason or "")


def test_a_machine_on_which_most_would_take_longer_is_not_the_machine() -> None:
    """One on which half would may be it."""
    (only,) = modelled(a_talk(*(reduce(64 << 20, n * MS, 100_000) for n in range(3))))
    assert (only.status, only.value) == ("not_applicable", None)
    assert "3 of 3 collectives took less than the modelled minimum on aws-p4de" in (only.reason or "")
    found = modelled(a_talk(reduce(64 << 20, 0, 5 * MS), reduce(64 << 20, 10 * MS, 100_000)))
    assert band(found)[1] == pytest.approx((priced("all_reduce", 64 << 20)[1] + 1e-4) / 2)
    assert SHORTER in (found[0].reason or "")
    assert (found[0].coverage, found[0].status) == (Coverage(2, 2, 5 * MS + 100_000, 5 * MS + 100_000), "ok")


def test_a_price_rests_on_the_collectives_that_have_one() -> None:
    silent = {"in_bytes": None, "out_bytes": None}
    calls = [reduce(1 << 20, 0, 3 * MS), reduce(1 << 20, 4 * MS, 2 * MS, library="custom")]
    calls += [reduce(1 << 20, at * MS, MS, **silent) for at in (10, 12)]
    found = modelled(a_talk(*calls))
    assert found[0].coverage == Coverage(1, 4, 3 * MS, 7 * MS)
    assert found[0].left_out == {"of unknown kind, payload or duration": 2, UNMODELLED: 1}
    assert band(found)[1] == pytest.approx(priced("all_reduce", 1 << 20)[1] / 2)
    # Where nothing communicates there is nothing to model.
    (only,) = modelled(a_talk())
    assert only.reason == "there are no collectives in the window"


@pytest.mark.parametrize("more", [0, 1])
def test_up_to_an_exbibyte_is_priced(more: int) -> None:
    known = [reduce(1 << 20, at, 3 * MS) for at in (0, 4 * MS)]
    found = modelled(a_talk(*known, reduce(2**60 + more, 10 * MS, MS)))
    assert found[0].left_out == ({"of more than 1 EiB": 1} if more else {})
    assert (SHORTER in (found[0].reason or "")) is not more


def test_what_was_measured_stays() -> None:
    told = reduce(64 << 20, 0, 5 * MS, instance=1, arrival_ns=0, wait_ns=MS, transfer_ns=4 * MS)
    rank = a_talk(told, reduce(64 << 20, 10 * MS, 5 * MS))
    assert modelled(rank) == values(rank, METRIC)
    assert (modelled(rank)[0].value, modelled(rank)[0].provenance) == (pytest.approx(2e-3), "measured")
    # Switched off, the reason is the old one.
    (row, of_rank) = rows_of(METRIC, a_talk(reduce(64 << 20, 0, 5 * MS)))
    why = "no collective is matched across its ranks: 1 not matched with another rank's"
    assert (row["value"], row["status"], row["reason"]) == (None, "not_applicable", why)
    assert of_rank["reason"] == why


def of_ranks(*views: RankView) -> list[dict[str, Any]]:
    """The rows of those ranks where stand-ins are wanted."""
    answers, policies = {view.rank: modelled(view) for view in views}, {view.rank: "steps" for view in views}
    rows = metric_rows(METRICS.get(METRIC), answers, policies, [], asked="steps", source="kineto")
    return builtins(rows)


def test_a_run_does_not_average_measured_ranks_with_modelled_ones() -> None:
    told = reduce(64 << 20, 0, 5 * MS, instance=1, arrival_ns=0, wait_ns=MS, transfer_ns=4 * MS)
    own, *_ = rows = of_ranks(a_talk(told, rank=0), a_talk(reduce(64 << 20, 0, 5 * MS), rank=1))
    assert (own["value"], own["provenance"]) == (pytest.approx(2e-3), "measured")
    assert "1 of 2 ranks left out: modelled, since" in own["reason"]
    assert not [row for row in rows if row["rank"] is None and row["stat"] in ("low", "high")]
    assert {row["provenance"] for row in rows if row["rank"] == 1} == {"modelled"}


def test_ranks_that_are_all_modelled_have_a_modelled_mean_with_a_band() -> None:
    """Two ranks, each with one call in two steps."""
    rows = of_ranks(*(a_talk(reduce(size << 20, 0, 5 * MS), rank=size) for size in (4, 16)))
    own = {row["stat"]: row for row in rows if row["rank"] is None and row["collective"] is None}
    both = zip(priced("all_reduce", 4 << 20), priced("all_reduce", 16 << 20), strict=True)
    assert [own[s]["value"] for s in ("low", None, "high")] == pytest.approx([(a + b) / 4 for a, b in both])
    assert {row["provenance"] for row in own.values()} == {"modelled"}


@pytest.mark.parametrize(
    ("call", "options", "why"),
    [
        ({"in_bytes": None, "out_bytes": None}, {}, "not modelled: no collective in the window has a known"),
        ({"library": "custom"}, {}, "1 of libraries whose algorithms are not modelled"),
        ({"in_bytes": 2**62}, {}, "1 of more than 1 EiB"),
        ({"group": "x" * 8}, {}, "1 of unknown ranks"),
        (
            {"group": "0-8", "group_size": 9},
            {},
            "1 the group has 1 to 8 ranks per node, and formulas need equal numbers",
        ),
        ({}, {"card": None}, "neither the card (hardware.accelerator) nor the trace names"),
        ({}, {"card": card(hardware__system="aws-p99")}, "the catalog knows no system 'aws-p99'"),
        ({}, {"works_on": "host"}, "the CPU is the device: the model prices"),
    ],
)
def test_what_cannot_be_priced_says_why(call: dict[str, Any], options: dict[str, Any], why: str) -> None:
    (only,) = modelled(a_talk(reduce(1 << 20, 0, MS, **call), **options))
    assert only.status == "not_applicable"
    assert (only.reason or "").startswith("no collective is matched across its ranks: ")
    assert why in (only.reason or "")


def test_a_calibration_beside_the_card_prices(tmp_path: Path) -> None:
    """Measured among eight: 1 ms at 1 MiB, 3 ms at 4 MiB; a step holds half of each."""
    sweep = Sweep("all_reduce", 8, 1, (1 << 20, 4 << 20), (1e-3, 3e-3))
    write_calibration(Calibration(P4DE, (sweep,)), tmp_path / OF_RUN)
    own = structs.replace(card(hardware__system=P4DE, hardware__calibration="mine.yaml"), root=tmp_path)
    found = modelled(a_talk(reduce(1 << 20, 0, 9 * MS), reduce(4 << 20, 10 * MS, 9 * MS), card=own))
    assert band(found)[1] == pytest.approx(2e-3)
    assert "modelled on aws-p4de by its calibration" in (found[0].reason or "")
    assert "measured among 8 ranks on 1 node" in (found[0].reason or "")


def test_a_metric_has_one_model_and_models_stand_in_for_metrics_there_are() -> None:
    with pytest.raises(UsageError, match=r"'comm\.transfer' has two models"):
        stand_in(METRIC)(lambda _: iter(()))
    assert {*STAND_INS, *FROM_EVIDENCE} <= set(METRICS)
