# SPDX-License-Identifier: Apache-2.0
"""Join the communicators that a job's processes log, and find the ranks of the job in each.

Parts in several processes belong to one communicator if the id is the same, or if the same split of the same
parent gave them the same color.  Without either, they are joined by size and order in the process, if there
is one part for each rank; parts that cannot be told apart are not joined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

from cclbench.formats import LoggedCommunicator

Process = tuple[str, int | None]
"""A process and its device: a rank of the job."""
Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Joined:
    """A communicator of the job; `ranks` maps its own ranks, if known, to ranks of the job.

    `group` are its sorted ranks of the job, None unless all are known.
    """

    number: int
    ranks: Mapping[int, int]
    group: tuple[int, ...] | None


class Membership(NamedTuple):
    """A process's part in a communicator; `rank` is its rank in the job, None if unknown."""

    communicator: Joined
    rank: int | None


@dataclass(frozen=True, slots=True)
class World:
    """The communicator of all processes: the rank of each, and its size."""

    ranks: dict[Process, int]
    size: int


def join_communicators(
    files: Sequence[Sequence[LoggedCommunicator]],
) -> tuple[list[list[Membership]], list[str]]:
    """The parts in each file, in order, joined into communicators; and notes.

    Ranks of the job are those in the largest communicator of all processes; without one they are the device
    numbers, if all devices are on one host and no communicator orders them differently.
    """
    devices: dict[str, set[int]] = {}
    for communicator in (communicator for file in files for communicator in file):
        devices.setdefault(communicator.process, set()).update(
            [] if communicator.device is None else [communicator.device]
        )

    def process_of(communicator: LoggedCommunicator) -> Process:
        only = devices[communicator.process] if len(devices[communicator.process]) == 1 else {None}
        return communicator.process, next(iter(only)) if communicator.device is None else communicator.device

    keys = [_communicator_keys(number, file, process_of) for number, file in enumerate(files)]
    members: dict[Key, dict[Process, LoggedCommunicator]] = {}
    for file, file_keys in zip(files, keys, strict=True):
        for communicator, key in zip(file, file_keys, strict=True):
            members.setdefault(key, {})[process_of(communicator)] = communicator
    sound = {key: by_process for key, by_process in members.items() if _is_one_communicator(key, by_process)}
    everyone = {process_of(communicator) for file in files for communicator in file}
    hosts = {communicator.host for file in files for communicator in file}
    world, notes = _world_ranks(list(sound.values()), everyone, len(hosts))
    if world is not None:
        world_parts = [
            (process_of(communicator), communicator.rank)
            for file in files
            for communicator in file
            if communicator.size == world.size
        ]
        world = _with_others(world, world_parts)
        notes += _unknown_rank_notes(world, everyone)
    number = count()

    def joined(by_process: Mapping[Process, LoggedCommunicator]) -> Joined:
        if world is None:
            return Joined(next(number), {}, None)
        ranks = {
            communicator.rank: world.ranks[process]
            for process, communicator in by_process.items()
            if communicator.rank is not None
        }
        (size,) = {communicator.size for communicator in by_process.values()}
        if len(ranks) == size:
            return Joined(next(number), ranks, tuple(sorted(ranks.values())))
        return Joined(next(number), ranks, tuple(range(size)) if size == world.size else None)

    of_key = {key: joined(by_process) for key, by_process in sound.items()}

    def part(communicator: LoggedCommunicator, key: Key) -> Membership:
        rank = None if world is None else world.ranks.get(process_of(communicator))
        if key in of_key:
            return Membership(of_key[key], rank)
        spans_world = world is not None and rank is not None and communicator.size == world.size
        return Membership(
            Joined(next(number), {}, tuple(range(communicator.size)) if spans_world else None), rank
        )

    parts = [
        [part(communicator, key) for communicator, key in zip(file, file_keys, strict=True)]
        for file, file_keys in zip(files, keys, strict=True)
    ]
    if unknown := sum(key not in sound for file_keys in keys for key in file_keys):
        notes.append(
            f"who is in {unknown:,} of {sum(map(len, keys)):,} communicators, each process's counted, is not"
            " known: the lines of their initialisation are not in the logs, or do not tell"
            " (NCCL_DEBUG_SUBSYS=INIT,COLL)"
        )
    return parts, notes


