# SPDX-License-Identifier: Apache-2.0
"""Whether the subjects do equal work, and further warnings about a comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from cclbench.comparison.comparison import PARTS
from cclbench.comparison.division_rules import equal_by_rules, unknown_rules
from cclbench.comparison.fingerprint import UNKNOWN, Equality, evidence_contradiction
from cclbench.comparison.standards import open_difference
from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.text import letters_and_digits, listed
from cclbench.record.card_agreement import card_contradiction
from cclbench.record.metric_name import metric_name
from cclbench.source_summaries.job_logs import JOB_LOG

_TOKENS: Final = metric_name("throughput.tokens")
_STEP: Final = metric_name("time.step")
_STEP_PARTS: Final = metric_name("time.step_parts")

_TOKENS_EQUAL: Final = 1e-6
"""Relative difference up to which two derived token counts are equal."""
_LISTED: Final = 6


Fact = Callable[[ComparisonSubject], Any]
"""A property of a subject that is compared; None where unknown."""


def _card_fact(*paths: str) -> Fact:
    return lambda subject: next((v for path in paths if (v := subject.card_field(path)) is not None), None)


def _work_fact(setting: str, *paths: str) -> Fact:
    """A field of the card, else a setting that the job's logs state."""
    card = _card_fact(*paths)

    def value(subject: ComparisonSubject) -> Any:
        stated = card(subject)
        return subject.log_setting(setting) if stated is None and not subject.is_published else stated

    return value


def _tokens_per_step(subject: ComparisonSubject) -> int | None:
    """Tokens per step, from the run's throughput and step time, else by its job's log."""
    rate, step = subject.results.value(_TOKENS), subject.results.value(_STEP)
    return subject.logged_tokens if rate is None or step is None else round(rate * step)


def _model_name(subject: ComparisonSubject) -> str | None:
    """The model's name without its publisher."""
    name = subject.card_field("workload.model.name")
    return name.rpartition("/")[2] if isinstance(name, str) else None


def _length(subject: ComparisonSubject) -> Any:
    """Tokens of a sample as metrics count them: of inference the input, else the sequence."""
    paths = reversed(_LENGTHS) if PHASE(subject) == "inference" else _LENGTHS
    return _work_fact("sequence_length", *paths)(subject)


_LENGTHS: Final = ("workload.batch.sequence_length", "workload.batch.input_length")
PHASE: Final = _card_fact("workload.phase")
GLOBAL_BATCH: Final = _work_fact("global_batch", "workload.batch.global")
_WORK: Final[Mapping[str, Fact]] = {
    "phase": PHASE,
    "model": _model_name,
    "parameters": _card_fact("workload.model.parameters"),
    "global batch": GLOBAL_BATCH,
    "sequence length": _length,
    "output length": _card_fact("workload.batch.output_length"),
    "tokens per step": _tokens_per_step,
}
"""Properties in which steps of equal work agree."""
_SIZES: Final = ("global batch", "tokens per step")
"""Those that may differ between sizes of one job."""
_SETUP: Final[Mapping[str, Fact]] = {
    "precision": _card_fact("workload.precision"),
    "number of devices": lambda subject: subject.device_count or subject.log_setting("devices"),
    "window": lambda subject: subject.window_policy,
    "number of steps": lambda subject: subject.step_count or None,
    "kind of trace": lambda subject: subject.stored.reader,
}
_NEEDED: Final = {
    "workload.model.name": _WORK["model"],
    "workload.batch.global": GLOBAL_BATCH,
    _LENGTHS[0]: _WORK["sequence length"],
}
"""Fields that a card needs to establish equal work, where no log states them."""


def is_different(fact: Fact, a: ComparisonSubject, b: ComparisonSubject) -> bool:
    """Whether both subjects have the fact and the values differ."""
    value_a, value_b = fact(a), fact(b)
    return value_a is not None and value_b is not None and not _is_equal(value_a, value_b)


