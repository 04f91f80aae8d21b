# SPDX-License-Identifier: Apache-2.0
"""`cclbench hardware predict`: the time of a collective on a machine of the catalog."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cclbench.cli import options

if TYPE_CHECKING:
    from cclbench.hardware.collectives import SendSchedule

_MOST_RANKS: Final = 1 << 20
_MOST_SIZES: Final = 1000
_VERSION = re.compile(r"(?:Open MPI )?v?\d{1,4}\.\d{1,4}(\.\d{1,6})?([-+.]\S{1,20})?", re.ASCII)


def _parse_sizes(text: str) -> list[int]:
    """The sizes of `1MiB,64MiB` in bytes, with or without a unit, in the order given."""
    parts = text.split(",")
    if len(parts) > _MOST_SIZES:
        raise ValueError(f"{len(parts):,} sizes: at most {_MOST_SIZES:,}")
    return [_parse_size(part.strip()) for part in parts]


def _parse_size(text: str) -> int:
    from cclbench.ground.errors import CheckFailed
    from cclbench.ground.units import parse_quantity, with_spaced_unit

    spaced = with_spaced_unit(text)
    try:
        size = parse_quantity(spaced if " " in spaced else f"{spaced} B", "size")
    except CheckFailed as error:
        raise ValueError(f"{text!a} is not a size such as 1MiB, 64 MB or 4096: {error}") from None
    if not size.is_integer():
        raise ValueError(f"{text!a} is not a whole number of bytes")
    return int(size)


def check_version(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """The version of a library, unchanged; `BadParameter` if it is not one."""
    if value is not None and not _VERSION.fullmatch(value):
        raise click.BadParameter(f"{value!r} is not a version such as 2.23 or 2.27.3", ctx, param)
    return value


@click.command()
@options.machine
@click.option("--collective", "kind", metavar="KIND", help="all_reduce, all_gather, ...")
@click.option(
    "--size",
    "sizes",
    type=options.Parsed("SIZE,...", _parse_sizes),
    help="Message size S, such as 1MiB,64MiB; none for a barrier.",
)
@click.option("--ranks", type=click.IntRange(2, _MOST_RANKS), help="Ranks of the group.")
@click.option(
    "--nodes",
    type=click.IntRange(1, _MOST_RANKS),
    help="Nodes, with equally many ranks each.  [default: as few as possible]",
)
@click.option("--algorithm", metavar="NAME", help="Only this algorithm: ring, tree, nvls, ...")
@click.option("--protocol", metavar="NAME", help="Only this protocol: LL, LL128 or Simple.")
@click.option(
    "--schedule",
    "plan",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Schedule of sends (YAML) to predict instead of algorithms; it states collective and ranks.",
)
@options.transport
@click.option(
    "--library-version",
    callback=check_version,
    metavar="X.Y",
    help="Version of NCCL, such as 2.23, or `Open MPI 4.1`.",
)
@options.calibration
@options.hardware
@options.form
def predict(
    machine: str,
    kind: str | None,
    sizes: list[int] | None,
    ranks: int | None,
    plan: Path | None,
    form: str,
    **arguments: Any,
) -> None:
    """Predict the time of a collective, with an 80 % interval.

    S is the larger buffer of all_gather and reduce_scatter, and each rank's total
    of all_to_all. Bandwidths are defined as in nccl-tests: busbw is algbw times
    the collective's factor. The true time is expected within the interval in four
    of five cases.

    \b
    Examples:
      cclbench hardware predict --system aws-p5 --collective all_reduce \\
          --size 1MiB,64MiB,1GiB --ranks 16 --nodes 2
      cclbench hardware predict --system dgx-h100 --collective all_gather \\
          --size 256MiB --ranks 8 --algorithm ring --json
      cclbench hardware predict --system dgx-h100 --schedule steps.yaml \\
          --size 1MiB,64MiB
    """
    from cclbench.ground.errors import UsageError, near
    from cclbench.ground.schema import COLLECTIVE_KINDS
    from cclbench.hardware import catalog, prediction
    from cclbench.present.terminal.hardware import prediction_page
    from cclbench.present.terminal.output import emit_answer

    schedule = None if plan is None else _checked_schedule(plan, kind, ranks, **arguments)
    if schedule is not None:
        kind, ranks = schedule.kind, schedule.ranks
    if kind is None or ranks is None:
        raise UsageError(f"{'--collective' if kind is None else '--ranks'} is missing", hint="or --schedule")
    if kind not in COLLECTIVE_KINDS:
        raise UsageError(f"there is no collective {kind!r}", hint=near(kind, COLLECTIVE_KINDS))
    moves = kind != "barrier"
    if moves != (sizes is not None):
        raise UsageError(f"{kind} needs --size, such as 1MiB,64MiB" if moves else "a barrier has no --size")
    with catalog.extended_catalog(arguments.pop("files")):
        system = catalog.system(machine)
    rows = prediction.predict_rows(kind, sizes, ranks, system, schedule=schedule, **arguments)
    emit_answer(
        form,
        document={"schema": "prediction.v1", "rows": rows},
        rows=rows,
        columns=prediction.COLUMNS,
        table=lambda: prediction_page(rows),
    )


def _checked_schedule(
    plan: Path,
    kind: str | None,
    ranks: int | None,
    *,
    algorithm: str | None,
    protocol: str | None,
    calibration: Path | None,
    **_: object,
) -> SendSchedule:
    """The schedule in a file; `UsageError` if other options contradict it."""
    from cclbench.ground.errors import UsageError
    from cclbench.hardware.collectives import read_schedule

    if algorithm or protocol or calibration:
        conflict = "--algorithm" if algorithm else "--protocol" if protocol else "--calibration"
        raise UsageError(f"{conflict} cannot be used with --schedule")
    schedule = read_schedule(plan)
    for option, choice, planned in (
        ("--collective", kind, schedule.kind),
        ("--ranks", ranks, schedule.ranks),
    ):
        if choice not in (None, planned):
            raise UsageError(f"{option} {choice} is not the schedule's {planned}", hint=f"leave out {option}")
    return schedule
