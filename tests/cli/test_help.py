# SPDX-License-Identifier: Apache-2.0
"""Every command, option and metric is documented."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
from helpers.command_line import Call

from cclbench.analyzers.metric import METRICS
from cclbench.cli import COMMANDS, cli
from cclbench.replay.scenario import parse_scenario


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
CONTRACT = """
run site ingest merge metrics list explain diagnose sql ops reproduce sequences stragglers pareto report
memory timeline open compare history whatif project export remove search selftest selfcheck contribute verify
import claims mcp card hardware
"""


def test_the_contract_has_its_commands_each_with_its_summary() -> None:
    assert {path[0] for path in ALL} == set(CONTRACT.split())
    for name, summary in COMMANDS.items():
        command = cli.get_command(click.Context(cli), name)
        assert summary == " ".join(command.help.split("\n\n")[0].split())


def test_every_command_has_help_that_fits_with_an_example_and_says_what_options_do(call: Call) -> None:
    for path, command in ALL.items():
        options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
        assert options, path
        assert [option.name for option in options if not option.help] == [], path
        answer = call(*path, "--help")
        assert answer.code == 0, path
        assert max(map(len, answer.out.splitlines())) <= 80, path
        text = command.help or ""
        assert len(text) > 20, path
        assert path[0] == "card" or f"cclbench {' '.join(path)} " in text.partition("Examples:")[2], path


def test_the_settings_in_the_help_can_be_set() -> None:
    keys = (ALL["whatif",].help or "").partition("Keys:")[2].partition("`")[0]
    named = re.findall(r"[\w.\[\]]+=[\w.:]+", keys)
    assert len(named) >= 10
    for text in named:
        parse_scenario([text])


def test_explain_without_a_metric_explains_all(call: Call) -> None:
    shown = call("explain").out.splitlines()
    begins = {name: shown.index(name) for name in METRICS}
    for name, begin in begins.items():
        end = min((other for other in begins.values() if other > begin), default=len(shown))
        explained = "".join("".join(shown[begin:end]).split())
        one = METRICS.get(name)
        texts = (one.definition, one.formula, one.not_applicable, one.combined, *one.aliases)
        assert [text for text in texts if "".join(text.split()) not in explained] == [], name
    answer = call("explain", name)
    assert (answer.code, answer.out.splitlines()) == (0, shown[begin:])


def test_the_program_alone_prints_a_short_help(call: Call) -> None:
    answer = call()
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert len(lines) < 12
    assert "All commands: cclbench --help. One of them: cclbench COMMAND --help." in lines
    named = {line.split()[1] for line in lines if line.startswith("  cclbench ")}
    assert named <= set(COMMANDS)
