# SPDX-License-Identifier: Apache-2.0
"""Summary of a run: its manifest as data and in words, for terminal and pages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import PurePath
from typing import Final

import msgspec

from cclbench.ground.units import humanise
from cclbench.record.facts import TraceFacts
from cclbench.record.manifest import CardLine, InferredGroups, Manifest, MatchingCounts, RankEntry, Truncation
from cclbench.record.results import Scope

_FACTS_SHOWN: Final = 4
MISSING_RANKS: Final = "ranks: the others are missing, not assumed"
"""End of the note on ranks without a trace."""
_GRAVE: Final = re.compile(
    r"\b(?:contradicts?|missing|dropped|lost|left|errors?|wrong|implausible|torn|cut|incomplete|unavailable"
    r"|unknown|not taken at the same time|no window holds)\b"
)
"""Words of notes on figures that are wrong or lack something."""
_NUMBER: Final = re.compile(r"(?<![\w.,])\d+(?:,\d{3})*(?:\.\d+)?(?![\w,]*\w)")

_SOURCES: Final = {
    "device": "as the device ran them",
    "annotation": "as annotated on the host",
    "module": "as the trace itself marks them",
    "graph": "as CUDA graph launches repeat",
    "whole_trace": "the whole trace",
}


class ClockSummary(msgspec.Struct, frozen=True):
    """The largest residual and correction of any rank's clock, and the corrected ranks."""

    residual_ns: float
    corrected: list[int]
    offset_ns: float
    drift_ppm: float


class EvidenceSummary(msgspec.Struct, frozen=True):
    """Rows and facts of a file other than a trace."""

    name: str
    reader: str
    rows: dict[str, int]
    facts: dict[str, str | int | float | list[str]]


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The `run` object of result.v1: run, window, ranks, steps, and system.

    `window` is the policy of most ranks, `windows` those of all rows: a trace without steps falls back.
    `steps` are the numbers of the steps in the figures, `open_steps` those that are shown but not averaged,
    since their end is not in the trace.  Accelerators, producers and libraries are the distinct ones over the
    ranks.
    """

    id: str
    source: str
    card: CardLine | None
    cclbench: str
    window: str | None
    windows: list[str]
    ranks: list[int]
    ranks_found: list[int]
    world_size: int | None
    steps: list[int]
    open_steps: list[int]
    accelerators: list[str]
    producers: list[str]
    libraries: list[str]
    inference: InferredGroups | None
    matching: MatchingCounts
    clocks: ClockSummary | None
    unclassified_share: float | None
    truncated: list[Truncation]
    evidence: list[EvidenceSummary]
    notes: list[str]


def summarise_run(record: Manifest, scope: Scope, window: str | None) -> RunSummary:
    """Summary of a run and of the scope of its result rows."""
    ranks = record.ranks
    facts = [rank.facts for rank in ranks]
    # A file with several ranks is cut for all of them.
    cuts = {(cut.file, cut.byte, cut.horizon_ns): cut for rank in ranks if (cut := rank.truncated)}
    shares = [rank.unclassified.share for rank in ranks if rank.unclassified.share is not None]
    return RunSummary(
        id=record.run,
        source=record.source,
        card=record.card,
        cclbench=record.cclbench,
        window=window,
        windows=scope.windows,
        ranks=sorted(set(scope.ranks) & {rank.rank for rank in ranks}),
        ranks_found=[rank.rank for rank in ranks],
        world_size=max((f.world_size for f in facts if f.world_size), default=None),
        steps=scope.steps,
        open_steps=scope.open_steps,
        accelerators=_distinct_words(f.device_name for f in facts),
        producers=_distinct_words(_producer_words(f) for f in facts),
        libraries=_library_words(ranks),
        inference=record.inference,
        matching=record.matching,
        clocks=_clock_summary(record),
        unclassified_share=max(shares, default=None),
        truncated=list(cuts.values()),
        evidence=[EvidenceSummary(file.name, file.reader, file.rows, file.facts) for file in record.evidence],
        notes=_merged_notes(record),
    )


def fact_lines(record: Manifest, summary: RunSummary, verbose: bool = False) -> Iterator[tuple[str, str]]:
    """Label and text of each fact in `summary`, of `summarise_run`; `verbose` adds each rank's row counts."""
    ranks = record.ranks
    yield "run", f"{summary.id}  {summary.source}"
    yield "card", _card_words(summary)
    if ranks:
        yield "ranks", _rank_words(summary)
        yield "steps", _step_words(ranks, summary)
        yield "device", "; ".join(summary.accelerators) or _kind_of_device(ranks)
        yield "traces", "; ".join(summary.producers) or "unknown producer"
    else:
        yield "traces", "none: figures are from other evidence"
    if summary.libraries:
        yield "library", "; ".join(summary.libraries)
    if summary.matching.rows:
        yield "matched", _matching_words(summary.matching)
    if summary.inference is not None:
        yield "groups", _inference_words(summary.inference)
    if summary.clocks is not None:
        yield "clocks", _clock_words(summary.clocks)
    if summary.unclassified_share is not None:
        yield "kernels", _classified_words(ranks, summary.unclassified_share)
    if verbose:
        for rank in ranks:
            yield f"rank {rank.rank}", _count_words(rank)
    for file in summary.evidence:
        yield file.reader, _evidence_line(file, verbose)
    for cut in summary.truncated:
        yield (
            "cut",
            f"{PurePath(cut.file).name}: {cut.reason} at byte {cut.byte:,}; later data is lost",
        )
    for note in summary.notes:
        yield "note", note


