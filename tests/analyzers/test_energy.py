# SPDX-License-Identifier: Apache-2.0
"""Energy of steps by hand-made counters, and of a real trace beside a file of power."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.hand_made import Evidence, busy_steps, card, job_values

import cclbench
from cclbench.analyzers.metric import Coverage, Value
from cclbench.analyzers.view.rank_view import RankView
from cclbench.card.model import Card

Rows = Sequence[dict[str, Any]]


def sample(counter: str, value: float, start: int | None, end: int | None, device: int = 0) -> dict[str, Any]:
    """A row of a device's counter."""
    given = {"source": "dcgm", "file": "dcgm.txt", "unit": "W", "device": device}
    return {**given, "counter": counter, "value": value, "start_ns": start, "end_ns": end}


def told(metric: str, rows: Rows, *ranks: RankView, of: Card | None = None) -> Value:
    """What the metric says of a run with those counters."""
    (found,) = job_values(metric, Evidence(counters=rows), *ranks, card=of)
    return found


STEPS = ((10, 30), (30, 50))
POWER = [sample("power", 100, 0, 20), sample("power", 200, 20, 60)]
"""Over [10, 50) 100 W for 10 ns and 200 W for 30 ns: 7,000 nJ."""


def test_power_over_the_steps_of_one_device() -> None:
    found = told("energy.step", POWER, busy_steps(*STEPS))
    assert (found.value, found.status, found.provenance) == (pytest.approx(3500e-9), "ok", "derived")
    assert found.reason == "power of 1 of 1 devices by dcgm, over 100.0 % of the steps' time"
    assert told("energy.token", POWER, busy_steps(*STEPS), of=card(hardware__count=1)).value == (
        pytest.approx(3500e-9 / 40)
    )
    # Over [10, 50) 200 W for 15 ns and 400 W for 25 ns.
    rows = [sample("power", watts, at, at) for watts, at in ((100, 5), (200, 25), (200, 25), (400, 55))]
    found = told("energy.step", rows, busy_steps(*STEPS))
    assert (found.value, found.status) == (pytest.approx(6500e-9), "ok")


def test_a_device_and_time_without_a_counter_make_it_partial() -> None:
    rows = [*POWER, sample("power", 300, 10, 40, device=1)]
    two = busy_steps(*STEPS), busy_steps(*STEPS, rank=1)
    found = told("energy.step", rows, *two)
    assert (found.value, found.status) == (pytest.approx((7000e-9 + 9000e-9) / 2), "partial")
    assert found.coverage == Coverage(2, 2, 70, 80)
    assert told("energy.step", POWER, *two).coverage == Coverage(1, 2, 40, 80)


def test_counted_energy_goes_before_power_and_is_spread_over_its_interval() -> None:
    """Of 800 nJ over [0, 40) three quarters, of 400 nJ over [40, 60) half."""
    rows = [*POWER, sample("energy", 800e-9, 0, 40), sample("energy", 400e-9, 40, 60)]
    found = told("energy.step", rows, busy_steps(*STEPS))
    assert (found.value, found.status, found.provenance) == (pytest.approx(400e-9), "ok", "measured")


BESIDE = sample("power", 1, 0, 60, device=1)


@pytest.mark.parametrize(
    ("rows", "ranks", "says"),
    [
        ([], [busy_steps(*STEPS)], "the run has no power or energy counters: add"),
        ([sample("power", 5, None, None)], [busy_steps(*STEPS)],
         "the power or energy counters state no times"),
        (POWER, [], "the run has no trace with steps"),
        (POWER, [busy_steps((70, 90))], "dcgm sampled at other times than the steps"),
        ([*POWER, BESIDE], [busy_steps(*STEPS)], "counted 2 devices, and the run has 1"),
    ],
)  # fmt: skip
def test_why_there_is_none(rows: Rows, ranks: list[RankView], says: str) -> None:
    found = told("energy.step", rows, *ranks)
    assert (found.status, found.value) == ("not_applicable", None)
    assert says in (found.reason or "")


def test_a_real_trace_beside_a_constant_power(test_data: Path, tmp_path: Path) -> None:
    """300 W on one device: a step takes 300 W times what the five closed ones last on average."""
    (trace,) = (test_data / "kineto/ddp_a100").iterdir()
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / trace.name).write_bytes(trace.read_bytes())
    steps = cclbench.ingest(tmp_path / "job", store=tmp_path / "store").steps().to_pandas()
    begin = int(steps["start_ns"].min()) // 10**9 - 1
    lines = [f"{begin + second}.000000000 GPU 0  300.0" for second in range(8)]
    (tmp_path / "job" / "power.txt").write_text("\n".join([f"{begin}.0 #Entity   POWER", *lines, ""]))
    run = cclbench.run(tmp_path / "job", store=tmp_path / "store", metrics=["energy.step", "time.step"])
    found = {row["metric"]: row for row in run.rows if (row["rank"], row["stat"], row["step"]) == (None,) * 3}
    assert found["energy.step"]["value"] == pytest.approx(300 * found["time.step"]["value"])
