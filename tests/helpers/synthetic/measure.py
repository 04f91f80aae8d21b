# SPDX-License-Identifier: Apache-2.0
"""Every metric of a simulated run, by walking over its instants in plain Python."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

from helpers.synthetic import truth
from helpers.synthetic.program import Layout, Link, Network, Program

Calls = Sequence[truth.Instance]
Rows = Sequence[truth.Row]
Spans = list[tuple[int, int, int]]
FACTOR = {"all_reduce": lambda n: Fraction(2 * (n - 1), n)}
FACTOR |= dict.fromkeys(("all_gather", "reduce_scatter", "all_to_all"), lambda n: Fraction(n - 1, n))
"""Bus traffic per payload byte (nccl-tests, PERFORMANCE.md)."""
COUNTED = ("compute", "communication", "compute_only", "overlapped", "exposed_comm", "exposed_copy")
COUNTED += ("idle", "idle_host", "idle_device")
"""What a step's truth states of the ns of its window."""


def truth_of(
    layout: Layout,
    program: Program,
    network: Network,
    seed: int,
    t0_ns: int,
    instances: Calls,
    rows: dict[int, Rows],
    annotations: dict[int, Spans],
) -> truth.Truth:
    """All that is true of the simulated rows."""
    pipeline = layout.pp > 1
    ranks = {r: _rank(r, rows[r], annotations[r], instances, pipeline, program.closing) for r in rows}
    several = [i for i in instances if len(i.members) > 1]
    with_steps = [rank.steps for rank in ranks.values() if rank.steps]
    compute = [Fraction(sum(s.compute_ns for s in steps), len(steps)) for steps in with_steps]
    window = sum(rank.window_ns for rank in ranks.values())
    bubble = [s.bubble_ns for rank in ranks.values() for s in rank.steps if s.bubble_ns is not None]
    links, sizes = _links(several)
    return truth.Truth(
        *(layout, program, network, seed, t0_ns, tuple(instances), ranks),
        bandwidth=bandwidths((i, r) for i in instances for r in i.members),
        hockney=links,
        points={key: (len(found), len(set(found))) for key, found in sizes.items()},
        load_imbalance=float(max(compute) * len(compute) / sum(compute)) if sum(compute) else None,
        straggler_delay=_straggler_delay(several, ranks),
        bubble=float(sum(bubble, Fraction(0)) / window) if pipeline else None,
    )


def _links(
    several: Iterable[truth.Instance],
) -> tuple[dict[tuple[str, tuple[int, ...]], Link], dict[tuple[str, tuple[int, ...]], list[int]]]:
    links, sizes = {}, defaultdict(list)
    for i in several:
        for kind in sorted({i.kind_on(r) for r in i.members}):
            links[kind, i.group] = i.link
            sizes[kind, i.group].append(i.payload)
    return links, sizes


def bandwidths(rows: Iterable[tuple[truth.Instance, int]]) -> dict[truth.RateKey, truth.Bandwidth]:
    """Σ S / Σ transfer of (instance, rank) rows, groups of one left out."""
    sums: dict[truth.RateKey, tuple[Fraction, Fraction, int]] = {}
    for i, r in rows:
        n, kind = len(i.group), i.kind_on(r)
        if n == 1:
            continue
        moved = FACTOR[kind](n) * i.payload if kind in FACTOR else Fraction(i.payload)
        size = (i.payload.bit_length() - 1) // 2
        for key in ((None, None, None), (kind, None, None), (kind, i.group, None), (kind, i.group, size)):
            payload, bus, ns = sums.get(key, (Fraction(0), Fraction(0), 0))
            sums[key] = payload + i.payload, bus + moved, ns + i.transfer_ns
    return {
        key: truth.Bandwidth(float(payload * 10**9 / ns), float(bus * 10**9 / ns))
        for key, (payload, bus, ns) in sums.items()
    }


def _rank(
    rank: int, rows: Rows, annotations: Spans, instances: Calls, pipeline: bool, closing: bool
) -> truth.RankTruth:
    rows = sorted(rows, key=lambda row: (row.start_ns, row.stream))
    own = [instances[row.instance] for row in rows if row.instance is not None]
    windows = _windows(rows)
    if closing:
        del windows[-1]
    steps = _steps(rank, rows, windows, instances, pipeline)
    phases, rates = tuple(_phases(rank, own)), bandwidths((i, rank) for i in own)
    return truth.RankTruth(rank, tuple(rows), tuple(annotations), tuple(steps), phases, rates)


