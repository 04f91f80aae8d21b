# SPDX-License-Identifier: Apache-2.0
"""What the shell completes: ids of runs, names of metrics and machines, keys of settings and of operators."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


def run_ids(ctx: click.Context, _: click.Parameter, prefix: str) -> list[CompletionItem]:
    """Shell completions: ids of runs in the store and `@last`, then files."""
    from cclbench.ground.errors import CclbenchError
    from cclbench.record.store import LAST
    from cclbench.workspace import store_at

    try:
        ids = store_at(ctx.params.get("store")).ids()
    except CclbenchError:
        ids = []
    completions = [CompletionItem(run) for run in [*ids, *[LAST][: len(ids)]] if run.startswith(prefix)]
    return [*completions, CompletionItem(prefix, type="file")]


def metric_names(_: click.Context, __: click.Parameter, prefix: str) -> list[str]:
    """Shell completions: names of metrics, then their aliases."""
    from cclbench.analyzers.metric import METRICS, OTHER_NAMES

    return [name for name in (*METRICS, *sorted(OTHER_NAMES)) if name.startswith(prefix)]


def explained_names(_: click.Context, __: click.Parameter, prefix: str) -> list[str]:
    """Names of metrics, findings, views, tables, readers and settings."""
    from cclbench.analyzers.metric import METRICS
    from cclbench.findings.finding import FINDINGS
    from cclbench.formats import READERS
    from cclbench.present.terminal.explanation import sql_table_schemas
    from cclbench.replay.change import CHANGES
    from cclbench.sql import VIEWS

    names = (*METRICS, *FINDINGS, *VIEWS, *sql_table_schemas(), *READERS, *CHANGES)
    return [name for name in names if name.startswith(prefix)]


def setting_keys(_: click.Context, __: click.Parameter, prefix: str) -> list[str]:
    """Keys of settings of `cclbench whatif`, up to their value."""
    from cclbench.replay.change import CHANGES

    return [f"{key.partition('<')[0]}{'=' * ('<' not in key)}" for key in CHANGES if key.startswith(prefix)]


def machines(_: click.Context, __: click.Parameter, prefix: str) -> list[str]:
    """Ids of the machines in the catalog."""
    from cclbench.hardware.catalog import systems

    return [name for name in systems() if name.startswith(prefix)]


def catalog_entries(_: click.Context, __: click.Parameter, prefix: str) -> list[str]:
    """Ids of all entries of the catalog."""
    from cclbench.hardware import catalog

    return [name for name in catalog.catalog_entries() if name.startswith(prefix)]


def operator_keys(_: click.Context, __: click.Parameter, prefix: str) -> list[str]:
    """Keys of `cclbench ops --by`, after those that are already given."""
    from cclbench.analyzers.view.work_keys import BY

    head, comma, key = prefix.rpartition(",")
    return [head + comma + name for name in BY if name.startswith(key) and name not in head.split(",")]
