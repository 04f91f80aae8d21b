# SPDX-License-Identifier: Apache-2.0
"""Archives of OTF2, as Score-P and other tracers of MPI jobs write them; one rank for each process."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cclbench.formats import READERS, Part, Reader, Trace
from cclbench.formats.rewriting import Redactor
from cclbench.ground.errors import InputError

ANCHOR: Final = b"\x03BOTF2"


class Otf2(Reader):
    """Reader of OTF2 archives, given by their anchor file."""

    name = "otf2"
    description = "OTF2 archives, of Score-P and others: MPI calls and messages, regions, metrics, streams"
    extensions: tuple[str, ...] = (".otf2",)
    capture = "`scorep mpicc ...`, then `SCOREP_ENABLE_TRACING=true mpirun ...`; `traces.otf2` is the archive"
    versions = "OTF2 1 to 3, as the package otf2 3.2 reads them"
    tested = "real: a ping-pong (Score-P), an own MPI job; documentation: streams of accelerators"

    def sniff(self, head: bytes) -> float:
        """Sure of an anchor file."""
        return 0.95 if head.startswith(ANCHOR) else 0.0

    def companions(self, path: Path) -> tuple[Path, ...]:
        """The archive's definitions, and the events and definitions of its locations."""
        beside = path.with_suffix(".def")
        files = [beside] if beside.is_file() else []
        inside = path.with_suffix("")
        if inside.is_dir():
            files += sorted(file for file in inside.iterdir() if file.suffix in (".def", ".evt", ".snap"))
        return tuple(files)

    def rewrite(self, path: Path, target: Path | None, redactor: Redactor) -> bool:
        """`InputError`: the texts of an archive are not published."""
        del target, redactor
        raise InputError(
            "texts of OTF2 archives cannot be redacted",
            where=str(path),
            hint="contribute the figures, or traces of another format",
        )

    def parts(self, path: Path) -> list[Part]:
        """One part for each process."""
        # Here and below: imports that are not needed to recognise a file.
        from cclbench.formats.otf2.reading import list_members

        return [Part(member.name) for member in list_members(path)]

    def read(self, path: Path, *, part: Part, allow_truncated: bool = False) -> Trace:
        """Stream one process's rows; of a damaged archive nothing is read."""
        from cclbench.formats.otf2.reading import read_member

        del allow_truncated
        return read_member(path, part.member)


READERS.add(Otf2.name, Otf2(), origin=__name__)
