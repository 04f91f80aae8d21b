# SPDX-License-Identifier: Apache-2.0
"""Redact YAML, TOML, INI, CSV and shell scripts so that they stay well formed.

A document is scrubbed value by value as its language reads them (a folded scalar is one text, a column has
a name), then as a text.  Its structure (its shape) is the same before and after.
"""

from __future__ import annotations

import configparser
import csv
import io
import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import yaml

from cclbench.contribute.redaction import kinds
from cclbench.contribute.redaction.pattern import NOTHING
from cclbench.contribute.redaction.scrub import Scrubber

_TEXTS_ONLY: Final = frozenset((kinds.COMMAND, kinds.ENVIRONMENT))
"""Kinds of fields whose values are hidden entirely in a capture, but scrubbed as texts in a document."""
_PLAIN: Final = re.compile(
    r"[A-Za-z/](?:[\w./+=@;%-]|:(?=\w|//))*(?: (?:[\w./+=@;%-]|:(?=\w|//))+)*", re.ASCII
)
"""A scalar of YAML without quotes."""
_SIGNS: Final = "\"'`(){}[]<>;&|"
"""Syntax characters: kept in a hidden text if the document would not parse without them."""
_FIGURE: Final = re.compile(r"[-+]?(?:\d{1,7}|\d*\.\d+)(?:[eE][-+]?\d+)?")
"""A measurement: shorter than an account or telephone number."""
_UNPRINTABLE: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff]")


class NotWellFormedError(ValueError):
    """A well-formed document would not be well formed after redaction."""


class DocumentValue(NamedTuple):
    """A value of a document: its range, text and key, and how to write another text in its place."""

    begin: int
    end: int
    text: str
    key: str
    """Empty if the value is itself a key."""
    is_key: bool
    written: Callable[[str], str]
    within: tuple[str, ...] = ()
    """Keys of the enclosing lists and mappings, outermost first."""


class Language(NamedTuple):
    """Parser of a language: a document's shape, None if it does not parse, and its values."""

    shape: Callable[[str], Any]
    values: Callable[[str], Iterator[DocumentValue]]
    lines: bool = False
    """Whether a line may be an environment."""
    context: bool = True
    """Whether neighbouring values show what a value is; the cells of a table do not."""


class LineChange(NamedTuple):
    """A replacement: line, counted from 1, rule, and number of times."""

    line: int
    rule: str
    times: int


Scrub = Callable[[str, str], tuple[str, list[LineChange]]]
"""Redacts a document as a text; the second argument are characters to keep."""


def redact_document(
    text: str, language: Language, scrubber: Scrubber, scrub: Scrub, published: re.Pattern[str] | None = None
) -> tuple[str, list[LineChange]]:
    """Redact the document's values, except those matched by `published`, and then the text by `scrub`.

    `NotWellFormedError` if its shape would change.
    """
    shape = language.shape(text)
    if shape is None:
        return scrub(text, "")
    new, changes = _scrub_values(text, language, scrubber, published)
    if language.shape(new) != shape:
        raise NotWellFormedError
    if not language.context:
        return new, changes

    def keeps_shape(tried: str) -> bool:
        return bool(language.shape(tried) == shape)

    new, line_changes = _scrub_lines("", new, "", scrub, keeps_shape)
    return new, [*changes, *line_changes]


