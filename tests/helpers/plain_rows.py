# SPDX-License-Identifier: Apache-2.0
"""Rows of a reader's batch as plain dictionaries."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from cclbench.formats import Rows


def plain_rows(batch: Rows) -> list[dict[str, Any]]:
    """Each row with its kind, side and name, and every column, None where the batch has none."""
    names, columns = list(batch.names), {}
    for column in fields(batch):
        if column.name not in ("kind", "side", "names", "codes", "name_categories"):
            values = getattr(batch, column.name)
            values = [None] * len(batch) if values is None else values
            columns[column.name] = values if isinstance(values, list) else values.tolist()
    common = {"kind": batch.kind, "side": batch.side}
    return [
        common | {"name": names[code]} | {name: values[i] for name, values in columns.items()}
        for i, code in enumerate(batch.codes.tolist())
    ]