def _card_words(summary: RunSummary) -> str:
    """The card's name, and its path unless that is the source."""
    card = summary.card
    if card is None:
        return "none: metrics that need one name the missing field"
    return card.id if card.path == summary.source else f"{card.id}  {card.path}"


def _rank_words(summary: RunSummary) -> str:
    ranks, trace_ranks = summary.ranks or summary.ranks_found, summary.ranks_found
    text = _range_words(ranks)
    if len(ranks) < len(trace_ranks):
        text += f" (of {len(trace_ranks)} traced)"
    world = summary.world_size
    if world and world != len(trace_ranks):
        text += f"; {len(trace_ranks)} of {world} ranks {'has' if len(trace_ranks) == 1 else 'have'} a trace"
    return text


def _step_words(ranks: Sequence[RankEntry], summary: RunSummary) -> str:
    if summary.windows == ["trace"]:
        return "none used: figures are for the whole trace"
    sources = "".join(f", {s}" for s in _distinct_words(_SOURCES.get(r.steps.source or "") for r in ranks))
    text = _distinct_counts(rank.steps.found for rank in ranks)
    complete = _distinct_counts(rank.steps.closed for rank in ranks)
    if summary.steps:
        used = str(len(summary.steps))
        text = (used if used == text else f"{used} of {text}") + f" ({step_numbers(summary.steps)})"
    elif complete not in (text, "0"):
        text += f" in the traces, {complete} of them complete"
    text += sources
    if summary.open_steps:
        text += f"; {step_numbers(summary.open_steps)} incomplete, not averaged"
    elif summary.window == "steps" and all(rank.steps.closed == 0 for rank in ranks):
        text += "; incomplete: its end is not in the trace"
    left_out: Counter[str] = Counter()
    for rank in ranks:
        left_out.update(rank.steps.left_out)
    return text + "".join(f"; left out on {n} ranks: {reason}" for reason, n in left_out.items())


def _distinct_counts(counts: Iterable[int]) -> str:
    return " or ".join(map(str, sorted(set(counts))))


def _clock_summary(record: Manifest) -> ClockSummary | None:
    """None if no ranks share a collective."""
    ranks = record.clocks.ranks
    if not ranks:
        return None
    return ClockSummary(
        residual_ns=max(rank.residual_ns for rank in ranks),
        corrected=[rank.rank for rank in ranks if rank.applied],
        offset_ns=max(abs(rank.offset_ns) for rank in ranks),
        drift_ppm=max(abs(rank.drift_ppm) for rank in ranks),
    )


def _clock_words(clocks: ClockSummary) -> str:
    left = f"residual up to {humanise(clocks.residual_ns / 1e9, 's')}"
    if not clocks.corrected:
        return f"not corrected, none exceeds its uncertainty; {left}"
    text = f"corrected on rank {_range_words(clocks.corrected)}"
    text += f", offset up to {humanise(clocks.offset_ns / 1e9, 's')}"
    if clocks.drift_ppm:
        text += f", drift up to {clocks.drift_ppm:.3g} ppm"
    return f"{text}; {left}"


def _inference_words(inference: InferredGroups) -> str:
    if inference.group is None:
        return f"neither stated nor inferred: {inference.reason}"
    return f"{inference.group} inferred ({inference.rule}): {inference.reason}"


def _matching_words(matching: MatchingCounts) -> str:
    text = f"{matching.matched:,} of {matching.rows:,} parts of collectives across ranks"
    text += "".join(f"; {n:,}: {reason}" for reason, n in matching.unmatched.items())
    if matching.partial:
        text += f"; {matching.partial:,} of {matching.instances:,} collectives lack a rank"
    return text if matching.complete else f"{text}; waiting and transfer cannot be separated"


def device_words(record: Manifest) -> str | None:
    """The distinct accelerators of the ranks, or their kind of device; None without traces."""
    named = _distinct_words(rank.facts.device_name for rank in record.ranks)
    return "; ".join(named) or _kind_of_device(record.ranks) if record.ranks else None


