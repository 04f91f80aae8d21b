# SPDX-License-Identifier: Apache-2.0
"""The nodes of a rank with an accelerator: host points, device rows, and what ties them.

Rows of streams start when launch, stream and what they wait for allow, after latencies fitted from the
rank's own rows: none keeps the gap it was measured with, unless nothing tells of its launch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from cclbench.ground import intervals
from cclbench.ground.intervals import Int64
from cclbench.normalize.host_calls import ASYNCHRONOUS, PINNED, blocks
from cclbench.replay import nodes as n
from cclbench.replay.device import Device, clock_grain_ns, device_of, previous_end
from cclbench.replay.events import StatedWaits, stated_waits, stream_lags
from cclbench.replay.full_queues import full_queues
from cclbench.replay.host import (
    Found,
    HostInstants,
    Wait,
    add_boundaries,
    add_turns,
    host_nodes,
    host_threads,
    thread_pauses,
)
from cclbench.replay.nodes import Edges, Nodes, RankNodes
from cclbench.replay.silent_waits import silent_waits
from cclbench.replay.tables import DIRECTIONS, GraphInput, RankRows
from cclbench.replay.waits import (
    PROMPT_NS,
    TOLERANCE_NS,
    DeviceLaunches,
    between_streams,
    held_up,
    other_lane,
)

_AGES: Final = 1 << 60
_SAME_INSTANT: Final = 0.05
"""Share of two rows by which they may overlap where one follows the other."""


def accelerator_part(rank: GraphInput) -> RankNodes:
    """One rank's part of the graph."""
    inferred, traced = Counter[str](), Counter[str]()
    device = device_of(rank)
    told = stated_waits(rank.stated, device) if rank.stated is not None else None
    pairs, alone = device.pairs, ~device.fitted
    alone[np.concatenate([pairs.issue, pairs.transfer, pairs.wait])] = False
    inferred["rows without a launch of their own: they keep their measured gaps"] += int(alone.sum())
    points, edges = HostInstants(), Edges()
    launched = points.add_instants(host_threads(rank.launches), device.submitted)
    points.add_instants(*_first_rows(rank, device.submitted))
    # calls that return when the device has ended something: (device row, point of the return, lag)
    waits = [
        *_blocking_copies(rank, device, points, inferred),
        *_synchronise_waits(rank, device, told, points, inferred, traced),
        *silent_waits(rank, device, points, inferred),
        *full_queues(rank, device, points, inferred),
    ]
    handed = _thread_turns(rank, points, waits, inferred)
    add_boundaries(rank, points)
    host, place = host_nodes(rank, points)
    between, unseen = _device_waits(rank, device, told, inferred, traced)
    work, start_of, end_of = _work_nodes(rank, device, int(host.lane.max(initial=-1)) + 1)
    nodes, start_of, end_of = n.join_nodes([host, work]), start_of + len(host), end_of + len(host)
    fed = device.launch >= 0
    nodes.feeder[start_of[fed]] = place[launched[device.launch[fed]]]
    nodes.feed_lag[start_of[fed]] = device.latency[fed]
    nodes.doubt[start_of[fed]] = device.delay[fed]
    for source, target, lag in waits:
        edges.add_edges(end_of[source], place[target], lag)
    for source, target in _drained_rows(device, waits, points):
        edges.add_edges(end_of[source], start_of[target], 0)
    for source, target, lag in handed:
        edges.add_edges(place[source], place[target], lag)
    _add_pairs(device, nodes, edges, start_of, end_of)
    traced["asynchronous transfers, from issue to wait"] += len(pairs.wait)
    inferred["transfers that had ended when they were awaited: what shows is the most they took"] += int(
        (nodes.slack > 0).sum()
    )
    for source, target, lag in between:
        edges.add_edges(end_of[source], start_of[target], lag)
    assumed = Edges()
    for source, target, lag in unseen:
        assumed.add_edges(end_of[source], start_of[target], lag)
    return RankNodes(nodes, device.rows.categories, device.rows.names, edges, inferred, traced, assumed)


