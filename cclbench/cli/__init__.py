# SPDX-License-Identifier: Apache-2.0
"""The command line: one module per subcommand, imported when it is called.

Data goes to stdout, everything else to stderr.  Exit codes: 0 done, 1 a check failed, 2 wrong usage, 3 input
unreadable, corrupt or unsupported (or the store cannot be written, or memory does not suffice), 4 internal
error, 5 a check could not be made; as shells number signals: 130 interrupted, 141 the reader of the output
closed it, 143 terminated.
"""

from __future__ import annotations

import atexit
import builtins
import gc
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
from cclbench.cli.failures import CLOSED_PIPE, INTERRUPTED, TERMINATED, print_warning, report_error
from cclbench.ground.errors import near
from cclbench.ground.out_of_memory import require_memory
from cclbench.present.terminal.streams import printable_streams

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

# Repeated from the commands' docstrings, so that `--help` need not import them.
COMMANDS: Final = {
    "run": "Compute where each step's time went, from a card, a trace folder or a trace file.",
    "ingest": "Read traces into the store, without computing anything.",
    "merge": "Merge the shards that `cclbench ingest --shard` made of one source into a run.",
    "metrics": "Compute the metrics of a stored run.",
    "diagnose": "Find what makes a run slow, what fixing it would gain, and what to try.",
    "list": "List metrics, findings, views, readers, operators, hardware, settings, workloads, runs, cards.",
    "remove": "Remove runs from the store; their traces are kept.",
    "explain": "Explain a metric, a finding, a view, a reader, a setting or a standard workload.",
    "sql": "Query the tables and views of a run with SQL.",
    "ops": "List operators by cost: time, FLOPs, bytes, and distance from the roofline.",
    "reproduce": "Write a micro-benchmark of an operator call, or compare its result with the trace.",
    "sequences": "List the kernel sequences that take the most time: candidates for fusion.",
    "stragglers": "Show which ranks are late in each step, why, and whether it is always the same one.",
    "pareto": "Show serving benchmarks by throughput and latency, and which ones none beats in both.",
    "report": "Write a run's report as one self-contained HTML file.",
    "memory": "Show the peak memory of each device, and which categories, modules and call sites held it.",
    "timeline": "Draw one step on all ranks: computing, waiting and transferring.",
    "open": "Open a run in Perfetto's viewer, all ranks on one time axis.",
    "compare": "Compare runs: which is faster, by how much, and why.",
    "history": "Show a figure over a job's runs in time: its changes of level, and what else changed then.",
    "site": "Make a static site of data points: a board, a page each, comparisons, an explorer.",
    "whatif": "Replay a run on other hardware, and predict its step time.",
    "project": "Predict the step time on many accelerators from a job traced on one.",
    "export": "Export a run: its graph for simulators, or its figures for tools that record metrics.",
    "search": "Search a space of what-if scenarios for the best ones.",
    "contribute": "Make a data point from a card, traces and scripts.",
    "verify": "Recompute data points from their evidence, and compare with the recorded results.",
    "selftest": "Score findings and metrics on simulated jobs with known causes of slowness.",
    "selfcheck": "Check that the results of your own traces are consistent.",
    "mcp": "Run a Model Context Protocol server for agents, on stdin and stdout.",
    "card": "Create, check, upgrade and show workload cards.",
    "hardware": "Show machines; predict collectives; validate, calibrate and probe the cost model.",
}
PLUGINS: Final = "cclbench.commands"
"""The entry-point group of click commands of other packages, and of `cclbench.studies`:

    [project.entry-points."cclbench.commands"]
    hello = "my_package.commands:hello"
"""
_PROGRAM = "cclbench"


