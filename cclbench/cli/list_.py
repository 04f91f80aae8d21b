# SPDX-License-Identifier: Apache-2.0
"""`cclbench list`: what there is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from cclbench.cli.options import debug_option, format_options, store_option

Rows = list[dict[str, Any]]

_LABELS: Final = {
    "peak_flops_per_s": "bf16",
    "hbm_bytes": "memory",
    "hbm_bytes_per_s": "memory rate",
    "sm_count": "SMs",
    "scale_up_bytes_per_s": "scale-up",
}
_QUANTITIES: Final = {"_flops_per_s": "FLOP/s", "_bytes_per_s": "B/s", "_bytes": "B"}


@click.command()
@click.argument("what", type=click.Choice(("metrics", "readers", "hardware", "runs", "cards")))
@store_option
@format_options
@debug_option
def list_(what: str, store: Path, form: str) -> None:
    """List metrics, readers, hardware, runs or cards.

    Runs are those of the store, cards those in workload_cards/ of the current folder. A plug-in that
    did not load is listed with its error. The table shows dense bf16 peaks; --json has all of them.

    \b
    Examples:
      cclbench list metrics
      cclbench list runs --store /scratch/runs
      cclbench list hardware --json
    """
    from cclbench.cli.output import emit, grid

    columns, find = _LISTS[what]
    rows = find(store)
    emit(
        form,
        document={"schema": "list.v1", "what": what, "rows": rows},
        rows=rows,
        columns=columns,
        table=lambda: grid(
            [{_LABELS.get(key, key): _short(key, row.get(key)) for key in columns} for row in rows],
            [_LABELS.get(key, key) for key in columns],
        ),
    )


def _short(column: str, cell: Any) -> Any:
    """A cell as the table shows it: a text's first sentence, a quantity as people read it."""
    from cclbench.units import humanise

    if isinstance(cell, str):
        return cell.partition(". ")[0]
    if isinstance(cell, dict):
        cell = cell.get("bf16")
    unit = next((unit for suffix, unit in _QUANTITIES.items() if column.endswith(suffix)), None)
    return cell if cell is None or unit is None else humanise(cell, unit)


def _metrics(_: Path) -> Rows:
    from cclbench.analyzers.metric import METRICS

    rows = [
        {
            "name": m.name,
            "unit": m.unit,
            "better": m.better,
            "definition": m.definition,
            "origin": METRICS.origin(m.name),
        }
        for m in map(METRICS.get, METRICS)
    ]
    return rows + _broken(METRICS.broken, "definition")


def _readers(_: Path) -> Rows:
    from cclbench.readers import READERS

    rows = [
        {
            "name": reader.name,
            "reads": reader.reads,
            "formats": reader.description,
            "extensions": list(reader.extensions),
            "versions": reader.versions,
            "tested": reader.tested,
            "origin": READERS.origin(name),
        }
        for name, reader in ((name, READERS.get(name)) for name in READERS)
    ]
    return rows + _broken(READERS.broken, "formats")


def _broken(plugins: dict[str, str], column: str) -> Rows:
    return [{"name": name, column: f"did not load: {error}"} for name, error in sorted(plugins.items())]


def _hardware(_: Path) -> Rows:
    import msgspec

    from cclbench.hardware.catalog import accelerators

    return [msgspec.to_builtins(accelerator) for accelerator in accelerators().values()]


def _runs(store: Path) -> Rows:
    from cclbench.pipeline import runs

    return [
        {
            "run": manifest["run"],
            "ranks": len(manifest["ranks"]),
            "steps": max((rank["steps"]["found"] for rank in manifest["ranks"]), default=0),
            "card": manifest["card"]["id"] if manifest["card"] else None,
            "source": manifest["source"],
        }
        for manifest in runs(store)
    ]


def _cards(_: Path) -> Rows:
    from cclbench.card.read import read
    from cclbench.card.validate import validate
    from cclbench.errors import CclbenchError

    rows: Rows = []
    for path in sorted(Path("workload_cards").glob("*.yaml")):
        try:
            value, problems = read(path).value, len(validate(path))
            state = "yes" if not problems else f"no: {problems} problems"
        except CclbenchError as error:
            value, state = {}, f"no: {error.what}"
        rows.append(
            {
                "id": value.get("id"),
                "description": value.get("description"),
                "path": str(path),
                "valid": state,
            }
        )
    return rows


_LISTS: Final = {
    "metrics": (("name", "unit", "better", "definition"), _metrics),
    "readers": (("name", "formats", "versions", "tested"), _readers),
    "hardware": (
        ("id", "peak_flops_per_s", "hbm_bytes", "hbm_bytes_per_s", "sm_count", "scale_up_bytes_per_s"),
        _hardware,
    ),
    "runs": (("run", "ranks", "steps", "card", "source"), _runs),
    "cards": (("id", "description", "path", "valid"), _cards),
}