def _first_rows(rank: GraphInput, submitted: Int64) -> tuple[Int64, Int64]:
    """The threads with rows before their first launch, and when the first begins: from there on they work."""
    thread = np.concatenate([host_threads(rank.launches), host_threads(rank.host)])
    start = np.concatenate([submitted, rank.host.start])
    row = np.arange(len(thread))
    order = np.lexsort((row, start, thread))
    first = order[intervals.begins(thread[order])]
    first = first[(first >= len(rank.launches)) & np.isin(thread[first], thread[: len(rank.launches)])]
    return thread[first], start[first]


def _blocking_copies(
    rank: GraphInput, device: Device, points: HostInstants, inferred: Counter[str]
) -> Iterator[Wait]:
    """Copies for which their call waits; see `blocks`."""
    hosted = (device.rows.direction == DIRECTIONS.index("h2d")) | (
        device.rows.direction == DIRECTIONS.index("d2h")
    )
    rows = np.flatnonzero(hosted & (device.launch >= 0))
    launch = device.launch[rows]
    returned = rank.launches.end[launch]
    pinned, at_once = (
        device.rows.rows_matching(PINNED.pattern)[rows],
        rank.launches.rows_named(ASYNCHRONOUS)[launch],
    )
    begun, ended = device.rows.start[rows], device.rows.end[rows]
    blocking = blocks(returned, begun, ended, hosted[rows], pinned, at_once)
    blocking &= returned > device.issue[rows]
    rows, launch, returned = rows[blocking], launch[blocking], returned[blocking]
    if len(rows):
        back = points.add_instants(
            host_threads(rank.launches)[launch], returned, np.zeros(len(rows), np.int64)
        )
        inferred["copies that their call waits for"] += len(rows)
        yield rows, back, returned - device.rows.end[rows]


def _synchronise_waits(
    rank: GraphInput,
    device: Device,
    told: StatedWaits | None,
    points: HostInstants,
    inferred: Counter[str],
    traced: Counter[str],
) -> Iterator[Wait]:
    """Synchronise calls: what the trace says they wait for, else what the device shows."""
    calls, rows = rank.syncs, device.rows
    if not len(calls):
        return
    thread = host_threads(calls)
    points.add_instants(thread, calls.start)
    own = calls.end - calls.start
    awaited: list[tuple[int, int, int]] = []
    whole = calls.rows_named("DeviceSynchronize", "Context Sync", "CtxSynchronize")
    order = np.argsort(rows.end, kind="stable")
    ends = rows.end[order]
    for i, (begin, end) in enumerate(zip(calls.start.tolist(), calls.end.tolist(), strict=True)):
        known = told.of_call.get(int(calls.correlation[i])) if told is not None else None
        if known is not None and all(rows.end[row] <= end + TOLERANCE_NS for row in known.values()):
            traced["synchronise calls"] += 1
            last = max((int(rows.end[row]) for row in known.values()), default=begin)
            own[i] = 0 if last > begin else own[i]
            awaited += [(row, i, max(end - last, 0) if last > begin else 0) for row in known.values()]
            continue
        stop = int(np.searchsorted(ends, end + TOLERANCE_NS, side="right"))
        during = order[int(np.searchsorted(ends, begin, side="right")) : stop]
        during = during[device.issue[during] <= begin]
        if not len(during):
            continue
        last = int(during[-1])
        lag = max(end - int(rows.end[last]), 0)
        own[i] = 0
        awaited.append((last, i, lag))
        inferred["synchronise calls, by the row that ended last in them"] += 1
        if whole[i]:
            for lane in np.unique(rows.lane).tolist():
                given = np.flatnonzero((rows.lane == lane) & (device.issue <= begin))
                if len(given) and int(given[-1]) != last and rows.end[given[-1]] + lag <= end:
                    awaited.append((int(given[-1]), i, lag))
    back = points.add_instants(thread, calls.end, own)
    if awaited:
        source, call, lag_ns = (np.array(column, np.int64) for column in zip(*awaited, strict=True))
        yield source, back[call], lag_ns


