# SPDX-License-Identifier: Apache-2.0
"""`cclbench hardware validate` and `calibrate`: test the cost model of collectives, and fit it."""

from __future__ import annotations

from math import isfinite
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cclbench.cli import options
from cclbench.present.terminal.streams import say_on_stderr

if TYPE_CHECKING:
    from cclbench.hardware.calibration import Calibration
    from cclbench.hardware.sweep import Sweep
    from cclbench.hardware.system import System

_CALIBRATED: Final = ("left_out", "sizes", "median_error", "p90_error")
_sweeps_argument: Final = click.argument("sources", metavar="SWEEP...", nargs=-1, required=True)


@click.command()
@_sweeps_argument
@options.machine_or_stated
@click.option(
    "--calibrate",
    "others",
    metavar="SWEEP",
    multiple=True,
    help="First calibrate the model with this other sweep; repeatable.",
)
@options.calibration
@options.transport
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Plot measurement against model: .png .svg .pdf",
)
@click.option(
    "--fail-above",
    type=click.FloatRange(0, min_open=True),
    metavar="PERCENT",
    help="Exit with 1 if a sweep's median error is larger, in a size band or in all.",
)
@options.hardware
@options.inference
@options.store
@options.form
def validate(
    sources: tuple[str, ...],
    machine: str | None,
    transport: str | None,
    plot: Path | None,
    fail_above: float | None,
    others: tuple[str, ...],
    calibration: Path | None,
    files: tuple[Path, ...],
    form: str,
    **reading: Any,
) -> None:
    """Compare the cost model with measured sweeps, by message size.

    SWEEP is output of nccl-tests or rccl-tests (printed, JSON, CSV), a folder, or
    a run (see calibrate). The error is predicted / measured - 1; its median and
    90th percentile are of absolute values. Sizes that are far slower than predicted
    are suspicious, with a likely cause. Without calibration, the model uses the
    catalog's specification alone. The machine is identified by the sweep's
    GPUs, ranks per node and network; a --system that contradicts them is refused.

    \b
    Examples:
      cclbench hardware validate sweep.csv --system aws-p5 --plot model.png
      cclbench hardware validate 8-nodes.csv --system alps-gh200 \\
          --calibrate 2-nodes.csv --calibrate 16-nodes.csv
    """
    from cclbench.ground.errors import CheckFailed, UsageError
    from cclbench.hardware import catalog, validation
    from cclbench.hardware.calibration import must_be_others, read_calibration
    from cclbench.hardware.collectives import NoPrice
    from cclbench.hardware.prediction import check_transport
    from cclbench.present.model_picture import draw_model
    from cclbench.present.picture import check_picture, save_picture
    from cclbench.present.terminal.hardware import sweep_panels, validation_page
    from cclbench.present.terminal.output import emit_answer

    if fail_above is not None and not isfinite(fail_above):
        raise UsageError(f"--fail-above {fail_above} is not a percentage")
    if plot is not None:
        check_picture(plot)
    if others and calibration is not None:
        raise UsageError("--calibrate and --calibration exclude each other")
    with catalog.extended_catalog(files):
        system = _stated_system(sources, **reading) if machine is None else catalog.system(machine)
        sweeps = read_machine_sweeps(sources, system, **reading)
    check_transport(system, transport)
    fitted = None
    if calibration is not None:
        fitted = read_calibration(calibration)
        fitted.must_be_of(system)
        must_be_others(sweeps, fitted.sweeps)
    elif others:
        other_sweeps = read_machine_sweeps(others, system, **reading)
        fitted = fit_calibration(other_sweeps, system)
        must_be_others(sweeps, other_sweeps)
    checked = validation.validate_sweeps(sweeps, system, fitted, transport=transport)
    rows = validation.validation_rows(checked, fitted)
    emit_answer(
        form,
        document={"schema": "validation.v1", "system": system.id, "rows": rows},
        rows=rows,
        columns=validation.COLUMNS,
        table=lambda: validation_page(rows, system),
    )
    if plot is not None and any(each.size_deviations for each in checked):
        basis = "calibrated" if fitted else "from the catalog alone"
        title = f"{system.id}, model {basis}"
        save_picture(lambda: draw_model(sweep_panels(checked), title=title), plot)
        say_on_stderr(f"wrote {plot}")
    refused = [each.deviations.reason for each in checked if isinstance(each.deviations, NoPrice)]
    if refused and (fail_above is not None or len(refused) == len(checked)):
        raise CheckFailed(f"{len(refused)} of {len(checked)} sweeps cannot be priced: {refused[0]}")
    if fail_above is not None:
        worst = max(
            (row for row in rows if row["sweep"] and row["count"]),
            key=itemgetter("median_error"),
            default=None,
        )
        if worst is not None and worst["median_error"] > fail_above / 100:
            what = f"median error {worst['median_error']:.1%}, above the {fail_above:g} % allowed"
            raise CheckFailed(what, where=f"{worst['sweep']}, {worst['sizes']}", hint=worst["reason"])