def work_inequalities(
    base: ComparisonSubject, other: ComparisonSubject, traces: Equality = UNKNOWN
) -> list[str]:
    """How the other's work of a step differs: `global batch 32 against 16`.

    By the fields that both cards have; else by `traces`.
    """
    differences = [
        f"{label} {_quote_value(fact(other))} against {_quote_value(fact(base))}"
        for label, fact in _WORK.items()
        if is_different(fact, base, other)
    ]
    return differences or [traces.reason] * (traces.status == "refuted")


def differs_beyond_size(base: ComparisonSubject, other: ComparisonSubject) -> bool:
    """Whether, by their cards, their work differs in more than the samples per step."""
    return any(is_different(fact, base, other) for label, fact in _WORK.items() if label not in _SIZES)


def is_work_unknown(subject: ComparisonSubject) -> bool:
    """Whether no property of a step's work but the phase is known."""
    return all(fact(subject) is None for fact in _WORK.values() if fact is not PHASE)


def comparison_warnings(
    subjects: Sequence[ComparisonSubject], traces: Sequence[Equality] = ()
) -> tuple[str, ...]:
    """Warnings about a comparison, most important first; `traces`: work of each further subject."""
    base, *others = subjects
    pairs = list(zip(others, traces or [UNKNOWN] * len(others), strict=True))
    contradictions = [
        evidence_contradiction(base, other, equality, work_inequalities(base, other))
        for other, equality in pairs
    ]
    is_decided = bool(pairs) and all(equality.status != "unknown" for _, equality in pairs)
    by_rules = bool(others) and all(equal_by_rules(base, other) for other in others)
    return (
        *_fact_differences(subjects, _WORK, "the work differs: "),
        *filter(None, contradictions),
        *filter(None, (unknown_rules(base, other) for other in others)),
        *filter(None, (open_difference(base, other) for other in others)),
        *(() if is_decided or by_rules else _unknown_work(subjects)),
        *(warning for subject in subjects for warning in _capture_differences(subject)),
        *_fact_differences(subjects, _SETUP, ""),
        *(warning for subject in subjects for warning in _subject_warnings(subject)),
        *_provenance_warnings(subjects),
        *_indistinct_parts(subjects),
    )


def _capture_differences(subject: ComparisonSubject) -> Iterator[str]:
    """Differences between captures of one job, which suggest several jobs; and captures with equal steps."""
    lead = f"the captures of {subject.letter} differ: "
    yield from _fact_differences(subject.captures, _WORK, lead)
    setup = {label: fact for label, fact in _SETUP.items() if label != "number of steps"}
    yield from _fact_differences(subject.captures, setup, lead)
    by_steps: dict[tuple[float, ...], str] = {}
    for capture in subject.captures:
        steps = tuple(capture.results.steps(_STEP).values())
        if len(steps) > 1 and (first := by_steps.setdefault(steps, capture.id)) != capture.id:
            yield (
                f"the captures {first} and {capture.id} of {subject.letter} have equal steps: if they are one"
                " trace that was read twice, the intervals are too narrow"
            )


def _fact_differences(
    subjects: Sequence[ComparisonSubject], facts: Mapping[str, Fact], lead: str
) -> Iterator[str]:
    for label, fact in facts.items():
        by_letter = {s.letter: value for s in subjects if (value := fact(s)) is not None}
        values = list(by_letter.values())
        if any(not _is_equal(values[0], value) for value in values[1:]):
            listed = ", ".join(f"{letter} {_quote_value(value)}" for letter, value in by_letter.items())
            yield f"{lead}{label}: {listed}"


def _unknown_work(subjects: Sequence[ComparisonSubject]) -> Iterator[str]:
    unknown = [s.letter for s in subjects if is_work_unknown(s) and _has_steps(s)]
    if unknown:
        yield (
            f"the work of a step of {_join_words(unknown)} is unknown (a workload card can state it):"
            " equal work cannot be checked"
        )
    for subject in filter(_has_steps, subjects):
        needed = {} if is_work_unknown(subject) else _NEEDED
        lacking = [field for field, fact in needed.items() if fact(subject) is None]
        if lacking:
            fields = _join_words(lacking)
            has_card = subject.card is not None or subject.is_published
            owner = f"the card of {subject.letter} lacks" if has_card else f"{subject.letter} does not state"
            yield f"{owner} {fields}: equal work is not certain"