def _drained_rows(device: Device, waits: Found, points: HostInstants) -> Iterator[tuple[Int64, Int64]]:
    """Rows that a thread waited for, and the first collective of each lane that was launched afterwards.

    It would follow them without that wait, too: libraries let a collective wait for what computes its input.
    """
    rows, (_, time, _) = device.rows, points.as_arrays()
    for lane in np.unique(rows.lane[rows.row >= 0]).tolist():
        own = np.flatnonzero((rows.lane == lane) & (rows.row >= 0) & (device.launch >= 0))
        own = own[np.argsort(device.issue[own], kind="stable")]
        for source, back, _ in waits:
            after = np.searchsorted(device.issue[own], time[back], side="left")
            kept = (after < len(own)) & (rows.row[source] < 0)
            yield source[kept], own[after[kept]]


def _thread_turns(rank: GraphInput, points: HostInstants, waits: Found, inferred: Counter[str]) -> Found:
    """Threads that go on when another pauses: (point of the pause, point of going on, lag)."""
    if len({*host_threads(rank.launches).tolist(), *host_threads(rank.syncs).tolist()}) < 2:
        return []
    idle = thread_pauses(rank)
    _, time, own = points.as_arrays()
    explained = np.flatnonzero(np.isin(idle.end, time[own >= 0])) if waits else np.empty(0, np.int64)
    return add_turns(idle, explained, points, inferred)


def _work_nodes(rank: GraphInput, device: Device, lanes: int) -> tuple[Nodes, Int64, Int64]:
    """Device rows as nodes, collectives as two; the node in which each row begins, and ends."""
    rows = device.rows
    called = rows.row >= 0
    row = np.repeat(np.arange(len(rows)), np.where(called, 2, 1))
    begins = intervals.begins(row)
    start_of = np.flatnonzero(begins)
    arrival = called[row] & begins
    kind = np.where(rows.copy[row], n.COPY, n.COMPUTE)
    kind = np.where(arrival, n.ARRIVAL, np.where(begins, kind, n.TRANSFER))
    made = n.blank_nodes(
        len(row),
        rank=rank.rank,
        lane=rows.lane[row] + lanes,
        kind=kind,
        start=rows.start[row],
        end=np.where(arrival, rows.start[row], rows.end[row]),
        gap=np.where(begins, device.gap[row], 0),
        dur=np.where(arrival, 0, rows.end[row] - rows.start[row]),
        direction=rows.direction[row],
        call=rows.row[row],
        step=rows.step[row],
        category=rows.category[row],
        name=rows.name[row],
    )
    return made, start_of, start_of + called


