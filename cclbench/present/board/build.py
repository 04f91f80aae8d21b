# SPDX-License-Identifier: Apache-2.0
"""Build a site from stores and repositories: read their runs, prove equal work, compare, write the pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import chain, combinations, groupby, islice
from pathlib import Path, PurePath
from typing import Final, NamedTuple, Unpack

from msgspec import structs

from cclbench.comparison.build import compare, run_subject
from cclbench.comparison.operators import subject_operator_tables
from cclbench.comparison.subject import ComparisonSubject
from cclbench.comparison.work_groups import RANKINGS, WorkGroup, work_groups
from cclbench.contribute.evidence import evidence_elsewhere
from cclbench.contribute.place import DataPointPlace, data_point_ids, place_of
from cclbench.contribute.verify import verify_data_point
from cclbench.engine import SERIAL, Engine, text_bytes
from cclbench.engine.processes import SMALL_BYTES
from cclbench.ground.destination import replaced_folder
from cclbench.ground.errors import CclbenchError, InputError, UsageError
from cclbench.present.board.document import Board
from cclbench.present.board.origin import origin_of
from cclbench.present.board.pages import MARK, Headline, SiteContent, write_site
from cclbench.present.board.rows import BoardEntry, BoardRow, board_entry, page_name
from cclbench.present.board.series import read_series
from cclbench.present.html import write_page
from cclbench.present.page import comparison_page, run_page
from cclbench.record.metric_name import metric_name
from cclbench.record.remote_store import RemoteStore
from cclbench.record.run import Run
from cclbench.record.selection import Selection
from cclbench.record.store import Store, stated_date
from cclbench.results import full_results
from cclbench.workspace import Workspace, WorkspaceOptions, store_at, takes_options, workspace

_AT_ONCE: Final = 200
"""Published rows that a task reads."""
MOST_COMPARED: Final = 15
"""Comparisons made ahead; those of proved equal work first."""
_READ: Final = "reading runs"
_COMPARE: Final = "comparing runs"
_STEP: Final = metric_name("time.step")


@dataclass(slots=True)
class _Found:
    """Runs by place, with the store, data point and date of each; and what could not be read."""

    runs: dict[Path, Run] = field(default_factory=dict)
    stores: dict[Path, Store] = field(default_factory=dict)
    data_points: dict[Path, DataPointPlace] = field(default_factory=dict)
    verified: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def engine(self, session: Workspace) -> Engine:
        """The engine that reads the runs: this process where a store is at a URL, whose access it holds."""
        return SERIAL if any(run.origin is not None for run in self.runs.values()) else session.engine

    def shown(self, place: Path) -> Run:
        """The run of a place as pages show it."""
        return _shown(self.runs[place], self.data_points.get(place))

    def page(self, run: Run, folder: Path) -> _Page:
        """The page of a run in `folder`."""
        data_point = self.data_points.get(run.path.resolve())
        return _Page(data_point, self.verified.get(run.id), folder / page_name(run.id))

    def add(self, run: Run, store: Store) -> Path:
        """Add a run unless it is there already, and return its place."""
        place = run.path.resolve()
        self.runs.setdefault(place, run)
        self.stores.setdefault(place, store)
        return place


@takes_options
def build_site(
    *places: str | Path, output: Path, verify: bool = False, **options: Unpack[WorkspaceOptions]
) -> SiteContent:
    """Write the site of stores and repositories into the folder `output`, whole or not at all.

    A repository is a folder with workload_cards/: its data points are read into `store`, and with `verify`
    recomputed from their evidence.  Without places, the site is that of `store`.  `UsageError` if there are
    no runs, a folder does not exist, or `output` is a folder of something else; a run that is not readable
    is left out, with the reason.
    """
    with workspace(**options) as session, replaced_folder(output, MARK) as folder:
        found = _Found()
        for place in places or (session.store,):
            _collect(place, found, session, verify)
        if not found.runs:
            where = ", ".join(map(str, places)) or session.store.place
            raise UsageError(f"{where}: no run", hint="create some with `cclbench run SOURCE`")
        (folder / "runs").mkdir()
        read, by_id = _read_runs(found, folder / "runs", session)
        proving = [number for number, one in enumerate(read) if one.work]
        groups = [
            WorkGroup(tuple(proving[member] for member in group.members), group.basis)
            for group in work_groups([one.work for one in read if one.work])
        ]
        board = Board([one.row for one in read], groups, found.verified)
        headlines, pages = _write_comparisons(board, found, by_id, folder, session)
        board = Board(board.rows, groups, found.verified, pages)
        histories, notes = read_series(board.rows, found.runs, by_id, session)
        site = SiteContent(board, headlines, histories, (*found.left_out, *notes))
        write_site(site, folder)
        return site


def _collect(place: str | Path | Store, found: _Found, session: Workspace, verify: bool) -> None:
    """Add the runs of a store or of a repository."""
    if isinstance(place, Store) or not (Path(place) / "workload_cards").is_dir():
        store = store_at(place)
        if store is not place and not isinstance(store, RemoteStore) and not store.folder.is_dir():
            raise UsageError(f"{place}: no such folder", hint="a folder of runs, or with workload_cards/")
        for stored in store.runs():
            found.add(stored, store)
        return
    collection = Path(place)
    identities = data_point_ids(collection)
    opened = _open_data_points(collection, identities, session)
    with evidence_elsewhere((), fetching=False) as elsewhere:
        for identity, run in zip(identities, opened, strict=True):
            if isinstance(run, str):
                found.left_out.append(f"{identity}: {run}")
                continue
            try:
                data_point = place_of(collection, identity)
                found.data_points[found.add(run, session.store)] = data_point
                if verify:
                    verdict = verify_data_point(
                        data_point, elsewhere, engine=session.engine, progress=session.progress
                    )
                    found.verified[run.id] = verdict.status
            except CclbenchError as error:
                found.left_out.append(f"{identity}: {error}")


def _open_data_points(collection: Path, identities: Sequence[str], session: Workspace) -> list[Run | str]:
    """The run of each data point, or why there is none; small ones are read by a process each."""
    small = [identity for identity in identities if _text_size(collection, identity) <= SMALL_BYTES]
    engine = SERIAL if isinstance(session.store, RemoteStore) else session.engine
    work = partial(_open_data_point, collection, Workspace(session.store, session.reading, SERIAL))
    runs = dict(zip(small, engine.map(work, small, progress=session.progress, what=_READ), strict=True))
    return [
        runs[identity] if identity in runs else _open_data_point(collection, session, identity)
        for identity in identities
    ]


def _text_size(collection: Path, identity: str) -> int:
    """Bytes of text in a data point's folder of traces, estimated."""
    files = (path for path in (collection / "traces" / identity).rglob("*") if path.is_file())
    return sum(text_bytes(path, path.stat().st_size) for path in files)


