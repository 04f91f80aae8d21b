# SPDX-License-Identifier: Apache-2.0
"""The manifest of a data point: hashes of its files, counts of redactions, recorded results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from cclbench.contribute.place import is_inside
from cclbench.contribute.record import RecordedResults
from cclbench.ground import json_schema
from cclbench.ground.errors import InputError
from cclbench.ground.text import printable, quoted_value
from cclbench.ground.units import MIB
from cclbench.ground.yaml_file import Document
from cclbench.record.manifest import Options

SCHEMA: Final = "data-point.v1"
LARGEST_BYTES: Final = 64 * MIB


class DataPointFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """One file of the evidence; `path` is from the manifest's folder, `url` where it is if not there."""

    path: str
    sha256: str
    bytes: int
    url: str | None = None


class DataPointManifest(msgspec.Struct, frozen=True, kw_only=True):
    """`traces/<id>/manifest.json` (`cclbench/schemas/manifest-data-point.json`).

    `card` and `calibration` are SHA-256, the latter None if the card names none; `redactions` counts places
    by kind of secret, None if not counted; `revealed` are fields and variables whose values were kept on
    purpose.
    """

    id: str
    cclbench: str
    card: str
    calibration: str | None = None
    ingest: Options
    files: list[DataPointFile]
    redactions: dict[str, int] | None
    revealed: list[str] = []
    results: RecordedResults
    schema: str = SCHEMA

    def as_text(self) -> str:
        """The file's content: JSON with one line per file, metric and row."""
        order = ("schema", *(name for name in self.__struct_fields__ if name != "schema"))
        plain = msgspec.to_builtins(self)
        if self.calibration is None:
            del plain["calibration"]
        if not self.revealed:
            del plain["revealed"]
        for row in plain["results"]["rows"]:
            for name in [name for name, value in row.items() if value is None]:
                del row[name]
        return "".join(_json_lines({name: plain[name] for name in order if name in plain}, "")) + "\n"


def read_manifest(path: Path) -> DataPointManifest:
    """The manifest at `path`; `InputError` if it is unreadable or violates the schema."""
    where = printable(str(path))
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_BYTES + 1)
        if len(content) > LARGEST_BYTES:
            raise InputError(f"is over {LARGEST_BYTES // MIB} MB, too large for a manifest", where=where)
        value = msgspec.json.decode(content)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=where) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"is not valid JSON: {error}", where=where, hint=_AGAIN) from None
    if not isinstance(value, dict):
        raise InputError("is not a JSON object", where=where, hint=_AGAIN)
    problems = json_schema.schema_problems(
        Document(where, value, {}, {}, ()), json_schema.packaged_schema("manifest-data-point")
    )
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        first = f"{problems[0].path}: {problems[0].message}" if problems[0].path else problems[0].message
        raise InputError(f"{first}{more}", where=where, hint=_AGAIN)
    manifest = msgspec.convert(value, DataPointManifest)
    for reason in _manifest_contradictions(manifest):
        raise InputError(reason, where=where, hint=_AGAIN)
    return manifest


_AGAIN = "delete it and record it again: cclbench verify --record"


def _manifest_contradictions(manifest: DataPointManifest) -> Iterator[str]:
    names = [file.path for file in manifest.files]
    for name in names:
        if not is_inside(name):
            yield f"the path {quoted_value(name)} does not stay in the manifest's folder"
    if len(set(names)) < len(names):
        yield "lists a file twice"
    for row in manifest.results.rows:
        if row.metric not in manifest.results.metrics:
            yield f"has a row of {quoted_value(row.metric)}, which is not among its metrics"


def _json_lines(value: Any, indent: str) -> Iterator[str]:
    """JSON with one line for each object or list that contains no other."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if not any(isinstance(part, dict | list) for part in parts):
        yield json.dumps(value, ensure_ascii=False, allow_nan=False)
        return
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    keys = (
        [f"{json.dumps(key, ensure_ascii=False)}: " for key in value] if opening == "{" else [""] * len(parts)
    )
    yield opening
    for i, (key, part) in enumerate(zip(keys, parts, strict=True)):
        yield f"{',' if i else ''}\n{indent} {key}"
        yield from _json_lines(part, indent + " ")
    yield f"\n{indent}{closing}"
