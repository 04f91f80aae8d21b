# SPDX-License-Identifier: Apache-2.0
"""Jobs of the store that were captured more than once: what captures of one job differ by on a system."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from cclbench.comparison.fingerprint import fingerprint
from cclbench.comparison.interval import Captures, Floats
from cclbench.comparison.lines import NO_CARD_FIELDS
from cclbench.comparison.subject import Subject
from cclbench.comparison.verdict import CLIENT, figures
from cclbench.errors import InputError
from cclbench.record.remote_store import store_at

_DIGITS: Final = 3
"""Of figures of the work, up to which captures of one job agree."""


def repeats_in(store: str | Path | None, subjects: tuple[Subject, ...]) -> list[Captures]:
    """The captures of each job of the store that was captured more than once on a subject's system.

    Captures are of one job where card, number of ranks, reader, and what a step works on are equal.  The
    subjects' own captures are not among them.
    """
    own = {capture.stored.path.resolve() for subject in subjects for capture in subject.each}
    systems = [_system(subject) for subject in subjects]
    jobs: dict[str, list[Floats]] = {}
    for run in store_at(store).runs():
        if run.path.resolve() in own:
            continue
        try:
            results, card = run.saved_results, run.card
            if results is None or run.record.published is not None:
                continue
            subject = Subject("", run, results, None if card is None else card.raw)
            metric = "time.step" if results.value("time.step") is not None else CLIENT
            row = results.row(metric)
            job = _job(subject)
        except InputError:
            continue  # damaged: `list runs` says so
        if (
            row is not None
            and row.status == "ok"
            and row.window != "trace"
            and job
            and _system(subject) in systems
        ):
            jobs.setdefault(job, []).append(figures(subject, metric))
    return [captures for captures in jobs.values() if len(captures) > 1]


def _system(subject: Subject) -> tuple[Any, ...]:
    return subject.devices, subject.device_count


def _job(subject: Subject) -> str:
    """What is equal of captures of one job; empty where nothing tells what it works on."""
    done = fingerprint(subject, None)
    counted = {metric: subject.results.value(metric) for metric in ("compute.kernel_count", "comm.count")}
    amounts = {name: f"{number:.{_DIGITS}g}" for name, number in {**done.bytes, **counted}.items() if number}
    card = {name: value for name, value in (subject.card or {}).items() if name not in NO_CARD_FIELDS}
    if not (card or amounts or done.served):
        return ""
    told = (card, amounts, done.served, done.ranks, subject.ranks, subject.stored.reader)
    return json.dumps(told, sort_keys=True, default=str)
