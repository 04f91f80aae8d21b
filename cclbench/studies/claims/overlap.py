# SPDX-License-Identifier: Apache-2.0
"""Claim 1: does more overlap mean a shorter step?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from operator import itemgetter
from typing import Any, Final

from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.text import letters_and_digits
from cclbench.ground.units import humanise
from cclbench.record.metric_name import metric_name
from cclbench.studies.claims.claim import (
    Claim,
    Line,
    complete_value,
    count_words,
    equal_work,
    group_items,
    value_remark,
    workload_fields,
)

STATEMENT: Final = "More overlap of communication with compute can come with a longer training step."
SAME_STEP: Final = 0.03
"""Relative difference up to which step times count as equal."""
_CLEAR_OVERLAP: Final = 0.01
_STEP, _OVERLAP = metric_name("time.step"), metric_name("overlap.ratio")

_WORK: Final = ("model", "accelerator", "devices", "batch", "sequence_length")
"""Columns that are equal for both runs of a pair."""

Key = Callable[[ComparisonSubject], Any]


def examine_overlap(runs: Sequence[ComparisonSubject]) -> Claim:
    """Compare the steps of all pairs of training runs of equal work on equal hardware.

    Equal: model (as named), accelerator, number of devices, global batch and sequence length.
    """
    comparable = [
        run
        for run in runs
        if run.workload.phase == "training"
        and complete_value(run, _STEP)
        and complete_value(run, _OVERLAP) is not None
    ]
    pairs = list(_pair_rows(comparable, equal_work))
    counts = _count_outcomes(pairs)
    return Claim(
        key="overlap",
        statement=STATEMENT,
        outcome="holds" if counts["longer"] else "not shown" if pairs else "cannot be examined",
        verdict=_verdict_words(pairs, counts),
        counts=counts,
        summary=_summarise_by_work(pairs),
        rows=sorted(pairs, key=lambda pair: -pair["step_ratio"]),
        caveats=tuple(_overlap_caveats(comparable, pairs)),
    )


def _pair_rows(runs: Sequence[ComparisonSubject], key: Key) -> Iterator[dict[str, Any]]:
    for group in group_items(runs, key).values():
        for a, b in combinations(group, 2):
            yield _pair_row(*sorted((a, b), key=lambda run: -(complete_value(run, _OVERLAP) or 0)))


def _pair_row(higher: ComparisonSubject, lower: ComparisonSubject) -> dict[str, Any]:
    ratio = (complete_value(higher, _STEP) or 0) / (complete_value(lower, _STEP) or 1)
    if complete_value(higher, _OVERLAP) == complete_value(lower, _OVERLAP):
        outcome = "equal overlap"
    elif ratio > 1 + SAME_STEP:
        outcome = "longer"
    else:
        outcome = "shorter" if ratio < 1 / (1 + SAME_STEP) else "same"
    flags = {value_remark(run, metric) for run in (higher, lower) for metric in (_STEP, _OVERLAP)}
    return {
        **workload_fields(higher, *_WORK),
        "outcome": outcome,
        "step_ratio": ratio,
        "higher_plan": higher.workload.plan,
        "higher_overlap": complete_value(higher, _OVERLAP),
        "higher_step_s": complete_value(higher, _STEP),
        "lower_plan": lower.workload.plan,
        "lower_overlap": complete_value(lower, _OVERLAP),
        "lower_step_s": complete_value(lower, _STEP),
        "higher_run": higher.id,
        "lower_run": lower.id,
        "provenance": "published" if higher.is_published else "computed",
        "flags": "; ".join(sorted(filter(None, flags))) or None,
    }


def _count_outcomes(pairs: Sequence[Line]) -> dict[str, float | None]:
    counts = Counter(pair["outcome"] for pair in pairs)
    outcomes = ("longer", "shorter", "same", "equal overlap")
    return {"pairs": len(pairs), **{outcome.replace(" ", "_"): counts[outcome] for outcome in outcomes}}


def _verdict_words(pairs: Sequence[Line], counts: dict[str, float | None]) -> str:
    if not pairs:
        return "the store has no two training runs of equal work on equal hardware with known overlap"
    verdict = (
        f"in {counts['longer']} of {count_words(len(pairs), 'pair')} of equal work on equal hardware the run"
        f" with higher overlap has the longer step (by more than {humanise(SAME_STEP, '1')}), in"
        f" {counts['shorter']} the shorter one; in {counts['same']} the steps are equally long, in"
        f" {counts['equal_overlap']} the overlap is equal"
    )
    longer = [pair for pair in pairs if pair["outcome"] == "longer"]
    if not longer:
        return verdict
    widest = max(longer, key=lambda pair: pair["higher_overlap"] - pair["lower_overlap"])
    sides = " against ".join(
        f"{widest[f'{side}_plan'] or 'unknown plan'} {100 * widest[f'{side}_overlap']:.2f} % and"
        f" {humanise(widest[f'{side}_step_s'], 's')}"
        for side in ("higher", "lower")
    )
    return f"{verdict}. Largest: {widest['model']} on {widest['devices']} {widest['accelerator']}, {sides}"


def _summarise_by_work(pairs: Sequence[Line]) -> list[Line]:
    groups = group_items(pairs, itemgetter(*_WORK))
    return [dict(zip(_WORK, work, strict=True)) | _count_outcomes(group) for work, group in groups.items()]


def _overlap_caveats(runs: Sequence[ComparisonSubject], pairs: Sequence[Line]) -> Iterator[str]:
    def longer_share(keep: Callable[[Line], bool]) -> str:
        remaining = [pair for pair in pairs if keep(pair)]
        return f"{_count_outcomes(remaining)['longer']} of {len(remaining)}"

    if not pairs:
        return
    taking_part = {pair[side] for pair in pairs for side in ("higher_run", "lower_run")}
    yield f"the pairs share runs: {count_words(len(pairs), 'pair')} of {count_words(len(taking_part), 'run')}"
    at_all = sum(pair["step_ratio"] > 1 and pair["outcome"] != "equal overlap" for pair in pairs)
    yield f"counting any longer step: {at_all} of {len(pairs)}"
    clear = longer_share(lambda pair: pair["higher_overlap"] - pair["lower_overlap"] >= _CLEAR_OVERLAP)
    yield f"only pairs whose overlaps differ by a percentage point or more: {clear}"
    different_plans = longer_share(lambda pair: pair["higher_plan"] != pair["lower_plan"])
    yield f"only pairs of different parallel plans: {different_plans}"
    flags = sorted({pair["flags"] for pair in pairs if pair["flags"]})
    if flags:
        unflagged = longer_share(lambda pair: not pair["flags"])
        yield f"without pairs that rest on a flagged value: {unflagged} ({'; '.join(flags)})"
    spelled = list(_pair_rows(runs, _work_ignoring_spelling))
    if len(spelled) > len(pairs):
        yield (
            f"models are equal if their names are; with {_spelling_variants(runs)} as one model:"
            f" {_count_outcomes(spelled)['longer']} of {len(spelled)}"
        )


def _work_ignoring_spelling(run: ComparisonSubject) -> Any:
    alike = equal_work(run)
    return alike and tuple(letters_and_digits(part) if isinstance(part, str) else part for part in alike)


def _spelling_variants(runs: Sequence[ComparisonSubject]) -> str:
    spellings = group_items(
        dict.fromkeys(run.workload.model for run in runs if run.workload.model), letters_and_digits
    )
    return ", ".join(" and ".join(sorted(names)) for names in spellings.values() if len(names) > 1)