def _device_waits(
    rank: GraphInput, device: Device, told: StatedWaits | None, inferred: Counter[str], traced: Counter[str]
) -> tuple[Found, Found]:
    """Device rows that wait for rows of other lanes: as the trace states its events, else as times show; and
    those of them that no row shows."""
    rows = device.rows
    if not len(rows):
        return [], []
    if not device.fitted.any():
        return _chain_rows(device, inferred), []
    before = np.where(device.first, -(1 << 60), np.roll(rows.end, 1))
    bound = np.maximum(device.issue + device.latency, before + device.gap)
    bound = np.where(device.fitted, bound, rows.start)
    issued = DeviceLaunches(
        rows.lane.astype(np.int64), device.issue, bound, rows.start, rows.end, rows.row >= 0
    )
    if told is not None and told.source:
        source, target, lag, contradicted = stream_lags(told, device, bound)
        traced["waits of a stream for an event"] += len(source)
        traced["waits for an event that rows contradict, left out"] += contradicted
        late = np.array(sorted(set(told.unknown)), np.int64)
        late = late[rows.start[late] > bound[late] + device.doubt]
        cause = other_lane(issued, late, clock_grain_ns(rows))[late]
        late, cause = late[cause >= 0], cause[cause >= 0]
        inferred["waits of a stream for an event whose record is not in the trace"] += len(late)
        found = [(source, target, lag), (cause, late, rows.start[late] - rows.end[cause])]
        unseen = found[1:]
    else:
        waits = between_streams(issued, device.doubt, clock_grain_ns(rows))
        inferred["waits of a stream for another's row"] += int(waits.seen.sum())
        inferred["collectives taken to wait for the kernel launched before them"] += int((~waits.seen).sum())
        found = [(waits.source, waits.target, waits.lag)]
        unseen = [(waits.source[~waits.seen], waits.target[~waits.seen], waits.lag[~waits.seen])]
    found += _batch_rows(device, inferred)
    explained = bound.copy()
    for source, target, lag in found:
        np.maximum.at(explained, target, rows.end[source] + lag)
    computes = (rows.row < 0) & ~rows.copy
    fills = computes & ((rows.blocks < 0) | (rows.blocks > (rank.processors or 0)))
    held = held_up(issued, fills, computes & (rows.start > explained + device.doubt))
    inferred["kernels held up by one of another stream that fills the device"] += len(held[0])
    np.maximum.at(explained, held[1], rows.start[held[1]])
    late = _idle_delay(device, explained)
    device.delay[:] = late
    device.latency[late > 0] += late[late > 0]
    device.gap[(late > 0) & ~device.first] += late[(late > 0) & ~device.first]
    inferred["rows late on an idle device, for what is not in the trace: they stay as late"] += int(
        np.count_nonzero(late)
    )
    return [*found, held], unseen


def _idle_delay(device: Device, explained: Int64) -> Int64:
    """How much later than `explained` rows begin for which the device did nothing else meanwhile, ns, 0 of
    others, shape (rows,).

    What they waited for came before the capture, or was not traced.  Less than PROMPT_NS may be chance.
    """
    rows = device.rows
    order = np.argsort(rows.start, kind="stable")
    begun = np.searchsorted(rows.start[order], rows.start - PROMPT_NS, side="left")
    reached = np.append(-_AGES, np.maximum.accumulate(rows.end[order]))[begun]
    idle = device.fitted & (rows.start > explained + PROMPT_NS) & (reached <= explained)
    return np.where(idle, rows.start - explained, 0)


def _add_pairs(device: Device, nodes: Nodes, edges: Edges, start_of: Int64, end_of: Int64) -> None:
    """A transfer begins with its issue; what awaits it is over when it is."""
    pairs, rows = device.pairs, device.rows
    begin = rows.start[pairs.transfer] - rows.end[pairs.issue]
    edges.add_edges(end_of[pairs.issue], start_of[pairs.transfer], begin)
    edges.add_edges(end_of[pairs.transfer], end_of[pairs.wait], 0)
    early = end_of[pairs.transfer[pairs.waited <= TOLERANCE_NS]]
    nodes.slack[early] = nodes.dur[early]


def _chain_rows(device: Device, inferred: Counter[str]) -> Found:
    """Rows without launches of their own follow what ended last before them, whichever lane it ran in.

    Of calls that were made as one, with the same begin and end, they follow all.
    """
    rows = device.rows
    source = _ended_before(rows)
    queued = (device.launch < 0) | (previous_end(rows) > device.issue)
    other = (source >= 0) & (rows.lane[source] != rows.lane) & queued
    known = np.isin(np.arange(len(rows)), device.pairs.transfer)
    other &= ~known & ~known[source]
    target = np.flatnonzero(other)
    inferred["rows that follow another lane's last"] += len(target)
    # the lane's own order holds, without the gap, which was waiting for the other lane
    device.gap[target] = np.minimum(device.gap[target], 0)
    source, target = _made_as_one(rows, source[target], target)
    return [(source, target, rows.start[target] - rows.end[source])]


