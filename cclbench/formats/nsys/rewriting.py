# SPDX-License-Identifier: Apache-2.0
"""Redact exports: every text of every table, whatever the table's name.

A working copy is opened as an untrusted file and changed, then written anew from its rows (VACUUM), so that
no page contains deleted text.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from cclbench.formats.files import copy_file, display_path
from cclbench.formats.nsys.capture import DIAGNOSTICS, LOST
from cclbench.formats.nsys.database import EXPORT_AGAIN, Database
from cclbench.formats.nsys.facts import RANK_VARIABLES
from cclbench.formats.nsys.nccl import payload_layout, published_payload
from cclbench.formats.rewriting import CAPTURED, COMMAND_LINE, UNREAD, Redactor
from cclbench.ground.errors import InputError
from cclbench.ground.units import MIB

_REFUSED: Final = frozenset({sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_CREATE_VTABLE})
_PAIRS: Final = ("name", "value")
"""Columns of a table of named values: META_DATA_CAPTURE, TARGET_INFO_SYSTEM_ENV, ..."""
_NOTHING: Final[Mapping[str, str]] = {}
_TYPE: Final = re.compile(r"INTEGER|INT|TEXT|REAL|BLOB|FLOAT|DOUBLE|BOOLEAN|VARCHAR")
_LONGEST: Final = 64 * MIB
_LONGEST_WARNING: Final = 300
_REFERENCE: Final = re.compile(r"(?i).*(?:name|text|content|filename|symbol|module|label|string)(?:id)?")
"""Columns that may refer to StringIds."""
_INTEGERS: Final = " OR ".join(
    f"value GLOB '{name}=*' AND substr(value, {len(name) + 2}) NOT GLOB '*[^0-9:\"]*'"
    for name in (*(name for pair in RANK_VARIABLES for name in pair), "PET_NNODES", "PET_NPROC_PER_NODE")
)
_READ_PAIRS: Final = (
    "name GLOB 'EXPORT_*_VERSION' OR name GLOB 'PROCESS_[0-9]*:COMMAND'"
    " OR name GLOB 'PROCESS_[0-9]*:ARGUMENT_[0-9]*'"
    f" OR name GLOB '*:ENVIRONMENT_VARIABLE' AND ({_INTEGERS})"
)
_READ_EVENTS: Final = "severity IN (2, 3)"
"""Rows of tables that are not published which the reader uses, and which are kept."""
_LAUNCHED: Final = re.compile(
    r"(?:.*/)?(torchrun|python[\d.]*)|(-m|--?standalone|torch\.distributed\.(?:run|launch)"
    r"|--?n(?:nodes|proc[-_]per[-_]node)(?:=\d+(?::\d+)?)?|\d{1,6}(?::\d{1,6})?)"
)
"""Parts of a command line that state the number of processes: the launcher and its numeric options."""
_OPERATOR: Final = (
    "text GLOB 'aten::*' OR text GLOB 'autograd::*' OR text GLOB '*, seq = *' OR text GLOB '*, op_id = *'"
    " OR text GLOB '*, seq=*' OR text GLOB '*, stashed seq=*'"
)


class DatabaseRewriter:
    """Rewrites an export into a copy, or only counts the replacements."""

    def __init__(self, path: Path, redactor: Redactor, *, withheld: Mapping[str, str] = _NOTHING) -> None:
        self._path, self._redactor, self._withheld = path, redactor, withheld

    def rewrite_into(self, scratch: Path | None) -> None:
        """Write a database of the changed rows to `scratch`; without it, count what would change."""
        with Database(self._path) as database:  # rejects a file that is cut, damaged or still being written
            self._layout = payload_layout(database)
            self._tables = {
                table: [name for name in columns if self._is_published(name)]
                for table, columns in database.tables.items()
                if self._is_published(table)
            }
            for table, columns in database.tables.items():
                left_out = len(columns) - len(self._tables.get(table, ()))
                if left_out:
                    self._redactor.count(self._redactor.text(table)[0], {UNREAD: left_out})
        if scratch is None:
            self._change_rows(self._path, None)
            return
        with TemporaryDirectory(dir=scratch.parent, prefix=".redacting-") as folder:
            working = Path(folder, "working.sqlite")
            copy_file(self._path, working)
            self._change_rows(working, Path(folder, "anew.sqlite"))
            Path(folder, "anew.sqlite").replace(scratch)

    def _is_published(self, name: str) -> bool:
        return self._redactor.publishes(name)

    def _change_rows(self, path: Path, anew: Path | None) -> None:
        """Change all rows at `path` and write them to `anew`; without it, count what would change."""
        with self._open_database(path, writable=anew is not None) as database:
            self._refuse_foreign_schema(database)
            self._delete_withheld(database, writable=anew is not None)
            for table, columns in self._tables.items():
                self._rewrite_table(database, table, columns, writable=anew is not None)
            if anew is not None:
                database.commit()
                self._write_tables(database, anew)

    def _write_tables(self, database: sqlite3.Connection, anew: Path) -> None:
        """Write the rows into tables that have only names and types of their columns, and the key."""
        database.execute("ATTACH ? AS anew", [anew.absolute().as_uri()])
        for table in self._tables:
            described = database.execute(f"PRAGMA table_info({_quote_identifier(table)})").fetchall()
            column_rows = [row for row in described if row[1].decode() in self._tables[table]]
            keys = [_quote_identifier(row[1].decode()) for row in column_rows if row[5]]
            types = {
                row[1].decode(): _TYPE.match(row[2].decode(errors="replace").upper()) for row in column_rows
            }
            columns = [f"{_quote_identifier(name)} {kind[0] if kind else ''}" for name, kind in types.items()]
            if len(keys) == 1 and f"{keys[0]} INTEGER" in columns:
                columns[columns.index(f"{keys[0]} INTEGER")] += " PRIMARY KEY"
            names = ", ".join(map(_quote_identifier, types))
            name = _quote_identifier(table)
            database.execute(f"CREATE TABLE anew.{name} ({', '.join(columns)})")
            database.execute(f"INSERT INTO anew.{name} SELECT {names} FROM main.{name}")  # noqa: S608 - quoted
        database.commit()

    @contextmanager
    def _open_database(self, path: Path, *, writable: bool) -> Iterator[sqlite3.Connection]:
        uri = f"{path.absolute().as_uri()}?{'mode=rw' if writable else 'mode=ro&immutable=1'}"
        try:
            with closing(sqlite3.connect(uri, uri=True)) as database:
                database.text_factory = bytes
                for setting in ("trusted_schema=OFF", "cell_size_check=ON", "temp_store=MEMORY"):
                    database.execute(f"PRAGMA {setting}")
                if writable:
                    database.execute("PRAGMA journal_mode=MEMORY")
                else:
                    database.set_authorizer(_authorize_action)
                database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
                yield database
        except (sqlite3.Error, UnicodeDecodeError) as error:
            reason = str(error).splitlines()[0][:200]
            raise InputError(
                f"cannot be redacted: {reason}", where=display_path(self._path), hint=EXPORT_AGAIN
            ) from None

    def _refuse_foreign_schema(self, database: sqlite3.Connection) -> None:
        """`InputError` if the schema has more than tables and indices: triggers would run with changes."""
        for kind, name, sql in database.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_master"):
            text = sql.decode(errors="replace")
            virtual = text.upper().split()[:2] == ["CREATE", "VIRTUAL"]
            if kind not in (b"table", b"index") or virtual:
                message = f"its schema has more than an export's ({name.decode(errors='replace')[:60]!r})"
                raise InputError(message, where=display_path(self._path), hint=EXPORT_AGAIN)

    def _delete_withheld(self, database: sqlite3.Connection, *, writable: bool) -> None:
        """Delete rows of tables that are not published, and names to which nothing else refers."""
        gone, unused, used = list[str](), list[str](), list[str]()
        for table, columns in self._tables.items():
            holds = next((self._withheld[name] for name in self._withheld if fnmatchcase(table, name)), None)
            references = [_quote_identifier(name) for name in columns if _REFERENCE.fullmatch(name)]
            if holds is None:
                used += (f"SELECT {name} FROM {_quote_identifier(table)}" for name in references)  # noqa: S608 - quoted
                continue
            stay = _READ_PAIRS if {*_PAIRS} <= {*columns} else _READ_EVENTS if "severity" in columns else "0"
            where = f"FROM {_quote_identifier(table)} WHERE NOT coalesce({stay}, 0)"
            (count,) = database.execute(f"SELECT count(*) {where}").fetchone()
            self._redactor.count(table, {holds: count})
            unused += (f"SELECT {name} {where}" for name in references)
            gone.append(f"DELETE {where}")
        if writable:
            if unused and {*self._tables.get("StringIds", ())} >= {"id", "value"}:
                ids = " UNION ".join(unused) + "".join(f" EXCEPT {selection}" for selection in used)
                database.execute(f"UPDATE StringIds SET value = '' WHERE id IN ({ids})")  # noqa: S608 - quoted
            for deletion in gone:
                database.execute(deletion)

    def _rewrite_table(
        self, database: sqlite3.Connection, table: str, columns: Iterable[str], *, writable: bool
    ) -> None:
        held = ", ".join(
            f"max(typeof({_quote_identifier(c)}) = 'text'), max(typeof({_quote_identifier(c)}) = 'blob')"
            for c in columns
        )
        (has_kind,) = database.execute(f"SELECT {held} FROM {_quote_identifier(table)}")  # noqa: S608 - quoted names
        pairs = all(name in columns for name in _PAIRS)
        for i, column in enumerate(columns):
            by = "name" if pairs and column == "value" else None
            for kind, named_by, any_of_kind in (
                ("text", by, has_kind[2 * i]),
                ("blob", None, has_kind[2 * i + 1]),
            ):
                changes = (
                    list(self._column_changes(database, table, column, kind, named_by)) if any_of_kind else []
                )
                if writable and changes:
                    _apply_changes(database, table, column, kind, named_by, changes)

    def _column_changes(
        self, database: sqlite3.Connection, table: str, column: str, kind: str, by: str | None
    ) -> Iterator[tuple[bytes, bytes, bytes | None]]:
        """(old, new, name) of each distinct value of a column that changes."""
        name_sql = f"CAST({_quote_identifier(by)} AS BLOB)" if by else "NULL"
        distinct = (
            f"SELECT {_quote_identifier(column)}, {name_sql}, count(*) FROM {_quote_identifier(table)}"  # noqa: S608 - quoted names
            f" WHERE typeof({_quote_identifier(column)}) = '{kind}' GROUP BY 1, 2"
        )
        for old, name, times in database.execute(distinct):
            field = name.decode(errors="replace") if isinstance(name, bytes) else ""
            if kind == "blob":
                new = published_payload(old, self._layout)
                counts = Counter({UNREAD: 1})
            else:
                text = old.decode(errors="surrogateescape")
                changed, counts = self._rewrite_text(text, field or column, table)
                new = changed.encode(errors="surrogateescape")
            if new != old:
                self._redactor.count(
                    f"{table}.{column}", {rule: count * times for rule, count in counts.items()}
                )
                yield old, new, name

    def _rewrite_text(self, text: str, field: str, table: str) -> tuple[str, Counter[str]]:
        if table == DIAGNOSTICS:
            warning = LOST.search(text[:_LONGEST_WARNING])
            new = warning[0] if warning else ""
            return new, Counter({CAPTURED: int(new != text)})
        if fnmatchcase(field, "PROCESS_*:ENVIRONMENT_VARIABLE"):  # of those that stay, whole numbers
            return text, Counter()
        if fnmatchcase(field, "PROCESS_*") and (launched := _LAUNCHED.fullmatch(text)):
            return launched[1] or launched[2], Counter(
                {COMMAND_LINE: int(bool(launched[1] and launched[1] != text))}
            )
        return self._redactor.text(text, field)


def _apply_changes(
    database: sqlite3.Connection,
    table: str,
    column: str,
    kind: str,
    by: str | None,
    changes: list[tuple[bytes, bytes, bytes | None]],
) -> None:
    replacements = {(old, name): new for old, new, name in changes}
    database.create_function("changed", 2, lambda old, name: replacements.get((old, name)))
    value = _quote_identifier(column)
    name_sql = f"CAST({_quote_identifier(by)} AS BLOB)" if by else "NULL"
    new = f"changed(CAST({value} AS BLOB), {name_sql})"
    database.execute(
        f"UPDATE {_quote_identifier(table)} SET {value} = CAST({new} AS {kind})"  # noqa: S608 - quoted names
        f" WHERE typeof({value}) = '{kind}' AND {new} IS NOT NULL"
    )


def _authorize_action(action: int, *_names: str | None) -> int:
    return sqlite3.SQLITE_DENY if action in _REFUSED else sqlite3.SQLITE_OK


def _quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