class _ClosedPipe(Exception):  # noqa: N818  (not an error)
    """The reader of the output closed it; click itself would exit with 1 on an OSError."""


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which cleans up as Ctrl-C does."""


@contextmanager
def _signals_clean_up() -> Iterator[list[int]]:
    """Raise at SIGTERM and Ctrl-C, and yield the signals received: a library may swallow the exception.

    `timeout` sends SIGTERM twice, and the second would interrupt the clean-up: it is raised once.  If it is
    raised in a callback of the interpreter, which ignores exceptions, it is raised again a moment later.
    """
    received: list[int] = []

    def raise_terminated(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_IGN)
        received.append(number)
        raise _Terminated

    def raise_interrupt(number: int, frame: FrameType | None) -> None:
        received.append(number)
        signal.default_int_handler(number, frame)

    def raise_later(unraisable: sys.UnraisableHookArgs) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            hook(unraisable)
            return
        signal.signal(signal.SIGALRM, partial(_raise_error, unraisable.exc_type))
        signal.setitimer(signal.ITIMER_REAL, 0.01)

    defaults: dict[int, Any] = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    if threading.current_thread() is not threading.main_thread():
        defaults = {}
    handled = [number for number, default in defaults.items() if signal.getsignal(number) is default]
    for number in handled:
        signal.signal(number, raise_terminated if number == signal.SIGTERM else raise_interrupt)
    hook = sys.unraisablehook
    if handled:
        sys.unraisablehook = raise_later
    try:
        yield received
    finally:
        sys.unraisablehook = hook
        for number in handled:
            signal.signal(number, defaults[number])


def _raise_error(error: type[BaseException], *_: object) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    raise error


@contextmanager
def _closed_pipe_as_error() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise _ClosedPipe from error


class LazyGroup(click.Group):
    """The commands of `COMMANDS`, each an object in the module of the same name; then those of plug-ins."""

    @cached_property
    def plugins(self) -> dict[str, EntryPoint]:
        """Commands from entry points by name; built-in names take precedence."""
        from cclbench.ground.entry_points import entry_points

        entries = sorted(entry_points(PLUGINS), key=lambda entry: entry.name)
        return {entry.name: entry for entry in entries if entry.name not in COMMANDS}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's signature)
        """The names, in the order in which a new user needs them; those of plug-ins last."""
        return [*COMMANDS, *self.plugins]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command, imported now; None if there is none, or a plug-in does not load."""
        if cmd_name not in COMMANDS and cmd_name not in self.plugins:
            return None
        require_memory()
        if cmd_name not in COMMANDS:
            return self._load_plugin(cmd_name)
        name = f"{cmd_name}_" if cmd_name in dir(builtins) or iskeyword(cmd_name) else cmd_name
        command = getattr(importlib.import_module(f"cclbench.cli.{name}"), name)
        assert isinstance(command, click.Command)  # noqa: S101  (a defect in cclbench)
        return command

    def _load_plugin(self, name: str) -> click.Command | None:
        """A plug-in's command; None, with a warning, if it does not load."""
        from cclbench.ground.registry import load_plugin

        command, _ = load_plugin(self.plugins[name], "command")
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As in click; the error for an unknown command lists near matches."""
        if args[0] not in COMMANDS and args[0] not in self.plugins and not args[0].startswith("-"):
            hint = near(args[0], self.list_commands(ctx))
            raise click.UsageError(f"unknown command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """As in click, which prints the help here."""
        with _closed_pipe_as_error():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """As in click: run the command."""
        with _closed_pipe_as_error():
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list in `--help`; only commands of plug-ins are imported."""
        plugins = [(name, _help_summary(self._load_plugin(name))) for name in self.plugins]
        with formatter.section("Commands"):
            formatter.write_dl([*COMMANDS.items(), *plugins])


def _help_summary(command: click.Command | None) -> str:
    """The first paragraph of a command's help, or a note that it did not load."""
    if command is None:
        return "did not load"
    return " ".join((command.help or "").split("\n\n")[0].split())


_YOUNG_OBJECTS: Final = 20_000
"""New objects after which garbage is looked for among them, in place of 700: 3 % of a small command."""
_SHORT_HELP: Final = """\
Shows where the step time of an ML workload goes, on every rank, from its traces.

  cclbench run TRACES            where each step's time went
  cclbench diagnose TRACES       what makes it slow, and what fixing it would gain
  cclbench compare A B           which of two runs is faster, and why
  cclbench report TRACES -o F.html

All commands: cclbench --help. One of them: cclbench COMMAND --help."""
"""What `cclbench` alone prints."""


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    epilog='Shell completion: eval "$(_CCLBENCH_COMPLETE=bash_source cclbench)" (or zsh_source, fish_source)',
)
@click.version_option(
    __version__, prog_name=_PROGRAM, message="%(prog)s %(version)s", help="Show the version."
)
@options.debug
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Show where the step time of an ML workload goes, on every rank, from its traces.

    \b
    Examples:
      cclbench run traces/my-job            a folder of PyTorch traces, one per rank
      cclbench run workload_cards/llama.yaml --json
      cclbench explain time.exposed_comm
    """
    if ctx.invoked_subcommand is None:
        click.echo(_SHORT_HELP)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; the only place where errors become messages."""
    session = options.Session()
    # Imports make objects that stay; a last collection as the interpreter ends frees nothing that matters.
    gc.set_threshold(_YOUNG_OBJECTS)
    atexit.register(gc.freeze)
    with warnings.catch_warnings(), printable_streams(), _signals_clean_up() as received:
        warnings.showwarning = print_warning
        try:
            code = cli.main(argv, prog_name=_PROGRAM, standalone_mode=False, obj=session)
            sys.stdout.flush()
        except click.Abort as abort:
            return _report_end(terminated=isinstance(abort.__cause__, _Terminated))
        except (_ClosedPipe, BrokenPipeError):
            _drop_output()
            return CLOSED_PIPE
        except OSError as error:
            if error.filename is None:
                _drop_output()
            return report_error(error, session)
        except Exception as error:  # noqa: BLE001  (the boundary: every error becomes a message and a code)
            return (
                _report_end(terminated=signal.SIGTERM in received)
                if received
                else report_error(error, session)
            )
        return code if isinstance(code, int) else 0


def _report_end(*, terminated: bool) -> int:
    click.echo("terminated" if terminated else "interrupted", err=True)
    return TERMINATED if terminated else INTERRUPTED


def _drop_output() -> None:
    """Redirect stdout to the null device: the interpreter flushes it once more at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
