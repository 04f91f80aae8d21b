# SPDX-License-Identifier: Apache-2.0
"""`cclbench hardware probe`: the benchmarks that make a machine's predictions more certain."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cclbench.cli import completion, options
from cclbench.cli.hardware_model import fit_calibration, read_machine_sweeps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cclbench.hardware.probe import ProbeCommand

_MOST_COMMANDS: Final = 8
_MOST_NODES: Final = 1 << 12
_MOST_STDIN: Final = 64 << 20
_LONGEST_S: Final = 600


@click.command()
@click.argument("machine", metavar="SYSTEM", shell_complete=completion.machines)
@click.argument("sources", metavar="[ANSWER]...", nargs=-1)
@click.option(
    "--collective",
    "kinds",
    metavar="KIND",
    multiple=True,
    help="Collective of interest; repeatable.  [default: all_reduce, all_gather, reduce_scatter, all_to_all]",
)
@click.option("--nodes", type=click.IntRange(1, _MOST_NODES), default=2, show_default=True, help="Nodes.")
@click.option(
    "--commands",
    "most",
    type=click.IntRange(1, _MOST_COMMANDS),
    default=3,
    show_default=True,
    help="Commands to print at most.",
)
@click.option("--run", "run_here", is_flag=True, help="Run the commands here; nccl-tests must be in PATH.")
@options.hardware
@options.inference
@options.store
@options.form
def probe(
    machine: str,
    sources: tuple[str, ...],
    kinds: tuple[str, ...],
    nodes: int,
    most: int,
    run_here: bool,
    files: tuple[Path, ...],
    form: str,
    **reading: Any,
) -> None:
    """Print the few nccl-tests commands that narrow a machine's bands most.

    Each measures four sizes. With ANSWER, files of their output or - for standard
    input, prints the bands before and after; `calibrate` keeps the answers.
    A band is high / low of the prediction.

    \b
    Examples:
      cclbench hardware probe aws-p5 --nodes 4
      cclbench hardware probe dgx-h100 --nodes 1 --run
      cclbench hardware probe aws-p5 all_reduce.txt all_gather.txt
    """
    from tempfile import TemporaryDirectory

    from cclbench.ground.errors import UsageError, near
    from cclbench.hardware import catalog
    from cclbench.hardware import probe as probing
    from cclbench.present.terminal.hardware import probe_page
    from cclbench.present.terminal.output import emit_answer

    for kind in kinds:
        if kind not in probing.PROGRAMS:
            raise UsageError(f"nccl-tests have no program for {kind!r}", hint=near(kind, probing.PROGRAMS))
    if run_here and sources:
        raise UsageError("--run and answers exclude each other")
    with catalog.extended_catalog(files):
        system = catalog.system(machine)
        collectives = dict.fromkeys(kinds or probing.KINDS)
        nodes = nodes if system.scale_out or system.domain_size > system.per_node else 1
        commands = [] if sources else probing.choose_commands(system, list(collectives), nodes, most)
        with TemporaryDirectory() as folder:
            answers = (
                _run_commands(commands, Path(folder)) if run_here else _with_stdin(sources, Path(folder))
            )
            sweeps = read_machine_sweeps(tuple(answers), system, **reading) if answers else []
        measured = fit_calibration(sweeps, system) if sweeps else commands
        rows = probing.band_rows(system, list(collectives), nodes, measured)
    lines = [" ".join(command.arguments) for command in commands]
    emit_answer(
        form,
        document={"schema": "probe.v1", "system": system.id, "commands": lines, "rows": rows},
        rows=rows,
        columns=probing.COLUMNS,
        table=lambda: probe_page(system, lines, rows),
    )


def _with_stdin(sources: Sequence[str], folder: Path) -> list[str]:
    """The sources, with standard input (`-`) as a file."""
    from cclbench.ground.errors import InputError

    if "-" not in sources:
        return list(sources)
    read = sys.stdin.buffer.read(_MOST_STDIN + 1)
    if len(read) > _MOST_STDIN:
        raise InputError("is too large for output of nccl-tests (64 MiB)", where="standard input")
    path = folder / "stdin.txt"
    path.write_bytes(read)
    return [str(path) if source == "-" else source for source in sources]


def _run_commands(commands: Sequence[ProbeCommand], folder: Path) -> list[str]:
    """Run the commands one after another without a shell; the files of their output.

    `UsageError` if a program is missing, `CheckFailed` if one fails or does not end.
    """
    import subprocess
    from shutil import which

    from cclbench.ground.errors import CheckFailed, UsageError

    for command in commands:
        missing = [name for name in (command.arguments[0], command.program) if which(name) is None]
        if missing:
            hint = "build nccl-tests (rccl-tests on AMD) and add its build folder to PATH"
            raise UsageError(f"{missing[0]} is not in PATH", hint=hint)
    outputs = []
    for at, command in enumerate(commands):
        path = folder / f"{at}_{command.program}.txt"
        try:
            with path.open("wb") as output:
                result = subprocess.run(  # noqa: S603  (a list of arguments: no shell reads it)
                    command.arguments,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    timeout=_LONGEST_S,
                    check=False,
                )
        except subprocess.TimeoutExpired:
            raise CheckFailed(f"{command.program} did not end within {_LONGEST_S} s") from None
        if result.returncode:
            line = " ".join(command.arguments)
            raise CheckFailed(f"{command.program} failed with exit status {result.returncode}", hint=line)
        outputs.append(str(path))
    return outputs
