# SPDX-License-Identifier: Apache-2.0
"""The command line: one module a subcommand, imported when it is called; no logic.

Data goes to stdout, all else to stderr.  Exit codes: 0 done, 1 a check failed, 2 wrong usage, 3 input
unreadable, corrupt or unsupported (or the store can't be written, or memory does not suffice), 4 internal
error; 130, 141 and 143 when interrupted, when the reader of the output went away or when terminated, as
shells count signals.
"""

from __future__ import annotations

import builtins
import importlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from keyword import iskeyword
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import click

from cclbench import __version__
from cclbench.cli import options
from cclbench.cli.failures import CLOSED_PIPE, INTERRUPTED, TERMINATED, tell, warn
from cclbench.ground.errors import near
from cclbench.ground.out_of_memory import require_memory
from cclbench.present.terminal.streams import printable_streams

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

# The summaries stand here too, so that `--help` need not import a command to list it.
COMMANDS: Final = {
    "run": "Compute where each step's time went, from a card, a trace folder or a trace file.",
    "ingest": "Read traces into the store, without computing anything.",
    "merge": "Make the run of all shards that `cclbench ingest --shard` made of one source.",
    "metrics": "Compute the metrics of a run that is in the store.",
    "diagnose": "Find what makes a run slow, what it would gain, and what to try.",
    "list": "List metrics, findings, SQL views, readers, hardware, settings, runs or cards.",
    "remove": "Remove runs from the store, each whole; the traces they were read from stay.",
    "explain": "Explain a metric, a finding or a view: definition, formula, columns, limits.",
    "sql": "Query the tables and views of a run with SQL.",
    "ops": "List what operators cost: time, FLOPs, bytes, and how far each is from the roofline.",
    "sequences": "List the runs of successive kernels that take most time: what to fuse.",
    "stragglers": "Who is late in each step, why, and whether it is the same rank again.",
    "report": "Write a run's report: one HTML file that needs nothing else.",
    "memory": "Show the memory of each device: its peak, and which call sites held it.",
    "timeline": "Draw one step on all ranks: who computed, who waited, who transferred.",
    "open": "Look at all ranks on one time axis, in Perfetto's viewer.",
    "compare": "Compare runs: who is faster, by how much, and why.",
    "whatif": "Replay a run under other hardware: what would the step take?",
    "export": "Write a run's graph for simulators: Chakra execution traces, ASTRA-sim's inputs.",
    "search": "Search the best of many scenarios, and what each costs.",
    "contribute": "Make a data point from a card, traces and scripts.",
    "verify": "Compute data points again from their evidence, and compare with what is recorded.",
    "selftest": "Score findings and metrics on simulated jobs whose slow cause is known.",
    "selfcheck": "Check figures of your own traces against themselves.",
    "mcp": "Serve agents: a Model Context Protocol server on stdin and stdout.",
    "card": "Make, check, upgrade and show workload cards.",
    "hardware": "Show machines; predict collectives, validate and calibrate the model.",
}
PLUGINS: Final = "cclbench.commands"
"""The group of entry points that name click commands of other packages, and of `cclbench.studies`:

    [project.entry-points."cclbench.commands"]
    hello = "my_package.commands:hello"
"""
_PROGRAM = "cclbench"


