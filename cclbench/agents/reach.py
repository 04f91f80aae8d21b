# SPDX-License-Identifier: Apache-2.0
"""Which sources the server may read: folders and URL schemes given at its start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cclbench.card import load_card, root_of
from cclbench.formats.recognition import is_card
from cclbench.ground.errors import UsageError
from cclbench.ground.file_names import path_of
from cclbench.ground.text import quoted
from cclbench.ingestion.source import files_within
from cclbench.remote.url import Url, location_of
from cclbench.replay.change import CHANGES

NEVER: Final = {
    "http": "is not encrypted; allow https instead",
    "file": "names local files; allow their folder with --root",
    "local": "names local files; allow their folder with --root",
}
"""URL schemes that cannot be allowed, and why."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Resolved folders below which files may be read, and URL schemes that may be read."""

    folders: tuple[Path, ...]
    schemes: tuple[str, ...] = ()

    @classmethod
    def from_roots(cls, roots: Sequence[Path], schemes: Iterable[str]) -> Reach:
        """For these folders; without any, the working directory, unless that is `/` or the home folder."""
        working_folder = Path.cwd()
        default = [] if working_folder in (Path(working_folder.anchor), Path.home()) else [working_folder]
        return cls(tuple(folder.resolve() for folder in roots or default), tuple(schemes))

    def check_source(self, source: str) -> None:
        """`UsageError` unless the source, the files it leads to and the targets of their links may be read.

        These are the files of a folder, the neighbours of a file (descriptions, journals), and the files that
        a card names, with their neighbours.
        """
        url = location_of(source)
        if isinstance(url, Url):
            if url.scheme not in self.schemes:
                allowed = f"allowed: {', '.join(self.schemes)}" if self.schemes else "no URLs are allowed"
                hint = f"{allowed}; allow others with --allow-url of `cclbench mcp`"
                raise UsageError(f"{url.scheme}:// is not read by this server", where=str(url), hint=hint)
            return
        path = self.check_path(source)
        for file in _files_beside(path):
            self._require_inside(file)
        for card in filter(is_card, files_within(path) if path.is_dir() else [path]):
            for named in _files_of_card(card):
                self._require_inside(named)
                for file in _files_beside(named):
                    self._require_inside(file)

    def check_settings(self, settings: Sequence[str]) -> None:
        """`UsageError` if a what-if setting names a file that may not be read."""
        for text in settings:
            key, _, value = text.partition("=")
            if key.strip() in CHANGES and CHANGES.get(key.strip()).reads_file:
                self.check_path(value.strip())

    def check_path(self, name: str) -> Path:
        """The path of that name; `UsageError` if it is outside of the folders."""
        try:
            path = Path(name).expanduser()
            self._require_inside(path)
        except (OSError, RuntimeError, ValueError) as error:  # loops of links, unknown users, NUL
            raise UsageError(f"is not a path: {error}", where=quoted(name)) from None
        return path

    def _require_inside(self, path: Path) -> None:
        resolved = path.resolve()
        if not any(resolved.is_relative_to(folder) for folder in self.folders):
            folders = ", ".join(map(str, self.folders)) or "none"
            hint = f"allowed: {folders}; allow others with --root of `cclbench mcp`"
            raise UsageError(
                "is outside of the folders that this server may read", where=str(path), hint=hint
            )


def _files_beside(path: Path) -> Iterator[Path]:
    """A path and the files that reading it may open: those of a folder, or the neighbours of a file."""
    yield path
    if path.is_dir():
        yield from files_within(path)
    elif path.is_file():
        yield from (file for file in path.parent.iterdir() if file.is_file())


def _files_of_card(card: Path) -> Iterator[Path]:
    """The files that a card names."""
    loaded = load_card(card)
    yield from (root_of(card) / path_of(trace.path) for trace in loaded.evidence.traces)
    if loaded.hardware.calibration is not None:
        yield card.parent / loaded.hardware.calibration