def _straggler_delay(several: Calls, ranks: dict[int, truth.RankTruth]) -> float | None:
    """None where no collective of several ranks is of ranks of one role."""
    pipeline = {rank: {rank} for rank in ranks}
    for i in several:
        if i.source is not None or i.dimension == "pp":
            joined = set().union(*(pipeline[rank] for rank in i.members))
            pipeline.update(dict.fromkeys(joined, joined))
    waits: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for i in several:
        apart = all(len(pipeline[rank] & set(i.members)) == 1 for rank in i.members)
        if i.source is None and apart:
            median = int(i.median_ns // 1)
            for rank in i.members:
                waits[rank].append((max(i.arrival_ns[rank], median), i.latest_ns))
    shares = []
    for rank, spans in waits.items():
        total, until = 0, 0
        for begin, end in sorted(spans):
            total += max(0, end - max(begin, until))
            until = max(until, end)
        shares.append(Fraction(total, ranks[rank].window_ns))
    return float(sum(shares, Fraction(0)) / len(shares)) if shares else None


def _windows(rows: Rows) -> Spans:
    """(step, begin, end): first kernel to the next step's first kernel; the last to its last event's end."""
    kernels = [row for row in rows if row.kind != "copy"]
    steps = sorted({row.step for row in kernels})
    first = [min(row.start_ns for row in kernels if row.step == step) for step in steps]
    last = max((row.end_ns for row in rows if row.step == steps[-1]), default=0) if steps else 0
    return list(zip(steps, first, [*first[1:], last], strict=True))


def _atoms(rows: Rows, edges: set[int]) -> Iterator[tuple[int, int, Rows]]:
    """Stretches in which nothing changes, and the rows that run in each."""
    ordered = sorted(edges | {row.start_ns for row in rows} | {row.end_ns for row in rows})
    waiting = list(reversed(rows))
    running: Rows = []
    for begin, end in pairwise(ordered):
        running = [row for row in running if row.end_ns > begin]
        while waiting and waiting[-1].start_ns <= begin:
            running.append(waiting.pop())
        yield begin, end, running


class _Sums:
    """What adds up over the instants of one window."""

    def __init__(self) -> None:
        self.ns: Counter[str] = Counter()
        self.exposed: dict[truth.Key, list[Fraction]] = defaultdict(lambda: [Fraction(0), Fraction(0)])
        self.wait: Counter[truth.Wider] = Counter()
        self.transfer: Counter[truth.Wider] = Counter()

    def add(self, ns: int, running: Rows, at: int, rank: int, instances: Calls) -> None:
        """One stretch from `at` on."""
        kinds = {row.kind for row in running}
        shared = [i for row in running if row.instance is not None for i in [instances[row.instance]]]
        shared = [i for i in shared if len(i.members) > 1]
        for counted, now in (
            (self.wait, [i for i in shared if at < i.latest_ns]),
            (self.transfer, [i for i in shared if at >= i.latest_ns]),
        ):
            for label in {label for i in now for label in i.key_on(rank).wider()}:
                counted[label] += ns
        self.ns["compute"] += ns * ("compute" in kinds)
        self.ns["communication"] += ns * ("communication" in kinds)
        if kinds >= {"compute", "communication"}:
            self.ns["overlapped"] += ns
        elif "compute" in kinds:
            self.ns["compute_only"] += ns
        elif "communication" in kinds:
            self.ns["exposed_comm"] += ns
            calls = [instances[row.instance] for row in running if row.instance is not None]
            for i in calls:
                self.exposed[i.key_on(rank)][at >= i.latest_ns] += Fraction(ns, len(calls))
        elif kinds:
            self.ns["exposed_copy"] += ns
        else:
            self.ns["idle"] += ns


def _steps(
    rank: int, rows: Rows, windows: Spans, instances: Calls, pipeline: bool
) -> Iterator[truth.StepTruth]:
    own = [(row, instances[row.instance]) for row in rows if row.instance is not None]
    edges = {ns for _, begin, end in windows for ns in (begin, end)}
    edges |= {i.latest_ns for _, i in own}
    sums = {step: _Sums() for step, _, _ in windows}
    for begin, end, running in _atoms(rows, edges):
        step = next((s for s, b, e in windows if b <= begin < e), None)
        if step is None:
            continue
        sums[step].add(end - begin, running, begin, rank, instances)
        if not running:
            sums[step].ns[_idle_before(rows, end)] += end - begin
    for step, begin, end in windows:
        s = sums[step]
        begun = [i for row, i in own if begin <= row.start_ns < end]
        volume: Counter[truth.Key] = Counter()
        for i in begun:
            volume[i.key_on(rank)] += i.payload
        exposed = {key: (wait, transfer) for key, (wait, transfer) in s.exposed.items()}
        transfers = ("send", "recv", "send_recv")
        in_pipeline = [
            w for key, (w, _) in exposed.items() if key.dimension == "pp" and key.kind in transfers
        ]
        waits, moves = ([part[at] for part in exposed.values()] for at in (0, 1))
        given: dict[str, Any] = {f"{name}_ns": s.ns[name] for name in COUNTED}
        given |= {"exposed_wait_ns": sum(waits, Fraction(0)), "exposed_transfer_ns": sum(moves, Fraction(0))}
        given["bubble_ns"] = s.ns["idle"] + sum(in_pipeline, Fraction(0)) if pipeline else None
        given |= {"wait_ns": dict(s.wait), "transfer_ns": dict(s.transfer), "volume": dict(volume)}
        count = dict(Counter(i.key_on(rank) for i in begun))
        yield truth.StepTruth(step=step, start_ns=begin, end_ns=end, exposed=exposed, count=count, **given)


def _idle_before(rows: Rows, at: int) -> str:
    """Whom the next event after a gap waited for: the host, where its stream was free before its launch."""
    n, event = next((n, row) for n, row in enumerate(rows) if row.start_ns >= at)
    before = [row.end_ns for row in rows[:n] if row.stream == event.stream]
    return "idle_host" if not before or event.launch_ns > max(before) else "idle_device"


def _phases(rank: int, own: Calls) -> Iterator[truth.Phase]:
    """Maximal runs of one dimension in order of start, of what starts at once by its end."""
    runs: list[list[truth.Instance]] = []
    for i in sorted(own, key=lambda i: (i.arrival_ns[rank], i.end_ns, i.dimension or "")):
        if runs and runs[-1][0].dimension == i.dimension:
            runs[-1].append(i)
        else:
            runs.append([i])
    busy_until: int | None = None
    for run in runs:
        begin, end = run[0].arrival_ns[rank], max(i.end_ns for i in run)
        gap = None if busy_until is None else max(begin - busy_until, 0)
        yield truth.Phase(run[0].dimension, begin, end, len(run), gap)
        busy_until = max(end, busy_until or end)
