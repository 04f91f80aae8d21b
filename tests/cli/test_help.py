# SPDX-License-Identifier: Apache-2.0
"""Every command, option and metric is documented."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import click
import pytest

from cclbench.analyzers.metric import METRICS
from cclbench.cli import COMMANDS, cli
from cclbench.replay.scenario import scenario


def commands(
    group: click.Group = cli, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands and subcommands with their paths."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


ALL = dict(commands())


def test_the_contract_has_its_commands() -> None:
    assert {path[0] for path in ALL} == {
        "run",
        "ingest",
        "merge",
        "metrics",
        "list",
        "explain",
        "diagnose",
        "sql",
        "ops",
        "sequences",
        "stragglers",
        "report",
        "memory",
        "timeline",
        "open",
        "compare",
        "whatif",
        "export",
        "remove",
        "search",
        "selftest",
        "selfcheck",
        "contribute",
        "verify",
        "import",
        "claims",
        "mcp",
        "card",
        "hardware",
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_is_the_first_line_of_the_help(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.help is not None
    assert COMMANDS[name] == " ".join(command.help.split("\n\n")[0].split())


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_option_says_what_it_does(path: tuple[str, ...]) -> None:
    options = [parameter for parameter in ALL[path].params if isinstance(parameter, click.Option)]
    assert options
    assert [option.name for option in options if not option.help] == []


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_has_help_that_fits(call: Callable[..., Any], path: tuple[str, ...]) -> None:
    answer = call(*path, "--help")
    assert answer.code == 0
    assert max(map(len, answer.out.splitlines())) <= 80
    assert len(ALL[path].help or "") > 20


@pytest.mark.parametrize("path", [path for path in ALL if path[0] != "card"], ids=" ".join)
def test_help_has_an_example_of_the_command(path: tuple[str, ...]) -> None:
    text = ALL[path].help or ""
    assert f"cclbench {' '.join(path)} " in text.partition("Examples:")[2]


def test_the_settings_in_the_help_can_be_set() -> None:
    keys = (ALL["whatif",].help or "").partition("Keys:")[2].partition("`")[0]
    named = re.findall(r"[\w.\[\]]+=[\w.:]+", keys)
    assert len(named) >= 10
    for text in named:
        scenario([text])


@pytest.mark.parametrize("name", list(METRICS))
def test_every_metric_is_explained(call: Callable[..., Any], name: str) -> None:
    metric = METRICS.get(name)
    for text in (metric.definition, metric.formula, metric.unit, metric.not_applicable, metric.combined):
        assert text.strip()
    assert metric.inputs
    answer = call("explain", name)
    assert answer.code == 0
    shown = "".join(answer.out.split())
    for text in (metric.definition, metric.formula, metric.not_applicable, metric.combined, *metric.aliases):
        assert "".join(text.split()) in shown


def test_explain_without_a_metric_explains_all(call: Callable[..., Any]) -> None:
    shown = call("explain").out.splitlines()
    assert [name for name in METRICS if name not in shown] == []
