# SPDX-License-Identifier: Apache-2.0
"""Error messages of one to three lines on stderr, and exit codes."""

from __future__ import annotations

import errno
import traceback
from typing import Final

import click

from cclbench.cli import options
from cclbench.ground.errors import CclbenchError, InputError
from cclbench.ground.out_of_memory import is_out_of_memory, out_of_memory_error
from cclbench.present.terminal.streams import say_on_stderr

INTERRUPTED: Final = 130
CLOSED_PIPE: Final = 141
TERMINATED: Final = 143
INTERNAL: Final = 4
_LONGEST_LINE: Final = 1000

_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


def report_error(error: Exception, session: options.Session) -> int:
    """Print the message of an error, under `--debug` its traceback too, and return the exit code."""
    if session.debug:
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    from cclbench.ground.text import printable, shorten_middle

    code, message = _code_and_message(error)
    # Names from files can be of any length.
    lines = (shorten_middle(printable(line), _LONGEST_LINE) for line in message.split("\n"))
    click.echo("\n".join(lines), err=True)
    return code


def _code_and_message(error: Exception) -> tuple[int, str]:
    if isinstance(error, CclbenchError):
        return error.exit_code, f"error: {error}"
    if isinstance(error, click.UsageError) and error.ctx and error.message == error.ctx.get_help():
        return error.exit_code, error.message  # a group without a subcommand
    if isinstance(error, click.ClickException):
        # click puts choices on separate lines, after tabs.
        message = error.format_message().replace("\n\t", " ")
        return error.exit_code, f"error: {message}{_usage_lines(error)}"
    if is_out_of_memory(error):
        return _code_and_message(out_of_memory_error(error))
    if isinstance(error, OSError):
        return InputError.exit_code, f"error: {_located_message(error)}"
    first = (str(error).strip().splitlines() or [""])[0][:300]
    kind = type(error).__name__
    return INTERNAL, (
        f"internal error: {kind}: {first}\na defect of cclbench; re-run with --debug for the traceback"
    )


def _usage_lines(error: click.ClickException) -> str:
    if not isinstance(error, click.UsageError) or error.ctx is None:
        return ""
    return f"\n{error.ctx.get_usage()}\nfor help: {error.ctx.command_path} --help"


def _located_message(error: OSError) -> str:
    # Readers and the store name the file they could not use; the rest is our own output.
    what = error.strerror or str(error)
    where = str(error.filename) if error.filename is not None else "standard output"
    if error.errno in _SPACE:
        return f"{where}: {what}; free some space or write elsewhere"
    if error.errno in _FORBIDDEN:
        return f"{where}: {what}; check the permissions or write elsewhere"
    return f"{where}: {what}"


def print_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    """Print a warning as one line on stderr, without Python's file and line.

    NumPy's arithmetic warnings are dropped: a value that is not finite becomes a failed result with a reason.
    """
    if issubclass(category, RuntimeWarning):
        return
    say_on_stderr(f"warning: {message}")
