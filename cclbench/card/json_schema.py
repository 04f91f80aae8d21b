# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema of cards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cclbench.ground import json_schema as by_schema


def card_schema() -> Mapping[str, Any]:
    """The JSON Schema (draft-07) of workload cards, version 2."""
    return by_schema.packaged_schema("card")


def value_misfit(value: object, path: str) -> str | None:
    """Why `value` is not valid at the dotted `path` of a card, or None."""
    return by_schema.mismatch_reason(value, schema_part(path))


def schema_part(path: str) -> Mapping[str, Any]:
    """The part of the schema that describes the dotted `path`."""
    part = card_schema()
    for key in path.split("."):
        part = part["properties"][key]
    return part
