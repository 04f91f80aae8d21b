# SPDX-License-Identifier: Apache-2.0
"""Random layouts whose every metric is known: within bounds on untrue clocks, with events lost."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from helpers.synthetic import Case, Distortion, Instance, Written, in_layouts, write
from helpers.synthetic.kineto import BASE_NS
from helpers.true_rows import CASES, NONE, NS, PARTS, own_instances, true_skews, values_of

import cclbench
from cclbench.ground.schema import group_id

DRIFT_PPM = 20
WITHIN = (
    *("comm.wait", "comm.transfer", "comm.skew", "comm.algbw", "comm.busbw", "comm.alpha", "comm.beta"),
    *("time.exposed_*", "overlap.pipeline_bubble", "balance.*"),
)


def distorted(case: Case) -> Distortion:
    """Each rank's clock up to 500 µs off and DRIFT_PPM fast or slow; 1 % of the events lost, or one."""
    random = Random(case.seed)  # noqa: S311
    ranks = range(case.layout.world)
    shown = sum(len(i.members) for i in case.simulate().instances)
    least = Fraction(random.randint(0, 1), shown)
    return Distortion(
        offset_ns={r: random.randint(-500_000, 500_000) for r in ranks},
        drift_ppm={r: random.randint(-DRIFT_PPM, DRIFT_PPM) for r in ranks},
        lost=max(Fraction(1, 100), least),
        seed=case.seed,
    )


