# SPDX-License-Identifier: Apache-2.0
"""What evidence publishes of its texts: public names and short numbers; everything else becomes a token.

A text consists of *units* between blanks, brackets and commas, a unit of *words* of letters and digits, a
word of *parts* that begin with capitals.  A word is public if `words.txt` lists its parts
(scripts/public_words.py collects them), beside numbers of up to four digits.  A unit of public words stays.
Of the name of a kernel, operator or module with other words the public words stay, around one token for the
rest, as far as they tell the same category, arithmetic and phase; all else is replaced as a whole.

Tokens are salted hashes: equal texts of a data point have equal ones, and nobody can try out texts without
the salt, which is not stored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from hashlib import blake2b
from importlib.resources import files
from typing import Final

from cclbench.classify import collective_name, kernel_category
from cclbench.classify.arithmetic import kernel_arithmetic
from cclbench.classify.python_rows import MODULE, is_module
from cclbench.normalize.phases import phase_told

PARTS: Final = frozenset(
    re.sub("#.*", "", files(__package__).joinpath("words.txt").read_text(encoding="ascii")).split()
)
"""Parts of words, in lower case."""

_LETTERS: Final = "jqvwxyz"
"""No rule that classifies names has a word of these letters alone."""
_LENGTH: Final = 14
TOKEN: Final = re.compile(rf"x[{_LETTERS}]{{{_LENGTH}}}")
_UNIT: Final = re.compile(r"[^\s<>(),\[\]{}=|;'\"`*&]+")
_PART: Final = re.compile(r"[^\W_]+|(?:[\W_])+")
_MARKS: Final = re.compile(r"([-_.:/#+~%@?!$^\\])\1*|->|::|--|\.\.\.|//|:-|<-")
"""Signs that a unit without a word may consist of."""
_NUMBER: Final = re.compile(
    r"[-+]?(?:\d{1,7}(?:\.\d{0,18})?|\.\d{1,18}|9223372036854775807)(?:[eE][-+]\d{1,3})?"
    r"(?:u|ul|ull|f|l|%|x)?[.:]?"
    r"|\d{1,3}\.\d{1,3}\.\d{1,3}|\d{1,3}/\d{1,3}|\d{1,5}(?:x\d{1,5}){1,4}|0x[0-9a-f]{1,4}",
    re.ASCII,
)
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
"""Parts of a word: by its capitals, and numbers."""
_COUNTED: Final = re.compile(
    r"[a-z]{1,2}\d{1,2}|[a-z]{2}\d{1,3}(?:x\d{1,3})+|\d{1,4}(?:[KMGT]i?)?B|\d[a-z]{1,2}"
    r"|(?:[dtpce]p|[abhlpvs]|bs|mi|pg|gb|gh|sm|gfx|isa)\d{1,4}[asx]?",
    re.IGNORECASE,
)
"""A parameter of a kernel, a processor, an amount of memory."""
_SUMS: Final = re.compile(r"(?:sq\d{1,15}sk\d{1,15}sqsq\d{1,15}sqsk\d{1,15})|sq|sk")
"""Sums of lengths in the name of a step (`classify.serving_steps`)."""
_INSTRUCTIONS: Final = ("16816", "16832")
"""Shapes of matrix instructions with more digits than a size."""
_CODE: Final = re.compile(r"[ST][0-9A-Z]{0,2}_|DF\d+[bx_]?|(?<=L[a-z])n?\d{1,7}E|\d{1,3}|[A-Za-z_.]")
"""A code of a mangled name, or the length of an identifier."""
_MOST_CODES: Final = 4
"""Most different letters of a run of codes in a mangled name."""
_SIZES: Final = re.compile(r"\d{1,4}(?:x\d{1,4}){1,4}|\d{1,6}(?:ul|u|f|l)?")
_SIZES_WITHIN: Final = re.compile(r"(?<!\d)\d{1,4}(?:x\d{1,4})+(?!\d)")
_TYPES: Final = re.compile(
    r"(?:x?(?:b?f(?:8|16|32|64)|[siu](?:4|8|16|32|64)|tf32|e[45]m[0-3]|(?:mx)?fp(?:4|8|16|32|64)))+"
)
_LONG_NUMBERS: Final = re.compile(
    r"(?:\d{3,}[\W_]+){2}\d{3,}|\d{8}|\d+(?:[-/%+~@#$]\d+){2}|\d+(?:\.\d+){3}|\d+(?:\.\d+){2}[-/:]\d"
)
"""Numbers in a unit that are those of an account, an address or a date, not of a size or version."""
_LONG_NUMBER: Final = re.compile(
    r"[-+]?(?:\d{1,20}(?:\.\d{1,9})?)(?:[eE][-+]\d{1,3})?|0x[0-9a-f]{1,16}", re.ASCII
)
_TIME: Final = re.compile(
    r"\d{4}[-/]\d\d[-/]\d\d(?:T[\d:.]{5,18}Z?)?|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?", re.ASCII
)
_PCI: Final = re.compile(r"0000(?::[0-9a-fA-F]{2}){2}(?:\.\d)?")
"""A PCI address: the same on every machine of a kind."""
_PROGRAM: Final = re.compile(r"[\w.-]+\(\d{1,20}\)", re.ASCII)
"""A compiled program with its number."""
_OF_JSON: Final = re.compile(r":-?\d{1,19}(?:\.\d{1,18})?(?:[eE][-+]?\d{1,3})?", re.ASCII)
"""A number of an object."""
_BETWEEN_NAMES: Final = re.compile(r"[\w)\]>][ \t\n]+\w")
_OF_TYPES: Final = re.compile(
    r"\b(?:void|const|unsigned|signed|long|int|char|float|double|bool|short|struct|class|enum|static|volatile"
    r"|anonymous namespace|clone|restrict|__restrict__|operator)\b"
)
_PYTHON_ROW: Final = re.compile(r"<built-in |\S[^(\n]*\.py\(\d+\): ")
_FOLDER: Final = re.compile(
    r"(?:^|/)(lib/python[\d.]{1,5}/(?:(?:site|dist)-packages/)?|(?:site|dist)-packages/)"
)
"""Folders of public packages and of Python's own modules."""
_PLACE: Final = re.compile(r"(?P<path>[^:]*[^/:]/[^:]*[^/:]|[^:]*\.py)(?P<line>:\d{1,6})?")
"""A path, with a line of its file."""
_TELLING: Final[Mapping[str | None, str]] = {
    **{name: name for name in ("gemm", "attention", "embedding", "moe", "sampling", "optimizer")},
    "convolution": "conv2d",
    "normalization": "layer_norm",
    "elementwise": "elementwise_kernel",
    "reduction": "reduce_kernel",
    "copy": "memcpy",
}
"""A name of each category."""
_SHORTEST: Final = 3
_SHORT, _FEWEST = 7, 3
"""Most digits of a number that stays anywhere, and fewest figures of a row of a table."""
_DIGITS: Final = re.compile(
    r"(?<![^\W_])\d{5,}(?![^\W_])|(?<!\d)\d+(?:[-_. %:]\d+){2,}"
    r"|(?:[0-9a-fA-F]{2}[-: ]){3,}[0-9a-fA-F]{2}"
)
"""Numbers that a file's name needs to tell no rank."""
_NAME_WORD: Final = re.compile(r"[^\W_]+|[^\x00-\x7f]+")
_MOST_TOKENS: Final = 4
_SIGNS: Final = "-_.:/#+~%@?!$^\\"
_ROWS_OF_NUMBERS: Final = re.compile(r"(?<![\w.])[+(]?\d[\d.)]*(?:[ \t-]+[(]?\d[\d.)]*){2,}(?![\w.])")
"""Numbers between blanks or hyphens, such as a telephone's; those of shapes are between commas."""
_BYTES: Final = re.compile(
    r"(?<![^\W_])(?:[0-9a-fA-F]{2}[-: ]){4,}[0-9a-fA-F]{2}(?![^\W_])|(?:%[0-9a-fA-F]{2}){3,}"
)
"""Bytes in hexadecimal, with signs between them or percent-encoded."""
_CARD: Final = re.compile(r"(?<!\S)\d{4}(?: \d{4}){2,}(?!\S)")
_MUCH: Final = re.compile(r"\D*(?:\d\D*){5,}")
"""Digits that may tell more than a size among texts that are not public."""
_BEHIND_A_WORD: Final = re.compile(r"[A-Za-z_]{2,}[ :=]{1,2}\Z|:\Z")
"""A number of a log's line that is named."""
_TORN_ROW: Final = re.compile(
    r"^ +\d+ +\d+ +[a-z]\w* +\w+ +-?\d(?=\S+:\d+:\d+ \[\d+\] [A-Z]CCL )", re.MULTILINE
)
"""Size, count, type, operation and root of a row of nccl-tests, behind which a line of NCCL's begins."""
_BEHIND_A_COUNT: Final = re.compile(r"(?i)(?:bytes|size|count|bandwidth|time)[ :=]{1,9}\Z")
_FIGURES: Final = re.compile(
    r"(?i)time|start|stop|begin|end|duration|[nmup]s\b|stamp|\bts\b|id\b|size|bytes?|counts?|cycles|fl?ops"
    r"|bw|total|energy|power|clock|data|packets|value|offset|memory|shapes?|stream|queue|rate|flow|inputs"
)
"""Fields and columns of figures."""
_PORT: Final = re.compile(r"(?:host|address)-\d+:\d+")
_PATH: Final = re.compile(r"[.~]{0,2}/[^:]*[^:/]/[^:]+")
"""A path from a root, where it begins a text."""
_TENSILE: Final = re.compile(
    r"(?:[A-Z]{1,9}[a-z]{0,6}\d{0,4}(?:x\d{1,4}){0,3}(?:[A-Z]{1,2}\d{0,3})?|\d[A-Z]{1,5}\d?)(?:\.kd)?|\d{0,4}"
)
"""A part of the name of a product of Tensile, `Cijk_...`: a parameter by its initials."""
_PACKAGES: Final = ("torch/", "torch_xla/", "jax/", "jaxlib/", "triton/", "numpy/", "functorch/")


