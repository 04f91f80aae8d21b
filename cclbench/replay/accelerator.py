# SPDX-License-Identifier: Apache-2.0
"""Graph nodes of a rank with an accelerator: host points, device rows, and their dependencies.

Device rows start when their launch, stream and dependencies allow, after latencies fitted to the rank's rows;
only rows without a known launch keep their measured gap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np

from cclbench.ground import intervals
from cclbench.ground.intervals import Int64
from cclbench.normalize.host_calls import ASYNCHRONOUS, PINNED, blocks
from cclbench.replay import nodes as n
from cclbench.replay.device import Device, clock_grain_ns, device_of
from cclbench.replay.events import StatedWaits, stated_waits, stream_lags
from cclbench.replay.full_queues import full_queues
from cclbench.replay.host import (
    HostInstants,
    Wait,
    Waits,
    add_boundaries,
    add_turns,
    host_nodes,
    host_threads,
    thread_pauses,
)
from cclbench.replay.inferred_order import batch_rows, chain_rows
from cclbench.replay.nodes import Edges, Nodes, RankNodes
from cclbench.replay.silent_waits import silent_waits
from cclbench.replay.tables import DIRECTIONS, GraphInput
from cclbench.replay.waits import (
    PROMPT_NS,
    TOLERANCE_NS,
    DeviceLaunches,
    between_streams,
    held_up,
    other_lane,
)

_AGES: Final = 1 << 60


def accelerator_part(rank: GraphInput) -> RankNodes:
    """One rank's part of the graph."""
    inferred, traced = Counter[str](), Counter[str]()
    device = device_of(rank)
    stated = stated_waits(rank.stated, device) if rank.stated is not None else None
    pairs, without_launch = device.pairs, ~device.fitted
    without_launch[np.concatenate([pairs.issue, pairs.transfer, pairs.wait])] = False
    inferred["rows without a launch, which keep their measured gaps"] += int(without_launch.sum())
    points, edges = HostInstants(), Edges()
    launched = points.add_instants(host_threads(rank.launches), device.submitted)
    points.add_instants(*_first_rows(rank, device.submitted))
    # calls that return when device work ends: (device row, point of the return, lag)
    waits = [
        *_blocking_copies(rank, device, points, inferred),
        *_synchronise_waits(rank, device, stated, points, inferred, traced),
        *silent_waits(rank, device, points, inferred),
        *full_queues(rank, device, points, inferred),
    ]
    turns = _thread_turns(rank, points, waits, inferred)
    add_boundaries(rank, points)
    host, place = host_nodes(rank, points)
    waits_between, assumed_waits = _device_waits(rank, device, stated, inferred, traced)
    work, start_of, end_of = _work_nodes(rank, device, int(host.lane.max(initial=-1)) + 1)
    nodes, start_of, end_of = n.join_nodes([host, work]), start_of + len(host), end_of + len(host)
    has_launch = device.launch >= 0
    nodes.feeder[start_of[has_launch]] = place[launched[device.launch[has_launch]]]
    nodes.feed_lag[start_of[has_launch]] = device.latency[has_launch]
    nodes.doubt[start_of[has_launch]] = device.delay[has_launch]
    for source, target, lag in waits:
        edges.add_edges(end_of[source], place[target], lag)
    for source, target in _drained_rows(device, waits, points):
        edges.add_edges(end_of[source], start_of[target], 0)
    for source, target, lag in turns:
        edges.add_edges(place[source], place[target], lag)
    _add_pairs(device, nodes, edges, start_of, end_of)
    traced["asynchronous transfers, from issue to wait"] += len(pairs.wait)
    inferred["transfers that ended before their wait, of which only an upper bound shows"] += int(
        (nodes.slack > 0).sum()
    )
    for source, target, lag in waits_between:
        edges.add_edges(end_of[source], start_of[target], lag)
    assumed = Edges()
    for source, target, lag in assumed_waits:
        assumed.add_edges(end_of[source], start_of[target], lag)
    return RankNodes(nodes, device.rows.categories, device.rows.names, edges, inferred, traced, assumed)


def _first_rows(rank: GraphInput, submitted: Int64) -> tuple[Int64, Int64]:
    """Threads with rows before their first launch, and the start of their first row."""
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
    """Copies that their call waits for; see `blocks`."""
    with_host = (device.rows.direction == DIRECTIONS.index("h2d")) | (
        device.rows.direction == DIRECTIONS.index("d2h")
    )
    rows = np.flatnonzero(with_host & (device.launch >= 0))
    launch = device.launch[rows]
    returned = rank.launches.end[launch]
    pinned, at_once = (
        device.rows.rows_matching(PINNED.pattern)[rows],
        rank.launches.rows_named(ASYNCHRONOUS)[launch],
    )
    starts, ends = device.rows.start[rows], device.rows.end[rows]
    blocking = blocks(returned, starts, ends, with_host[rows], pinned, at_once)
    blocking &= returned > device.issue[rows]
    rows, launch, returned = rows[blocking], launch[blocking], returned[blocking]
    if len(rows):
        back = points.add_instants(
            host_threads(rank.launches)[launch], returned, np.zeros(len(rows), np.int64)
        )
        inferred["blocking copies"] += len(rows)
        yield rows, back, returned - device.rows.end[rows]


