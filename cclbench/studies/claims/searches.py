# SPDX-License-Identifier: Apache-2.0
"""Searches for the fastest configuration, one per framework: both readings, by step time and by tokens."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.units import humanise
from cclbench.record.metric_name import metric_name
from cclbench.studies.claims.claim import complete_value, count_words, group_items

_STEP, _TOKENS = metric_name("time.step"), metric_name("throughput.tokens_per_device")
_LAYOUT: Final = ("tp", "dp", "pp", "cp", "ep", "micro_batch_size")
"""Settings in which a configuration is the same in another framework."""


@dataclass(frozen=True, slots=True)
class Search:
    """The trials of one search that have a step time and known work, in order."""

    framework: str
    trials: Sequence[ComparisonSubject]

    @property
    def fastest(self) -> ComparisonSubject:
        """The trial with the shortest step."""
        return min(self.trials, key=step_s)

    @property
    def gain(self) -> float:
        """Step of the first trial over the shortest."""
        return step_s(self.trials[0]) / step_s(self.fastest)


@dataclass(frozen=True, slots=True)
class SearchedPair:
    """Searches of two frameworks for one model on equal hardware, by their shortest steps."""

    short: Search
    long: Search

    @property
    def step_gap(self) -> float:
        """Longer over shorter of the searches' shortest steps."""
        return step_s(self.long.fastest) / step_s(self.short.fastest)

    @property
    def token_lead(self) -> float:
        """Tokens per second of the longer step over those of the shorter; above 1 it is the faster one."""
        return tokens_per_s(self.long.fastest) / tokens_per_s(self.short.fastest)

    @property
    def transplanted(self) -> ComparisonSubject | None:
        """The other's fastest configuration as a trial of the search with the shorter step; None without."""
        layout = layout_of(self.long.fastest)
        alike = [trial for trial in self.short.trials if layout and layout_of(trial) == layout]
        return min(alike, key=step_s, default=None)


def step_s(run: ComparisonSubject) -> float:
    """Step time of a run that has one, s."""
    return complete_value(run, _STEP) or 0


def tokens_per_s(run: ComparisonSubject) -> float:
    """Tokens per second and device of a run that has them, 1/s."""
    return complete_value(run, _TOKENS) or 0


def settings_of(run: ComparisonSubject) -> Mapping[str, Any]:
    """The settings of a trial."""
    settings = run.metadata.get("settings")
    return settings if isinstance(settings, Mapping) else {}


def layout_of(run: ComparisonSubject) -> dict[str, Any]:
    """The trial's settings that mean the same in every framework."""
    return {key: value for key, value in settings_of(run).items() if key in _LAYOUT}


def searched_pairs(runs: Sequence[ComparisonSubject]) -> list[SearchedPair]:
    """For each model, sequence length and hardware, the frameworks whose shortest steps differ most.

    Of several searches of one framework the one with the shortest step takes part.
    """
    pairs = []
    for trials in group_items(runs, _searched_problem).values():
        searches = [
            Search(
                str(search_trials[0].workload.framework),
                sorted(search_trials, key=lambda run: int(run.metadata["trial"])),
            )
            for search_trials in group_items(trials, lambda run: run.metadata["search"]).values()
        ]
        best: dict[str, Search] = {}
        for search in sorted(searches, key=lambda search: step_s(search.fastest), reverse=True):
            best[search.framework.casefold()] = search
        if len(best) > 1:
            ordered = sorted(best.values(), key=lambda search: step_s(search.fastest))
            pairs.append(SearchedPair(ordered[0], ordered[-1]))
    return sorted(pairs, key=lambda pair: -pair.step_gap)


def _searched_problem(run: ComparisonSubject) -> tuple[Any, ...] | None:
    if "search" not in run.metadata or "trial" not in run.metadata:
        return None
    fields = (run.workload.framework, run.workload.model, run.workload.sequence_length, run.workload.batch)
    if None in fields or not (run.hardware_key and step_s(run) and tokens_per_s(run)):
        return None
    return (*run.hardware_key, str(run.workload.model).casefold(), run.workload.sequence_length)


