# SPDX-License-Identifier: Apache-2.0
"""NCCL's RAS: what each rank of each communicator of a running job has called, and which do not answer.

`ncclras -f json` (NCCL 2.28.7 and later) writes a snapshot of the whole job.  Counts are of calls that were
launched, from the communicator's beginning, read from one rank after another: in a job that runs, ranks may
differ by the calls of that time.  Ranks of the job are those in the largest communicator, if it contains all
processes; addresses of nodes are not passed on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import msgspec

from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.rewriting import Redactor
from cclbench.ground.schema import group_id
from cclbench.record.facts import ProcessGroup

_MOST_BYTES: Final = 1 << 30
_RESULTS: Final = {
    1: "an unhandled CUDA error",
    2: "a system error",
    3: "an internal error",
    4: "an invalid argument",
    5: "an invalid usage",
    6: "an error of another process",
}
"""`ncclResult_t` of errors."""
_IN_PROGRESS: Final = 7
_MOST_LISTED: Final = 8

Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 20)]
Place = tuple[str, int, int]
"""Host, process and GPU: a rank of the job."""


class _RankStatus(msgspec.Struct):
    init_state: int = 0
    async_error: int = 0
    abort_flag: bool = False
    unresponsive: bool = False
    considered_dead: bool = False


class _Rank(msgspec.Struct):
    rank: Number
    host: str
    pid: int
    nvml_dev: int
    status: _RankStatus
    collective_counts: dict[str, Count] = {}

    @property
    def place(self) -> Place:
        return self.host, self.pid, self.nvml_dev


class _RasCommunicator(msgspec.Struct):
    hash: str
    size: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
    ranks: list[_Rank]
    missing_ranks: list[_Rank] = []
    secondary_hash: str = ""

    @property
    def members(self) -> list[_Rank]:
        return [*self.ranks, *self.missing_ranks]


class _Ras(msgspec.Struct):
    timeouts_count: Count = 0


class _RasSnapshot(msgspec.Struct):
    nccl_version: str
    communicators: list[_RasCommunicator]
    ras: _Ras = msgspec.field(default_factory=_Ras)
    cuda_runtime_version: Count = 0
    cuda_driver_version: Count = 0


class NcclRas(EvidenceReader):
    """Reader of a snapshot of NCCL's RAS."""

    name = "nccl_ras"
    description = "NCCL RAS snapshots (JSON): calls of each rank by communicator, ranks that do not answer"
    extensions: tuple[str, ...] = (".json", ".json.gz")
    capture = "`ncclras -f json > ras.json` while the job runs or hangs; one snapshot, which is of all ranks"
    versions = "NCCL 2.28.7 to 2.30"
    lists_calls = True
    tested = "documentation: NCCL's user guide and source"

    def sniff(self, head: bytes) -> float:
        """Sure of the document's first keys."""
        keys = (b'"nccl_version"', b'"communicators"', b'"missing_ranks_count"')
        return 0.95 if head.lstrip().startswith(b"{") and all(key in head for key in keys) else 0.0

    def read(self, path: Path) -> Evidence:
        """A row for each rank and kind of collective of a communicator, with the number of its calls."""
        # Not needed to recognise a file.
        from cclbench.classify import kind_of
        from cclbench.formats.timing_rows import Timings

        snapshot = _decode(path)
        of_job = _ranks_of_job(snapshot.communicators)
        timings, groups = Timings(path), dict[tuple[int, ...], None]()
        for number, communicator in enumerate(snapshot.communicators):
            ranks = tuple(
                sorted(of_job[member.place] for member in communicator.members if member.place in of_job)
            )
            has_all_ranks = len(set(ranks)) == communicator.size
            if has_all_ranks:
                groups[ranks] = None
            totals = Counter[str]()
            for rank in communicator.ranks:
                totals.update(rank.collective_counts)
            for rank in communicator.ranks:
                for name in (name for name, total in totals.items() if total):
                    calls = rank.collective_counts.get(name, 0)
                    timings.add_row(
                        rank=of_job.get(rank.place),
                        kind=kind_of(name),
                        library="nccl",
                        group=group_id(ranks) if has_all_ranks else None,
                        group_size=communicator.size,
                        communicator=number,
                        seq=calls,
                        calls=calls,
                    )
        return Evidence(
            timings=timings.timing_table(),
            groups=[ProcessGroup(name="", ranks=ranks) for ranks in groups],
            facts={"library_version": snapshot.nccl_version[:60]},
            notes=[*_notes(snapshot, of_job)],
        )

    def rewrite(self, path: Path, target: Path | None, redactor: Redactor) -> bool:
        """Counts and states; addresses, processes and hashes become numbers."""
        from cclbench.formats.files import open_output
        from cclbench.formats.rewriting import METADATA

        snapshot = _decode(path)
        hosts, processes = dict[str, str](), dict[tuple[str, int], int]()
        for number, communicator in enumerate(snapshot.communicators):
            communicator.hash, communicator.secondary_hash = hex(number + 1), ""
            for member in communicator.members:
                place = member.host, member.pid
                member.pid = processes.setdefault(place, len(processes) + 1)
                member.host = hosts.setdefault(place[0], f"host-{len(hosts) + 1}")
                redactor.count("host", Counter({METADATA: 1}))
                member.collective_counts = {
                    _published_name(name, redactor): calls for name, calls in member.collective_counts.items()
                }
        snapshot.nccl_version, counts = redactor.text(snapshot.nccl_version, "nccl_version")
        redactor.count("nccl_version", counts)
        with open_output(path, target) as write:
            write(msgspec.json.encode(snapshot))
        return True


