# SPDX-License-Identifier: Apache-2.0
"""Event simulation of a program on all ranks, in integer ns.

A host launches one op after the other.  A kernel starts LATENCY_NS after its launch began, when its stream
is free and what it needs has ended; that start is a collective's arrival.  A collective ends on all its
ranks at the latest arrival + α + β·S.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from random import Random

from helpers.synthetic.measure import truth_of
from helpers.synthetic.program import (
    DIMENSIONS,
    ELEMENT_BYTES,
    WORLD,
    Await,
    Collective,
    Compute,
    Copy,
    Layout,
    Network,
    Op,
    Pause,
    Program,
    Transfer,
)
from helpers.synthetic.truth import HostRow, Instance, Row, StreamWait, Truth

T0_NS = 1_000_000_000
STEP_NS = 1_000
"""From the begin of a step's annotation to its first op."""
OP_NS = 500
"""From the begin of a communication op to its launch, and from the launch's end to the op's."""
LAUNCH_NS = 2_000
LATENCY_NS = 3_000
SYNCHRONISE_NS = 4_000
"""From the end of the device's work to the host's return."""
CLOSING_NS = 1_000
FIRST_SEQ = 5
COMPUTE_STREAM, COPY_STREAM = 7, 9


@dataclass(slots=True)
class _Call:
    """A collective on its way: who has arrived when; `end` once all have."""

    index: int
    op: Collective | Transfer
    dimension: str
    group: tuple[int, ...]
    members: tuple[int, ...]
    seq: int
    step: int
    arrivals: dict[int, int] = field(default_factory=dict)
    end: int | None = None


class _Simulation:
    """The state that ranks share."""

    def __init__(self, layout: Layout, program: Program, network: Network, seed: int) -> None:
        self.layout, self.program, self.network, self.seed = layout, program, network, seed
        self.groups = {
            (dimension, rank): layout.group(rank, dimension)
            for dimension in (*DIMENSIONS, WORLD)
            for rank in range(layout.world)
        }
        self.calls: dict[tuple[object, ...], _Call] = {}
        self.arrivals = 0

    def arrive(self, rank: int, key: tuple[object, ...], call: _Call, at: int) -> _Call:
        """`rank` arrives at the call of that key, which the first to arrive makes."""
        call = self.calls.setdefault(key, call)
        call.arrivals[rank] = at
        self.arrivals += 1
        if len(call.arrivals) == len(call.members):
            kind = call.op.kind if isinstance(call.op, Collective) else "send_recv"
            link = self.network.link(kind, call.dimension, call.group)
            call.end = max(call.arrivals.values()) + link.transfer_ns(call.op.nbytes)
        return call

    def run(self) -> dict[int, _Rank]:
        ranks = {r: _Rank(self, r) for r in range(self.layout.world)}
        going = {r: rank.run() for r, rank in ranks.items()}
        while going:
            before = len(going), self.arrivals
            going = {r: run for r, run in going.items() if next(run, None) is not None}
            if (len(going), self.arrivals) == before:
                raise ValueError(f"ranks {sorted(going)} wait for one another forever")
        return ranks


