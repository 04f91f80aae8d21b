# SPDX-License-Identifier: Apache-2.0
"""Figures as an offline run of Weights & Biases, for `wandb sync`; the format is its library's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cclbench.export.figures import Figure, keyed_values, missing_words
from cclbench.ground.errors import UsageError, install_hint

PROJECT = "cclbench"


def write_wandb_run(
    folder: Path,
    name: str,
    facts: Mapping[str, str],
    figures: Sequence[Figure],
    steps: Mapping[str, Mapping[int, float]],
) -> Path:
    """Write an offline run below the folder, and return its folder; `UsageError` without the extra `wandb`.

    Values are its summary, those of each step its history, and reasons of missing ones its configuration.
    Nothing is recorded about this machine, its code or its git repository, and nothing is sent.
    """
    try:
        import wandb
    except ImportError:
        raise UsageError("the wandb package is not installed", hint=install_hint("wandb")) from None
    settings = wandb.Settings(
        mode="offline",
        console="off",
        silent=True,
        disable_code=True,
        disable_git=True,
        save_code=False,
        x_disable_meta=True,
        x_disable_stats=True,
    )
    folder.mkdir(parents=True, exist_ok=True)
    missing = {figure.metric: missing_words(figure.missing) for figure in figures if figure.missing}
    names = {figure.metric: f"{figure.name}/by_step" for figure in figures}
    with wandb.init(
        project=PROJECT, name=name, dir=str(folder), config={**facts, "missing": missing}, settings=settings
    ) as recorded:
        for step in sorted({step for values in steps.values() for step in values}):
            recorded.log(
                {names[metric]: values[step] for metric, values in steps.items() if step in values}, step
            )
        recorded.summary.update(keyed_values(figures, "/"))
        return Path(recorded.settings.sync_dir)