def _scrub_lines(
    before: str, text: str, after: str, scrub: Scrub, keeps_shape: Callable[[str], bool]
) -> tuple[str, list[LineChange]]:
    """The text scrubbed as a whole, else by halves of its lines; a line that cannot keep the shape stays."""
    for kept in ("", _SIGNS):
        new, changes = scrub(text, kept)
        if not changes or keeps_shape(before + new + after):
            first = before.count("\n")
            return new, [change._replace(line=change.line + first) for change in changes]
    lines = text.splitlines(keepends=True)
    if len(lines) < 2:
        return text, []
    begin, end = "".join(lines[: len(lines) // 2]), "".join(lines[len(lines) // 2 :])
    begin, changes = _scrub_lines(before, begin, end + after, scrub, keeps_shape)
    end, end_changes = _scrub_lines(before + begin, end, after, scrub, keeps_shape)
    return begin + end, changes + end_changes


def _scrub_values(
    text: str, language: Language, scrubber: Scrubber, published: re.Pattern[str] | None
) -> tuple[str, list[LineChange]]:
    stay = [match.span() for match in published.finditer(text)] if published else []
    parts, at, changes, stand_ins = list[str](), 0, list[LineChange](), Counter[str]()
    scrubbed = lru_cache(maxsize=1 << 14)(partial(_scrub_value, scrubber))  # tables repeat cells
    for value in language.values(text):
        if any(begin <= value.begin < end for begin, end in stay):
            continue
        new, counts = scrubbed(value.text, value.key, value.within)
        if new != value.text:
            if value.is_key:  # different keys stay different
                stand_ins[new] += 1
                new += f"-{stand_ins[new]}" if stand_ins[new] > 1 else ""
            parts += text[at : value.begin], value.written(new)
            at = value.end
            line = text.count("\n", 0, value.begin) + 1
            changes += (LineChange(line, rule, count) for rule, count in counts.items())
    return "".join([*parts, text[at:]]), changes


def _scrub_value(
    scrubber: Scrubber, text: str, key: str, within: tuple[str, ...]
) -> tuple[str, Counter[str]]:
    kind = scrubber.kind_of_field(key) if key else None
    if not text.strip() or (kind is None and _FIGURE.fullmatch(text)):
        return text, Counter()
    if kind is None:  # else of all texts in the value of such a key, as in JSON
        kind = next(filter(None, map(scrubber.kind_of_field, within)), None)
    if kind is not None and kind not in _TEXTS_ONLY and not NOTHING.fullmatch(text):
        return scrubber.field(kind, text)
    new, counts = scrubber.text(text, key)
    # A value may match a rule only with its key, or with the key that encloses that one.
    for name in dict.fromkeys((key, ".".join((*within[-1:], key)))) if key and "\n" not in new else ():
        rewritten, key_counts = scrubber.text(f"{name}: {new}")
        if rewritten.startswith(f"{name}: "):
            new, counts = rewritten.removeprefix(f"{name}: "), counts + key_counts
    return new, counts


def _in_quotes(text: str) -> str:
    """As a JSON string that YAML and TOML read alike."""
    return _UNPRINTABLE.sub(lambda letter: f"\\u{ord(letter[0]):04x}", json.dumps(text, ensure_ascii=False))


def _yaml_shape(text: str) -> Any:
    """Events of the parser without texts, and the number of different keys of each mapping."""
    shape, open_nodes = list[Any](), list[list[str | None]]()
    try:
        for event in yaml.parse(text, yaml.CSafeLoader):
            shape.append(type(event).__name__)
            if isinstance(event, yaml.NodeEvent) and open_nodes:
                open_nodes[-1].append(event.value if isinstance(event, yaml.ScalarEvent) else None)
            if isinstance(event, yaml.CollectionStartEvent):
                open_nodes.append([])
            elif isinstance(event, yaml.MappingEndEvent):
                shape.append(len(set(open_nodes.pop()[::2])))
            elif isinstance(event, yaml.SequenceEndEvent):
                open_nodes.pop()
    except (yaml.YAMLError, RecursionError):
        return None
    return shape


_YAML_BEGINS: Final = (
    yaml.BlockMappingStartToken,
    yaml.BlockSequenceStartToken,
    yaml.FlowMappingStartToken,
    yaml.FlowSequenceStartToken,
)
_YAML_ENDS: Final = (yaml.BlockEndToken, yaml.FlowMappingEndToken, yaml.FlowSequenceEndToken)


def _yaml_values(text: str) -> Iterator[DocumentValue]:
    key, is_key, end, open_keys = "", False, 0, list[str]()
    tag: int | None = None
    for token in yaml.scan(text, yaml.SafeLoader):
        begin = token.start_mark.index
        yield from _comment_values(text, end, begin)
        end = max(end, token.end_mark.index)
        if isinstance(token, yaml.KeyToken):
            is_key = True
        elif isinstance(token, yaml.ValueToken):
            is_key = False
        elif isinstance(token, _YAML_BEGINS):
            open_keys.append(key)
        elif isinstance(token, _YAML_ENDS):
            key = open_keys.pop()
        elif isinstance(token, yaml.TagToken):
            tag = begin
        elif isinstance(token, yaml.ScalarToken):
            # The tag is replaced with its value.
            begin, tag = (begin, None) if tag is None else (tag, None)
            raw = text[begin : token.end_mark.index]
            written = partial(_yaml_scalar, style=token.style or "", whole=raw)
            own_key, within = ("", ()) if is_key else (key, tuple(filter(None, open_keys)))
            yield DocumentValue(begin, token.end_mark.index, token.value, own_key, is_key, written, within)
            key = token.value if is_key else key
    yield from _comment_values(text, end, len(text))


def _yaml_scalar(text: str, *, style: str, whole: str) -> str:
    """In its original style if that can represent it, else in quotes."""
    if not style and _PLAIN.fullmatch(text):
        return text
    if style == "'" and text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    return _in_quotes(text) + (whole[len(whole.rstrip("\r\n")) :] if style in ("|", ">") else "")


def _comment_values(text: str, begin: int, end: int) -> Iterator[DocumentValue]:
    """Comments between tokens, each to the end of its line."""
    for match in re.finditer(r"#[^\n]*", text[begin:end]):
        yield DocumentValue(begin + match.start(), begin + match.end(), match[0], "", False, _on_one_line)


def _on_one_line(text: str) -> str:
    return " ".join(text.splitlines())


def _toml_shape(text: str) -> Any:
    def shape_of(value: Any) -> Any:
        if isinstance(value, dict):
            return len(value), [shape_of(held) for held in value.values()]
        return [shape_of(item) for item in value] if isinstance(value, list) else ""

    try:
        return shape_of(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, RecursionError):
        return None


_TOML: Final = re.compile(
    r'(?P<long>"""[\s\S]*?"""+|\'\'\'[\s\S]*?\'\'\'+)|(?P<basic>"(?:[^"\\\n]|\\.)*")|(?P<literal>\'[^\'\n]*\')'
    r"|(?P<comment>\#[^\n]*)|(?P<bare>[^\s\"'\#=,\[\]{}.]+(?:\.\d[^\s,\]}\#]*)?)|(?P<mark>[=\n,\[\]{}.])"
)


def _toml_values(text: str) -> Iterator[DocumentValue]:
    key, is_key, in_header = "", True, False
    table, open_keys = list[str](), list[tuple[str, str]]()
    for match in _TOML.finditer(text):
        kind, raw = match.lastgroup, match[0]
        if raw == "\n" and not open_keys:
            is_key, in_header = True, False
        elif raw == "[" and is_key:
            in_header, table = True, []
        elif raw in ("[", "{"):
            open_keys.append((raw, key))
            is_key = raw == "{"
        elif raw in ("]", "}") and open_keys:
            _, key = open_keys.pop()
            is_key = False
        elif kind == "mark":
            is_key = (is_key and raw != "=") or (raw == "," and open_keys != [] and open_keys[-1][0] == "{")
        elif kind == "comment":
            yield DocumentValue(match.start(), match.end(), raw, "", False, _on_one_line)
        else:
            bare = raw if kind == "bare" else tomllib.loads(f"x={raw}")["x"]
            own_key, within = ("", ()) if is_key else (key, (*table, *(outer for _, outer in open_keys)))
            yield DocumentValue(match.start(), match.end(), bare, own_key, is_key, _in_quotes, within)
            key = bare if is_key else key
            table += [bare] if in_header else []


def _ini_shape(text: str) -> Any:
    parser = configparser.RawConfigParser(allow_no_value=True)
    try:
        parser.read_string(text)
    except configparser.Error:
        return None
    return [len(parser.options(section)) for section in parser.sections()], len(parser.defaults())


_INI: Final = re.compile(
    r"^(?P<key>[^\s=:\#;\[][^=:\n]*?)[ \t]*[=:][ \t]*(?P<value>[^\n]*)$|^(?P<line>[^\n]+)$", re.M
)


def _ini_values(text: str) -> Iterator[DocumentValue]:
    key, section = "", ""
    for match in _INI.finditer(text):
        key = match["key"] or key
        if match["line"] is not None:
            section = match["line"].strip("[] \t") if match["line"].startswith("[") else section
            yield DocumentValue(*match.span("line"), match["line"], "", False, _on_one_line)
        else:
            yield DocumentValue(*match.span("value"), match["value"], key, False, _on_one_line, (section,))


def _csv_shape(text: str) -> Any:
    """Number of cells of each row; 0 for a comment."""
    try:
        return [
            0 if row and row[0].startswith("#") else len(row)
            for row in csv.reader(io.StringIO(text), strict=True)
        ]
    except csv.Error:
        return None


_CELL: Final = re.compile(
    r'(?P<sign>[,;\t]|\r?\n|\A)(?P<cell>"(?:[^"]|"")*"|(?<![,;\t])#[^\r\n]*|[^",;\t\r\n][^,;\t\r\n]*)?'
)


def _csv_values(text: str) -> Iterator[DocumentValue]:
    names, column, is_head = list[str](), 0, True
    for match in _CELL.finditer(text):
        begins = "\n" in match["sign"] or not match["sign"]
        column = 0 if begins else column + 1
        is_head = not any(names) if begins else is_head
        raw = match["cell"] or ""
        if raw.startswith("#") and begins:
            yield DocumentValue(*match.span("cell"), raw, "", False, _on_one_line)
            continue
        cell = raw[1:-1].replace('""', '"') if raw.startswith('"') else raw
        if is_head:
            names = [*names[:column], cell.strip()]
        if raw:
            name = names[column] if column < len(names) and not is_head else ""
            begin, end = match.span("cell")
            blank = len(raw) - len(raw.lstrip())
            yield DocumentValue(begin + blank, end, cell.strip(), name, is_head, _in_cell)


def _in_cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if re.search(r'[",;\t\r\n]', text) else text


_SHELL: Final = re.compile(
    r"(?P<here><<-?[ \t]*(?P<mark>[\"']?)(?P<word>\w+)(?P=mark)[^\n]*\n(?:[^\n]*\n)*?\s*(?P=word)(?=\n|\Z))"
    r"|(?P<escape>\\[\s\S])|(?P<single>'[^']*')|(?P<double>\"(?:[^\"\\]|\\[\s\S])*\")"
    r"|(?P<comment>(?<!\S)\#[^\n]*)|(?P<sign>[\"'`(){}|&;<>]|\$\()"
)


def _shell_shape(text: str) -> Any:
    """Syntax characters and kinds of strings of a script; None if a quote is not closed."""
    signs = [
        match[0] if match.lastgroup == "sign" else match["word"] if match["here"] else match.lastgroup
        for match in _SHELL.finditer(text)
        if match.lastgroup not in ("escape", "comment")
    ]
    return None if {'"', "'"} & {*signs} else signs


def _shell_values(text: str) -> Iterator[DocumentValue]:
    """Strings in single quotes, each one text."""
    for match in _SHELL.finditer(text):
        if match["single"] is not None:
            inner = match["single"][1:-1]
            yield DocumentValue(
                match.start() + 1, match.end() - 1, inner, "", False, lambda new: new.replace("'", "")
            )


LANGUAGES: Final = {
    **dict.fromkeys((".yaml", ".yml"), Language(_yaml_shape, _yaml_values)),
    ".toml": Language(_toml_shape, _toml_values),
    **dict.fromkeys((".ini", ".cfg"), Language(_ini_shape, _ini_values)),
    **dict.fromkeys((".csv", ".tsv"), Language(_csv_shape, _csv_values, context=False)),
    **dict.fromkeys((".sh", ".bash", ".sbatch", ".slurm"), Language(_shell_shape, _shell_values, lines=True)),
}
"""By file extension."""