def _published_name(name: str, redactor: Redactor) -> str:
    text, counts = redactor.text(name)
    redactor.count("a key", counts)
    return text


def _decode(path: Path) -> _RasSnapshot:
    from cclbench.formats.texts import damaged_error, read_whole, reason_of

    hint = "write it again: ncclras -f json"
    text = read_whole(path, _MOST_BYTES, hint=hint)
    try:
        snapshot = msgspec.json.decode(text, type=_RasSnapshot)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise damaged_error(path, reason_of(error), hint=hint) from None
    for communicator in snapshot.communicators:
        places = [member.rank for member in communicator.members]
        if len(set(places)) < len(places) or max(places, default=0) >= communicator.size:
            what = f"has a communicator of {communicator.size} whose ranks are not distinct, or beyond it"
            raise damaged_error(path, what, hint=hint)
    return snapshot


def _ranks_of_job(communicators: list[_RasCommunicator]) -> dict[Place, int]:
    """The ranks in the largest communicator, if it has all places of the job; else none."""
    everyone = {member.place for communicator in communicators for member in communicator.members}
    orders = [
        {member.place: member.rank for member in communicator.members}
        for communicator in communicators
        if communicator.size == len(everyone) == len({member.place for member in communicator.members})
    ]
    return orders[0] if orders and all(order == orders[0] for order in orders) else {}


def _notes(snapshot: _RasSnapshot, of_job: dict[Place, int]) -> Iterator[str]:
    """Ranks that do not answer, and ranks with errors, each once."""
    silent, failed = dict[Place, str](), dict[Place, str]()
    for number, communicator in enumerate(snapshot.communicators):

        def label(rank: _Rank, number: int = number) -> str:
            in_job = rank.place in of_job
            return f"rank {of_job[rank.place]}" if in_job else f"rank {rank.rank} of communicator {number}"

        for rank in communicator.missing_ranks:
            silent.setdefault(rank.place, f"{label(rank)} {_absence(rank.status)}")
        for rank in communicator.ranks:
            if words := _errors(rank.status):
                failed.setdefault(rank.place, f"{label(rank)} ({', '.join(words)})")
    for what, ranks in (("ranks are missing", silent), ("ranks report errors", failed)):
        if ranks:
            more = f", and {len(ranks) - _MOST_LISTED:,} more" if len(ranks) > _MOST_LISTED else ""
            yield f"{what}: {', '.join(list(ranks.values())[:_MOST_LISTED])}{more}"
    if snapshot.communicators and not of_job:
        yield "ranks of the job are not known: no communicator contains all processes"
    if timeouts := snapshot.ras.timeouts_count:
        yield f"RAS had {timeouts:,} timeouts of its own: more ranks may be missing"


def _absence(status: _RankStatus) -> str:
    if status.considered_dead:
        return "is considered dead"
    return "does not answer" if status.unresponsive else "is not in the communicator, or no longer"


def _errors(status: _RankStatus) -> list[str]:
    """What a rank that answers reports; empty if all is well."""
    words = ["still initialises"] if status.init_state == _IN_PROGRESS else []
    for when, code in (("while it initialised", status.init_state), ("since", status.async_error)):
        if code not in (0, _IN_PROGRESS):
            words.append(f"{_RESULTS.get(code, f'error {code}')} {when}")
    return words + ["aborted"] * status.abort_flag


READERS.add(NcclRas.name, NcclRas(), origin=__name__)
