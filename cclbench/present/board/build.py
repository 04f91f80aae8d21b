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
class _SiteSources:
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
        return _page_run(self.runs[place], self.data_points.get(place))

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
        site_runs = _SiteSources()
        for place in places or (session.store,):
            _collect(place, site_runs, session, verify)
        if not site_runs.runs:
            where = ", ".join(map(str, places)) or session.store.place
            raise UsageError(f"{where}: no run", hint="create some with `cclbench run SOURCE`")
        (folder / "runs").mkdir()
        entries, by_id = _read_runs(site_runs, folder / "runs", session)
        row_numbers = [number for number, entry in enumerate(entries) if entry.work]
        groups = [
            WorkGroup(tuple(row_numbers[member] for member in group.members), group.basis)
            for group in work_groups([entry.work for entry in entries if entry.work])
        ]
        board = Board([entry.row for entry in entries], groups, site_runs.verified)
        headlines, pages = _write_comparisons(board, site_runs, by_id, folder, session)
        board = Board(board.rows, groups, site_runs.verified, pages)
        histories, notes = read_series(board.rows, site_runs.runs, by_id, session)
        site = SiteContent(board, headlines, histories, (*site_runs.left_out, *notes))
        write_site(site, folder)
        return site


def _collect(place: str | Path | Store, site_runs: _SiteSources, session: Workspace, verify: bool) -> None:
    """Add the runs of a store or of a repository."""
    if isinstance(place, Store) or not (Path(place) / "workload_cards").is_dir():
        store = store_at(place)
        if store is not place and not isinstance(store, RemoteStore) and not store.folder.is_dir():
            raise UsageError(f"{place}: no such folder", hint="a folder of runs, or with workload_cards/")
        for stored in store.runs():
            site_runs.add(stored, store)
        return
    collection = Path(place)
    identities = data_point_ids(collection)
    opened = _open_data_points(collection, identities, session)
    with evidence_elsewhere((), fetching=False) as elsewhere:
        for identity, run in zip(identities, opened, strict=True):
            if isinstance(run, str):
                site_runs.left_out.append(f"{identity}: {run}")
                continue
            try:
                data_point = place_of(collection, identity)
                site_runs.data_points[site_runs.add(run, session.store)] = data_point
                if verify:
                    verdict = verify_data_point(
                        data_point, elsewhere, engine=session.engine, progress=session.progress
                    )
                    site_runs.verified[run.id] = verdict.status
            except CclbenchError as error:
                site_runs.left_out.append(f"{identity}: {error}")


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


class _ReadTask(NamedTuple):
    run: Run
    date: datetime | None
    page: _Page | None
    """None for published figures, which have no page."""


def _read_runs(
    site_runs: _SiteSources, folder: Path, session: Workspace
) -> tuple[list[BoardEntry], dict[str, Path]]:
    """The readable runs, by id, and their places, with the pages of these; the ids of a site are distinct."""
    dated = [(run, _date(run)) for run in site_runs.runs.values()]
    dated.sort(key=lambda pair: pair[0].id)
    own_tasks = [
        _ReadTask(run, date, site_runs.page(run, folder)) for run, date in dated if not _is_published(run)
    ]
    published_tasks = [_ReadTask(run, date, None) for run, date in dated if _is_published(run)]
    # A run with metrics to compute takes as long as hundreds of published rows.
    chunks = [list(same_id) for _, same_id in groupby(own_tasks, key=lambda task: task.run.id)]
    chunks += [
        published_tasks[first : first + _AT_ONCE] for first in range(0, len(published_tasks), _AT_ONCE)
    ]
    outcomes = chain.from_iterable(
        site_runs.engine(session).map(_read_chunk, chunks, progress=session.progress, what=_READ)
    )
    entries: dict[str, BoardEntry] = {}
    places: dict[str, Path] = {}
    for task, entry in zip((*own_tasks, *published_tasks), outcomes, strict=True):
        if isinstance(entry, str):
            site_runs.left_out.append(entry)
        elif entry.row.id in entries:
            site_runs.left_out.append(f"{entry.row.id}: another run has this id")
        else:
            entries[entry.row.id], places[entry.row.id] = entry, task.run.path.resolve()
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


def _read_chunk(chunk: Sequence[_ReadTask]) -> list[BoardEntry | str]:
    """The runs of a chunk, or why one is not readable; of those with one id, the first has the page."""
    entries: list[BoardEntry | str] = []
    for task in chunk:
        try:
            entries.append(_read_run(task))
        except InputError as error:
            entries.append(f"{task.run.id}: {error}")
    return entries


def _read_run(task: _ReadTask) -> BoardEntry:
    """A run's entry; its page, if it has one, is written from the same tables."""
    run, date, page = task
    if page is None:
        return board_entry(ComparisonSubject("A", run, full_results(run, Selection()), None), None, date)
    subject = run_subject("A", run)
    operators = subject_operator_tables([subject]).get("A")
    entry = board_entry(subject, operators, date)
    if not page.path.exists():
        shown = _page_run(run, page.data_point)
        origin = origin_of(entry.row, shown, page.data_point, page.verified)
        write_page(run_page(replace(subject, stored=shown), origin=origin, operators=operators), page.path)
    return entry


def _page_run(run: Run, data_point: DataPointPlace | None) -> Run:
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
    board: Board, site_runs: _SiteSources, by_id: Mapping[str, Path], folder: Path, session: Workspace
) -> tuple[list[Headline], dict[tuple[str, str], str]]:
    """Write pages of comparisons, those of proved equal work first, which are the headlines."""
    proved = [pair for group in board.groups for pair in combinations(group.members, 2)]
    of_workload: dict[str, list[int]] = {}
    for number, row in enumerate(board.rows):
        if row.published is None and row.facts["model"] and row.facts["phase"]:
            of_workload.setdefault(row.workload, []).append(number)
    same_workload = (pair for members in of_workload.values() for pair in combinations(members, 2))
    pairs = chain((pair for pair in proved if not _has_published(board.rows, pair)), same_workload)
    traced = dict.fromkeys(pair for pair in pairs if len({_STEP in board.rows[n].figures for n in pair}) == 1)
    chosen = [_slower_first(board, pair) for pair in islice(traced, MOST_COMPARED)]
    tasks = []
    for pair in chosen:
        base, other = (board.rows[number].id for number in pair)
        path = folder / "compare" / page_name(f"{base}--{other}")
        tasks.append(
            _Pair(
                site_runs.stores[by_id[base]],
                site_runs.shown(by_id[base]),
                site_runs.shown(by_id[other]),
                path,
            )
        )
    (folder / "compare").mkdir()
    words = site_runs.engine(session).map(_compare_pair, tasks, progress=session.progress, what=_COMPARE)
    pages, headlines = {}, []
    for pair, task, verdict in zip(chosen, tasks, words, strict=True):
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
    comparison = compare(pair.base, pair.other, store=pair.store, engine=SERIAL)
    write_page(comparison_page(comparison, in_site=True), pair.path)
    return comparison.versus[0].outcome, comparison.versus[0].words