def _has_steps(subject: ComparisonSubject) -> bool:
    """Whether it is of a job with steps: a trace, or a job's log."""
    return not subject.summaries or any(summary.kind == JOB_LOG for summary in subject.summaries)


def _subject_warnings(subject: ComparisonSubject) -> Iterator[str]:
    """Limitations of one subject's own figures; of a source without steps what is wrong in it."""
    letter = subject.letter
    failures = [words for summary in subject.summaries for words in summary.warnings]
    yield from (f"{letter}: {words}" for words in listed(failures, _LISTED))
    if subject.is_published:
        yield f"the figures of {letter} are published, not computed from a trace"
        return
    if subject.window_policy == "trace":
        yield f"the window of {letter} is its whole trace, not a step"
    if subject.whole_graphs:
        yield f"CUDA graphs of {letter} were traced whole: their kernels are unknown"
    if subject.all_open:
        yield (
            f"the only step of {letter} is incomplete: no step follows, so it ends with its last device event"
        )
    world = subject.world_size
    if world and len(subject.ranks) < world:
        traced = f"{len(subject.ranks)} of {world} ranks"
        yield f"{letter} has traces of {traced}: its slowest rank may have no trace"
    if words := card_contradiction(subject.results):
        yield f"{letter}: {words}"
    if any(entry.truncated for entry in subject.stored.record.ranks):
        yield f"a trace of {letter} is truncated: its figures cover the part before"


def _provenance_warnings(subjects: Sequence[ComparisonSubject]) -> Iterator[str]:
    """Metrics that are modelled in some subjects and measured in others."""
    sources: dict[str, dict[str, str]] = {}
    for subject in subjects:
        for row in subject.results.rows:
            if row.has_value and row.stat is None:
                sources.setdefault(row.metric, {}).setdefault(subject.letter, row.provenance or "")
    mixed: dict[str, list[str]] = {}
    for metric, provenances in sources.items():
        modelled = [letter for letter, provenance in provenances.items() if provenance == "modelled"]
        if modelled and len(modelled) < len(provenances):
            mixed.setdefault(_join_words(modelled), []).append(metric)
    for letters, metrics in mixed.items():
        yield f"modelled in {letters} but not in the others: {_join_words(sorted(metrics))}"


def _indistinct_parts(subjects: Sequence[ComparisonSubject]) -> Iterator[str]:
    """Step parts that some subjects distinguish and others cannot."""
    with_parts = [subject for subject in subjects if subject.results.value(_STEP_PARTS) is not None]
    for part, merged_part, words in (
        ("idle_host", "idle_other", "how much of the idle time is host-bound"),
        ("exposed_wait", "exposed_unmatched", "how much of the exposed communication is waiting"),
    ):
        indistinct = [s for s in with_parts if s.results.value(_STEP_PARTS, stat=part) is None]
        if indistinct and len(indistinct) < len(with_parts):
            row = indistinct[0].results.row(_STEP_PARTS, stat=merged_part)
            reason = f" ({row.reason})" if row and row.reason else ""
            statement = f"{_join_words([s.letter for s in indistinct])} does not show {words}{reason}"
            yield f"{statement}: all of it is in {PARTS[merged_part]}"


def _is_equal(a: Any, b: Any) -> bool:
    if isinstance(a, str) and isinstance(b, str):
        return letters_and_digits(a) == letters_and_digits(b)
    if isinstance(a, int) and isinstance(b, int):
        return abs(a - b) <= _TOKENS_EQUAL * max(abs(a), abs(b))
    return bool(a == b)


def _quote_value(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _join_words(words: Sequence[str]) -> str:
    more = len(words) - _LISTED
    listed = list(words[:_LISTED]) + ([f"{more} more"] if more > 0 else [])
    return " and ".join(listed) if len(listed) < 3 else ", ".join(listed)
