# SPDX-License-Identifier: Apache-2.0
"""What evidence publishes of its texts: public names and figures that are read; the rest becomes tokens.

A text is public if all its letters and digits are those of public parts or of forms of names
(`name_forms`), but for `name_forms.LOOSE` in all: fewer than the shortest secret has.
Other numbers are public only as *figures*, where the format's reader reads a number (`Format.figures`).

Of a name of a kernel, operator or module that is not public the public words stay, around one token for the
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
from itertools import pairwise
from secrets import token_bytes
from typing import Final

from cclbench.classify import collective_name, kernel_category
from cclbench.classify.arithmetic import kernel_arithmetic
from cclbench.classify.python_rows import MODULE, is_module
from cclbench.contribute.redaction.name_forms import (
    FORM,
    LENGTH,
    LETTERS,
    LOOSE,
    SHORTEST,
    SIZES,
    TOKEN,
    WORD_OR_SIGNS,
    Letters,
    are_few,
    is_public_in_a_file_name,
    is_public_unit,
    letters_of,
    says_something,
)
from cclbench.normalize.phases import loads_data, stated_phase

_UNIT: Final = re.compile(r"[^\s<>(),\[\]{}=|;'\"`*&]+")
_SIGN: Final = re.compile(r"[\W_]+")
_FIGURE: Final = re.compile(
    r"[-+]?(?:\d{1,13}|1[4-9]\d{12,17})(?:\.\d{0,12})?(?:[eE][-+]?\d{1,3})?|0x[0-9a-fA-F]{1,16}"
    r"|\d{4}[-/]\d\d[-/]\d\d(?:T[\d:.]{5,18}Z?)?|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?",
    re.ASCII,
)
"""A number of no more digits than sizes have, or a time, also since 1970 in µs or ns."""
_MEASURES: Final = re.compile(
    r"N/A|W|kW|J|mJ|V|C|%|Hz|MHz|GHz|B|bytes|kB|KB|MB|GB|KiB|MiB|GiB|ns|us|ms|s|min"
)
"""Words beside the number of a figure."""
_BETWEEN_FIGURES: Final = re.compile(r"[,\[\]()]")
_LONG_NUMBER: Final = re.compile(r"[A-Za-z_]\d{4}|\d{8}")
"""Digits of more than a version or size behind a word, or of more than a process's or rank's number."""
_NO_FIGURE: Final = re.compile(r"[<>{}=|;&*`]|\]\s*\w|\w\s*\[")
"""In no figure: signs of other texts, a number beside a list."""
_READ: Final = re.compile(
    r"\b(?:pred|token|bf16|[suf](?:4|8|16|32|64)|f8e\dm\d\w{0,4}|c64|c128)\[[\d,<= ]*\](?:\{[\dTLSE,:()]*\})?"
    r"|\bsizes = \[[\[\]\d, ]*\]|\b(?:seq|op_id|stashed seq) ?= ?\d{1,10}\b|\bProfilerStep#\d{1,9}"
    r"|\bp?(?:jit|map)_+\w+\(\d{1,20}\)|\bsq\d{1,7}sk\d{1,7}(?:sqsq|sqsk)?\d{0,7}(?:sqsk\d{1,7})?"
    r"|(?<=\.py)(?::\d{1,5}\b|\(\d{1,5}\)(?=: ))|\bhcom_[A-Za-z]+__\d{1,4}(?:_\d{1,4}){1,2}\b"
    r"|\b(?:regs|(?:static|dynamic)_shared|(?:private|group)_mem|occ_pct|size|dest|async):\d{1,13}(?:\.\d{1,3})?"
    r"|\b(?:grid|block):\d{1,10}(?:,\d{1,5}){0,2}"
    r"|\b(?:seq|rows|in_bytes|out_bytes|pg)=\d{1,13}\b|\b(?:ranks|threads)=\d{1,7}(?:,\d{1,7})*"
    r"|(?<=[ (])T\d(?=[,) ])|\b(?:thread|process) \d{1,7}\b|\bcu[a-z]*[A-Z]\w+_v\d{1,2}0[0-9]0\b"
    r"|(?<=[a-z])(?:\.\d{1,3}){1,2}(?![\w.])|(?<=lambda\(\))#\d{1,2}\b"
    r"|(?:\b|_|-)(?:fusion|copy|start|done|call|reduce|gather|scatter|permute|dot|convolution|while|conditional|tuple"
    r"|broadcast|transpose|bitcast|convert|slice|pad|add|multiply|subtract|select|iota|element|reshape)\.\d{1,5}\b"
    r"|\bexecute_(?:\d{1,4}_)?context_\d{1,4}\(\d{1,6}\)_generation_\d{1,4}\(\d{1,6}\)"
    r"|(?<![\w:])0000(?::[0-9a-fA-F]{2}){2}(?:\.\d)?|\b9223372036854775807\b",
    re.ASCII,
)
"""Figures of names: shapes, numbers of operators, steps and programs, requests and tokens of a step, sums of
lengths, lines of Python, resources of a kernel, PCI addresses, which are the same on every machine of a
kind."""
_SHORT_WORDS: Final = re.compile(r"\d+|(?<![^\W\d])[A-Za-z]{1,2}(?![^\W\d])")
"""What a figure has beside words: numbers, types, axes."""
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
_PLACE: Final = re.compile(r"(?P<path>[^:]*[^/:]/[^:]*[^/:]|[^:]*\.py)(?P<line>:\d{1,4})?")
"""A path, with a line of its file."""
_PATH: Final = re.compile(r"[.~]{0,2}/[^:]*[^:/]/[^:]+")
"""A path from a root, where it begins a text."""
_PACKAGES: Final = ("torch/", "torch_xla/", "jax/", "jaxlib/", "triton/", "numpy/", "functorch/")
_TELLING: Final[Mapping[str | None, str]] = {
    **{name: name for name in ("gemm", "attention", "embedding", "moe", "sampling", "optimizer")},
    "convolution": "conv2d",
    "normalization": "layer_norm",
    "elementwise": "elementwise_kernel",
    "reduction": "reduce_kernel",
    "copy": "memcpy",
}
"""A name of each category."""
_SCOPE: Final = re.compile(r"p?jit\(\w*\)/")
"""The beginning of an operator's scope in a program of JAX."""
_LEVEL: Final = re.compile(r"[^/()]+")
_EINSUM: Final = re.compile(r"(?:\.{3})?([a-z]{1,6}),(?:\.{3})?([a-z]{1,6})->(?:\.{3})?([a-z]{0,6})")
_PICOSECONDS: Final = re.compile(r"\d{1,15}")
"""An offset within a profile."""
_LIBRARY: Final[Mapping[str | None, str]] = {
    **{name: f"{name}_" for name in ("cudnn", "cutlass", "cublas", "triton", "miopen")},
    "flash-attention": "flash_fwd_",
    "tensile": "Cijk_",
    "composable_kernel": "ck::",
}
"""The beginning of a name that tells the library."""
_PRECISION: Final[Mapping[tuple[str | None, bool | None], str]] = {
    ("fp4", True): "mxfp4",
    ("fp8", True): "mxfp8",
    ("int8", True): "imma",
    ("tf32", True): "tf32",
    ("bf16", True): "bf16bf16",
    ("fp16", True): "f16f16",
    ("fp32", True): "nhwc_fp32",
    ("fp64", True): "dmma",
    ("fp16", False): "simt_hgemm",
    ("fp32", False): "sgemm",
    ("fp64", False): "dgemm",
    (None, True): "tensorop",
}
"""Words of arithmetic, with and without tensor cores."""
_NAME_WORD: Final = re.compile(r"[^\W_]+|[^\x00-\x7f]+")
_NUMBERED: Final = re.compile(
    r"(?i)(?:rank|step|worker|node|device|gpu|pid|plane|run|night)[-_.]?([0-9]{1,4})(?!\d)"
)
"""Numbers of a file's name that it is read by."""
_MOST_TOKENS, _FEW_NUMBERS = 4, 2
"""Of a file's name: most tokens, and numbers that stay."""
_SIGNS: Final = "-_.:/#+~%@?!$^\\"
_TORN_ROW: Final = re.compile(
    r"^ +\d+ +\d+ +[a-z]\w* +\w+ +-?\d(?=\S+:\d+:\d+ \[\d+\] [A-Z]CCL )", re.MULTILINE
)
"""Size, count, type, operation and root of a row of nccl-tests, behind which a line of NCCL's begins."""