def _synchronise_waits(
    rank: GraphInput,
    device: Device,
    stated: StatedWaits | None,
    points: HostInstants,
    inferred: Counter[str],
    traced: Counter[str],
) -> Iterator[Wait]:
    """Synchronise calls: what they wait for by the trace, else by the device's rows."""
    calls, rows = rank.syncs, device.rows
    if not len(calls):
        return
    thread = host_threads(calls)
    points.add_instants(thread, calls.start)
    own_ns = calls.end - calls.start
    awaited: list[tuple[int, int, int]] = []
    of_device = calls.rows_named("DeviceSynchronize", "Context Sync", "CtxSynchronize")
    order = np.argsort(rows.end, kind="stable")
    ends = rows.end[order]
    for i, (begin, end) in enumerate(zip(calls.start.tolist(), calls.end.tolist(), strict=True)):
        stated_rows = stated.of_call.get(int(calls.correlation[i])) if stated is not None else None
        if stated_rows is not None and all(
            rows.end[row] <= end + TOLERANCE_NS for row in stated_rows.values()
        ):
            traced["synchronise calls"] += 1
            last = max((int(rows.end[row]) for row in stated_rows.values()), default=begin)
            own_ns[i] = 0 if last > begin else own_ns[i]
            awaited += [(row, i, max(end - last, 0) if last > begin else 0) for row in stated_rows.values()]
            continue
        stop = int(np.searchsorted(ends, end + TOLERANCE_NS, side="right"))
        during = order[int(np.searchsorted(ends, begin, side="right")) : stop]
        during = during[device.issue[during] <= begin]
        if not len(during):
            continue
        last = int(during[-1])
        lag = max(end - int(rows.end[last]), 0)
        own_ns[i] = 0
        awaited.append((last, i, lag))
        inferred["synchronise calls, by the last row that ended in them"] += 1
        if of_device[i]:
            for lane in np.unique(rows.lane).tolist():
                issued_rows = np.flatnonzero((rows.lane == lane) & (device.issue <= begin))
                if (
                    len(issued_rows)
                    and int(issued_rows[-1]) != last
                    and rows.end[issued_rows[-1]] + lag <= end
                ):
                    awaited.append((int(issued_rows[-1]), i, lag))
    returns = points.add_instants(thread, calls.end, own_ns)
    if awaited:
        source, call, lag_ns = (np.array(column, np.int64) for column in zip(*awaited, strict=True))
        yield source, returns[call], lag_ns


def _drained_rows(device: Device, waits: Waits, points: HostInstants) -> Iterator[tuple[Int64, Int64]]:
    """Rows that a thread waited for, and the first collective of each lane launched afterwards.

    The collective would follow them without that wait as well, since it waits for its input.
    """
    rows, (_, time, _) = device.rows, points.as_arrays()
    for lane in np.unique(rows.lane[rows.row >= 0]).tolist():
        of_lane = np.flatnonzero((rows.lane == lane) & (rows.row >= 0) & (device.launch >= 0))
        of_lane = of_lane[np.argsort(device.issue[of_lane], kind="stable")]
        for source, back, _ in waits:
            next_place = np.searchsorted(device.issue[of_lane], time[back], side="left")
            has_next = (next_place < len(of_lane)) & (rows.row[source] < 0)
            yield source[has_next], of_lane[next_place[has_next]]


def _thread_turns(rank: GraphInput, points: HostInstants, waits: Waits, inferred: Counter[str]) -> Waits:
    """Threads that resume when another pauses: (point of the pause, point of resuming, lag)."""
    if len({*host_threads(rank.launches).tolist(), *host_threads(rank.syncs).tolist()}) < 2:
        return []
    idle = thread_pauses(rank)
    _, time, own_ns = points.as_arrays()
    explained = np.flatnonzero(np.isin(idle.end, time[own_ns >= 0])) if waits else np.empty(0, np.int64)
    return add_turns(idle, explained, points, inferred)