def split_torn_rows(text: str) -> str:
    """A log's text with a zero where a line begins within a row, so that its host stands by itself."""
    return _TORN_ROW.sub("\\g<0>\0", text)


class PublicNames:
    """Publishes texts with one salt; names that match a pattern of `kept`, or are `published`, stay."""

    def __init__(
        self, salt: bytes, kept: Iterable[str] = (), published: frozenset[str] = frozenset()
    ) -> None:
        self._salt, self._kept, self._published = salt, tuple(kept), published

    def token(self, text: str) -> str:
        """The token of a text: `x` and letters, so that it is a name in every language."""
        number = int.from_bytes(blake2b(text.encode(errors="surrogatepass"), key=self._salt).digest(), "big")
        letters = []
        for _ in range(_LENGTH):
            number, letter = divmod(number, len(_LETTERS))
            letters.append(_LETTERS[letter])
        return "x" + "".join(letters)

    def is_kept(self, text: str) -> bool:
        """Whether its owner asks to publish it as it is."""
        return text.casefold() in self._published or any(fnmatchcase(text, name) for name in self._kept)

    def publish(self, text: str) -> str:
        """A name or another short text as it is published."""
        return self._publish_cached(text)

    @cached_property
    def _publish_cached(self) -> Callable[[str], str]:
        return lru_cache(maxsize=1 << 16)(self._publish)

    def _publish(self, text: str) -> str:
        new = self._publish_once(text)
        return new if new == text or self._publish_once(new) == new else self.token(text)

    def _publish_once(self, text: str) -> str:
        if self.is_kept(text):
            return text
        if is_module(text):
            return MODULE + self.publish(text.removeprefix(MODULE))
        for figures in (_BYTES, _ROWS_OF_NUMBERS):
            text = figures.sub(lambda numbers: self.token(numbers[0]), text)
        if all(map(self._is_public_at, _UNIT.finditer(text))):
            return text
        row = _PYTHON_ROW.match(text) is not None
        if not row and _BETWEEN_NAMES.search(_OF_TYPES.sub("", text)):
            new = self.token(text)
        else:
            new = _UNIT.sub(self._published_unit, text)
        return new if row else self._with_meaning(text, new)

    def publish_file_name(self, name: str) -> str:
        """A file's name: public words with their numbers stay, such as the rank and the format.

        Each other word has a token, so that ranks have the same; many words have one together.
        """
        if self.is_kept(name):
            return name
        for figures in (_BYTES, _DIGITS):
            name = figures.sub(lambda digits: self.token(digits[0]), name)
        others = [word for word in _NAME_WORD.findall(name) if not _is_public_word(word)]
        tokens = iter(map(self.token, others if len(others) <= _MOST_TOKENS else ["-".join(others)]))
        return _NAME_WORD.sub(lambda word: word[0] if _is_public_word(word[0]) else next(tokens, ""), name)

    def publish_line(self, line: str) -> str:
        """A line of a log: numbers stay among public words or behind what says what they count."""
        row, torn, rest = line.partition("\0")
        if torn:
            public = all(map(_is_public_word, row.replace("-", " ").split()[2:]))
            return (row if public else self.token(row)) + self.publish_line(rest)
        line = _CARD.sub(lambda numbers: self.token(numbers[0]), line)
        units = _UNIT.findall(line)
        public = len(units) > 1 and all(self._is_public(unit) or _is_figure(unit) for unit in units)
        figures = sum(map(_is_figure, units))
        comment = line.lstrip().startswith(("#", "//"))

        def published(match: re.Match[str]) -> str:
            unit, before = match[0], line[: match.start()]
            if "CCL " in line:
                stays = _BEHIND_A_WORD.search(before) is not None
            elif comment:
                stays = _BEHIND_A_COUNT.search(before) is not None or (
                    public and bool(_NUMBER.fullmatch(unit))
                )
            else:
                short = len(unit) <= _SHORT or figures >= _FEWEST or _FIGURES.search(before) is not None
                stays = public and short
            return unit if stays and _is_figure(unit) else self._published_unit(match)

        return _UNIT.sub(published, line)

    def publish_cell(self, cell: str, column: str) -> str:
        """A cell of a table: long numbers stay in columns of figures; nothing does in one not public."""
        text = cell.strip(' "\r')
        if not text or self.is_figure(text, column):
            return cell
        public = self.publish(column) == column
        return cell.replace(text, self.publish(text) if public else self.token(text))

    def is_figure(self, text: str, field: str) -> bool:
        """Whether a text is the number, or numbers, of a field or column of figures that is public."""
        return (
            _FIGURES.search(field) is not None
            and self.publish(field) == field
            and all(map(_is_figure, text.strip("[]").replace(" ", "").split(",")))
        )

    def _is_public_at(self, match: re.Match[str]) -> bool:
        """Whether a unit of a text is public where it stands."""
        text, unit = match.string, match[0]
        if text[: match.start()].endswith("(") and _PROGRAM.fullmatch(text):
            return True
        if text.startswith('{"') and _OF_JSON.fullmatch(unit):
            return True
        begins = text[match.start() - 1 : match.start()] != ")"
        return self._is_public(unit) and not (begins and _PATH.fullmatch(unit))

    def _is_public(self, unit: str) -> bool:
        return _is_public_unit(unit) or self.is_kept(unit)

    def _published_unit(self, match: re.Match[str]) -> str:
        unit = match[0]
        if _NUMBER.fullmatch(unit) and _MUCH.fullmatch(unit):
            return self.token(unit)
        if self._is_public_at(match):
            return unit
        return self._replaced_unit(match)

    def _with_meaning(self, name: str, new: str) -> str:
        """A replaced name with the word of its phase or category, if its public words tell another.

        Of a collective the part before its arguments stays, if that tells it.
        """
        collective = collective_name(name)
        if collective_name(new) != collective:
            head = _UNIT.sub(self._published_unit, name.partition("(")[0])
            if collective_name(head) == collective:
                return f"{head}({self.token(name)})"
        phase = phase_told(name)
        if phase_told(new) != phase:
            new = f"{self.token(name)} {phase}" if phase else self.token(name)
        category = kernel_category(name)
        if kernel_category(new) == category and kernel_arithmetic(new) == kernel_arithmetic(name):
            return new
        return f"{self.token(name)}_{_TELLING[category]}" if category in _TELLING else self.token(name)

    def _replaced_unit(self, match: re.Match[str]) -> str:
        unit = match[0]
        path = None if match.string[: match.start()].endswith(")") else _PLACE.fullmatch(unit)
        if path is not None:
            return self._published_path(path["path"]) + (path["line"] or "")
        core = unit.strip(_SIGNS)
        begin, end = unit[: unit.index(core)], unit[unit.index(core) + len(core) :]
        return f"{begin[-2:]}{self._published_words(core)}{end[:2]}" if core else self.token(unit)

    def _published_words(self, name: str) -> str:
        """A name's public words, and one token instead of the first of the others."""
        token, parts, sign = self.token(name), list[str](), ""
        for part in _PART.findall(name) if name.isascii() else ():
            if not part[0].isalnum():
                sign = "::" if "::" in part else part if len(part) == 1 and part in "_.-:/" else "_"
                continue
            public = len(part) >= _SHORTEST and not part[0].isdigit() and _is_public_word(part)
            if public or token not in parts:
                parts += [sign] * bool(parts) + [part if public else token]
        return "".join(parts) or token

    def _published_path(self, path: str) -> str:
        """A file of a public package below the folder of packages; of any other a token with its ending."""
        folder = max(_FOLDER.finditer(path), key=lambda match: match.end(), default=None)
        rest = (
            path[folder.end() :] if folder else path if path.startswith(_PACKAGES) or "/" not in path else ""
        )
        base = f"/{folder[1]}" if folder else ""
        words = [part for part in _PART.findall(rest) if part[0].isalnum()]
        if words and rest.isascii() and all(map(_is_public_word, words)):
            return base + rest
        package = next((name for name in _PACKAGES if rest.startswith(name)), "")
        return base + package + self.token(path) + (".py" if path.endswith(".py") else "")


