# SPDX-License-Identifier: Apache-2.0
"""Commands from outside: listed, completed and called like ours; a broken one is a warning."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from helpers.packages import cclbench_with, install, path_to

HELLO = '''
"""A greeting, with the store that it would look at."""

import click

from cclbench.cli import options


@click.command()
@options.store
def hello(store):
    """Greet whoever reads.

    It says more here.
    """
    click.echo(f"hello from {store.name}")
'''


def called(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`cclbench WORDS` where the package is installed that has one command that loads and two that do not."""
    return cclbench_with({**os.environ, "COLUMNS": "80", "PYTHONPATH": path_to(folder)}, *words)


def installed(folder: Path) -> Path:
    """The package, which also has a command of the name of one of ours."""
    (folder / "greetings.py").write_text(HELLO)
    names = {"hello": "hello", "number": "__file__", "broken": "goodbye", "run": "hello"}
    commands = {command: f"greetings:{name}" for command, name in names.items()}
    install(folder, "greetings", "1.0", {"cclbench.commands": commands})
    return folder


def test_a_command_from_outside_is_one_of_ours(tmp_path: Path) -> None:
    folder = installed(tmp_path)
    shown = called(folder, "--help").stdout
    assert "  hello       Greet whoever reads.\n" in shown
    assert shown.index("  hardware ") < shown.index("  claims ") < shown.index("  hello ")
    assert called(folder, "hello", "--store", "runs-of-mine").stdout == "hello from runs-of-mine\n"
    assert "Compute where each step's time went" in called(folder, "run", "--help").stdout
    assert "did you mean hello?" in called(folder, "helo").stderr


def test_a_broken_command_is_a_warning(tmp_path: Path) -> None:
    folder = installed(tmp_path)
    listed = called(folder, "--help")
    assert listed.returncode == 0
    assert "  broken      did not load\n" in listed.stdout
    assert "  number      did not load\n" in listed.stdout
    warning = "warning: command plug-in 'broken' (greetings:goodbye) did not load: "
    assert listed.stderr.startswith(warning)
    answer = called(folder, "broken")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith(warning)
    assert "No such command 'broken'" in answer.stderr
    assert called(folder, "--version").stderr == ""