def pair_contests(
    pair: SearchedPair, line: Callable[[ComparisonSubject, str, float], dict[str, Any]]
) -> Iterator[list[dict[str, Any]]]:
    """Tables of a pair: by tokens, one configuration on both, first and best trial of each."""
    short, long = pair.short.fastest, pair.long.fastest
    by_tokens = sorted((short, long), key=tokens_per_s, reverse=True)
    basis = "tokens/s/device of each search's fastest trial"
    yield [line(run, basis, tokens_per_s(by_tokens[0]) / tokens_per_s(run)) for run in by_tokens]
    if (moved := pair.transplanted) is not None:
        basis = f"step time, {pair.long.framework}'s fastest configuration on {pair.short.framework}"
        yield [line(run, basis, step_s(run) / step_s(short)) for run in (short, moved)]
    for search in (pair.long, pair.short):
        trials = dict.fromkeys((search.fastest, search.trials[0]))
        basis = f"step time, fastest and first trial of {search.framework}'s search"
        yield [line(run, basis, step_s(run) / step_s(search.fastest)) for run in trials]


def pair_counts(pair: SearchedPair | None) -> dict[str, float | None]:
    """The figures of a pair, by name."""
    moved = pair.transplanted if pair else None
    return {
        "search_step_gap": pair.step_gap if pair else None,
        "search_token_lead": pair.token_lead if pair else None,
        "search_one_configuration": step_s(moved) / step_s(pair.short.fastest) if pair and moved else None,
        "search_gain_long": pair.long.gain if pair else None,
        "search_gain_short": pair.short.gain if pair else None,
    }


def pair_verdict(pair: SearchedPair) -> str:
    """Both readings of a pair, in words."""
    sides = " and ".join(
        f"{search.framework} {humanise(step_s(search.fastest), 's')} for"
        f" {count_words(search.fastest.workload.batch or 0, 'sequence')}"
        for search in (pair.short, pair.long)
    )
    faster, lead = (pair.long, pair.token_lead) if pair.token_lead >= 1 else (pair.short, 1 / pair.token_lead)
    return (
        f"The fastest trials of the searches take {sides}: by step time {pair.long.framework} is"
        f" {humanise(pair.step_gap, 'ratio')} slower, by tokens per second {faster.framework} is"
        f" {humanise(lead, 'ratio')} faster"
    )


def pair_caveats(pair: SearchedPair) -> Iterator[str]:
    """What a pair's figures compare."""
    short = pair.short.fastest
    if (moved := pair.transplanted) is not None:
        layout = ", ".join(f"{key} {value}" for key, value in layout_of(moved).items())
        ours, theirs = settings_of(moved), settings_of(pair.long.fastest)
        unlike = [key for key in ours.keys() & theirs.keys() if ours[key] != theirs[key]]
        differing = "".join(
            f", {key} {json.dumps(ours[key])} instead of {json.dumps(theirs[key])}" for key in sorted(unlike)
        )
        yield (
            f"{pair.short.framework} with {pair.long.framework}'s fastest configuration ({layout}{differing})"
            f" takes {humanise(step_s(moved) / step_s(short), 'ratio')} as long as its own fastest trial"
            f" ({_work_words(short, moved)})"
        )
    for search in (pair.long, pair.short):
        gain, words = humanise(search.gain, "ratio"), _work_words(search.trials[0], search.fastest)
        yield f"{search.framework}'s search shortens the step {gain} from its first trial ({words})"


def _work_words(trial: ComparisonSubject, other: ComparisonSubject) -> str:
    """How the work of two trials differs, and so their tokens per second."""
    batches = trial.workload.batch or 0, other.workload.batch or 0
    if batches[0] == batches[1]:
        return "equal work"
    rate = humanise(tokens_per_s(other) / tokens_per_s(trial), "ratio")
    return f"{count_words(batches[1], 'sequence')} instead of {batches[0]:,}: {rate} the tokens per second"