class _Rank:
    """One rank: its host's clock, its streams, its rows."""

    def __init__(self, simulation: _Simulation, rank: int) -> None:
        self.all, self.rank = simulation, rank
        self.random = Random(f"{simulation.seed}/{rank}")  # noqa: S311 - chance that repeats
        self.host = T0_NS
        self.free: dict[int, int] = {}
        self.last: dict[int, _Call] = {}
        self.labelled: dict[str, _Call] = {}
        self.awaited: list[_Call] = []
        self.numbers: dict[object, int] = {}
        self.rows: list[Row] = []
        self.called: list[tuple[Row, _Call]] = []
        self.annotations: list[tuple[int, int, int]] = []
        self.step = 0
        self.launches = 0
        self.waits: list[StreamWait] = []
        self.host_rows: list[HostRow] = []
        self.launched: dict[int, tuple[int, int]] = {}
        """Stream and end of the launch of the rank's part in each call."""

    def run(self) -> Iterator[str]:
        program = self.all.program
        for self.step in range(program.steps):
            begin = self.host
            self.host += STEP_NS
            for number, op in enumerate(program.ops):
                yield from self._late(number)
                yield from self._do(op)
            for label in list(self.labelled):
                yield from self._do(Await(label))
            if program.synchronise:
                yield from self._settle()
                self.host = max([self.host, *self.free.values()]) + SYNCHRONISE_NS
            self.annotations.append((self.step, begin, self.host))
        if program.closing:
            self.step, begin = program.steps, self.host
            self.host += STEP_NS
            yield from self._settle()
            self._work("compute", COMPUTE_STREAM, CLOSING_NS)
            if program.synchronise:
                self.host = max([self.host, *self.free.values()]) + SYNCHRONISE_NS
            self.annotations.append((self.step, begin, self.host))

    def _late(self, number: int) -> Iterator[str]:
        for s in self.all.program.stragglers:
            if (s.rank, s.op) == (self.rank, number) and s.step in (None, self.step):
                if s.cause == "launch":
                    self.host += s.ns
                else:
                    yield from self._settle()
                    kind = "copy" if s.cause == "copy" else "compute"
                    self._work(kind, COMPUTE_STREAM, s.ns, 1 << 20)

    def _do(self, op: Op) -> Iterator[str]:
        if isinstance(op, Pause):
            if op.row is not None:
                self.host_rows.append(HostRow(*op.row, self.host, self.host + op.ns))
            self.host += op.ns
        elif isinstance(op, Await):
            if op.label in self.labelled:
                self.awaited.append(self.labelled.pop(op.label))
        elif isinstance(op, Compute):
            yield from self._settle()
            ns = op.ns * self.all.program.slow.get(self.rank, 1000) // 1000
            self._work("compute", COMPUTE_STREAM, ns + ns * self._chance() // 1000, name=op.name)
        elif isinstance(op, Copy):
            if not op.beside:
                yield from self._settle()
            self._work("copy", COPY_STREAM if op.beside else COMPUTE_STREAM, op.ns, op.nbytes)
        elif isinstance(op, Transfer):
            yield from self._transfer(op)
        else:
            group = self.all.groups[op.dimension, self.rank]
            lane = (op.dimension, group)
            stream = 20 if op.dimension == WORLD else 24 + 4 * DIMENSIONS.index(op.dimension)
            yield from self._communicate(op, op.dimension, group, group, lane, stream)

    def _chance(self) -> int:
        return self.random.randint(0, self.all.program.jitter)

    def _settle(self) -> Iterator[str]:
        """Let the compute stream wait for what it awaits."""
        for call in self.awaited:
            while call.end is None:
                yield "end"
            self.free[COMPUTE_STREAM] = max(self.free[COMPUTE_STREAM], call.end)
            self.waits.append(StreamWait(COMPUTE_STREAM, self.host, *self.launched[call.index]))
        self.awaited.clear()

    def _launch(self) -> int:
        begin = self.host
        self.host += LAUNCH_NS
        self.launches += 1
        return begin

    def _work(
        self, kind: str, stream: int, ns: int, nbytes: int | None = None, name: str | None = None
    ) -> None:
        launch = self._launch()
        start = max(launch + LATENCY_NS, self.free.get(stream, 0))
        self.free[stream] = start + ns
        own = nbytes if kind == "copy" else None
        times = (launch, launch, self.host, self.host)
        self.rows.append(
            Row(kind, stream, start, start + ns, self.step, self.launches, *times, own, name=name)
        )

    def _transfer(self, op: Transfer) -> Iterator[str]:
        group = self.all.groups["pp", self.rank]
        peer = group.index(self.rank) + (op.shift if op.role == "send" else -op.shift)
        if not 0 <= peer < len(group):
            return
        pair = (self.rank, group[peer]) if op.role == "send" else (group[peer], self.rank)
        # one stream for each neighbour and direction, so that opposite transfers do not wait for each other
        stream = 40 + 4 * group.index(min(pair)) + 2 * (pair[0] > pair[1])
        yield from self._communicate(op, "pp", group, pair, ("pair", *pair), stream)

    def _communicate(
        self,
        op: Collective | Transfer,
        dimension: str,
        group: tuple[int, ...],
        members: tuple[int, ...],
        lane: tuple[object, ...],
        stream: int,
    ) -> Iterator[str]:
        yield from self._settle()
        before = self.last.get(stream)
        while before and before.end is None:
            yield "stream"
        begin = self.host
        self.host += OP_NS
        launch = self._launch()
        launched = self.host
        self.host += OP_NS
        arrival = max(launch + LATENCY_NS, self.free.get(COMPUTE_STREAM, 0), (before and before.end) or 0)
        number = self.numbers.get(lane, 0)
        self.numbers[lane] = number + 1
        made = _Call(len(self.all.calls), op, dimension, group, members, number + FIRST_SEQ, self.step)
        call = self.all.arrive(self.rank, (lane, number), made, arrival)
        _same(call.op, op)
        times = (begin, launch, launched, self.host)
        row = Row("communication", stream, arrival, 0, self.step, self.launches, *times, instance=call.index)
        self.waits.append(StreamWait(stream, begin, COMPUTE_STREAM, begin))
        self.launched[call.index] = stream, launched
        self.called.append((row, call))
        self.last[stream] = call
        self.free.setdefault(COMPUTE_STREAM, 0)
        if op.label is None:
            self.awaited.append(call)
        else:
            self.labelled[op.label] = call


def _same(one: Collective | Transfer, other: Collective | Transfer) -> None:
    kinds = [(op.kind if isinstance(op, Collective) else "transfer", op.nbytes) for op in (one, other)]
    if kinds[0] != kinds[1]:
        raise ValueError(f"ranks of a group disagree on their collective: {kinds}")


def simulate(layout: Layout, program: Program, network: Network | None = None, seed: int = 0) -> Truth:
    """Run the program on all ranks; `ValueError` where it cannot end."""
    network = network or Network()
    simulation = _Simulation(layout, program, network, seed)
    ranks = simulation.run()
    names = layout.process_groups()
    calls = sorted(simulation.calls.values(), key=lambda call: call.index)
    instances = [_instance(call, network, names[call.dimension, call.group]) for call in calls]
    rows = {
        r: [*rank.rows, *(replace(row, end_ns=instances[call.index].end_ns) for row, call in rank.called)]
        for r, rank in ranks.items()
    }
    annotations = {r: rank.annotations for r, rank in ranks.items()}
    truth = truth_of(layout, program, network, seed, T0_NS, instances, rows, annotations)
    return replace(
        truth,
        waits={r: tuple(rank.waits) for r, rank in ranks.items()},
        host={r: tuple(rank.host_rows) for r, rank in ranks.items()},
    )


def _instance(call: _Call, network: Network, name: str) -> Instance:
    op, n = call.op, len(call.group)
    kind = op.kind if isinstance(op, Collective) else "send_recv"
    if kind in ("all_gather", "reduce_scatter") and op.nbytes % (n * ELEMENT_BYTES):
        raise ValueError(f"{op.nbytes} bytes do not divide among {n} ranks")
    latest, earliest = max(call.arrivals.values()), min(call.arrivals.values())
    if call.end is None:
        raise ValueError(f"{kind} {call.seq} of {call.group} never ends")
    arrivals = {r: call.arrivals[r] for r in sorted(call.arrivals)}
    source, target = call.members if isinstance(op, Transfer) else (None, None)
    return Instance(
        **{field: getattr(call, field) for field in ("index", "group", "members", "seq", "step")},
        kind=kind,
        dimension=None if call.dimension == WORLD else call.dimension,
        group_name=name,
        source=source,
        target=target,
        payload=op.nbytes,
        in_bytes=op.nbytes // n if kind == "all_gather" else op.nbytes,
        out_bytes=op.nbytes // n if kind == "reduce_scatter" else op.nbytes,
        coalesced=op.coalesced if isinstance(op, Collective) else 1,
        link=network.link(kind, call.dimension, call.group),
        arrival_ns=arrivals,
        end_ns=call.end,
        wait_ns={r: latest - ns for r, ns in arrivals.items()},
        transfer_ns=call.end - latest,
        skew_ns=latest - earliest,
        latest_ns=latest,
        median_ns=statistics.median([Fraction(ns) for ns in arrivals.values()]),
    )
