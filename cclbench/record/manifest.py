# SPDX-License-Identifier: Apache-2.0
"""`manifest.json` of a run: what was read, found and left out (`schemas/manifest.json`)."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from cclbench import __version__
from cclbench.ground.errors import InputError
from cclbench.ground.schema import LAYOUT, VERSION
from cclbench.ground.text import printable_json
from cclbench.record.facts import TraceFacts

MANIFEST: Final = "manifest.json"
LABEL: Final = re.compile(r"[a-z][a-z0-9_.-]{0,31}")
"""Names of labels."""
LONGEST_LABEL: Final = 200
_SHA256: Final = ',\n "sha256": '
"""The text between the hashed part and its hash."""


class Options(msgspec.Struct, frozen=True):
    """Options of reading a source."""

    allow_truncated: bool = False
    step_annotation: str | None = None
    inference: bool = True
    """Whether to infer process groups that the traces do not state."""


class StoredFile(msgspec.Struct, frozen=True, gc=False):
    """A file of the run as written; `path` is relative to the run's folder.

    `rows` and `content` are of tables; `content` is the hash in the footer of all bytes before it.
    """

    path: Annotated[
        str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_=.-]*(/[A-Za-z0-9_][A-Za-z0-9_=.-]*)*$")
    ]
    bytes: Annotated[int, msgspec.Meta(ge=0)]
    sha256: str
    rows: int | None = None
    content: str | None = None


class CardLine(msgspec.Struct, frozen=True):
    """Summary of a run's workload card."""

    id: str
    path: str
    description: str | None = None


class File(msgspec.Struct, frozen=True):
    """A file of the source; `name` is its path in the source."""

    name: str
    bytes: int
    sha256: str
    reader: str


class EvidenceFile(File, frozen=True):
    """A file other than a trace: rows by table, facts about the system, rows left out by reason."""

    rows: dict[str, int] = {}
    facts: dict[str, str | int | float | list[str]] = {}
    left_out: dict[str, int] = {}
    notes: list[str] = []


class Steps(msgspec.Struct, frozen=True):
    """A rank's step windows; `closed` ones are followed by a further step; periods are in ns.

    Purities are the lowest share of a window's kernel time that its own step launched.
    """

    found: int = 0
    closed: int = 0
    source: str | None = None
    left_out: dict[str, int] = {}
    least_purity: float | None = None
    least_host_purity: float | None = None
    device_period_ns: float | None = None
    host_period_ns: float | None = None
    host_before_ns: int | None = None
    """For a single step: time from the begin of its annotation to its first kernel."""


class Unclassified(msgspec.Struct, frozen=True):
    """Kernels of unknown category: their share of kernel time, and the names with most of it."""

    share: float | None = None
    names: list[str] = []


class Collectives(msgspec.Struct, frozen=True):
    """Counts of a rank's collectives."""

    count: int = 0
    without_bytes: int = 0
    payload_sources: dict[str, int] = {}
    without_group: int = 0
    ungrouped: dict[str, int] = {}
    libraries: dict[str, int] = {}


class Truncation(msgspec.Struct, frozen=True):
    """Damage up to which a file was used; no window extends past `horizon_ns`."""

    file: str
    byte: int
    reason: str
    rows_whole: bool = False
    horizon_ns: int | None = None


class GraphJoins(msgspec.Struct, frozen=True):
    """CUDA and HIP graph launches of a rank, and those joined with the trace of their graph's capture."""

    launches: int = 0
    joined: int = 0
    rows: int = 0
    """Device rows of the launches."""
    joined_rows: int = 0
    """Those with an operator from a capture."""
    time_ns: int = 0
    """Σ duration of the rows."""
    joined_ns: int = 0
    launches_without_row: int = 0
    """Captured launches that have no row in the joined replays."""
    refused: dict[str, int] = {}
    """Number of launches that are not joined, by reason."""


class RankEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's trace: `span_ns` is the begin and end of its work, `beside` are its execution traces."""

    rank: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
    facts: TraceFacts
    span_ns: tuple[int, int] | None = None
    rows: dict[str, int] = {}
    dropped: dict[str, int] = {}
    implausible: dict[str, int] = {}
    """Rows with impossible times, by kind and reason, whether dropped or not."""
    missing: dict[str, int] = {}
    """Missing rows by kind: kernels whose launch is recorded."""
    steps: Steps = Steps()
    unclassified: Unclassified = Unclassified()
    collectives: Collectives = Collectives()
    operators: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Rows of `schema.OPERATORS`."""
    graphs: GraphJoins = GraphJoins()
    truncated: Truncation | None = None
    notes: list[str] = []
    files: Annotated[list[File], msgspec.Meta(min_length=1)]
    beside: list[File] = []
    stored: list[StoredFile] = []
    """The rank's tables."""


class InferredGroups(msgspec.Struct, frozen=True):
    """Inferred process groups; `rule` and `group` are None if none could be inferred."""

    rule: str | None
    group: str | None
    reason: str


class MatchingCounts(msgspec.Struct, frozen=True):
    """Counts of collectives matched across ranks."""

    rows: int = 0
    matched: int = 0
    instances: int = 0
    complete: int = 0
    partial: int = 0
    unmatched: dict[str, int] = {}
    contradicted_instances: int = 0
    wait_beyond_duration_ns: int = 0


class ClockCorrection(msgspec.Struct, frozen=True):
    """Correction of a rank's clock at the reference time, and the residual."""

    rank: int
    offset_ns: float
    drift_ppm: float
    residual_ns: float
    uncertainty_ns: float
    applied: bool


class ClockCorrections(msgspec.Struct, frozen=True):
    """Corrections of clocks of ranks that share collectives; offsets are at `reference_ns`."""

    reference_ns: int = 0
    ranks: list[ClockCorrection] = []