def split_torn_rows(text: str) -> str:
    """A log's text with a zero where a line begins within a row, so that its host stands by itself."""
    return _TORN_ROW.sub("\\g<0>\0", text)


def _is_measured(text: str) -> bool:
    """Whether a text is a number with its unit, or a day and a time."""
    first, _, second = text.strip(" \"'").partition(" ")
    if _MEASURES.fullmatch(first):
        return not second
    is_time = first[4:5] in ("-", "/") and ":" in second
    measured = not second or _MEASURES.fullmatch(second) or (is_time and _FIGURE.fullmatch(second))
    return _FIGURE.fullmatch(first) is not None and bool(measured)


def _is_short(text: str) -> bool:
    """Whether a text has no more letters and digits than loose ones may be, but for forms of names."""
    return sum(len(word) for word in _SIGN.split(text) if not FORM.fullmatch(word)) <= LOOSE


def has_token(name: str) -> bool:
    """Whether a name in the copies, or a part of it, is a token."""
    return TOKEN.search(name) is not None


class PublicNames:
    """Publishes texts with one salt; names that match a pattern of `kept`, or are `stated`, stay, and the
    values of fields that are `revealed`."""

    def __init__(
        self,
        salt: bytes | None = None,
        *,
        kept: Iterable[str] = (),
        revealed: Iterable[str] = (),
        stated: frozenset[str] = frozenset(),
    ) -> None:
        self._salt = token_bytes(32) if salt is None else salt
        self._kept, self._stated = tuple(kept), stated
        self._revealed = frozenset(name.casefold() for name in revealed)

    def __getstate__(self) -> dict[str, object]:
        """What another process needs: a cache of functions cannot be sent to it."""
        return {name: value for name, value in vars(self).items() if name != "_publish_cached"}

    def token(self, text: str) -> str:
        """The token of a text: `x` and letters, so that it is a name in every language."""
        number = int.from_bytes(blake2b(text.encode(errors="surrogatepass"), key=self._salt).digest(), "big")
        letters = []
        for _ in range(LENGTH):
            number, letter = divmod(number, len(LETTERS))
            letters.append(LETTERS[letter])
        return "x" + "".join(letters)

    def is_kept(self, text: str) -> bool:
        """Whether its owner asks to publish it as it is."""
        return text.casefold() in self._stated or any(fnmatchcase(text, name) for name in self._kept)

    def is_revealed(self, field: str) -> bool:
        """Whether the owner asks to publish the values of fields of that name."""
        return bool(self._revealed) and field.rpartition(":")[2].casefold() in self._revealed

    def publish(self, text: str) -> str:
        """A name or another short text as it is published."""
        return self._publish_cached(text)

    @cached_property
    def _publish_cached(self) -> Callable[[str], str]:
        return lru_cache(maxsize=1 << 16)(self._publish)

    def _publish(self, text: str) -> str:
        if _SCOPE.match(text):
            return _LEVEL.sub(lambda level: self._published_level(level[0]), text)
        if self.is_public(text):
            return text
        if is_module(text):
            return MODULE + self.publish(text.removeprefix(MODULE))
        row = _PYTHON_ROW.match(text) is not None
        if not row and _BETWEEN_NAMES.search(_OF_TYPES.sub("", _READ.sub("", text))):
            return self._with_meaning(text, self.token(text))
        new = self._replaced_parts(text, _READ)
        return new if row and self.is_public(new) else self._with_meaning(text, new)

    def publish_file_name(self, name: str) -> str:
        """A file's name: public words stay, and the format.

        Each other word has a token, so that ranks have the same; many words have one together.
        """
        if self.is_kept(name):
            return name
        words = dict.fromkeys(_NAME_WORD.findall(name))
        numbered = dict.fromkeys(_NUMBERED.findall(name))
        others = [
            word
            for word in words
            if not (word in numbered or _NUMBERED.fullmatch(word) or is_public_in_a_file_name(word))
        ]
        numbers = [word for word in words if word in SIZES and word not in numbered]
        others += numbers if len(numbers) > _FEW_NUMBERS else []
        tokens = iter(map(self.token, others if len(others) <= _MOST_TOKENS else ["-".join(others)]))
        replaced = {word: next(tokens, "") for word in others}
        return _NAME_WORD.sub(lambda word: replaced.get(word[0], word[0]), name)

    def publish_line(self, line: str, figures: re.Pattern[str] | None = None) -> str:
        """A line of a log: what `figures` matches stays, if it consists of numbers and public words."""
        row, torn, rest = line.partition("\0")
        if torn:
            return self.publish_line(row, figures) + self.publish_line(rest, figures)
        return self._replaced_parts(line, figures)

    def publish_cell(self, cell: str, column: str, figures: re.Pattern[str] | None) -> str:
        """A cell of a table: numbers stay in columns of figures; nothing does in one that is not public."""
        text = cell.strip(' "\r')
        if not text or self.is_figure(text, column, figures):
            return cell
        public = self.publish(column) == column
        return cell.replace(text, self.publish(text) if public else self.token(text))

    def is_figure(self, text: str, field: str, figures: re.Pattern[str] | None) -> bool:
        """Whether a text is the number, with its unit, or the numbers of a field that is read as a figure."""
        return (
            figures is not None
            and figures.fullmatch(field.strip()) is not None
            and _NO_FIGURE.search(text) is None
            and (
                (field.endswith("_ps") and _PICOSECONDS.fullmatch(text) is not None)
                or all(map(_is_measured, filter(None, map(str.strip, _BETWEEN_FIGURES.split(text)))))
            )
        )

    def is_public(self, text: str) -> bool:
        """Whether a text may be published as it is."""
        if self.is_kept(text):
            return True
        rest = _READ.sub(lambda read: _SHORT_WORDS.sub(" ", read[0]), text)
        letters = list[Letters]()
        for match in _UNIT.finditer(rest):
            unit, before = match[0], match.string[: match.start()]
            if self.is_kept(unit):
                continue
            if not is_public_unit(unit) or _is_path(unit, before):
                return False
            letters.append(letters_of(unit, inside=before.count("<") > before.count(">")))
        is_named = any(named + short for named, short, *_ in letters)
        return are_few(letters) and (is_named or rest in SIZES or _is_short(rest))

    def _replaced_parts(self, text: str, figures: re.Pattern[str] | None) -> str:
        """A text with its figures and, between them, public units or what replaces them."""
        held = [m.span() for m in figures.finditer(text) if self._is_of_figures(m[0])] if figures else []
        parts = [text[end:begin] for (_, end), (begin, _) in pairwise([(0, 0), *held, (len(text), 0)])]
        if not self.is_public(" ".join(parts)):
            parts = [_UNIT.sub(self._published_unit, part) for part in parts]
        kept = [*(text[begin:end] for begin, end in held), ""]
        return "".join(part + figure for part, figure in zip(parts, kept, strict=True))

    def _is_of_figures(self, text: str) -> bool:
        """Whether a text consists of numbers and public words, also with short numbers."""
        return all(
            _FIGURE.fullmatch(unit)
            or (not _LONG_NUMBER.search(unit) and is_public_unit(re.sub("[0-9]+", "", unit)))
            for unit in _UNIT.findall(text)
        )

    def _published_unit(self, match: re.Match[str]) -> str:
        """A public unit with a word; another's public words and a token; a token of a number."""
        unit, before = match[0], match.string[: match.start()]
        if self.is_kept(unit):
            return unit
        if is_public_unit(unit) and not _is_path(unit, before):
            return unit if says_something(unit) else self.token(unit)
        path = None if before.endswith(")") else _PLACE.fullmatch(unit)
        if path is not None:
            return self._published_path(path["path"]) + (path["line"] or "")
        core = unit.strip(_SIGNS)
        begin, end = unit[: unit.index(core)], unit[unit.index(core) + len(core) :]
        return f"{begin[-2:]}{self._published_words(core)}{end[:2]}" if core else self.token(unit)

    def _with_meaning(self, name: str, new: str) -> str:
        """A replaced name, with words of its phase, category and arithmetic where its public words lack them.

        Of a collective the part before its arguments stays, if that states it.
        """
        token = self.token(name)
        if not self.is_public(new):
            new = token
        collective = collective_name(name)
        if collective_name(new) != collective:
            head = self._replaced_parts(name.partition("(")[0], _READ)
            if collective_name(head) == collective and self.is_public(head):
                return f"{head}({token})"
        phase = stated_phase(name)
        if stated_phase(new) != phase:
            new = f"{token} {phase}" if phase else token
        if loads_data(name) and not loads_data(new):
            return f"{token} dataloader"
        category, arithmetic = kernel_category(name), kernel_arithmetic(name)
        stem = f"{token}_{_TELLING[category]}" if category in _TELLING else token
        precision = _PRECISION.get((arithmetic.precision, arithmetic.tensor_cores))
        alignment = None if arithmetic.alignment is None else f"align{arithmetic.alignment}"
        generation = arithmetic.generation and arithmetic.generation.replace("gfx", "isa")
        words = "_".join(filter(None, (stem, generation, precision, alignment))) + "_"
        for candidate in (new, _LIBRARY.get(arithmetic.library, "") + words):
            if (kernel_category(candidate), kernel_arithmetic(candidate)) == (category, arithmetic):
                return candidate
        return stem

    def _published_level(self, level: str) -> str:
        """A level of a scope, which is published alike in all scopes."""
        public = self.is_kept(level) or (is_public_unit(level) and says_something(level)) or _is_einsum(level)
        return level if public else self._published_words(level)

    def _published_words(self, name: str) -> str:
        """A name's public words, and one token instead of the first of the others."""
        token, parts, sign = self.token(name), list[str](), ""
        for part in WORD_OR_SIGNS.findall(name) if name.isascii() else ():
            if not part[0].isalnum():
                sign = "::" if "::" in part else part if len(part) == 1 and part in "_.-:/" else "_"
                continue
            word = (
                len(part) >= SHORTEST and part.isalpha() and is_public_unit(part) and not letters_of(part)[2]
            )
            public = word or (FORM.fullmatch(part) is not None and not part.isdigit())
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
        if rest and rest[0] != "/" and is_public_unit(rest):
            return base + rest
        package = next((name for name in _PACKAGES if rest.startswith(name)), "")
        return base + package + self.token(path) + (".py" if path.endswith(".py") else "")


def _is_einsum(level: str) -> bool:
    """Whether a level is the formula of a product of two tensors, such as `bqhd,bkhd->bhqk`."""
    formula = _EINSUM.fullmatch(level)
    left, right, result = map(list, formula.groups()) if formula else ([], [], [])
    terms = [set(term) for term in (left, right, result)]
    is_named_once = sum(map(len, terms)) == len(left) + len(right) + len(result)
    return is_named_once and bool(terms[0] & terms[1]) and terms[2] <= terms[0] | terms[1]


def _is_path(unit: str, before: str) -> bool:
    return _PATH.fullmatch(unit) is not None and not before.endswith(")")