@click.command()
@_sweeps_argument
@options.machine
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    required=True,
    help="The YAML file to write.",
)
@options.hardware
@options.inference
@options.store
@options.form
def calibrate(
    sources: tuple[str, ...], machine: str, output: Path, files: tuple[Path, ...], form: str, **reading: Any
) -> None:
    """Calibrate the cost model of a machine with measured sweeps.

    Writes a small YAML file to keep with the card, for --calibration. Prints the
    cross-validation error, with one size or node count left out at a time: the
    error to expect where nothing was measured. Of a run, or its traces, the
    transfers of matched collectives are used, by kind, group and size.

    \b
    Examples:
      cclbench hardware calibrate my-job-3f2a91c0 --system dgx-h100 -o mine.yaml
      cclbench hardware calibrate 2-nodes.csv 8-nodes.csv --system alps-gh200 \\
          -o alps.yaml
    """
    import msgspec

    from cclbench.ground.errors import InputError
    from cclbench.hardware import catalog, validation
    from cclbench.hardware.calibration import write_calibration
    from cclbench.hardware.collectives import NoPrice
    from cclbench.present.terminal.hardware import calibration_page
    from cclbench.present.terminal.output import emit_answer

    with catalog.extended_catalog(files):
        system = catalog.system(machine)
    sweeps = read_machine_sweeps(sources, system, **reading)
    for each in validation.validate_sweeps(sweeps, system):
        if isinstance(each.deviations, NoPrice):
            raise InputError(each.deviations.reason, where=each.sweep.display_name)
        if each.suspicion:
            say_on_stderr(f"warning: {each.sweep.display_name}: {each.suspicion}")
    fitted = fit_calibration(sweeps, system)
    write_calibration(fitted, output)
    rows = [
        {"left_out": left_out, "sizes": band, "median_error": error.median, "p90_error": error.p90}
        for left_out, errors in (("one size", fitted.by_size), ("one node count", fitted.by_nodes))
        for band, error in errors.items()
    ]
    emit_answer(
        form,
        document={"schema": "calibration.v1", "calibration": msgspec.to_builtins(fitted), "rows": rows},
        rows=rows,
        columns=_CALIBRATED,
        table=lambda: calibration_page(fitted, rows),
    )
    say_on_stderr(f"wrote {output}")


def _stated_system(sources: tuple[str, ...], **reading: Any) -> System:
    """The machine that the sweeps state; `UsageError` if they do not."""
    from cclbench.hardware.matching import system_of
    from cclbench.sweep_sources import read_sweeps

    return system_of(read_sweeps(sources, **reading).stated)


def read_machine_sweeps(sources: tuple[str, ...], system: System, **reading: Any) -> list[Sweep]:
    """All sweeps of the sources; rows that are in none are reported on stderr."""
    from cclbench.sweep_sources import read_sweeps

    read = read_sweeps(sources, system, **reading)
    notes = [*read.caveats, *(f"not compared: {rows:,} rows {why}" for why, rows in read.left_out.items())]
    for note in notes:
        say_on_stderr(f"note: {note}")
    return read.sweeps


def fit_calibration(sweeps: list[Sweep], system: System) -> Calibration:
    """The calibration fitted to sweeps; `InputError` with the reason if none can be."""
    from cclbench.ground.errors import InputError
    from cclbench.hardware.calibration import calibrate
    from cclbench.hardware.collectives import NoPrice

    fitted = calibrate(sweeps, system)
    if isinstance(fitted, NoPrice):
        raise InputError(fitted.reason)
    return fitted