def _open_data_point(collection: Path, session: Workspace, identity: str) -> Run | str:
    """The run of a data point, or why there is none."""
    try:
        return session.open_run(place_of(collection, identity).card_path)
    except CclbenchError as error:
        return str(error)


class _Page(NamedTuple):
    data_point: DataPointPlace | None
    verified: str | None
    path: Path


class _ToRead(NamedTuple):
    run: Run
    date: datetime | None
    page: _Page | None
    """None for published figures, which have no page."""


def _read_runs(found: _Found, folder: Path, session: Workspace) -> tuple[list[BoardEntry], dict[str, Path]]:
    """The readable runs, by id, and their places, with the pages of these; the ids of a site are distinct."""
    dated = [(run, _date(run)) for run in found.runs.values()]
    dated.sort(key=lambda pair: pair[0].id)
    own = [_ToRead(run, date, found.page(run, folder)) for run, date in dated if not _is_published(run)]
    published = [_ToRead(run, date, None) for run, date in dated if _is_published(run)]
    # A run with metrics to compute takes as long as hundreds of published rows.
    chunks = [list(same_id) for _, same_id in groupby(own, key=lambda one: one.run.id)]
    chunks += [published[first : first + _AT_ONCE] for first in range(0, len(published), _AT_ONCE)]
    read = chain.from_iterable(
        found.engine(session).map(_read_chunk, chunks, progress=session.progress, what=_READ)
    )
    entries: dict[str, BoardEntry] = {}
    places: dict[str, Path] = {}
    for one, entry in zip((*own, *published), read, strict=True):
        if isinstance(entry, str):
            found.left_out.append(entry)
        elif entry.row.id in entries:
            found.left_out.append(f"{entry.row.id}: another run has this id")
        else:
            entries[entry.row.id], places[entry.row.id] = entry, one.run.path.resolve()
    return [entries[identity] for identity in sorted(entries)], places


def _is_published(run: Run) -> bool:
    try:
        return run.record.published is not None
    except CclbenchError:  # which reading the run says
        return False


