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
    IdleThread,
    MirroredRanks,
    RepeatedRows,
    ReversedRows,
    ScaledTimes,
    ShiftedTimes,
    SingleMemset,
    SplitBatches,
    StatedRank,
    TraceChange,
)
from cclbench.selfcheck.outcome import Outcome
from cclbench.selfcheck.reading import CheckedReading, Key, NotApplicableError, row_key
from cclbench.selfcheck.relation import ExpectedRow, Relation, compare_readings

_WITH_FIXED_TIME: Final = metric_names("time.idle_host_by")
"""Metrics with a fixed time in their definition: the shortest pause of a thread."""
_STEP_PARTS: Final = metric_name("time.step_parts")
_BY_RANK: Final = metric_names("balance.caused_wait", "balance.kernel_speed", "balance.straggler_rank")
"""Metrics whose category may be a rank."""
_DEPENDS_ON_OTHER_RANKS: Final = (
    *_BY_RANK,
    *metric_names("balance.load_imbalance", "balance.straggler_delay", "balance.straggler_slowdown"),
    *metric_names("comm.algbw", "comm.alpha", "comm.bandwidth_utilization", "comm.beta", "comm.busbw"),
    *metric_names("comm.skew", "comm.transfer", "comm.wait", "overlap.exposed_by", "overlap.pipeline_bubble"),
    *metric_names("time.exposed_comm", "time.exposed_copy", "time.exposed_transfer"),
    *metric_names("time.exposed_unmatched", "time.exposed_wait"),
    _STEP_PARTS,
)
"""Metrics that depend on when other ranks arrive."""


def _anonymous_files(files: Sequence[SourceFile]) -> tuple[SourceFile, ...]:
    """The files, with names that do not contain a rank."""
    return tuple(replace(file, name=f"trace-{number}") for number, file in enumerate(files))


class TimesShifted(Relation):
    """Shifts all times: the origin of clocks is arbitrary."""

    name = "shift of time"
    claim = "figures do not depend on the time of the capture"
    make_change = ShiftedTimes


class TimesScaled(Relation):
    """Doubles all durations and gaps."""

    name = "scaling of time"
    claim = "if all durations double, times double, rates halve and shares stay the same"
    tolerance = 1e-5  # medians, and corrections of clocks by a slope, are rounded to ns
    absolute_tolerance = 1e-7
    keeps_findings = False

    def changed_source(self, folder: Path) -> Source:
        """See `Relation`."""
        self.make_change = partial(ScaledTimes, self.begin_ns())
        return super().changed_source(folder)

    def expected_row(self, row: Row) -> ExpectedRow | None:
        """See `Relation`."""
        if row.metric in _WITH_FIXED_TIME or any(
            name.startswith("catalog:") for name in METRICS.get(row.metric).inputs
        ):
            return None  # the machine's peak rates do not scale with the trace
        numerator, _, denominator = row.unit.partition("/")
        return row_key(row), float(ScaledTimes.factor) ** ((numerator == "s") - (denominator == "s"))


class RowsReordered(Relation):
    """Reverses the rows of each batch."""

    name = "rows in another order"
    claim = "figures do not depend on the order of rows in a file"
    make_change = ReversedRows


class BatchesSplit(Relation):
    """Batches of about a thousand rows."""

    name = "files in other pieces"
    claim = "figures do not depend on the size of the batches that a file is read in"
    make_change = SplitBatches


class RowsRepeated(Relation):
    """Repeats one device row in twenty."""

    name = "rows twice"
    claim = "a row that a file contains twice counts once"
    make_change = RepeatedRows
    device_only = True


class StreamAdded(Relation):
    """Adds a stream without work."""

    name = "an idle stream"
    claim = "a stream without work changes no figure"
    make_change = IdleStream


class ThreadAdded(Relation):
    """Adds a thread without launches."""

    name = "a thread of others"
    claim = "a thread that launches no device work changes no figure"
    make_change = IdleThread
    device_only = True


class GroupsDoubled(Relation):
    """Lists groups again under other names."""

    name = "process groups twice"
    claim = "groups of the same ranks under different names are one group"
    make_change = DoubledGroups

    def changed_source(self, folder: Path) -> Source:
        """See `Relation`."""
        if "stated" not in self.reading.run.groups()["source"].to_pylist():
            raise NotApplicableError("the traces list no process groups")
        return super().changed_source(folder)


