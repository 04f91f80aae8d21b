# SPDX-License-Identifier: Apache-2.0
"""Resolve run ids, paths and URLs to stores, sources and runs.

Remote data is downloaded here: modules below see local folders only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

from cclbench.engine import PROCESSES, Engine, Progress, engine_for
from cclbench.ground.errors import UsageError
from cclbench.ground.text import quoted_value
from cclbench.ground.units import parse_date
from cclbench.record.manifest import LABEL, LONGEST_LABEL, Options
from cclbench.record.remote_store import RemoteStore
from cclbench.record.run import Run
from cclbench.record.store import Store, default_store
from cclbench.remote.url import Url, location_of

if TYPE_CHECKING:
    from distributed import Client

    from cclbench.ingestion.source import Source

Function = TypeVar("Function", bound=Callable[..., Any])


class WorkspaceOptions(TypedDict, total=False):
    """The options of `workspace`, accepted by all functions that open runs."""

    store: str | Path | Store | None
    allow_truncated: bool
    step_annotation: str | None
    inference: bool
    jobs: int
    engine: Engine | str
    client: Client | None
    progress: Progress | None


@dataclass(frozen=True, slots=True)
class Workspace:
    """How runs are opened: the store, how sources are read, and the engine."""

    store: Store
    reading: Options
    engine: Engine
    progress: Progress | None = None

    def ingest_source(self, place: str | Path) -> Run:
        """The run of a SOURCE, which is read into the store unless it is already there, unchanged."""
        from cclbench.ingestion import ingest  # not loaded for a run that the store has

        with source_at(place, self.progress) as source:
            return ingest(source, self.store, self.reading, engine=self.engine, progress=self.progress)

    def label_run(self, run: Run, labels: Mapping[str, str] | None) -> Run:
        """The run with further labels in the store."""
        if not labels:
            return run
        for name, text in labels.items():
            if not LABEL.fullmatch(name) or not 0 < len(text) <= LONGEST_LABEL or not text.isprintable():
                hint = f"NAME=TEXT, a lower-case name and up to {LONGEST_LABEL} characters: commit=1f0c9ab"
                raise UsageError(f"{quoted_value(f'{name}={text}')} is not a label", hint=hint)
        if "date" in labels:
            parse_date(labels["date"])
        return self.store.label(run, labels)

    def open_run(self, run: str | Path | Run) -> Run:
        """The stored run of that id, or the run of that SOURCE."""
        if isinstance(run, Run):
            return run
        stored = self.store.find(str(run))
        if stored is None and (Path(run).expanduser().exists() or Path(run).name != str(run)):
            return self.ingest_source(run)
        stored = stored or self.store.get(str(run))
        if self.reading.allow_truncated or self.reading.step_annotation is not None:
            raise UsageError(
                f"run {stored.id} is already stored", hint="give its SOURCE to read it with other options"
            )
        if stored.inference_note and not self.reading.inference:
            raise UsageError(f"run {stored.id} has inferred process groups", hint="give its SOURCE instead")
        return stored


@contextmanager
def workspace(
    *,
    store: str | Path | Store | None = None,
    allow_truncated: bool = False,
    step_annotation: str | None = None,
    inference: bool = True,
    jobs: int = 1,
    engine: Engine | str = PROCESSES,
    client: Client | None = None,
    progress: Progress | None = None,
) -> Iterator[Workspace]:
    """A workspace; an engine created for it is closed at the end.

    `store` is a folder or a URL such as `s3://bucket/runs`, by default $CCLBENCH_STORE, else `runs`.
    `jobs` is the number of processes; more than one needs the usual `if __name__ == "__main__"` guard in a
    script.  `engine` and `client` select a Dask cluster instead, see `engine.engine_of`.  `allow_truncated`
    uses the intact part of truncated files, `step_annotation` is a regular expression for the annotations
    that mark steps, `inference` infers process groups that the traces do not state.
    """
    options = Options(allow_truncated, step_annotation, inference)
    with engine_for(engine, jobs, client) as runs_on:
        yield Workspace(store_at(store), options, runs_on, progress)


def takes_options(function: Function) -> Function:
    """Make `help` and notebooks show the `**options` of a function as those of `workspace`."""
    declared = signature(function)
    parameters = [
        parameter for parameter in declared.parameters.values() if parameter.kind is not Parameter.VAR_KEYWORD
    ]
    options = signature(workspace).parameters.values()
    function.__signature__ = declared.replace(parameters=[*parameters, *options])  # type: ignore[attr-defined]
    return function


@takes_options
def open_run(run: str | Path | Run, **options: Unpack[WorkspaceOptions]) -> Run:
    """The stored run of that id, or the run of that SOURCE, ingested on demand."""
    with workspace(**options) as opened_in:
        return opened_in.open_run(run)


def store_at(place: str | Path | Store | None = None) -> Store:
    """The store at a folder or URL, by default $CCLBENCH_STORE, else `runs`."""
    if isinstance(place, Store):
        return place
    location = location_of(place or default_store())
    return RemoteStore(location) if isinstance(location, Url) else Store(location)


@contextmanager
def source_at(
    place: str | Path, progress: Progress | None = None, *, public: bool = False
) -> Iterator[Source]:
    """The source at a path or URL, see `find`; a remote one is downloaded for the duration of the block.

    With `public`, web servers are contacted over https at public addresses only, also after redirects.
    """
    from cclbench.ingestion.source import find_source

    location = location_of(place)
    if isinstance(location, Path):
        yield find_source(place)
        return
    from cclbench.formats import FURTHER_BYTES, HEAD_BYTES
    from cclbench.formats.source_files import read_by_beginning, read_by_name
    from cclbench.remote.spool import FileSelection, spooled_source

    selection = FileSelection(read_by_name, read_by_beginning, (HEAD_BYTES, *FURTHER_BYTES))
    with spooled_source(location, selection, progress, public=public) as spooled:
        yield replace(find_source(spooled.path), as_named=spooled.with_url)