class _ClosedPipe(Exception):  # noqa: N818  (nobody's error)
    """Whoever read our output went away; click would answer an OSError with exit code 1 itself."""


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which is to leave no more behind than Ctrl-C does."""


@contextmanager
def _signals_clean_up() -> Iterator[list[int]]:
    """Raise at SIGTERM and Ctrl-C, and note them: a library may swallow what is raised, and fail for that.

    `timeout` sends SIGTERM twice, and the second would end the cleaning up: it is raised once.  One that is
    raised where nothing can be, in a callback of the interpreter, is raised again a moment later.
    """
    came: list[int] = []

    def terminate(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_IGN)
        came.append(number)
        raise _Terminated

    def interrupt(number: int, frame: FrameType | None) -> None:
        came.append(number)
        signal.default_int_handler(number, frame)

    def again(told: sys.UnraisableHookArgs) -> None:
        if not issubclass(told.exc_type, KeyboardInterrupt):
            hook(told)
            return
        signal.signal(signal.SIGALRM, partial(_raise, told.exc_type))
        signal.setitimer(signal.ITIMER_REAL, 0.01)

    defaults: dict[int, Any] = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    if threading.current_thread() is not threading.main_thread():
        defaults = {}
    ours = [number for number, default in defaults.items() if signal.getsignal(number) is default]
    for number in ours:
        signal.signal(number, terminate if number == signal.SIGTERM else interrupt)
    hook = sys.unraisablehook
    if ours:
        sys.unraisablehook = again
    try:
        yield came
    finally:
        sys.unraisablehook = hook
        for number in ours:
            signal.signal(number, defaults[number])


def _raise(error: type[BaseException], *_: object) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    raise error


@contextmanager
def _closed_pipe_told_apart() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise _ClosedPipe from error


class LazyGroup(click.Group):
    """The commands of `COMMANDS`, each the object of its name in the module of its name; then plug-ins'."""

    @cached_property
    def plugins(self) -> dict[str, EntryPoint]:
        """Commands from entry points, by their names; none takes the name of one of ours."""
        from importlib import metadata

        entries = sorted(metadata.entry_points(group=PLUGINS), key=lambda entry: entry.name)
        return {entry.name: entry for entry in entries if entry.name not in COMMANDS}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's signature)
        """The names, in the order in which a newcomer needs them; those of plug-ins last."""
        return [*COMMANDS, *self.plugins]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command, imported now; None where there is none, or a plug-in's does not load."""
        if cmd_name not in COMMANDS and cmd_name not in self.plugins:
            return None
        require_memory()
        if cmd_name not in COMMANDS:
            return self._plugin(cmd_name)
        name = f"{cmd_name}_" if cmd_name in dir(builtins) or iskeyword(cmd_name) else cmd_name
        command = getattr(importlib.import_module(f"cclbench.cli.{name}"), name)
        assert isinstance(command, click.Command)  # noqa: S101  (a defect of ours)
        return command

    def _plugin(self, name: str) -> click.Command | None:
        """A plug-in's command; None, with a warning, where it does not load."""
        from cclbench.ground.registry import load_plugin

        command, _ = load_plugin(self.plugins[name], "command")
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's; an unknown command names its near matches."""
        if args[0] not in COMMANDS and args[0] not in self.plugins and not args[0].startswith("-"):
            hint = near(args[0], self.list_commands(ctx))
            raise click.UsageError(f"unknown command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """As click's, where it prints the help."""
        with _closed_pipe_told_apart():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """As click's: the command."""
        with _closed_pipe_told_apart():
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list in `--help`, without importing the commands, but for those of plug-ins."""
        plugins = [(name, _summary(self._plugin(name))) for name in self.plugins]
        with formatter.section("Commands"):
            formatter.write_dl([*COMMANDS.items(), *plugins])


def _summary(command: click.Command | None) -> str:
    """The first paragraph of a command's help; that it did not load where there is none."""
    if command is None:
        return "did not load"
    return " ".join((command.help or "").split("\n\n")[0].split())


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    epilog='Shell completion: eval "$(_CCLBENCH_COMPLETE=bash_source cclbench)" (or zsh_source, fish_source)',
)
@click.version_option(
    __version__, prog_name=_PROGRAM, message="%(prog)s %(version)s", help="Show the version."
)
@options.debug
def cli() -> None:
    """Where the time of an ML workload's steps went, on every rank, from its traces.

    \b
    Examples:
      cclbench run traces/my-job            a folder of PyTorch traces, one a rank
      cclbench run workload_cards/llama.yaml --json
      cclbench explain time.exposed_comm
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; the only place where errors become messages."""
    session = options.Session()
    with warnings.catch_warnings(), printable_streams(), _signals_clean_up() as came:
        warnings.showwarning = warn
        try:
            code = cli.main(argv, prog_name=_PROGRAM, standalone_mode=False, obj=session)
            sys.stdout.flush()
        except click.Abort as abort:
            return _tell_ended(terminated=isinstance(abort.__cause__, _Terminated))
        except (_ClosedPipe, BrokenPipeError):
            _drop_output()
            return CLOSED_PIPE
        except OSError as error:
            if error.filename is None:
                _drop_output()
            return tell(error, session)
        except Exception as error:  # noqa: BLE001  (the boundary: every error becomes a message and a code)
            return _tell_ended(terminated=signal.SIGTERM in came) if came else tell(error, session)
        return code if isinstance(code, int) else 0


def _tell_ended(*, terminated: bool) -> int:
    click.echo("terminated" if terminated else "interrupted", err=True)
    return TERMINATED if terminated else INTERRUPTED


def _drop_output() -> None:
    """The interpreter flushes stdout once more at exit; what it can't write must go somewhere."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