def _batch_rows(device: Device, inferred: Counter[str]) -> Found:
    """Rows that a launch gave among others, as that of a CUDA graph does, in streams of which others have
    launches of their own.

    The first of them follows what ended last before it on the device, if it starts promptly then; each other
    one what ended last of its own launch's, on whichever lane, else the first.  The rest is the device's own
    gaps, which are kept: nobody told it anything in between.
    """
    rows, batch = device.rows, device.batch
    own = np.flatnonzero(batch >= 0)
    if not len(own):
        return []
    head = device.launch[own] >= 0
    apart = rows.take_rows(own)
    shift = _separating_shifts(apart, batch[own])
    among = _ended_before(replace(apart, start=apart.start + shift, end=apart.end + shift))
    among = np.where((among >= 0) & (batch[own][among] == batch[own]), own[among], -1)
    first_of = dict(zip(batch[own[head]].tolist(), own[head].tolist(), strict=True))
    firsts = np.array([first_of[launch] for launch in batch[own].tolist()], np.int64)
    before = _ended_before(rows)[own]
    prompt = (before >= 0) & (rows.start[own] - rows.end[before] <= PROMPT_NS)
    prompt &= previous_end(rows)[own] > device.issue[own]
    source = np.where(head, np.where(prompt, before, -1), np.where(among >= 0, among, firsts))
    inside = (source == own - 1) & (rows.lane[source] == rows.lane[own])
    chosen = (source >= 0) & ~inside
    source, target = source[chosen], own[chosen]
    device.gap[target] = np.minimum(device.gap[target], 0)
    inferred["rows of graphs that follow another lane's last"] += len(target)
    source, target = _made_as_one(rows, source, target)
    return [(source, target, rows.start[target] - rows.end[source])]


def _separating_shifts(rows: RankRows, batch: Int64) -> Int64:
    """By how much to move rows so that those of different batches never overlap, ns, shape (rows,)."""
    _, of = np.unique(batch, return_inverse=True)
    begin = np.full(int(of.max()) + 1, np.iinfo(np.int64).max)
    end = np.full(len(begin), np.iinfo(np.int64).min)
    np.minimum.at(begin, of, rows.start)
    np.maximum.at(end, of, rows.end)
    return np.asarray((np.append(0, np.cumsum(end - begin + 2 * PROMPT_NS)[:-1]) - begin)[of], np.int64)


def _ended_before(rows: RankRows) -> Int64:
    """What ended last before each row began, −1 for nothing; shape (rows,).

    Begins and ends may be taken by different clocks: a row that overlaps another by no more than a small
    share of either follows it.
    """
    by_end = np.argsort(rows.end, kind="stable")
    ends, lasted = rows.end[by_end], rows.end - rows.start
    begun = rows.start[by_end]
    place = np.searchsorted(ends, rows.start + PROMPT_NS, side="right") - 1
    found = np.full(len(rows), -1, np.int64)
    looked = np.flatnonzero(place >= 0)
    while len(looked):
        at = place[looked]
        shorter = np.minimum(lasted[looked], ends[at] - begun[at])
        fits = ends[at] <= rows.start[looked]
        fits |= (ends[at] - rows.start[looked] <= shorter * _SAME_INSTANT) & (begun[at] < rows.start[looked])
        found[looked[fits]] = by_end[at[fits]]
        looked = looked[~fits]
        place[looked] -= 1
        looked = looked[place[looked] >= 0]
    return found


def _made_as_one(rows: RankRows, source: Int64, target: Int64) -> tuple[Int64, Int64]:
    """The pairs, and those with rows of other lanes that begin and end as a source does."""
    together = np.lexsort((rows.end, rows.start))
    new = intervals.begins(rows.start[together], rows.end[together]) | (rows.row[together] < 0)
    crowd = np.empty(len(rows), np.int64)
    crowd[together] = np.cumsum(new) - 1
    first, count = np.flatnonzero(new), np.diff(np.append(np.flatnonzero(new), len(rows)))
    of = crowd[source]
    each = np.repeat(np.arange(len(source)), count[of])
    place = np.arange(len(each)) - np.repeat(np.cumsum(count[of]) - count[of], count[of])
    sources = together[first[of[each]] + place]
    apart = sources != target[each]
    return sources[apart], target[each[apart]]