class RanksMirrored(Relation):
    """Numbers ranks in reverse."""

    name = "ranks renumbered"
    claim = "figures do not depend on the numbering of ranks"
    tolerance = 1e-5  # corrections of clocks by halves of ns are rounded to even ones
    absolute_tolerance = 1e-8
    keeps_findings = False

    def changed_source(self, folder: Path) -> Source:
        """See `Relation`."""
        ranks = self.reading.run.ranks
        if len(ranks) < 2:
            raise NotApplicableError("the run has one rank")
        self.last = max([*ranks, *(rank for group in self._rank_groups() for rank in group)])
        files = [
            replace(file, ranks_by_card=tuple(self.last - rank for rank in file.ranks_by_card))
            for file in self.source.files
        ]
        return replace(super().changed_source(folder), files=_anonymous_files(files))

    def trace_change(self, path: Path) -> TraceChange:
        """See `Relation`."""
        return MirroredRanks(self.rank_resolver(path), self.last + 1)

    def expected_row(self, row: Row) -> ExpectedRow | None:
        """See `Relation`."""
        if row.metric == _STEP_PARTS:
            return None  # it is the slowest rank's; of equally slow ranks the first one is used
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


class RankRemoved(Relation):
    """Leaves out the last file."""

    name = "a rank left out"
    claim = "a rank's own figures do not depend on the traces of other ranks"
    keeps_findings = False

    def changed_source(self, folder: Path) -> Source:
        """See `Relation`."""
        files = self.source.files
        if len(files) < 2 or len({file.reader for file in files}) > 1 or self.source.card is not None:
            raise NotApplicableError(
                "the source is not a folder of several files of one format without a card"
            )
        self.compared_ranks = {
            entry.rank
            for entry in self.reading.run.record.ranks
            if files[-1].name not in {file.name for file in entry.files}
        }
        return replace(super().changed_source(folder), files=files[:-1])

    def expected_row(self, row: Row) -> ExpectedRow | None:
        """See `Relation`."""
        comparable = row.rank in self.compared_ranks and row.metric not in _DEPENDS_ON_OTHER_RANKS
        return super().expected_row(row) if comparable else None


class MemsetAdded(Relation):
    """Adds a file with one memset and no other row."""

    name = "a device that sets memory once"
    claim = "a device without kernels is not a rank"
    device_only = True

    def changed_source(self, folder: Path) -> Source:
        """See `Relation`."""
        source = super().changed_source(folder)
        self.begin_ns()
        if self.source.card is not None:
            raise NotApplicableError("the card lists the files")
        run = self.reading.run
        world_sizes = [entry.facts.world_size for entry in run.record.ranks if entry.facts.world_size]
        free = set(range(min(world_sizes, default=max(run.ranks) + 2))) - set(run.ranks)
        if not free:
            raise NotApplicableError("every rank of the job has a trace")
        self.rank, first = max(free), self.source.files[0]
        self.memset_path = folder / f"memset-{first.path.name}"
        self.memset_path.symlink_to(first.path.resolve())
        files = (*source.files, replace(first, path=self.memset_path))
        return replace(source, files=_anonymous_files(files))

    def trace_change(self, path: Path) -> TraceChange:
        """See `Relation`."""
        if path == self.memset_path:
            return SingleMemset(self.rank)
        return StatedRank(self.rank_resolver(path))

    def may_be_new(self, key: Key) -> bool:
        """See `Relation`."""
        return key[1] == self.rank


RELATIONS: Final[tuple[type[Relation], ...]] = (
    *(TimesShifted, TimesScaled, RowsReordered, BatchesSplit, RowsRepeated, StreamAdded, ThreadAdded),
    *(GroupsDoubled, RanksMirrored, RankRemoved, MemsetAdded),
)


def check_relations(
    source: Source, reading: CheckedReading, options: Options, folder: Path
) -> Iterator[Outcome]:
    """Read the source again for each relation, in the folder, and compare."""
    for relation_type in RELATIONS:
        relation = relation_type(source, reading)
        check, claim = relation.name, relation.claim
        with TemporaryDirectory(dir=folder) as changed_folder:
            try:
                changed = _read_changed(relation, options, Path(changed_folder))
            except NotApplicableError as error:
                yield Outcome(check=check, claim=claim, status="not_applicable", reason=str(error))
            except CclbenchError as error:
                differences = [f"the changed traces cannot be read: {error}"]
                yield Outcome(check=check, claim=claim, status="broken", differing=1, differences=differences)
            else:
                yield compare_readings(relation, changed)


def _read_changed(relation: Relation, options: Options, folder: Path) -> CheckedReading:
    source = relation.changed_source(folder)
    with ExitStack() as stack:
        for name in {file.reader for file in source.files}:
            reader = ChangedReader(trace_reader(name), relation.trace_change)
            stack.enter_context(READERS.temporarily_replaced(name, reader))
        run = ingest(source, Store(folder / "store"), options)
    return CheckedReading.from_run(run)