def _date(run: Run) -> datetime | None:
    """When a run took place, by its label or its traces: when it was read says nothing about that."""
    try:
        return None if _is_published(run) or (stated := stated_date(run.record)) is None else stated[0]
    except CclbenchError:  # its label is no date
        return None


def _read_chunk(chunk: Sequence[_ToRead]) -> list[BoardEntry | str]:
    """The runs of a chunk, or why one is not readable; of those with one id, the first has the page."""
    read: list[BoardEntry | str] = []
    for one in chunk:
        try:
            read.append(_read_run(one))
        except InputError as error:
            read.append(f"{one.run.id}: {error}")
    return read


def _read_run(one: _ToRead) -> BoardEntry:
    """A run's entry; its page, if it has one, is written from the same tables."""
    run, date, page = one
    if page is None:
        return board_entry(ComparisonSubject("A", run, full_results(run, Selection()), None), None, date)
    subject = run_subject("A", run)
    operators = subject_operator_tables([subject]).get("A")
    entry = board_entry(subject, operators, date)
    if not page.path.exists():
        shown = _shown(run, page.data_point)
        origin = origin_of(entry.row, shown, page.data_point, page.verified)
        write_page(run_page(replace(subject, stored=shown), origin=origin, operators=operators), page.path)
    return entry


def _shown(run: Run, data_point: DataPointPlace | None) -> Run:
    """The run as pages show it: its source and card are named without this machine's folders."""
    source, card = PurePath(run.record.source).name, run.record.card
    if data_point is not None:
        source = data_point.card_path.relative_to(data_point.collection).as_posix()
    if card is not None:
        card = structs.replace(card, path=source if data_point else PurePath(card.path).name)
    return run.with_record(structs.replace(run.record, source=source, card=card))


class _Pair(NamedTuple):
    store: Store
    base: Run
    other: Run
    path: Path


def _write_comparisons(
    board: Board, found: _Found, by_id: Mapping[str, Path], folder: Path, session: Workspace
) -> tuple[list[Headline], dict[tuple[str, str], str]]:
    """Write pages of comparisons, those of proved equal work first, which are the headlines."""
    proved = [pair for group in board.groups for pair in combinations(group.members, 2)]
    of_workload: dict[str, list[int]] = {}
    for number, row in enumerate(board.rows):
        if row.published is None and row.facts["model"] and row.facts["phase"]:
            of_workload.setdefault(row.workload, []).append(number)
    alike = (pair for members in of_workload.values() for pair in combinations(members, 2))
    pairs = chain((pair for pair in proved if not _has_published(board.rows, pair)), alike)
    traced = dict.fromkeys(pair for pair in pairs if len({_STEP in board.rows[n].figures for n in pair}) == 1)
    chosen = [_slower_first(board, pair) for pair in islice(traced, MOST_COMPARED)]
    compared = []
    for pair in chosen:
        base, other = (board.rows[number].id for number in pair)
        path = folder / "compare" / page_name(f"{base}--{other}")
        compared.append(
            _Pair(found.stores[by_id[base]], found.shown(by_id[base]), found.shown(by_id[other]), path)
        )
    (folder / "compare").mkdir()
    words = found.engine(session).map(_compare_pair, compared, progress=session.progress, what=_COMPARE)
    pages, headlines = {}, []
    for pair, task, verdict in zip(chosen, compared, words, strict=True):
        first, second = (board.rows[number] for number in pair)
        pages[first.id, second.id] = f"compare/{task.path.name}"
        if tuple(sorted(pair)) in set(proved):
            basis = next(group.basis for group in board.groups if pair[0] in group.members)
            headlines.append(Headline(first, second, *verdict, basis, pages[first.id, second.id]))
    return headlines, pages


def _has_published(rows: Sequence[BoardRow], pair: tuple[int, ...]) -> bool:
    return any(rows[number].published is not None for number in pair)


def _slower_first(board: Board, pair: tuple[int, int]) -> tuple[int, int]:
    """The pair with the better rank last, so that a comparison says what is faster."""
    for metric in RANKINGS:
        ranks = board.rankings.get(metric, {}).get("", {})
        if all(number in ranks for number in pair):
            return pair if ranks[pair[0]] >= ranks[pair[1]] else (pair[1], pair[0])
    return pair


def _compare_pair(pair: _Pair) -> tuple[str, str]:
    """Write the page of a comparison, and return its outcome and verdict."""
    compared = compare(pair.base, pair.other, store=pair.store, engine=SERIAL)
    write_page(comparison_page(compared, in_site=True), pair.path)
    return compared.versus[0].outcome, compared.versus[0].words
