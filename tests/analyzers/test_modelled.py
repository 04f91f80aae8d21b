# SPDX-License-Identifier: Apache-2.0
"""Stand-ins: modelled transfers of hand-made ranks, their bands, and that nothing measured gives way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.hand_made import a_rank, card, collective, comm, rows_of, values, window
from msgspec import structs

from cclbench.analyzers.metric import METRICS, Coverage, NotApplicable, Value
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
        priced("all_reduce", 1 << 20),
        priced("all_reduce", 4 << 20),
        priced("all_gather", 8 << 20),
    )
    reduces = [(a + b) / 2 for a, b in zip(one, other, strict=True)]
    assert band(found, "all_reduce") == pytest.approx(reduces)
    assert band(found, "all_gather") == pytest.approx([s / 2 for s in third])
    assert band(found) == pytest.approx([a + b / 2 for a, b in zip(reduces, third, strict=True)])


def test_no_transfer_is_longer_than_its_call() -> None:
    """Of three calls one took less than the model says: that one's duration stands in the whole band."""
    low, value, high = priced("all_reduce", 64 << 20)
    short = int(low * 0.5e9)
    found = modelled(
        a_talk(*(reduce(64 << 20, n * 6 * MS, 5 * MS) for n in range(2)), reduce(64 << 20, 18 * MS, short))
    )
    assert band(found) == pytest.approx([(2 * s + short / 1e9) / 2 for s in (low, value, high)])
    assert "the duration of collectives that took less" in (found[0].reason or "")


def test_a_machine_on_which_most_would_take_longer_is_not_the_machine() -> None:
    calls = [reduce(64 << 20, n * MS, 100_000) for n in range(3)]
    (only,) = modelled(a_talk(*calls))
    assert (only.status, only.value) == ("not_applicable", None)
    assert "3 of 3 collectives took less than the modelled minimum on aws-p4de" in (only.reason or "")


def test_a_call_shorter_than_the_model_says_and_longer_than_its_least_bounds_what_is_above() -> None:
    low, value, high = priced("all_reduce", 64 << 20)
    ns = round((low + value) / 2 * 1e9)
    found = modelled(a_talk(reduce(64 << 20, 0, ns)))
    assert band(found) == pytest.approx([low / 2, ns / 2e9, ns / 2e9])
    assert ns / 1e9 < high
    assert "the duration of collectives that took less" not in (found[0].reason or "")


def test_a_machine_on_which_half_would_take_longer_may_be_it() -> None:
    found = modelled(a_talk(reduce(64 << 20, 0, 5 * MS), reduce(64 << 20, 10 * MS, 100_000)))
    assert band(found)[1] == pytest.approx((priced("all_reduce", 64 << 20)[1] + 1e-4) / 2)
    assert "the duration of collectives that took less" in (found[0].reason or "")
    assert (found[0].coverage, found[0].status) == (Coverage(2, 2, 5 * MS + 100_000, 5 * MS + 100_000), "ok")


def test_a_price_rests_on_the_collectives_that_have_one() -> None:
    calls = [
        reduce(1 << 20, 0, 3 * MS),
        reduce(1 << 20, 4 * MS, 2 * MS, library="custom"),
        reduce(1 << 20, 10 * MS, MS, in_bytes=None, out_bytes=None),
        reduce(1 << 20, 12 * MS, MS, in_bytes=None, out_bytes=None),
    ]
    found = modelled(a_talk(*calls))
    assert found[0].coverage == Coverage(1, 4, 3 * MS, 7 * MS)
    assert found[0].left_out == {
        "of unknown kind, payload or duration": 2,
        "of libraries whose algorithms are not modelled": 1,
    }


@pytest.mark.parametrize("more", [0, 1])
def test_up_to_an_exbibyte_is_priced(more: int) -> None:
    size = 2**60 + more
    found = modelled(
        a_talk(reduce(1 << 20, 0, 3 * MS), reduce(1 << 20, 4 * MS, 3 * MS), reduce(size, 10 * MS, MS))
    )
    assert found[0].left_out == ({"of more than 1 EiB": 1} if more else {})
    assert ("the duration of collectives that took less" in (found[0].reason or "")) is not more