class Published(msgspec.Struct, frozen=True):
    """The publication whose figures are the results of a run without traces."""

    source: str
    generated_at: str | None
    sha256: str
    row: int
    metadata: dict[str, Any]
    left_out_of_card: list[str]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What was found when a source was read into the store."""

    schema: int = VERSION
    tables: str = LAYOUT
    cclbench: str = __version__
    run: str
    fingerprint: str
    source: str
    card: CardLine | None = None
    ingest: Options = Options()
    ranks: list[RankEntry] = []
    inference: InferredGroups | None = None
    matching: MatchingCounts = MatchingCounts()
    clocks: ClockCorrections = ClockCorrections()
    notes: list[str] = []
    sources: list[Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$")]] = []
    evidence: list[EvidenceFile] = []
    stored: list[StoredFile] = []
    """The run's files that belong to no rank, including those of `sources`, without computed results."""
    published: Published | None = None
    labels: dict[
        Annotated[str, msgspec.Meta(pattern=f"^{LABEL.pattern}$")],
        Annotated[str, msgspec.Meta(max_length=LONGEST_LABEL)],
    ] = {}
    """What a user says about the run, such as its commit; `date` is that of the run."""
    sha256: str = ""
    """SHA-256 of the file's text before this field."""

    @property
    def files(self) -> Iterator[StoredFile]:
        """All files of the run, without the manifest and computed results."""
        yield from self.stored
        for entry in self.ranks:
            yield from entry.stored

    @property
    def is_on_host(self) -> bool:
        """Whether the CPU is the device of all ranks."""
        return bool(self.ranks) and all(rank.facts.works_on == "host" for rank in self.ranks)

    @property
    def event_kinds(self) -> set[str]:
        """The kinds of which a rank has events."""
        return {kind for rank in self.ranks for kind, rows in rank.rows.items() if rows}

    @property
    def inference_note(self) -> str | None:
        """A note on results that depend on inferred process groups; None without any."""
        if self.inference is None or self.inference.group is None:
            return None
        return f"process groups are inferred ({self.inference.rule}): {self.inference.reason}"


class _WrittenVersions(msgspec.Struct):
    """Versions of schema and tables that a manifest states."""

    schema: Any = None
    tables: Any = None


def read(path: Path) -> Manifest:
    """The manifest at `path`; `InputError` if it is damaged or of another version."""
    try:
        content = path.read_bytes()
        written = _WrittenVersions()
        with suppress(msgspec.ValidationError):  # not a manifest: no versions
            written = msgspec.json.decode(content, type=_WrittenVersions)
        if (written.schema, written.tables) == (VERSION, LAYOUT):
            manifest = msgspec.json.decode(content, type=Manifest)
            if manifest.sha256 != sha256(content.rpartition(_SHA256.encode())[0]).hexdigest():
                raise msgspec.ValidationError("its text differs from what was written")
            return manifest
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise InputError(f"damaged manifest: {error}", where=str(path), hint="delete the run") from None
    raise InputError("was written by another version", where=str(path), hint="ingest the source again")


class _Provenance(msgspec.Struct):
    """The fields of a manifest that state how its run was made."""

    source: str
    ingest: Options = Options()
    published: Published | None = None


def source_command_at(path: Path) -> str | None:
    """`source_command` of the run of a possibly damaged manifest; None if it cannot be read."""
    with suppress(OSError, UnicodeDecodeError, msgspec.DecodeError):
        return source_command(msgspec.json.decode(path.read_bytes(), type=_Provenance))
    return None


def source_command(manifest: Manifest | _Provenance) -> str:
    """The command that ingests the source of a run again."""
    if manifest.published is not None:
        return shlex.join(["cclbench", "import", manifest.published.source, manifest.source])
    options = ["--allow-truncated"] if manifest.ingest.allow_truncated else []
    if manifest.ingest.step_annotation is not None:
        options += ["--step-annotation", manifest.ingest.step_annotation]
    options += [] if manifest.ingest.inference else ["--no-inference"]
    return shlex.join(["cclbench", "ingest", manifest.source, *options])


def text(manifest: Manifest) -> str:
    """The content of the file; `published` is left out if None, `labels` if there are none."""
    return "".join(_signed_pieces(manifest))


def write(manifest: Manifest, folder: Path) -> None:
    """Write a manifest that lists its files to the run at `folder`; see `inventory.write_manifest`."""
    with (folder / MANIFEST).open("w", encoding="utf-8") as file:
        file.writelines(_signed_pieces(manifest))


def _signed_pieces(manifest: Manifest) -> Iterator[str]:
    """The content in pieces, for lists item by item: it is large for many ranks."""
    digest = sha256()
    for piece in _unsigned_pieces(manifest):
        digest.update(piece.encode())
        yield piece
    yield f'{_SHA256}"{digest.hexdigest()}"\n}}\n'


def _unsigned_pieces(manifest: Manifest) -> Iterator[str]:
    """The content up to its hash."""
    between = "{"
    for field in msgspec.structs.fields(manifest):
        value = getattr(manifest, field.name)
        if field.name == "sha256" or (field.name in ("published", "labels") and not value):
            continue
        yield f'{between}\n "{field.encode_name}": '
        between = ","
        if not isinstance(value, list) or not value:
            yield _indented_json(value, 1)
            continue
        before = "["
        for item in value:
            yield f"{before}\n  {_indented_json(item, 2)}"
            before = ","
        yield "\n ]"


def _indented_json(value: Any, by: int) -> str:
    """A value as JSON, with all lines but the first indented."""
    lines = printable_json(
        json.dumps(msgspec.to_builtins(value), indent=1, allow_nan=False, ensure_ascii=False)
    )
    return lines.replace("\n", "\n" + " " * by)
