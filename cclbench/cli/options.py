# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar, cast

import click

from cclbench.cli import completion
from cclbench.ground.errors import CheckFailed, UsageError
from cclbench.present.terminal import BRIEF, QUIET, RAW_CSV, VERBOSE
from cclbench.present.terminal.streams import say_on_stderr

if TYPE_CHECKING:
    from cclbench.engine import Engine

Command = TypeVar("Command", bound=Callable[..., Any])
Value = TypeVar("Value")
Decorator = Callable[[Command], Command]

FORMATS: Final = ("table", "json", "csv", "md", "xlsx")
_LARGEST_RANK: Final = 2**31 - 1


@dataclass
class Session:
    """State of one invocation: whether errors are reported with a traceback."""

    debug: bool = False


class Parsed(click.ParamType, Generic[Value]):  # type: ignore[type-arg]  # not generic before click 8.4
    """A value that `parse` reads from text; a `ValueError` carries the message for the user."""

    def __init__(self, name: str, parse: Callable[[str], Value]) -> None:
        self.name, self.parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Value:
        """The parsed value."""
        try:
            return self.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def step_range(text: str) -> tuple[int | None, int | None]:
    """(first, last) of `A:B`, half-open; either side may be missing."""
    match = re.fullmatch(r"(\d{1,9})?:(\d{1,9})?", text)
    if match is None:
        raise ValueError(f"{text!r} is not A:B, such as 2:5 (steps 2, 3, 4), 3: or :10")
    first, last = (int(number) if number else None for number in match.groups())
    if first is not None and last is not None and first >= last:
        raise ValueError(f"{text!r} holds no step: A must be less than B")
    return first, last


def rank_list(text: str) -> list[int]:
    """The ranks of `0,2,4-7`, ranges inclusive, sorted and distinct."""
    ranks: set[int] = set()
    for part in map(str.strip, text.split(",")):
        match = re.fullmatch(r"(\d{1,10})(?:-(\d{1,10}))?", part)
        if match is None:
            raise ValueError(f"{text!r} is not a list of ranks, such as 0,2,4-7")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last or last > _LARGEST_RANK or last - first > 2**20:
            raise ValueError(f"{part!r} is not a range of ranks")
        ranks.update(range(first, last + 1))
    return sorted(ranks)


def parse_size(text: str) -> int:
    """Bytes of a size with its unit, such as `1GB` or `50 MB`."""
    return round(parse_amount(text, "size"))


def parse_amount(text: str, dimension: Literal["size", "time"]) -> float:
    """A size or time in base units; a space before the unit is optional."""
    from cclbench.ground.units import parse_quantity, with_spaced_unit

    try:
        return parse_quantity(with_spaced_unit(text), dimension)
    except CheckFailed as error:
        raise ValueError(str(error)) from None


def _checked_regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None
    return text


StepRange: Final = Parsed("A:B", step_range)
RankList: Final = Parsed("LIST", rank_list)
Size: Final = Parsed("SIZE", parse_size)


def _set_debug(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Session).debug = True