def _is_figure(unit: str) -> bool:
    return _LONG_NUMBER.fullmatch(unit) is not None or _TIME.fullmatch(unit) is not None


@lru_cache(maxsize=1 << 16)
def _is_public_unit(unit: str) -> bool:
    """Whether a unit is a short number or consists of public words and signs."""
    if _NUMBER.fullmatch(unit) or TOKEN.fullmatch(unit) or _PCI.fullmatch(unit):
        return True
    if unit.startswith("_Z") and unit.isascii() and _is_public_mangled(unit):
        return True
    if unit.startswith("Cijk_"):
        return all(_TENSILE.fullmatch(part) or _is_public_word(part) for part in unit.split("_"))
    if not unit.isascii() or _PORT.fullmatch(unit) or _LONG_NUMBERS.search(unit):
        return False
    parts = _PART.findall(unit)
    words = [part for part in parts if part[0].isalnum()]
    if not words:
        return _MARKS.fullmatch(unit) is not None
    if len(words) > 1 and all(word.isdigit() for word in words):
        return False
    return all(_MARKS.fullmatch(part) or len(part) < 5 for part in parts if not part[0].isalnum()) and all(
        map(_is_public_word, words)
    )


@lru_cache(maxsize=1 << 16)
def _is_public_word(word: str) -> bool:
    if (
        (word.lower() in PARTS and word.isascii())
        or (len(word) == 1 and word.isascii())
        or any(form.fullmatch(word) for form in (_SIZES, _TYPES, _COUNTED, _SUMS, TOKEN))
    ):
        return True
    parts = _WORD.findall(_SIZES_WITHIN.sub("0", word))
    letters = [part for part in parts if part.isalpha() and len(part) > 1]
    return (
        "".join(parts) == _SIZES_WITHIN.sub("0", word)
        and len(letters) + 1 >= len(parts) - sum(map(str.isdigit, parts))
        and max(map(len, letters), default=0) >= _SHORTEST
        and sum(map(str.isdigit, parts)) < _SHORTEST
        and all(part.lower() in PARTS for part in letters)
        and all(len(part) < 5 or part in _INSTRUCTIONS for part in parts if part.isdigit())
    )


def _is_public_mangled(name: str) -> bool:
    """Whether the identifiers of an Itanium-mangled name are public, and all else short codes."""
    at, codes = 2, ""
    while at < len(name):
        code = _CODE.match(name, at)
        if code is None:
            return False
        at = code.end()
        identifier = name[at : at + int(code[0])] if code[0].isdigit() else ""
        if len(identifier) > 1 and re.fullmatch(r"[A-Za-z_]\w+", identifier):
            if identifier.startswith("_GLOBAL__N") or _is_public_unit(identifier):
                at += len(identifier)
            elif identifier[0] != "E":  # else the number is a constant that it ends
                return False
        codes += code[0] if len(code[0]) == 1 else " "
    return all(len(set(run)) <= _MOST_CODES for run in re.findall(r"[a-z]+|[A-Z]+", codes))
