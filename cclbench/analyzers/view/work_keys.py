# SPDX-License-Identifier: Apache-2.0
"""Keys of work: operator, shapes, module, phase, kernel, category, program; trees and filters by them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, NamedTuple, cast

import numpy as np

from cclbench.analyzers.view.works import Works
from cclbench.classify.kernel_labels import kernel_label
from cclbench.ground.errors import UsageError
from cclbench.ground.intervals import Index, Int64, Mask
from cclbench.ground.schema import CATEGORIES, PHASES

By = Literal["op", "shape", "module", "class", "phase", "kernel", "category", "program"]
BY: Final[tuple[By, ...]] = ("op", "shape", "module", "class", "phase", "kernel", "category", "program")
TREES: Final[tuple[By, ...]] = ("module", "class")
"""Keys whose words are paths."""
NO_MODULE: Final = "none"
"""Key of work outside any module, or of no compiled program."""
DEEPEST: Final = 16
"""Most levels of a tree; deeper modules count in the last one."""
_INSTANCE: Final = re.compile(r"(?<![^/._])\d+(?![^/._])")

Words = tuple[str, ...]
"""A row's value of each key; of a tree by several keys those down to the row's level."""


def parse_keys(text: str) -> tuple[By, ...]:
    """The keys of `op,module`; `UsageError` for an unknown or repeated one."""
    keys = tuple(map(str.strip, text.split(",")))
    for key in keys:
        if key not in BY:
            raise UsageError(f"{key!r} is no key", hint=f"keys: {', '.join(BY)}, or several: op,module")
        if keys.count(key) > 1:
            raise UsageError(f"{key!r} is named twice in {text!r}")
    return cast("tuple[By, ...]", keys)


class WorkFilter(NamedTuple):
    """Work whose word of `key` is `text`, or contains it in any case."""

    key: By
    text: str
    exact: bool

    @classmethod
    def parse(cls, written: str) -> WorkFilter:
        """Parse `phase=backward` (equal) or `module~attn` (contains); `UsageError` for anything else."""
        match = re.match(r"\s*([^=~]*?)\s*([=~])(.*)", written, re.DOTALL)
        if match is None or not match[3]:
            raise UsageError(
                f"{written!r} is no filter", hint="write KEY=VALUE (equal) or KEY~TEXT (contains)"
            )
        if match[1] not in BY:
            raise UsageError(f"{match[1]!r} in {written!r} is no key", hint=f"keys: {', '.join(BY)}")
        return cls(cast("By", match[1]), match[3], match[2] == "=")

    def __str__(self) -> str:
        return f"{self.key}{'=' if self.exact else '~'}{self.text}"

    def matches(self, word: str) -> bool:
        """Whether work of this word is chosen."""
        return word == self.text if self.exact else self.text.casefold() in word.casefold()


def parse_grouping(
    keys: Iterable[str], where: Iterable[str], *, tree: bool
) -> tuple[tuple[str, ...], tuple[WorkFilter, ...]]:
    """The keys of each table, and the filters; `UsageError` for what is none."""
    tables = tuple(",".join(parse_keys(text)) for text in keys)
    if tree and (flat := [text for text in tables if "," not in text and text not in TREES]):
        raise UsageError(
            f"a tree is by {' or '.join(TREES)}, or by several keys, not by {', '.join(flat)}",
            hint="--by program,category,op",
        )
    return tables, tuple(map(WorkFilter.parse, where))


class CountedWork(NamedTuple):
    """What the rows of a table count: calls, or device events where a key or a filter is `kernel`.

    `work`: the work item of each entry; `event`: its device event, None where entries are calls.
    """

    work: Index
    event: Index | None

    def time_ns(self, works: Works) -> Int64:
        """Device time of each entry."""
        if self.event is None:
            return np.asarray(works.time_ns[self.work])
        return np.asarray(works.rows.ns[self.event])

    def keep(self, mask: Mask) -> CountedWork:
        """The entries that a mask chooses."""
        return CountedWork(self.work[mask], None if self.event is None else self.event[mask])


def counted_work(works: Works, keys: Iterable[By], filters: Sequence[WorkFilter] = ()) -> CountedWork:
    """The entries of a table by these keys that all filters choose."""
    if "kernel" in {*keys, *(condition.key for condition in filters)}:
        if not len(works.rows.name) and len(works):
            raise UsageError("a CPU runs no kernels: ask --by op")
        counted = CountedWork(works.rows.work, np.arange(len(works.rows.work), dtype=np.int32))
    else:
        counted = CountedWork(np.arange(len(works), dtype=np.int32), None)
    for condition in filters:
        codes, words = word_codes_of(works, counted, condition.key)
        counted = counted.keep(np.array([condition.matches(word) for word in words], np.bool_)[codes])
    return counted


def word_codes_of(works: Works, counted: CountedWork, by: By) -> tuple[Int64, list[str]]:
    """Code of each entry's word, and the words that occur."""
    if counted.event is not None and by == "kernel":
        labels = [kernel_label(name or "") for name in works.rows.names]
        return number_words(labels, works.rows.name[counted.event])
    index, words = _work_words(works, by)
    return number_words(words, index[counted.work])