def _communicator_keys(
    number: int, file: Sequence[LoggedCommunicator], process_of: Callable[[LoggedCommunicator], Process]
) -> list[Key]:
    """Keys that identify a file's communicators; the last element numbers equal ones of a process."""
    keys: list[Key] = []
    occurrences: Counter[tuple[Process, Key]] = Counter()
    for place, communicator in enumerate(file):
        if communicator.id is not None:
            identity: Key = ("id", communicator.id, communicator.size)
        elif communicator.color is not None:
            parent = None if communicator.parent is None else keys[communicator.parent]
            identity = ("split", parent, communicator.split, communicator.color, communicator.size)
        elif communicator.rank is not None:
            identity = ("size", communicator.size)
        else:
            identity = ("call", number, place)
        occurrences[process_of(communicator), identity] += 1
        keys.append((*identity, occurrences[process_of(communicator), identity]))
    return keys


def _is_one_communicator(key: Any, members: Mapping[Process, LoggedCommunicator]) -> bool:
    """Whether these processes' parts are of one communicator."""
    ranks = {communicator.rank for communicator in members.values()}
    (size,) = {communicator.size for communicator in members.values()}
    root = key
    while root is not None and root[0] == "split":
        root = root[1]
    named = root is not None and root[0] == "id"
    return None not in ranks and len(ranks) == len(members) and (named or len(members) == size)


def _world_ranks(
    communicators: Sequence[Mapping[Process, LoggedCommunicator]], everyone: Set[Process], hosts: int
) -> tuple[World | None, list[str]]:
    """Ranks of the job, from the largest communicator with all known processes, else from devices; notes.

    None if no communicator has all, or several order them differently, and devices do not decide.
    """
    processes = {process for members in communicators for process in members}
    holding = [members for members in communicators if members.keys() == processes]
    sizes = {communicator.size for members in holding for communicator in members.values()}
    size = max(sizes, default=0)
    orders = {
        frozenset((process, communicator.rank or 0) for process, communicator in members.items())
        for members in holding
        if next(iter(members.values())).size == size
    }
    several = f"all {len(everyone):,} processes"
    if len(orders) == 1:
        logs = f"of which {len(everyone):,} have a log"
        few = f"ranks are those in the largest communicator, of {size:,}, {logs}"
        return World(dict(orders.pop()), size), [few] if len(everyone) < size else []
    why = f"no communicator holds {several} of the logs"
    if orders:
        why = f"communicators of {several} number them differently"
    by_device = {process: -1 if process[1] is None else process[1] for process in everyone}
    if hosts == 1 and not orders and _in_order(by_device, communicators):
        note = f"ranks are the numbers of their devices, all of one host: {why}"
        return World(by_device, len(everyone)), [note]
    return None, [f"which rank of the job a process is, and who is in its groups, is not known: {why}"]


def _with_others(world: World, parts: Sequence[tuple[Process, int | None]]) -> World:
    """Add processes whose parts in a communicator of the world's size state an unclaimed rank.

    A single process without a stated rank gets the last rank that is left.
    """
    claimed_ranks: dict[Process, set[int]] = {}
    for process, rank in parts:
        if process not in world.ranks:
            claimed_ranks.setdefault(process, set()).update([] if rank is None else [rank])
    left = set(range(world.size)) - set(world.ranks.values())
    claims = Counter(rank for ranks in claimed_ranks.values() for rank in ranks)
    rank_by_process = {
        process: rank
        for process, ranks in claimed_ranks.items()
        for rank in ranks & left
        if claims[rank] == len(ranks) == 1
    }
    silent = [process for process, ranks in claimed_ranks.items() if not ranks]
    free = left - set(rank_by_process.values())
    if len(silent) == len(free) == 1:
        rank_by_process[silent[0]] = free.pop()
    return World({**world.ranks, **rank_by_process}, world.size)


def _unknown_rank_notes(world: World, everyone: Set[Process]) -> list[str]:
    unknown = len(everyone - world.ranks.keys())
    if not unknown:
        return []
    return [
        f"which ranks {unknown:,} of {len(everyone):,} processes are is not known: the lines of their"
        " communicators' initialisation are not in the logs"
    ]


def _in_order(
    ranks: Mapping[Process, int], communicators: Sequence[Mapping[Process, LoggedCommunicator]]
) -> bool:
    """Whether these are ranks 0 to n − 1 whose order agrees with that of all communicators."""
    orders = [
        [ranks[process] for process, _ in sorted(members.items(), key=lambda member: member[1].rank or 0)]
        for members in communicators
        if len(members) > 1
    ]
    is_complete = sorted(ranks.values()) == list(range(len(ranks)))
    return bool(orders) and is_complete and all(order == sorted(order) for order in orders)
