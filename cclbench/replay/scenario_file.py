# SPDX-License-Identifier: Apache-2.0
"""Scenario files: strict YAML with a name, a description and settings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cclbench.ground import yaml_file
from cclbench.ground.destination import write_whole
from cclbench.ground.diagnostics import Path as Place
from cclbench.ground.errors import CclbenchError, InputError
from cclbench.ground.json_schema import packaged_schema, schema_problems
from cclbench.ground.text import listed
from cclbench.ground.yaml_file import Document
from cclbench.replay.scenario import Scenario, key_and_value, parse_scenario, split_settings

SUFFIXES = (".yaml", ".yml")
_MOST_SHOWN = 3


def is_scenario_file(text: str | Path) -> bool:
    """Whether a scenario argument names a file rather than settings."""
    return isinstance(text, Path) or ("=" not in text and text.endswith(SUFFIXES))


def named_settings(scenario: str | Path) -> tuple[str, Sequence[str]]:
    """The name of a scenario in results, and its settings."""
    return (
        read_scenario(Path(scenario))
        if is_scenario_file(scenario)
        else (str(scenario), split_settings(str(scenario)))
    )


def read_scenario(path: Path) -> tuple[str, tuple[str, ...]]:
    """Name (the file's where it states none) and settings of a scenario file.

    `InputError` with file and line for an invalid file or setting.
    """
    document = read_checked(path, "scenario")
    texts = tuple(f"{key}={value}" for key, value in document.value["set"].items())
    for key, text in zip(document.value["set"], texts, strict=True):
        with locate_errors(document, ("set", key)):
            parse_scenario([text])
    with locate_errors(document, ("set",)):
        parse_scenario(texts)
    return document.value.get("name", path.stem), texts


def read_checked(path: Path, noun: str) -> Document:
    """The file's document, validated by the packaged schema; `InputError` with file and line."""
    document = yaml_file.read(path, noun)
    problems = list(document.problems) or schema_problems(document, packaged_schema(noun))
    if problems:
        raise InputError(listed([str(problem) for problem in problems], _MOST_SHOWN))
    return document


@contextmanager
def locate_errors(document: Document, place: Place) -> Iterator[None]:
    """Add the file and line of a setting to its errors."""
    try:
        yield
    except CclbenchError as error:
        raise InputError(
            error.lines, where=f"{document.file}:{document.line(place)}", hint=error.hint
        ) from None


def write_scenario(scenario: Scenario, path: Path, description: str | None = None) -> None:
    """Write the scenario as a file for `read_scenario`; `InputError` without settings."""
    if not scenario.texts:
        raise InputError(f"{scenario.label}: there are no settings to write", where=str(path))
    settings = map(key_and_value, scenario.texts)
    lines = [
        f"name: {_quote_yaml(scenario.label)}",
        *([f"description: {_quote_yaml(description)}"] if description else []),
        "set:",
        *(f"  {_quote_yaml(key)}: {_quote_yaml(value)}" for key, value in settings),
    ]
    write_whole("\n".join(lines) + "\n", path)


def _quote_yaml(text: str) -> str:
    """A quoted YAML string."""
    return json.dumps(text, ensure_ascii=False)
