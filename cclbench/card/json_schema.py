# SPDX-License-Identifier: Apache-2.0
"""A card against its JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cclbench import json_schema as by_schema
from cclbench.diagnostics import Problem
from cclbench.yaml_file import Document


def schema() -> Mapping[str, Any]:
    """The JSON Schema (draft-07) of workload cards, version 2."""
    return by_schema.packaged_schema("card")


def conform(document: Document) -> list[Problem]:
    """Every way in which the card departs from the schema, in the order of the file."""
    return by_schema.departures(document, schema())


def misfit(value: object, path: str) -> str | None:
    """Why `value` can't stand at the dotted `path` of a card, or None where it can."""
    return by_schema.misfit(value, home(path))


def home(path: str) -> Mapping[str, Any]:
    """The part of the schema that describes the dotted `path`."""
    part = schema()
    for key in path.split("."):
        part = part["properties"][key]
    return part