def key_codes(works: Works, counted: CountedWork, keys: Sequence[By]) -> tuple[Int64, list[Words]]:
    """Code of each entry's words, and the distinct words of all keys."""
    codes, words = word_codes_of(works, counted, keys[0])
    rows: list[Words] = [(word,) for word in words]
    for by in keys[1:]:
        more, words = word_codes_of(works, counted, by)
        pairs, codes = np.unique(codes * max(len(words), 1) + more, return_inverse=True)
        places = np.divmod(pairs, max(len(words), 1))
        rows = [(*rows[row], words[word]) for row, word in zip(*(p.tolist() for p in places), strict=True)]
    return codes, rows


class TreeLevel(NamedTuple):
    """Entries of paths that reach a level of a tree, by their path down to it.

    `own_work`: mask of entries whose path ends there; None by several keys, whose paths are equally long.
    """

    counted: CountedWork
    codes: Int64
    words: list[Words]
    own_work: Mask | None = None


def tree_levels(works: Works, counted: CountedWork, keys: Sequence[By]) -> Iterator[TreeLevel]:
    """The levels of a tree, from the top: modules or their classes, or each of several keys in turn.

    By several keys every level has the same entries, so that rows sum to the row that holds them.
    """
    if len(keys) > 1:
        for depth in range(1, len(keys) + 1):
            yield TreeLevel(counted, *key_codes(works, counted, keys[:depth]))
        return
    codes, words = word_codes_of(works, counted, keys[0])
    paths = [tuple(word.split("/", DEEPEST - 1)) for word in words]
    depths = np.array([len(path) for path in paths], np.int64)
    for depth in range(1, int(depths.max(initial=0)) + 1):
        reaching = depths[codes] >= depth
        level_codes, names = number_words(["/".join(path[:depth]) for path in paths], codes[reaching])
        own_work = (depths == depth)[codes[reaching]]
        yield TreeLevel(counted.keep(reaching), level_codes, [(name,) for name in names], own_work)


def row_entries(
    works: Works, keys: Sequence[By], filters: Sequence[WorkFilter], words: Words, *, tree: bool = False
) -> CountedWork:
    """The entries of a row of a table by these keys."""
    counted = counted_work(works, keys, filters)
    levels: Iterator[tuple[CountedWork, Int64, list[Words]]]
    if tree:
        levels = ((level.counted, level.codes, level.words) for level in tree_levels(works, counted, keys))
    else:
        levels = iter([(counted, *key_codes(works, counted, keys))])
    for entries, codes, rows in levels:
        if words in rows:
            return entries.keep(codes == rows.index(words))
    return counted.keep(np.zeros(len(counted.work), np.bool_))


def module_class(path: str) -> str:
    """A module's path with `*` for the number of each instance: `Llama_*/Layer_*`, `layers.*.attention`."""
    return _INSTANCE.sub("*", path)


def _work_words(works: Works, by: By) -> tuple[Index, list[str]]:
    """Index of each work item's word, and all words."""
    if by in TREES:
        paths = [word or NO_MODULE for word in works.modules]
        return works.module, paths if by == "module" else [module_class(path) for path in paths]
    if by == "program":
        return works.program, [word or NO_MODULE for word in works.programs]
    if by == "phase":
        return works.phase, list(PHASES)
    if by == "category":
        return works.category, list(CATEGORIES)
    return works.kind, [kind.shaped_name if by == "shape" else kind.name for kind in works.kinds]


def number_words(words: Sequence[str], index: Index | Int64) -> tuple[Int64, list[str]]:
    """Code of each entry, and the distinct words that occur."""
    numbers: dict[str, int] = {}
    used = np.unique(index).tolist()
    code = np.zeros(len(words), np.int64)
    for used_code in used:
        code[used_code] = numbers.setdefault(words[used_code], len(numbers))
    return code[index], list(numbers)