def test_what_cannot_be_priced_is_counted_by_why() -> None:
    calls = [
        reduce(1 << 20, 0, 3 * MS),
        reduce(1 << 20, 4 * MS, MS, group="x" * 8),
        reduce(2 << 20, 6 * MS, MS, group="x" * 8),
        reduce(1 << 20, 12 * MS, MS, group="0-8", group_size=9),
        reduce(2**62, 14 * MS, MS, library="custom"),
    ]
    left_out = modelled(a_talk(*calls))[0].left_out
    assert {why.partition(":")[0]: number for why, number in left_out.items()} == {
        "of libraries whose algorithms are not modelled": 1,
        "of unknown ranks": 2,
        "the group has 1 to 8 ranks per node, and formulas need equal numbers; give its schedule as a"
        " step list": 1,
    }


def test_what_was_measured_stays() -> None:
    told = reduce(64 << 20, 0, 5 * MS, instance=1, arrival_ns=0, wait_ns=MS, transfer_ns=4 * MS)
    rank = a_talk(told, reduce(64 << 20, 10 * MS, 5 * MS))
    assert modelled(rank) == values(rank, METRIC)
    assert modelled(rank)[0].value == pytest.approx(2e-3)
    assert modelled(rank)[0].provenance == "measured"


def test_a_run_does_not_average_measured_ranks_with_modelled_ones() -> None:
    told = reduce(64 << 20, 0, 5 * MS, instance=1, arrival_ns=0, wait_ns=MS, transfer_ns=4 * MS)
    views = a_talk(told, rank=0), a_talk(reduce(64 << 20, 0, 5 * MS), rank=1)
    metric = METRICS.get(METRIC)
    answers = {view.rank: rank_rows(view, [metric], model=True)[METRIC] for view in views}
    policies = {0: "steps", 1: "steps"}
    rows = builtins(metric_rows(metric, answers, policies, [], asked="steps", source="kineto"))
    own, *_ = rows
    assert (own["value"], own["provenance"]) == (pytest.approx(2e-3), "measured")
    assert "1 of 2 ranks left out: modelled, since" in own["reason"]
    assert not [row for row in rows if row["rank"] is None and row["stat"] in ("low", "high")]
    assert {row["provenance"] for row in rows if row["rank"] == 1} == {"modelled"}


def test_ranks_that_are_all_modelled_have_a_modelled_mean_with_a_band() -> None:
    views = [a_talk(reduce(size << 20, 0, 5 * MS), rank=n) for n, size in enumerate((4, 16))]
    metric = METRICS.get(METRIC)
    answers = {view.rank: rank_rows(view, [metric], model=True)[METRIC] for view in views}
    policies = {0: "steps", 1: "steps"}
    rows = builtins(metric_rows(metric, answers, policies, [], asked="steps", source="kineto"))
    own = {row["stat"]: row for row in rows if row["rank"] is None and row["collective"] is None}
    both = zip(priced("all_reduce", 4 << 20), priced("all_reduce", 16 << 20), strict=True)
    # Two ranks, each with one call in two steps.
    assert [own[s]["value"] for s in ("low", None, "high")] == pytest.approx([(a + b) / 4 for a, b in both])
    assert {row["provenance"] for row in own.values()} == {"modelled"}


def test_switched_off_the_reason_is_the_old_one() -> None:
    rank = a_talk(reduce(64 << 20, 0, 5 * MS))
    (row, of_rank) = rows_of(METRIC, rank)
    why = "no collective is matched across its ranks: 1 not matched with another rank's"
    assert (row["value"], row["status"], row["reason"]) == (None, "not_applicable", why)
    assert of_rank["reason"] == why


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


def test_where_nothing_communicates_there_is_nothing_to_model() -> None:
    (only,) = modelled(a_talk())
    assert only.reason == "there are no collectives in the window"


def test_what_is_not_priced_is_counted() -> None:
    found = modelled(a_talk(reduce(1 << 20, 0, MS), reduce(1 << 20, 2 * MS, MS, library="custom")))
    assert found[0].left_out == {"of libraries whose algorithms are not modelled": 1}
    assert band(found)[1] == pytest.approx(priced("all_reduce", 1 << 20)[1] / 2)


def test_a_metric_has_one_model() -> None:
    def another(_: RankView) -> Iterator[Value]:
        raise NotApplicable("never asked")

    with pytest.raises(UsageError, match=r"'comm\.transfer' has two models"):
        stand_in(METRIC)(another)


def test_models_stand_in_for_metrics_there_are() -> None:
    assert set(STAND_INS) <= set(METRICS)
    assert set(FROM_EVIDENCE) <= set(METRICS)
