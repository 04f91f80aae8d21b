# SPDX-License-Identifier: Apache-2.0
"""Validate YAML documents against JSON Schemas, with readable messages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from math import isfinite
from typing import TYPE_CHECKING, Any

from cclbench.ground.diagnostics import Path, Problem, dotted_path
from cclbench.ground.errors import CheckFailed, near
from cclbench.ground.text import quoted_value
from cclbench.ground.units import Dimension, parse_quantity
from cclbench.ground.yaml_file import Document

if TYPE_CHECKING:
    from jsonschema import ValidationError


def schema_problems(document: Document, schema: Mapping[str, Any]) -> list[Problem]:
    """All violations of the schema by the document, in the order of the file.

    A `format` in the schema that names a dimension of `units` requires a quantity of it, optionally followed
    by the key of its source in parentheses.
    """
    problems = {
        Problem("error", document.file, document.line(path), dotted_path(path), message)
        for error in _validator_class()(schema).iter_errors(document.value)
        for path, message in _error_messages(error, tuple(error.absolute_path), schema)
    }
    return sorted(problems, key=lambda problem: (problem.line or 0, problem.path))


@cache
def packaged_schema(name: str) -> Mapping[str, Any]:
    """The JSON Schema (draft-07) in the package's file `schemas/<name>.json`."""
    loaded: dict[str, Any] = json.loads((files("cclbench") / "schemas" / f"{name}.json").read_text("utf-8"))
    return loaded


def mismatch_reason(value: object, part: Mapping[str, Any]) -> str | None:
    """Why `value` does not conform to `part` of a schema, or None."""
    for error in _validator_class()(part).iter_errors(value):
        return next(message for _, message in _error_messages(error, (), part))
    return None


@cache
def _validator_class() -> Callable[[Mapping[str, Any]], Any]:
    """A validator for draft 7: `$` matches only the very end, quantities are parsed, numbers are finite."""
    from jsonschema import Draft7Validator, ValidationError, validators

    def pattern(
        _: object, expression: str, value: object, part: Mapping[str, Any]
    ) -> Iterator[ValidationError]:
        if not isinstance(value, str):
            return
        exact = (
            re.fullmatch(expression[1:-1], value) if expression[0] == "^" else re.search(expression, value)
        )
        if exact is None or ("format" in part and _not_a_quantity(value, part["format"])):
            yield ValidationError("pattern")

    def is_integer(_: object, value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool)

    def finite(_: object, value: object) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)

    types = Draft7Validator.TYPE_CHECKER.redefine_many({"integer": is_integer, "number": finite})
    extend: Callable[..., Any] = validators.extend
    dialect: Callable[[Mapping[str, Any]], Any] = extend(
        Draft7Validator, {"pattern": pattern}, type_checker=types
    )
    return dialect


def _not_a_quantity(text: str, dimension: Dimension) -> str | None:
    try:
        parse_quantity(text.partition(" (")[0], dimension)
    except CheckFailed as error:
        return str(error)
    return None


def _error_messages(error: Any, path: Path, schema: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """Path and message of a validation error, for each key that it concerns."""
    if "propertyNames" in error.absolute_schema_path:
        yield (*path, str(error.instance)), "is not the name of an environment variable"
    elif error.validator == "additionalProperties":
        for key in error.instance:
            if key not in error.schema["properties"]:
                yield (
                    (*path, key),
                    f"unknown key; {_unknown_key_hint(key, error.schema['properties'], schema)}",
                )
    elif error.validator == "required":
        for key in error.validator_value:
            if key not in error.instance:
                yield (*path, key), f"is missing: {error.schema['properties'][key]['title']}"
    else:
        yield path, _missing_source(error) or _MESSAGES.get(str(error.validator), _example_message)(error)


def _missing_source(error: Any) -> str | None:
    """The message for a figure without source, None if something else is wrong with it."""
    sourced = f"{error.instance} (unverified)"
    is_cited = error.schema.get("pattern", "").endswith(r"\)$")
    if is_cited and _validator_class()(error.schema).is_valid(sourced):
        return (
            f"states no source: add its key in parentheses, or write {quoted_value(sourced)} if none is known"
        )
    return None


def _unknown_key_hint(key: str, siblings: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    if elsewhere := [home for home in _key_paths(schema) if home.rpartition(".")[2] == key]:
        return f"it belongs at {' or '.join(elsewhere)}"
    return near(key, siblings)


def _key_paths(part: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, below in part.get("properties", {}).items():
        yield prefix + key
        yield from _key_paths(below, f"{prefix}{key}.")


_KINDS = {
    "integer": "a whole number, written out",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping of `key: value` lines",
}


def _wrong_type(error: Any) -> str:
    if error.instance is None:
        return "is empty; fill it in or delete the line"
    expected_type = error.validator_value
    if isinstance(expected_type, list):
        return _example_message(error)
    if expected_type == "string" and isinstance(error.instance, int | float):
        return f"is {quoted_value(error.instance)} but must be text; put it in quotes"
    return f"is {quoted_value(error.instance)} but must be {_KINDS[expected_type]}"


def _not_a_choice(error: Any) -> str:
    return f"is {quoted_value(error.instance)}; {near(str(error.instance), error.validator_value)}"


def _example_message(error: Any) -> str:
    value, dimension = error.instance, error.schema.get("format")
    if dimension and isinstance(value, str) and (reason := _not_a_quantity(value, dimension)):
        return reason
    example = error.schema["examples"][0]
    wanted = f"{error.schema['title']}, like {quoted_value(example)}"
    return f"is {quoted_value(error.instance)}, which does not fit: {wanted}"


_MESSAGES: dict[str, Callable[[Any], str]] = {
    "type": _wrong_type,
    "enum": _not_a_choice,
    "minimum": lambda error: (
        f"is {quoted_value(error.instance)} but must be at least {error.validator_value}"
    ),
    "maximum": lambda error: f"is {quoted_value(error.instance)} but must be at most {error.validator_value}",
    "minItems": lambda _: "is empty; fill it in or delete the line",
    "uniqueItems": lambda error: f"is {quoted_value(error.instance)}, which names something twice",
    "const": lambda error: f"is {quoted_value(error.instance)} but must be {error.validator_value}",
}