def _kind_of_device(ranks: Sequence[RankEntry]) -> str:
    works_on = {rank.facts.works_on for rank in ranks}
    if works_on == {"host"}:
        return "CPU"
    if None in works_on:
        return "none: the traces have no accelerator rows"
    return "an accelerator that the traces do not name"


def _classified_words(ranks: Sequence[RankEntry], share: float) -> str:
    text = f"{humanise(share, '1')} of their time is unclassified"
    names = _distinct_words(name for rank in ranks for name in rank.unclassified.names)
    return text + (f": {', '.join(name[:60] for name in names[:3])}" if share else "")


def _count_words(rank: RankEntry) -> str:
    files = ", ".join(f"{PurePath(f.name).name} ({humanise(f.bytes, 'B')}, {f.reader})" for f in rank.files)
    rows = ", ".join(f"{count:,} {kind}" for kind, count in rank.rows.items())
    dropped = ", ".join(f"{count:,} {reason}" for reason, count in rank.dropped.items())
    return f"{files}: {rows}" + (f"; dropped: {dropped}" if dropped else "")


def _evidence_line(file: EvidenceSummary, verbose: bool) -> str:
    """Rows and facts of a file other than a trace; all facts with `verbose`."""
    rows = ", ".join(f"{count:,} rows of {table}" for table, count in file.rows.items())
    facts = [
        f"{key} {', '.join(map(str, value)) if isinstance(value, list) else value}"
        for key, value in file.facts.items()
    ]
    more = len(facts) - _FACTS_SHOWN
    if more > 0 and not verbose:
        facts[_FACTS_SHOWN:] = [f"{more} more with -v"]
    return f"{PurePath(file.name).name}: " + "; ".join([*([rows] if rows else []), *facts] or ["no rows"])


def _producer_words(facts: TraceFacts) -> str | None:
    return " ".join(filter(None, (facts.producer, facts.producer_version))) or None


def _library_words(ranks: Sequence[RankEntry]) -> list[str]:
    """The libraries of collectives in the trace, else the stated backend; the version is the backend's."""
    libraries: list[str | None] = []
    for rank in ranks:
        facts, trace_libraries = rank.facts, list(rank.collectives.libraries)
        backend, version = facts.backend, facts.library_version
        named = trace_libraries or [backend] if backend else trace_libraries
        is_single = len(named) == 1
        libraries += [
            f"{name} {version}" if version and (is_single or name == backend) else name for name in named
        ]
    return _distinct_words(libraries)


def notes_by_weight(notes: Iterable[str]) -> list[str]:
    """Notes on what is lost or wrong first, else in their order; without what the line on ranks says."""
    other_notes = [note for note in notes if not note.endswith(MISSING_RANKS)]
    return sorted(other_notes, key=lambda note: _GRAVE.search(note) is None)


def _merged_notes(record: Manifest) -> list[str]:
    """Each note once, with its ranks unless it applies to all of them.

    Notes of ranks that differ only in numbers become one note with ranges.
    """
    by_words: dict[tuple[str, ...], list[tuple[int, list[str]]]] = {}
    for rank in record.ranks:
        for note in rank.notes:
            words = tuple(_NUMBER.split(note))
            by_words.setdefault(words, []).append((rank.rank, _NUMBER.findall(note)))
    everywhere = len(record.ranks)
    notes = [
        *record.notes,
        *(f"{PurePath(file.name).name}: {note}" for file in record.evidence for note in file.notes),
    ]
    for words, occurrences in by_words.items():
        ranks = sorted({rank for rank, _ in occurrences})
        ranges = (_range_of(column) for column in zip(*(numbers for _, numbers in occurrences), strict=True))
        note = "".join(word + number for word, number in zip_longest(words, ranges, fillvalue=""))
        notes.append(note if len(ranks) == everywhere else f"rank {_range_words(ranks)}: {note}")
    return notes


def _range_of(numbers: Sequence[str]) -> str:
    """`3` for equal numbers, else `3 to 5`."""
    ordered = sorted(set(numbers), key=lambda text: float(text.replace(",", "")))
    return " to ".join(dict.fromkeys((ordered[0], ordered[-1])))


def _distinct_words(words: Iterable[str | None]) -> list[str]:
    return list(dict.fromkeys(word for word in words if word))


def step_numbers(steps: Sequence[int]) -> str:
    """`step 3`, `steps 3-5`."""
    return f"step{'s' * (len(steps) > 1)} {_range_words(steps)}"


def _range_words(numbers: Sequence[int]) -> str:
    """`0-3, 6` for 0, 1, 2, 3, 6."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)