def _work_nodes(rank: GraphInput, device: Device, lanes: int) -> tuple[Nodes, Int64, Int64]:
    """Device rows as nodes, two for a collective; the first and last node of each row."""
    rows = device.rows
    is_collective = rows.row >= 0
    row = np.repeat(np.arange(len(rows)), np.where(is_collective, 2, 1))
    begins = intervals.begins(row)
    start_of = np.flatnonzero(begins)
    arrival = is_collective[row] & begins
    kind = np.where(rows.copy[row], n.COPY, n.COMPUTE)
    kind = np.where(arrival, n.ARRIVAL, np.where(begins, kind, n.TRANSFER))
    work_nodes = n.blank_nodes(
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
    return work_nodes, start_of, start_of + is_collective


def _device_waits(
    rank: GraphInput, device: Device, stated: StatedWaits | None, inferred: Counter[str], traced: Counter[str]
) -> tuple[Waits, Waits]:
    """Waits of device rows for rows of other lanes, by the trace's events, else by times; and those of them
    that are only assumed."""
    rows = device.rows
    if not len(rows):
        return [], []
    if not device.fitted.any():
        return chain_rows(device, inferred), []
    previous_ends = np.where(device.first, -(1 << 60), np.roll(rows.end, 1))
    bound = np.maximum(device.issue + device.latency, previous_ends + device.gap)
    bound = np.where(device.fitted, bound, rows.start)
    issued = DeviceLaunches(
        rows.lane.astype(np.int64), device.issue, bound, rows.start, rows.end, rows.row >= 0
    )
    if stated is not None and stated.source:
        source, target, lag, contradicted = stream_lags(stated, device, bound)
        traced["waits of a stream for an event"] += len(source)
        traced["waits for an event that times contradict, left out"] += contradicted
        late_rows = np.array(sorted(set(stated.unknown)), np.int64)
        late_rows = late_rows[rows.start[late_rows] > bound[late_rows] + device.doubt]
        cause = other_lane(issued, late_rows, clock_grain_ns(rows))[late_rows]
        late_rows, cause = late_rows[cause >= 0], cause[cause >= 0]
        inferred["waits of a stream for an event whose record is not in the trace"] += len(late_rows)
        waits_found = [(source, target, lag), (cause, late_rows, rows.start[late_rows] - rows.end[cause])]
        assumed = waits_found[1:]
    else:
        waits = between_streams(issued, device.doubt, clock_grain_ns(rows))
        inferred["waits of a stream for another's row"] += int(waits.is_observed.sum())
        inferred["collectives assumed to wait for the kernel launched before"] += int(
            (~waits.is_observed).sum()
        )
        waits_found = [(waits.source, waits.target, waits.lag)]
        assumed = [
            (
                waits.source[~waits.is_observed],
                waits.target[~waits.is_observed],
                waits.lag[~waits.is_observed],
            )
        ]
    waits_found += batch_rows(device, inferred)
    explained = bound.copy()
    for source, target, lag in waits_found:
        np.maximum.at(explained, target, rows.end[source] + lag)
    computes = (rows.row < 0) & ~rows.copy
    fills = computes & ((rows.blocks < 0) | (rows.blocks > (rank.processors or 0)))
    held = held_up(issued, fills, computes & (rows.start > explained + device.doubt))
    inferred["kernels held up by a kernel of another stream that fills the device"] += len(held[0])
    np.maximum.at(explained, held[1], rows.start[held[1]])
    late_rows = _idle_delay(device, explained)
    device.delay[:] = late_rows
    device.latency[late_rows > 0] += late_rows[late_rows > 0]
    device.gap[(late_rows > 0) & ~device.first] += late_rows[(late_rows > 0) & ~device.first]
    inferred["rows late on an idle device for a reason not in the trace, which stay late"] += int(
        np.count_nonzero(late_rows)
    )
    return [*waits_found, held], assumed


def _idle_delay(device: Device, explained: Int64) -> Int64:
    """Delay of rows after `explained` while the device is idle, ns, 0 for others, shape (rows,).

    Their cause is before the capture, or not traced. Delays below PROMPT_NS may be chance.
    """
    rows = device.rows
    order = np.argsort(rows.start, kind="stable")
    started_before = np.searchsorted(rows.start[order], rows.start - PROMPT_NS, side="left")
    reached = np.append(-_AGES, np.maximum.accumulate(rows.end[order]))[started_before]
    idle = device.fitted & (rows.start > explained + PROMPT_NS) & (reached <= explained)
    return np.where(idle, rows.start - explained, 0)


def _add_pairs(device: Device, nodes: Nodes, edges: Edges, start_of: Int64, end_of: Int64) -> None:
    """Add the edges of asynchronous transfers: from issue to transfer, from transfer to its wait."""
    pairs, rows = device.pairs, device.rows
    begin = rows.start[pairs.transfer] - rows.end[pairs.issue]
    edges.add_edges(end_of[pairs.issue], start_of[pairs.transfer], begin)
    edges.add_edges(end_of[pairs.transfer], end_of[pairs.wait], 0)
    early = end_of[pairs.transfer[pairs.waited <= TOLERANCE_NS]]
    nodes.slack[early] = nodes.dur[early]
