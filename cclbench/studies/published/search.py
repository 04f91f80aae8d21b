# SPDX-License-Identifier: Apache-2.0
"""The history of a configuration search by CCL-Bench's agent (`results.csv`): each trial a published row.

A trial states its settings and its step time, not its work.  Batch, sequence length and layout follow from
the launch script, which gets the settings as environment variables.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec

from cclbench.card.fields import card_field
from cclbench.card.read import parse_card
from cclbench.ground.errors import InputError
from cclbench.ground.file_names import utf8_text
from cclbench.ground.text import first_few, printable
from cclbench.studies.published.cards import HOMES
from cclbench.studies.published.columns import COLUMNS
from cclbench.studies.published.launch import LaunchedStep, launched_step
from cclbench.studies.published.leaderboard import Publication, PublishedRow, read_content

SOURCE: Final = "ccl-search"
_HINT: Final = "a search by CCL-Bench's agent writes it as results.csv"
_MOST_TRIALS: Final = 1_000
_LARGEST_SCRIPT: Final = 200_000
_OF_CARD: Final = (
    *("model_family", "phase", "precision", "moe", "hardware_type", "hardware_model", "count_per_node"),
    *("dataset", "hf_url", "network_topology"),
)
"""What a search's workload card states about all of its trials."""
_HISTORY: Final = re.compile(r"^runs:.*\n(?:(?:[ -].*)?\n)*", re.MULTILINE)
_FAILURE: Final = re.compile(r"exit -?\d{1,9}|timed out after \d{1,9}s")


class _Trial(msgspec.Struct, frozen=True):
    """A line of `results.csv`, its JSON parsed."""

    iteration: int
    config: dict[str, str | bool | int | float | None]
    metrics: dict[str, float | None]
    status: str
    error_msg: str


def read_search(path: Path, script: Path, card: Path | None) -> Publication:
    """Read the search at `path`, whose trials ran `script`.

    Raises `InputError` if a file cannot be read, or if a line of the search is not a trial with settings and
    finite numbers.
    """
    where = printable(str(path))
    content = read_content(path, where, _HINT)
    trials = _parse_trials(content, where)
    script_content = read_content(script, printable(str(script)), "--script names the launch script")
    if len(script_content) > _LARGEST_SCRIPT:
        raise InputError("is over 200 kB: not a launch script", where=printable(str(script)))
    text = script_content.decode("utf-8", "replace")
    facts = {} if card is None else _card_facts(card)
    search = printable(path.resolve().parent.name)
    first_of: dict[str, int] = {}
    rows = []
    for trial in trials:
        step = launched_step(text, trial.config)
        same = json.dumps([trial.config, trial.metrics], sort_keys=True)
        metadata = {**facts, **_trial_metadata(trial, step, search)}
        rows.append(
            PublishedRow(
                number=trial.iteration,
                metadata=metadata,
                metrics=trial.metrics,
                sha256=sha256(json.dumps([metadata, same], sort_keys=True).encode()).hexdigest(),
                remarks=_trial_remarks(trial, first_of.setdefault(same, trial.iteration)),
                work_basis=step.basis,
            )
        )
    return Publication(
        SOURCE, path, sha256(content).hexdigest(), None, tuple(rows), tuple(_work_remarks(rows))
    )


def _parse_trials(content: bytes, where: str) -> list[_Trial]:
    trials: list[_Trial] = []
    try:
        reader = csv.DictReader(io.StringIO(content.decode("utf-8", "replace"), newline=""), strict=True)
        lacking = {"iteration", "config", "metrics", "status"} - set(reader.fieldnames or ())
        if lacking:
            raise InputError(f"has no column {first_few(sorted(lacking))}", where=where, hint=_HINT)
        for line in reader:
            if len(trials) == _MOST_TRIALS:
                raise InputError(f"has more than {_MOST_TRIALS:,} trials", where=where, hint=_HINT)
            trials.append(_parse_trial(line))
    except (csv.Error, ValueError, RecursionError) as error:
        raise InputError(
            f"trial {len(trials)}: {printable(str(error))}",
            where=where,
            hint="no trial of the file was imported",
        ) from None
    if not trials:
        raise InputError("has no trials", where=where, hint=_HINT)
    if len({trial.iteration for trial in trials}) < len(trials):
        raise InputError("numbers two trials alike", where=where, hint="no trial of the file was imported")
    return trials


