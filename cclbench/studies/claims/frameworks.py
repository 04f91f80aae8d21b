# SPDX-License-Identifier: Apache-2.0
"""Claim 3: how far apart are training frameworks at their best configurations?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.units import humanise
from cclbench.record.metric_name import metric_name
from cclbench.studies.claims.claim import (
    Claim,
    Line,
    complete_value,
    equal_work,
    group_items,
    value_remark,
    workload_fields,
)
from cclbench.studies.claims.job_logs import log_caveats, log_contests, logged_jobs
from cclbench.studies.claims.searches import (
    pair_caveats,
    pair_contests,
    pair_counts,
    pair_verdict,
    searched_pairs,
)

STATEMENT: Final = (
    "The best configuration of one training framework can be 3x slower than another's on equal hardware."
)
CLAIMED: Final = 2.5
"""Smallest gap that rounds to the claimed 3x."""
_STEP, _TOKENS = metric_name("time.step"), metric_name("throughput.tokens_per_device")


def examine_frameworks(runs: Sequence[ComparisonSubject]) -> Claim:
    """Compare frameworks' best runs on equal hardware: any work, one model's tokens, equal work.

    The frameworks' searches are compared by step time and by tokens, and published steps with the jobs' logs.
    """
    training = [run for run in runs if run.workload.phase == "training"]
    candidates = [run for run in training if run.workload.framework and run.hardware_key]
    comparable = [run for run in candidates if complete_value(run, _STEP) and complete_value(run, _TOKENS)]
    any_work = list(
        _compare_frameworks(comparable, "step time, any work", lambda run: run.hardware_key, _step_s)
    )
    one_model = list(
        _compare_frameworks(comparable, "tokens/s/device, one model", _model_key, _seconds_per_token)
    )
    equal = list(_compare_frameworks(comparable, "step time, equal work", equal_work, _step_s))
    widest, model, fair = map(_largest_gap, (any_work, one_model, equal))
    pair = next(iter(searched_pairs(comparable)), None)
    jobs = logged_jobs(comparable, runs)
    outcome: Any = "cannot be examined"
    if fair is not None:
        outcome = "holds" if fair[-1]["behind"] >= CLAIMED else "not shown"
    contests = [
        *(*any_work, *one_model, *equal),
        *(pair_contests(pair, _framework_line) if pair else ()),
        *log_contests(jobs, _framework_line),
    ]
    return Claim(
        key="frameworks",
        statement=STATEMENT,
        outcome=outcome,
        verdict=_verdict_words(widest, model, fair) + (f". {pair_verdict(pair)}" if pair else ""),
        counts={
            "contests_any_work": len(any_work),
            "contests_equal_work": len(equal),
            "gap_any_work": None if widest is None else widest[-1]["behind"],
            "gap_one_model": None if model is None else model[-1]["behind"],
            "gap_equal_work": None if fair is None else fair[-1]["behind"],
            **pair_counts(pair),
        },
        summary=[line for contest in contests for line in contest],
        rows=[
            _framework_line(run, None, None)
            for run in sorted(comparable, key=lambda run: str(run.hardware_key))
        ],
        caveats=(
            *_framework_caveats(any_work, equal, comparable),
            *(pair_caveats(pair) if pair else ()),
            *log_caveats(jobs),
        ),
    )


def _step_s(run: ComparisonSubject) -> float:
    return complete_value(run, _STEP) or 0


def _seconds_per_token(run: ComparisonSubject) -> float:
    return 1 / (complete_value(run, _TOKENS) or 1)


def _model_key(run: ComparisonSubject) -> Any:
    return run.workload.model and (*(run.hardware_key or ()), run.workload.model.casefold())


def _compare_frameworks(
    runs: Sequence[ComparisonSubject],
    basis: str,
    key: Callable[[ComparisonSubject], Any],
    cost: Callable[[ComparisonSubject], float],
) -> Iterator[list[Line]]:
    """The best run of each framework, best first, for each group of runs with two or more frameworks.

    Of runs of equal cost, one without a remark is the best.
    """

    def rank(run: ComparisonSubject) -> tuple[float, bool]:
        return cost(run), value_remark(run, _STEP) is not None

    for alike in group_items(sorted(runs, key=rank, reverse=True), key).values():
        best = {str(run.workload.framework).casefold(): run for run in alike}
        if len(best) > 1:
            order = sorted(best.values(), key=cost)
            yield [_framework_line(run, basis, cost(run) / cost(order[0])) for run in order]


def _framework_line(run: ComparisonSubject, basis: str | None, behind: float | None) -> dict[str, Any]:
    return {
        **workload_fields(run, "accelerator", "devices"),
        **({} if basis is None else {"basis": basis}),
        **workload_fields(run, "framework", "model", "batch", "sequence_length", "plan"),
        "step_s": complete_value(run, _STEP),
        "tokens_per_s_per_device": complete_value(run, _TOKENS),
        **({} if behind is None else {"behind": behind}),
        "flags": value_remark(run, _STEP),
        "run": run.id,
    }


def _largest_gap(contests: Sequence[Sequence[Line]]) -> Sequence[Line] | None:
    return max(contests, key=lambda lines: float(lines[-1]["behind"]), default=None)


def _verdict_words(
    widest: Sequence[Line] | None, model: Sequence[Line] | None, fair: Sequence[Line] | None
) -> str:
    if widest is None:
        return "the store has no two frameworks on equal hardware, with known step time and work"
    best, slowest = widest[0], widest[-1]
    verdict = (
        f"the largest gap in step time is {_gap_words(slowest)} on {_hardware_words(slowest)}"
        f" ({_run_words(best)} against {_run_words(slowest)})"
    )
    unlike = _work_differences(best, slowest)
    if unlike:
        verb = "differ" if len(unlike) > 1 else "differs"
        verdict += f", but not of equal work: {' and '.join(unlike)} {verb}"
    if unlike and model is not None:
        verdict += (
            f". For one model, tokens per second and device differ by {_gap_words(model[-1])}"
            f" ({' against '.join(map(_rate_words, (model[0], model[-1])))})"
        )
    if fair is None:
        return f"{verdict}. No two frameworks ran equal work on equal hardware"
    return (
        f"{verdict}. At equal work the largest gap is {_gap_words(fair[-1])} on {_hardware_words(fair[-1])}"
        f" ({_run_words(fair[0])} against {_run_words(fair[-1])})"
    )


def _gap_words(line: Line) -> str:
    return humanise(line["behind"], "ratio")


def _rate_words(line: Line) -> str:
    return f"{line['framework']} {humanise(line['tokens_per_s_per_device'], '1/s')}"


def _hardware_words(line: Line) -> str:
    return f"{line['devices']} {line['accelerator']}"


def _run_words(line: Line) -> str:
    return (
        f"{line['framework']} {humanise(line['step_s'], 's')} with {line['model']}, batch {line['batch']} x"
        f" {line['sequence_length']}"
    )


_DIFFER: Final = {"model": "model", "batch": "batch size", "sequence_length": "sequence length"}


def _work_differences(a: Line, b: Line) -> list[str]:
    return [words for key, words in _DIFFER.items() if str(a[key]).casefold() != str(b[key]).casefold()]


def _framework_caveats(
    any_work: Sequence[Sequence[Line]], equal: Sequence[Sequence[Line]], runs: Sequence[ComparisonSubject]
) -> Iterator[str]:
    if any_work:
        unlike = sum(bool(_work_differences(lines[0], lines[-1])) for lines in any_work)
        yield (
            f"{unlike} of {len(any_work)} step-time comparisons are between unequal work; the store has"
            f" {len(equal)} of equal work"
        )
        runs_by_framework = Counter(str(run.workload.framework) for run in runs)
        counts = ", ".join(f"{framework} {number}" for framework, number in sorted(runs_by_framework.items()))
        yield f"the best of a few runs need not be a tuned one; training runs by framework: {counts}"
    flagged = {line["run"] for contest in (*any_work, *equal) for line in contest if line["flags"]}
    if flagged:
        yield f"{len(flagged)} of the best runs have a flagged step time"