def _apply_all(*options: Decorator[Command]) -> Decorator[Command]:
    def add_options(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add_options


def _output_format(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    as_json, raw = ctx.params.pop("as_json", False), ctx.params.pop("raw", False)
    if ctx.params.pop("brief", False):
        if raw or value not in (None, "json"):
            raise click.BadParameter("--brief is a form of json", ctx, param)
        return BRIEF
    if as_json and value not in (None, "json"):
        raise click.BadParameter(f"--json contradicts --format {value}", ctx, param)
    if raw and (as_json or value != "csv"):
        raise click.BadParameter("--raw requires --format csv", ctx, param)
    return "json" if as_json else RAW_CSV if raw else value or "table"


run: Final = click.argument("run", metavar="RUN", shell_complete=completion.run_ids)


def file(*names: str, help: str, required: bool = False) -> Callable[[Command], Command]:  # noqa: A002  (as click's)
    """An option for a file to write."""
    path = click.Path(dir_okay=False, writable=True, path_type=Path)
    return click.option(*names, type=path, required=required, help=help)


debug: Final = click.option(
    "--debug",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_set_debug,
    help="Show the traceback of errors.",
)


class _StorePlace(click.Path):
    """A folder, or a URL, which stays text: `Path` would drop one of its slashes."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path, or the URL unchanged."""
        from cclbench.remote.url import Url, location_of

        return value if isinstance(location_of(value), Url) else super().convert(value, param, ctx)


store: Final = click.option(
    "--store",
    type=_StorePlace(file_okay=False, path_type=Path),
    envvar="CCLBENCH_STORE",
    default=Path("runs"),
    show_default="$CCLBENCH_STORE, else runs",
    help="Folder of the stored runs, or a URL such as s3://bucket/runs.",
)

collection: Final = click.option(
    "--collection",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    show_default="current folder",
    help="Folder of the data points: workload_cards/, traces/, scripts/.",
)

_form = _apply_all(
    # The callback of --format reads these flags, so they are parsed first (is_eager).
    click.option("--json", "as_json", is_flag=True, is_eager=True, help="Short for --format json."),
    click.option(
        "--raw",
        is_flag=True,
        is_eager=True,
        help="With --format csv, to a file: write text unchanged, including formulas and control characters.",
    ),
    click.option(
        "--format",
        "form",
        type=click.Choice(FORMATS),
        callback=_output_format,
        show_default="table",
        help="Format of the data on stdout; redirect xlsx, a workbook, to a file: > FILE.xlsx.",
    ),
)

metric: Final = click.option(
    "--metric",
    "metrics",
    metavar="PATTERN",
    multiple=True,
    default=("*",),
    shell_complete=completion.metric_names,
    help="Only these metrics: a name, an alias, a glob such as 'time.*' or a common term such as hfu;"
    " repeatable.",
)

window: Final = click.option(
    "--window",
    type=click.Choice(("steps", "trace", "annotations")),
    default="steps",
    show_default=True,
    help="Time window of the metrics: the steps as the device ran them, the whole trace, or the steps'"
    " annotations on the host.",
)

model: Final = click.option(
    "--no-model",
    "model",
    flag_value=False,
    default=True,
    help="Measured values only: do not model values that the traces lack.",
)

steps: Final = click.option("--steps", type=StepRange, help="Only steps A to B-1, such as 2:5, 3: or :10.")
ranks: Final = click.option("--ranks", type=RankList, help="Only these ranks, such as 0,2,4-7.")
selection: Final = _apply_all(metric, window, steps, ranks, model)


per_rank: Final = click.option(
    "--per-rank",
    is_flag=True,
    help="In json, csv, md and xlsx, also write each rank's rows by step, group, collective, category and"
    " statistic, not only one row per rank and metric. The store keeps all of them (`cclbench sql RUN"
    " 'FROM results'`).",
)


def _sufficient_memory(ctx: click.Context, param: click.Parameter, value: int | None) -> int | None:
    from cclbench.engine import workers_in_memory

    try:
        if value is not None:
            workers_in_memory(value)
    except UsageError as error:
        raise click.BadParameter(str(error), ctx, param) from None
    return value


def _open_engine(ctx: click.Context, param: click.Parameter, value: str) -> Engine:
    from cclbench.engine import engine_of

    jobs, memory_bytes = ctx.params.pop("jobs", None), ctx.params.pop("memory_bytes", None)
    try:
        return ctx.with_resource(engine_of(value, jobs=jobs, memory_bytes=memory_bytes, tell=say_on_stderr))
    except UsageError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def prepare_engine(engine: Engine, source: str) -> None:
    """Start the engine's processes for a source of that size, while libraries load in this one."""
    from cclbench.engine import text_bytes

    with suppress(OSError, ValueError):  # reported when the source is read
        path = Path(source)
        files = path.iterdir() if path.is_dir() else [path]
        engine.prepare(sum(text_bytes(file, file.stat().st_size) for file in files))


engine: Final = _apply_all(
    click.option(
        "--jobs",
        type=click.IntRange(min=1),
        is_eager=True,
        metavar="N",
        show_default="one per core",
        help="Number of worker processes.",
    ),
    click.option(
        "--memory",
        "memory_bytes",
        type=Size,
        is_eager=True,
        callback=_sufficient_memory,
        help="Memory limit of all processes together, such as 1GB; reduces the number of workers. Memory that"
        " grows with the number of ranks is not limited.",
    ),
    click.option(
        "--engine",
        default="processes",
        show_default=True,
        callback=_open_engine,
        metavar="NAME",
        help="Where the workers run: processes of this machine; dask, a Dask cluster on it; or the address of"
        " a Dask scheduler, tcp://HOST:PORT.",
    ),
)

inference: Final = click.option(
    "--no-inference",
    "inference",
    flag_value=False,
    default=True,
    help="Do not infer process groups that the traces do not state.",
)


_allow_truncated: Final = click.option(
    "--allow-truncated", is_flag=True, help="Use the intact part of truncated files; every result notes it."
)
_OPENING: Final = ("allow_truncated", "inference", "engine", "store")


def _gather_opening(command: Command) -> Command:
    """The command with `opening`, the keywords of `workspace`, in place of the single options."""

    @wraps(command)
    def call_command(**options: Any) -> Any:
        return command(opening={name: options.pop(name) for name in _OPENING}, **options)

    return cast("Command", call_command)


opening: Final = _apply_all(_allow_truncated, inference, engine, store, _gather_opening)
"""Options of commands that open runs, and read a SOURCE into the store for that."""

ingest: Final = _apply_all(
    _allow_truncated,
    click.option(
        "--step-annotation",
        type=Parsed("REGEX", _checked_regex),
        help="Name of the annotations that mark steps, if none of the known names matches.",
    ),
    inference,
)


def _verbosity_level(ctx: click.Context, param: click.Parameter, quiet: bool) -> int:
    verbose = ctx.params.pop("verbose", False)
    if verbose and quiet:
        raise click.BadParameter("-q contradicts -v", ctx, param)
    return QUIET if quiet else VERBOSE if verbose else 0


memory: Final = click.option(
    "--memory",
    type=Size,
    help="Memory limit of the query, such as 1GB; larger intermediate results go to disk.",
)

verbosity: Final = _apply_all(
    click.option("-v", "--verbose", is_flag=True, is_eager=True, help="Print more."),
    click.option("-q", "--quiet", "verbosity", is_flag=True, callback=_verbosity_level, help="Print less."),
    debug,
)
form: Final = _apply_all(_form, debug)
"""Options of commands that print data."""
brief: Final = click.option(
    "--brief",
    is_flag=True,
    is_eager=True,
    help="With --json: an answer of at most 2 kB, what matters most first, numbers with their units.",
)
"""An option of commands whose document `present.brief` can project, above `page`."""
page: Final = _apply_all(_form, verbosity)
"""Options of commands that print data, as tables of more or less detail."""

machine: Final = click.option(
    "--system",
    "machine",
    metavar="ID",
    required=True,
    shell_complete=completion.machines,
    help="Machine of the catalog, such as aws-p5.",
)
machine_or_stated: Final = click.option(
    "--system",
    "machine",
    metavar="ID",
    shell_complete=completion.machines,
    help="Machine of the catalog.  [default: as the sweeps state]",
)
hardware: Final = click.option(
    "--hardware",
    "files",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Your own hardware file, or a folder of them: adds entries to the catalog, or replaces those of the"
    " same id; repeatable. $CCLBENCH_HARDWARE does so for every command.",
)
calibration: Final = click.option(
    "--calibration",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Calibration of this machine, from `cclbench hardware calibrate`.",
)
transport: Final = click.option(
    "--transport", metavar="NAME", help="Software that drives the network, if not the machine's default."
)