def _parse_trial(line: Mapping[str, Any]) -> _Trial:
    """The line as a trial; `ValueError` if it is none."""
    texts = {key: line[key] or "" for key in ("iteration", "config", "metrics", "status")}
    parsed = {key: json.loads(texts[key]) for key in ("iteration", "config", "metrics")}
    json.dumps(parsed, ensure_ascii=False).encode()  # half a surrogate pair is a ValueError
    trial = msgspec.convert(
        {**parsed, "status": texts["status"], "error_msg": line.get("error_msg") or ""}, _Trial
    )
    if trial.iteration < 0:
        raise ValueError("its number is negative")
    if not all(math.isfinite(number or 0) for number in trial.metrics.values()):
        raise ValueError("a metric is not a finite number")
    return trial


def _card_facts(path: Path) -> dict[str, Any]:
    """What the version 1 card states about model and hardware, by the leaderboard's keys.

    The trials, which the agent appends to it, are left out.
    """
    where, hint = printable(str(path)), "--card names the search's workload card"
    content = read_content(path, where, hint).decode("utf-8", "replace")
    document = parse_card(_HISTORY.sub("", content), where)
    if "workload" not in document.value or document.value.get("version", 1) != 1:
        raise InputError("is not a version 1 card", where=where, hint=hint)
    scalars = (str, bool, int, float)
    values = {key: card_field(document.value, *HOMES[key].split("."), kind=scalars) for key in _OF_CARD}
    texts = {key: utf8_text(value) for key, value in values.items() if isinstance(value, str)}
    return {key: texts.get(key, value) for key, value in values.items() if value is not None}


def _trial_metadata(trial: _Trial, step: LaunchedStep, search: str) -> dict[str, Any]:
    numbers = {
        "batch_size": step.global_batch,
        "seq_len": step.sequence_length,
        "total_count": step.devices,
        **step.degrees,
    }
    return {
        "workload_name": f"{search} trial {trial.iteration:02}",
        "search": search,
        "trial": trial.iteration,
        "settings": dict(trial.config),
        **({} if step.framework is None else {"framework": step.framework}),
        **{key: number for key, number in numbers.items() if number is not None},
        "trace_types": ["json"],
    }


def _trial_remarks(trial: _Trial, first: int) -> dict[str, str]:
    """Remarks by column; `first` is the first trial with the same settings and numbers."""
    if not trial.metrics:
        failure = _FAILURE.match(trial.error_msg)
        return dict.fromkeys(COLUMNS, f"the trial failed{f' ({failure[0]})' if failure else ''}")
    others = dict.fromkeys(COLUMNS.keys() - trial.metrics.keys(), "the search measured other numbers")
    words = [] if trial.status == "success" else [f"status of the trial: {printable(trial.status)}"]
    if first < trial.iteration:
        words.append(f"settings and number of trial {first}: one measurement, not two")
    return others | (dict.fromkeys(trial.metrics, "; ".join(words)) if words else {})


def _work_remarks(rows: Sequence[PublishedRow]) -> list[str]:
    """Whether the trials do equal work, first; and where that is from."""
    batches = Counter(row.whole_number("batch_size") for row in rows)
    sizes = sorted(batch for batch in batches if batch is not None)
    remarks = [f"batch: {basis}" for basis in dict.fromkeys(row.work_basis for row in rows)]
    if len(sizes) > 1:
        listed = ", ".join(f"{batch:,}" for batch in sizes)
        remarks.insert(
            0, f"unequal work: steps of {listed} sequences; compare tokens per second, not step times"
        )
    return remarks
