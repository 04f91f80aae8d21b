# SPDX-License-Identifier: Apache-2.0
"""Relations: the expected change of figures if traces are read with a known change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from cclbench.analyzers.metric import METRICS
from cclbench.formats import READERS, trace_reader
from cclbench.ground.errors import CclbenchError
from cclbench.ground.schema import group_id
from cclbench.ingestion import ingest
from cclbench.ingestion.source import Source, SourceFile
from cclbench.record.manifest import Options
from cclbench.record.metric_name import metric_name, metric_names
from cclbench.record.rows import Row
from cclbench.record.store import Store
from cclbench.selfcheck.changes import (
    ChangedReader,
    DoubledGroups,
    IdleStream,
    Later,
    MirroredRanks,
    OneMemset,
    OtherThread,
    OwnRank,
    Rebatched,
    Reordered,
    Repeated,
    Slower,
    TraceChange,
)
from cclbench.selfcheck.outcome import Outcome
from cclbench.selfcheck.reading import CheckedReading, Key, NotApplicableError, key_of
from cclbench.selfcheck.relation import Place, Relation, compare_readings

_WITH_LENGTHS: Final = metric_names("time.idle_host_by")
"""Metrics with a fixed time in their definition: the least pause of a thread."""
_STEP_PARTS: Final = metric_name("time.step_parts")
_BY_RANK: Final = metric_names("balance.caused_wait", "balance.kernel_speed", "balance.straggler_rank")
"""Metrics whose category may be a rank."""
_OF_OTHERS: Final = (
    *_BY_RANK,
    *metric_names("balance.load_imbalance", "balance.straggler_delay", "balance.straggler_slowdown"),
    *metric_names("comm.algbw", "comm.alpha", "comm.bandwidth_utilization", "comm.beta", "comm.busbw"),
    *metric_names("comm.skew", "comm.transfer", "comm.wait", "overlap.exposed_by", "overlap.pipeline_bubble"),
    *metric_names("time.exposed_comm", "time.exposed_copy", "time.exposed_transfer"),
    *metric_names("time.exposed_unmatched", "time.exposed_wait"),
    _STEP_PARTS,
)
"""Metrics that depend on when other ranks arrive."""


def _without_names(files: Sequence[SourceFile]) -> tuple[SourceFile, ...]:
    """The files, with names that state no rank."""
    return tuple(replace(file, name=f"trace-{number}") for number, file in enumerate(files))


class LaterByADay(Relation):
    """The origin of clocks is arbitrary."""

    name = "shift of time"
    claim = "a capture of another day has the same figures"
    kind = Later


class TwiceAsLong(Relation):
    """Doubles all durations and gaps."""

    name = "scaling of time"
    claim = "where everything takes twice as long, times double, rates halve, and shares stay"
    tolerance = 1e-5  # medians, and corrections of clocks by a slope, are rounded to ns
    absolute = 1e-7
    keeps_findings = False

    def changed_source(self, folder: Path) -> Source:
        """See `Relation`."""
        self.kind = partial(Slower, self.begin_ns())
        return super().changed_source(folder)

    def expected_place(self, row: Row) -> Place | None:
        """See `Relation`."""
        if row.metric in _WITH_LENGTHS or any(
            one.startswith("catalog:") for one in METRICS.get(row.metric).inputs
        ):
            return None  # what the machine can do does not slow down with the trace
        above, _, below = row.unit.partition("/")
        return key_of(row), float(Slower.factor) ** ((above == "s") - (below == "s"))


class RowsReordered(Relation):
    """Reverses the rows of each batch."""

    name = "rows in another order"
    claim = "the order of rows in a file says nothing"
    kind = Reordered


class FilesInPieces(Relation):
    """Batches of about a thousand rows."""

    name = "files in other pieces"
    claim = "how much of a file is read at once says nothing"
    kind = Rebatched


class RowsRepeated(Relation):
    """Repeats one device row in twenty."""

    name = "rows twice"
    claim = "a row that stands twice in a file is one row"
    kind = Repeated
    on_device = True


class StreamAdded(Relation):
    """Adds a stream without work."""

    name = "an idle stream"
    claim = "a stream without work changes nothing"
    kind = IdleStream


class ThreadAdded(Relation):
    """Adds a thread without launches."""

    name = "a thread of others"
    claim = "what launches nothing changes nothing"
    kind = OtherThread
    on_device = True


class GroupsDoubled(Relation):
    """Lists groups again under other names."""

    name = "process groups twice"
    claim = "a group of the same ranks under another name is the same group"
    kind = DoubledGroups

    def changed_source(self, folder: Path) -> Source:
        """See `Relation`."""
        if "stated" not in self.reading.run.groups()["source"].to_pylist():
            raise NotApplicableError("the traces list no process groups")
        return super().changed_source(folder)


class RanksMirrored(Relation):
    """Numbers ranks in reverse."""

    name = "ranks renumbered"
    claim = "what a rank is called says nothing"
    tolerance = 1e-5  # corrections of clocks by halves of ns are rounded to even ones
    absolute = 1e-8
    keeps_findings = False

    def changed_source(self, folder: Path) -> Source:
        """See `Relation`."""
        ranks = self.reading.run.ranks
        if len(ranks) < 2:
            raise NotApplicableError("the run has one rank")
        self.last = max([*ranks, *(rank for own in self._rank_groups() for rank in own)])
        files = [
            replace(file, ranks_by_card=tuple(self.last - rank for rank in file.ranks_by_card))
            for file in self.source.files
        ]
        return replace(super().changed_source(folder), files=_without_names(files))

    def change_of(self, path: Path) -> TraceChange:
        """See `Relation`."""
        return MirroredRanks(self.rank_of(path), self.last + 1)

    def expected_place(self, row: Row) -> Place | None:
        """See `Relation`."""
        if row.metric == _STEP_PARTS:
            return None  # of the slowest rank, of equally slow ones the first
        rank = None if row.rank is None else self.last - row.rank
        group = None if row.group is None else self._mirrored_group_ids.get(row.group, row.group)
        category = row.category
        if row.metric in _BY_RANK and category is not None and category.isdecimal():
            category = str(self.last - int(category))
        return (row.metric, rank, row.step, group, row.collective, category, row.stat), 1.0

    def _rank_groups(self) -> list[list[int]]:
        return list(self.reading.run.groups()["ranks"].to_pylist())

    @cached_property
    def _mirrored_group_ids(self) -> dict[str, str]:
        return {
            group_id(tuple(ranks)): group_id(tuple(self.last - rank for rank in ranks))
            for ranks in self._rank_groups()
        }


class RankLeftOut(Relation):
    """Leaves out the last file."""

    name = "a rank left out"
    claim = "a rank's own figures do not need the other ranks"
    keeps_findings = False

    def changed_source(self, folder: Path) -> Source:
        """See `Relation`."""
        files = self.source.files
        if len(files) < 2 or len({file.reader for file in files}) > 1 or self.source.card is not None:
            raise NotApplicableError("the source is no folder of several files of one kind without a card")
        self.left = {
            entry.rank
            for entry in self.reading.run.record.ranks
            if files[-1].name not in {own.name for own in entry.files}
        }
        return replace(super().changed_source(folder), files=files[:-1])

    def expected_place(self, row: Row) -> Place | None:
        """See `Relation`."""
        alone = row.rank in self.left and row.metric not in _OF_OTHERS
        return super().expected_place(row) if alone else None


class MemsetAdded(Relation):
    """Adds a file with one memset and no other row."""

    name = "a device that sets memory once"
    claim = "a device without a kernel is no rank"
    on_device = True

    def changed_source(self, folder: Path) -> Source:
        """See `Relation`."""
        source = super().changed_source(folder)
        self.begin_ns()
        if self.source.card is not None:
            raise NotApplicableError("the card lists the files")
        worlds = [one.facts.world_size for one in self.reading.run.record.ranks if one.facts.world_size]
        ranks = self.reading.run.ranks
        free = set(range(min(worlds, default=max(ranks) + 2))) - set(ranks)
        if not free:
            raise NotApplicableError("every rank of the job has a trace")
        self.rank, first = max(free), self.source.files[0]
        self.alone = folder / f"memset-{first.path.name}"
        self.alone.symlink_to(first.path.resolve())
        files = (*source.files, replace(first, path=self.alone))
        return replace(source, files=_without_names(files))

    def change_of(self, path: Path) -> TraceChange:
        """See `Relation`."""
        if path == self.alone:
            return OneMemset(self.rank)
        return OwnRank(self.rank_of(path))

    def is_new(self, key: Key) -> bool:
        """See `Relation`."""
        return key[1] == self.rank


RELATIONS: Final[tuple[type[Relation], ...]] = (
    *(LaterByADay, TwiceAsLong, RowsReordered, FilesInPieces, RowsRepeated, StreamAdded, ThreadAdded),
    *(GroupsDoubled, RanksMirrored, RankLeftOut, MemsetAdded),
)


def check_relations(
    source: Source, reading: CheckedReading, options: Options, folder: Path
) -> Iterator[Outcome]:
    """Read the source again for each relation, in the folder, and compare."""
    for kind in RELATIONS:
        relation = kind(source, reading)
        with TemporaryDirectory(dir=folder) as own:
            try:
                again = _read_changed(relation, options, Path(own))
            except NotApplicableError as error:
                yield Outcome(check=kind.name, claim=kind.claim, status="not_applicable", reason=str(error))
            except CclbenchError as error:
                said = [f"not read any more: {error}"]
                yield Outcome(
                    check=kind.name, claim=kind.claim, status="broken", differing=1, differences=said
                )
            else:
                yield compare_readings(relation, again)


def _read_changed(relation: Relation, options: Options, folder: Path) -> CheckedReading:
    source = relation.changed_source(folder)
    with ExitStack() as stack:
        for name in {file.reader for file in source.files}:
            changed = ChangedReader(trace_reader(name), relation.change_of)
            stack.enter_context(READERS.temporarily_replaced(name, changed))
        run = ingest(source, Store(folder / "store"), options)
    return CheckedReading.of_run(run)
