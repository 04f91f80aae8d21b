# SPDX-License-Identifier: Apache-2.0
"""Figures as a run in a file store of MLflow: a folder of small text files, which its clients read.

MLflow 3 reads file stores with MLFLOW_ALLOW_FILE_STORE=true; `mlflow migrate-filestore` converts them.
Values are metrics, those of each step a metric of their own with steps; why a metric has no value is a tag.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

from cclbench.export.figures import Figure, keyed_values, missing_words
from cclbench.ground.destination import new_folder

EXPERIMENT: Final = "cclbench"
_EXPERIMENT_ID: Final = str(int(sha256(EXPERIMENT.encode()).hexdigest()[:14], 16))
_FINISHED, _LOCAL = 3, 4
"""MLflow's numbers of a run's status and of its source's type."""


def write_mlflow_run(
    folder: Path,
    name: str,
    identity: str,
    facts: Mapping[str, str],
    time_ns: int,
    figures: Sequence[Figure],
    steps: Mapping[str, Mapping[int, float]],
) -> Path:
    """Write the run into a file store, new or not, and return its folder; `UsageError` if it is there.

    `identity`: 32 hexadecimal digits, equal for equal runs.
    """
    experiment = folder / _EXPERIMENT_ID
    experiment.mkdir(parents=True, exist_ok=True)
    milliseconds = time_ns // 10**6
    times = {"creation_time": milliseconds, "last_update_time": milliseconds}
    if not (experiment / "meta.yaml").exists():
        about = {"experiment_id": _EXPERIMENT_ID, "name": EXPERIMENT, "lifecycle_stage": "active", **times}
        _write_meta(experiment, {**about, "artifact_location": experiment.resolve().as_uri()})
    target = experiment / identity
    with new_folder(target) as unfinished:
        _write_meta(
            unfinished,
            {
                "run_id": identity,
                "run_uuid": identity,
                "run_name": name,
                "experiment_id": _EXPERIMENT_ID,
                "artifact_uri": (target.resolve() / "artifacts").as_uri(),
                "user_id": EXPERIMENT,
                "status": _FINISHED,
                "source_type": _LOCAL,
                **dict.fromkeys(("source_name", "source_version", "entry_point_name"), ""),
                "start_time": milliseconds,
                "end_time": milliseconds,
                "lifecycle_stage": "active",
                "tags": [],
            },
        )
        metrics = {key: {0: value} for key, value in keyed_values(figures, ".").items()}
        names = {figure.metric: figure.name for figure in figures}
        metrics |= {f"{names[metric]}.by_step": dict(values) for metric, values in steps.items()}
        missing = {
            f"missing.{figure.metric}": missing_words(figure.missing) for figure in figures if figure.missing
        }
        lines = {
            key: "".join(f"{milliseconds} {value!r} {step}\n" for step, value in sorted(values.items()))
            for key, values in metrics.items()
        }
        _write_files(unfinished / "metrics", lines)
        _write_files(unfinished / "params", facts)
        _write_files(unfinished / "tags", {"mlflow.runName": name, **missing})
        (unfinished / "artifacts").mkdir()
    return target


def _write_meta(folder: Path, meta: Mapping[str, object]) -> None:
    """A YAML file of flat values; JSON's scalars are YAML's."""
    lines = (f"{key}: {json.dumps(value)}\n" for key, value in sorted(meta.items()))
    (folder / "meta.yaml").write_text("".join(lines), encoding="utf-8")


def _write_files(folder: Path, texts: Mapping[str, str]) -> None:
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
