# SPDX-License-Identifier: Apache-2.0
"""`cclbench hardware predict`: how long a collective takes on a machine of the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cclbench.cli.hardware_options import (
    Sizes,
    calibration_option,
    check_transport,
    hardware_option,
    release,
    system_option,
    transport_option,
)
from cclbench.cli.options import debug_option, format_options

if TYPE_CHECKING:
    from cclbench.hardware.collectives import Prediction, Refusal, Schedule
    from cclbench.hardware.system import System

_PREDICTED: Final = (
    *("system", "collective", "ranks", "nodes", "bytes", "time_s", "low_s", "high_s", "algbw", "busbw"),
    *("algorithm", "protocol", "basis", "provenance", "reason"),
)
_MOST_RANKS: Final = 1 << 20


@click.command()
@system_option
@click.option("--collective", "kind", metavar="KIND", help="all_reduce, all_gather, ...")
@click.option("--size", "sizes", type=Sizes(), help="Bytes S, such as 1MiB,64MiB; a barrier has none.")
@click.option("--ranks", type=click.IntRange(2, _MOST_RANKS), help="Ranks of the group.")
@click.option(
    "--nodes",
    type=click.IntRange(1, _MOST_RANKS),
    help="Nodes that they are spread over evenly.  [default: as few as hold them]",
)
@click.option("--algorithm", metavar="NAME", help="Only this algorithm: ring, tree, nvls, ...")
@click.option("--protocol", metavar="NAME", help="Only this protocol: LL, LL128 or Simple.")
@click.option(
    "--schedule",
    "plan",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A list of steps (YAML) to price instead of algorithms; it states collective and ranks.",
)
@transport_option
@click.option("--library-version", callback=release, metavar="X.Y", help="NCCL's, such as 2.23.")
@calibration_option
@hardware_option
@format_options
@debug_option
def predict(
    machine: str,
    kind: str | None,
    sizes: list[int] | None,
    ranks: int | None,
    nodes: int | None,
    plan: Path | None,
    form: str,
    **options: Any,
) -> None:
    """Predict how long a collective takes, with a band.

    S is the large side of all_gather and reduce_scatter, each rank's total of an
    all_to_all. Bandwidths have nccl-tests' meaning: busbw is algbw with the
    collective's factor. The true time is expected within the band in four of
    five cases.

    \b
    Examples:
      cclbench hardware predict --system aws-p5 --collective all_reduce \\
          --size 1MiB,64MiB,1GiB --ranks 16 --nodes 2
      cclbench hardware predict --system dgx-h100 --collective all_gather \\
          --size 256MiB --ranks 8 --algorithm ring --json
      cclbench hardware predict --system dgx-h100 --schedule steps.yaml \\
          --size 1MiB,64MiB
    """
    from cclbench.errors import UsageError, near
    from cclbench.hardware import catalog
    from cclbench.present.terminal.hardware import prediction_page
    from cclbench.present.terminal.output import emit
    from cclbench.schema import COLLECTIVE_KINDS

    schedule = None if plan is None else _planned(plan, kind, ranks, **options)
    if schedule is not None:
        kind, ranks = schedule.kind, schedule.ranks
    if kind is None or ranks is None:
        raise UsageError(f"{'--collective' if kind is None else '--ranks'} is missing", hint="or --schedule")
    if kind not in COLLECTIVE_KINDS:
        raise UsageError(f"there is no collective {kind!r}", hint=near(kind, COLLECTIVE_KINDS))
    moves = kind != "barrier"
    if moves != (sizes is not None):
        raise UsageError(f"{kind} needs --size, such as 1MiB,64MiB" if moves else "a barrier has no --size")
    with catalog.using(options.pop("files")):
        system = catalog.system(machine)
    members = system.members(ranks, nodes)
    found = _priced(kind, sizes or [0], members, system, schedule=schedule, **options)
    shared = {
        "system": system.id,
        "collective": kind,
        "ranks": ranks,
        "nodes": len(system.nodes(members)),
        "basis": found.basis,
        "provenance": "modelled",
        "reason": found.reason,
    }
    figures = ("time_s", "low_s", "high_s", "algbw", "busbw")
    rows = [
        {
            **shared,
            "bytes": size,
            **{name: float(getattr(found, name)[at]) for name in figures[: None if moves else 3]},
            "algorithm": found.algorithm[at],
            "protocol": found.protocol[at],
        }
        for at, size in enumerate(sizes or [None])
    ]
    rows = [{name: row.get(name) for name in _PREDICTED} for row in rows]
    emit(
        form,
        document={"schema": "prediction.v1", "rows": rows},
        rows=rows,
        columns=_PREDICTED,
        table=lambda: prediction_page(rows),
    )


def _planned(
    plan: Path,
    kind: str | None,
    ranks: int | None,
    *,
    algorithm: str | None,
    protocol: str | None,
    calibration: Path | None,
    **_: object,
) -> Schedule:
    """The schedule in a file; `UsageError` where other options contradict it."""
    from cclbench.errors import UsageError
    from cclbench.hardware.collectives import read_schedule

    if algorithm or protocol or calibration:
        given = "--algorithm" if algorithm else "--protocol" if protocol else "--calibration"
        raise UsageError(f"{given} does not go with --schedule")
    found = read_schedule(plan)
    for option, stated, own in (("--collective", kind, found.kind), ("--ranks", ranks, found.ranks)):
        if stated not in (None, own):
            raise UsageError(f"{option} {stated} is not the schedule's {own}", hint=f"leave out {option}")
    return found


def _priced(
    kind: str,
    sizes: list[int],
    members: Sequence[int],
    system: System,
    *,
    algorithm: str | None,
    protocol: str | None,
    transport: str | None,
    library_version: str | None,
    calibration: Path | None,
    schedule: Schedule | None,
) -> Prediction:
    """The prediction; `CheckFailed` with the reason, and the field that is missing, where there is none."""
    from cclbench.errors import CheckFailed, UsageError
    from cclbench.hardware.calibration import read_calibration
    from cclbench.hardware.collectives import Refusal, price

    check_transport(system, transport)
    found: Prediction | Refusal
    if calibration is None:
        found = price(
            kind,
            sizes,
            members,
            system,
            library_version=library_version,
            algorithm=algorithm,
            protocol=protocol,
            transport=transport,
            plan=schedule,
        )
    elif algorithm or protocol or kind == "barrier":
        what = "barriers" if kind == "barrier" else "one algorithm or protocol"
        raise UsageError(f"a calibration does not tell of {what}", hint="leave out --calibration")
    else:
        found = read_calibration(calibration).price(
            kind, sizes, members, system, library_version=library_version, transport=transport
        )
    if isinstance(found, Refusal):
        field = found.field
        hint = None if field is None else f"state {field} in a hardware file of your own (--hardware)"
        raise CheckFailed(found.reason, hint=hint)
    return found