class Distorted:
    """A run of distorted traces beside its truth, each of its rows with the instance it is of."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.truth, self.distortion = case.simulate(), distorted(case)
        self.written: Written = write(self.truth, folder / "traces", self.distortion)
        self.run = cclbench.run(folder / "traces", store=folder / "store", metrics=WITHIN)
        self.found = values_of(self.run)
        residuals = [rank["residual_ns"] for rank in self.run.manifest["clocks"]["ranks"]]
        longest = max(i.end_ns - min(i.arrival_ns.values()) for i in self.truth.instances)
        # Two ranks' clocks (the residual is what 95 % of the ends keep), the grid of ns, and a collective's
        # own length on a clock that runs fast or slow.
        self.bound = 3 * max(residuals, default=0) + 3 + longest * 2 * DRIFT_PPM / 10**6
        self.windows_ns = sum(
            row["end_ns"] - row["start_ns"]
            for row in self.run.steps().to_pylist()
            if row["source"] == "device" and not row["open"]
        )
        self.rows = [(row, self._instance_of(row)) for row in self.run.collectives().to_pylist()]
        self.complete = [i for i in self.truth.instances if len(i.members) > 1 and self._whole(i)]

    def _whole(self, i: Instance) -> bool:
        return self.written.members(i) == i.members

    def _instance_of(self, row: dict[str, Any]) -> Instance:
        if not hasattr(self, "_by_start"):
            t0 = self.truth.t0_ns
            self._by_start = {
                (r, BASE_NS + self.distortion.local_ns(r, i.arrival_ns[r], t0), *self._names(i, r)): i
                for i in self.truth.instances
                for r in self.written.members(i)
            }
        return self._by_start[row["rank"], row["start_ns"], row["kind"], row["group"]]

    @staticmethod
    def _names(i: Instance, rank: int) -> tuple[str, str]:
        return i.kind_on(rank), group_id(i.group)


def within(case: Case) -> None:
    with TemporaryDirectory() as folder:
        run = Distorted(case, Path(folder))
    nothing_mismatched(run)
    rows_within(run)
    if run.complete:
        times_within(run)
        hockney_within(run)
    if not run.written.lost:
        shares_within(run)


def nothing_mismatched(run: Distorted) -> None:
    """An instance holds rows of one collective only, all that the traces show; others have no split."""
    members: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for row, i in run.rows:
        if row["instance"] is not None:
            members[row["instance"]].append((i.index, row["rank"]))
        assert (row["wait_ns"] is not None) <= (i in run.complete)
    for rows in members.values():
        (index,) = {index for index, _ in rows}
        assert sorted(r for _, r in rows) == sorted(run.written.members(run.truth.instances[index]))
    matched = {index for rows in members.values() for index, _ in rows}
    numbered = {i.index for i in run.complete if i.source is None}
    assert numbered <= matched
    if not run.written.lost:
        assert matched == {i.index for i in run.complete}


def union(spans: list[tuple[int, int]]) -> int:
    """Length of the union of intervals."""
    total, until = 0, -(1 << 62)
    for begin, end in sorted(spans):
        total += max(0, end - max(begin, until))
        until = max(until, end)
    return total


def rows_within(run: Distorted) -> None:
    for row, i in run.rows:
        assert row["wait_ns"] is None or row["least_wait_ns"] is None
        if row["wait_ns"] is not None:
            assert row["wait_ns"] == pytest.approx(i.wait_ns[row["rank"]], abs=run.bound)
            assert row["transfer_ns"] == pytest.approx(i.transfer_ns, abs=run.bound)
        if row["least_wait_ns"] is not None:
            latest = max(i.arrival_ns[r] for r in run.written.members(i))
            least = latest - i.arrival_ns[row["rank"]]
            assert row["least_wait_ns"] == pytest.approx(least, abs=run.bound)
            assert least <= i.wait_ns[row["rank"]]


def times_within(run: Distorted) -> None:
    """Sums and means over what is matched: wait, transfer, skew, delay, bandwidth."""
    split = [(row["rank"], i) for row, i in run.rows if row["wait_ns"] is not None]
    together = list({i.index: i for _, i in split}.values())
    for r, rank in run.truth.ranks.items():
        own = [i for other, i in split if other == r]
        partly = [i for row, i in run.rows if row["rank"] == r and row["least_wait_ns"] is not None]
        bound = 2 * (len(own) + len(partly)) * run.bound / (NS * len(rank.steps))
        seen = [(i, i.latest_ns) for i in own]
        seen += [(i, max(i.arrival_ns[m] for m in run.written.members(i))) for i in partly]
        for metric, spans in (
            ("comm.wait", [(i.arrival_ns[r], latest) for i, latest in seen]),
            ("comm.transfer", [(i.latest_ns, i.end_ns) for i in own]),
        ):
            if own:
                mean = union(spans) / (NS * len(rank.steps))
                assert run.found[metric, r, *NONE] == pytest.approx(mean, rel=1e-9, abs=bound)
    for key, skew in true_skews(together).items():
        assert run.found[key] == pytest.approx(skew, abs=run.bound / NS)
    payload, ns = sum(i.payload for _, i in split), sum(i.transfer_ns for _, i in split)
    low, high = (payload * NS / (ns + sign * len(split) * run.bound) for sign in (1, -1))
    assert high < 0 or low <= run.found["comm.algbw", None, *NONE] <= high


def hockney_within(run: Distorted) -> None:
    """The fitted line lies near the true times at the sizes it is fitted to."""
    points: dict[tuple[str, str], list[Instance]] = defaultdict(list)
    for i in {i.index: i for row, i in run.rows if row["wait_ns"] is not None}.values():
        for kind in sorted({i.kind_on(r) for r in i.members}):
            points[kind, group_id(i.group)].append(i)
    for (kind, group), of in points.items():
        at = (None, kind, group, None, None)
        fitted = len(of) >= 5 and len({i.payload for i in of}) >= 2
        assert (("comm.alpha", *at) in run.found) <= fitted
        for i in of if ("comm.alpha", *at) in run.found else ():
            time = run.found["comm.alpha", *at] + run.found["comm.beta", *at] * i.payload
            assert time == pytest.approx(i.transfer_ns / NS, abs=len(of) * run.bound / NS)


def shares_within(run: Distorted) -> None:
    """What hangs on all events being there: exposed wait and transfer, the bubble, the balance."""
    for r, rank in run.truth.ranks.items():
        bound = sum(len(i.members) > 1 for i in own_instances(run.truth, r)) * run.bound
        bound += rank.window_ns * DRIFT_PPM / 10**6
        for metric in ("wait", "transfer"):
            whole = sum((getattr(s, f"exposed_{metric}_ns") for s in rank.steps), Fraction(0))
            mean = float(whole / (NS * len(rank.steps)))
            found = run.found[f"time.exposed_{metric}", r, *NONE]
            assert found == pytest.approx(mean, abs=bound / (NS * len(rank.steps)))
        if run.truth.layout.pp > 1:
            bubble = sum((s.bubble_ns for s in rank.steps if s.bubble_ns is not None), Fraction(0))
            found = run.found["overlap.pipeline_bubble", r, *NONE]
            assert found == pytest.approx(float(bubble / rank.window_ns), abs=2 * bound / rank.window_ns)
    if run.truth.load_imbalance is not None:
        imbalance = run.found["balance.load_imbalance", None, *NONE]
        assert imbalance == pytest.approx(run.truth.load_imbalance, rel=4 * DRIFT_PPM / 10**6)


@pytest.mark.parametrize("part", range(PARTS))
def test_untrue_clocks_and_lost_events_stay_within_the_stated_bound(part: int) -> None:
    in_layouts(CASES, PARTS + part, within)
