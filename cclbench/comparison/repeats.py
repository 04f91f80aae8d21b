# SPDX-License-Identifier: Apache-2.0
"""Jobs of the store captured more than once, which show how captures of one job differ on a system."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Final

from cclbench.comparison.fingerprint import work_fingerprint
from cclbench.comparison.interval import Captures, Floats
from cclbench.comparison.lines import flatten_card
from cclbench.comparison.subject import ComparisonSubject
from cclbench.comparison.verdict import CLIENT, capture_figures
from cclbench.ground.errors import InputError
from cclbench.record.metric_name import MetricName, metric_name
from cclbench.record.run import Run
from cclbench.record.store import Store

_STEP: Final = metric_name("time.step")
_KERNELS: Final = metric_name("compute.kernel_count")
_COLLECTIVES: Final = metric_name("comm.count")

_LAST_NUMBER: Final = re.compile(r"\d+(?=\D*$)")
_DIGITS: Final = 3
"""Significant digits of work figures in which captures of one job agree."""


def repeated_captures(store: Store, subjects: tuple[ComparisonSubject, ...]) -> list[Captures]:
    """Captures of each stored job that was captured more than once and does the work of a subject.

    Captures are of one job where their source names differ only in the last number (`base-1`, `base-2`) and
    card and work are equal.  Work is equal where the evidence shows the same amounts on the same system.  The
    subjects' own captures are left out.  Runs with the same figures to the last bit are one capture that was
    read more than once, such as with another card or by another version.
    """
    own_captures = [capture for subject in subjects for capture in subject.each_capture]
    own_paths = {capture.stored.path.resolve() for capture in own_captures}
    counted = {capture_figures(capture, _measure(capture)).tobytes() for capture in own_captures}
    subject_works = {_work_text(subject.each_capture[0]) for subject in subjects} - {""}
    series = {run: name for run in store.runs() if (name := _series(run))} if subject_works else {}
    # A name that stands once needs no results, whose reading takes most of the time.
    often = {name for name, count in Counter(series.values()).items() if count > 1}
    jobs: dict[tuple[str, str, str], list[Floats]] = {}
    for run, name in series.items():
        if name not in often or run.path.resolve() in own_paths:
            continue
        try:
            results, card = run.saved_results, run.card
            if results is None:
                continue
            subject = ComparisonSubject("", run, results, None if card is None else card.raw)
            metric = _measure(subject)
            row, work = results.row(metric), _work_text(subject)
        except InputError:
            continue  # damaged: `list runs` says so
        if row is not None and row.status == "ok" and row.window != "trace" and work in subject_works:
            key, figures = (name, _card_text(subject), work), capture_figures(subject, metric)
            if (content := figures.tobytes()) not in counted:
                counted.add(content)
                jobs.setdefault(key, []).append(figures)
    return [captures for captures in jobs.values() if len(captures) > 1]


def _measure(subject: ComparisonSubject) -> MetricName:
    """The metric by which captures of a job differ."""
    return CLIENT if subject.results.value(_STEP) is None else _STEP


def _series(run: Run) -> str | None:
    """The name of a run's source without its last number; None for published figures, and damaged runs."""
    try:
        return None if run.record.published else _LAST_NUMBER.sub("#", run.record.source)
    except InputError:
        return None


def _card_text(subject: ComparisonSubject) -> str:
    """A card's fields as JSON, without those that identify the card."""
    return json.dumps(dict(flatten_card(subject.card or {})), sort_keys=True, default=str)


def _work_text(subject: ComparisonSubject) -> str:
    """A subject's work and system by its evidence, as JSON; empty without evidence of work."""
    fingerprint = work_fingerprint(subject, None)
    counts: dict[str, float | None] = {
        metric: subject.results.value(metric) for metric in (_KERNELS, _COLLECTIVES)
    }
    amounts = {
        name: f"{number:.{_DIGITS}g}" for name, number in {**fingerprint.bytes, **counts}.items() if number
    }
    if not (amounts or fingerprint.served):
        return ""
    system = (subject.devices, subject.device_count, subject.ranks, subject.stored.reader)
    return json.dumps((amounts, fingerprint.served, fingerprint.ranks, system), sort_keys=True, default=str)
