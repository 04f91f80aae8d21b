# SPDX-License-Identifier: Apache-2.0
"""`cclbench hardware validate` and `calibrate`: how good the model of collectives is, and made better."""

from __future__ import annotations

from math import isfinite
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
    help="Calibrate the model by this other sweep first; repeatable.",
)
@options.calibration
@options.transport
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw measured against model: .png .svg .pdf",
)
@click.option(
    "--fail-above",
    type=click.FloatRange(0, min_open=True),
    metavar="PERCENT",
    help="Exit with 1 where a sweep's median error is larger.",
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
    """Compare the model with measured sweeps: how far is it off, by size?

    SWEEP is what nccl-tests or rccl-tests wrote (printed, JSON, CSV), a folder,
    or a run (see calibrate). The error is predicted / measured - 1; its median and 90th
    percentile are of absolute values. Without calibration only the catalog's
    specification speaks. Which machine it is, the sweep's GPUs, ranks on a node
    and network say where one fits them; a contradiction is refused.

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
        raise UsageError(f"--fail-above {fail_above} is no percentage")
    if plot is not None:
        check_picture(plot)
    if others and calibration is not None:
        raise UsageError("--calibrate and --calibration exclude one another")
    with catalog.extended_catalog(files):
        system = _stated_by(sources, **reading) if machine is None else catalog.system(machine)
        sweeps = _read(sources, system, **reading)
    check_transport(system, transport)
    by = None
    if calibration is not None:
        by = read_calibration(calibration)
        by.must_be_of(system)
        must_be_others(sweeps, by.sweeps)
    elif others:
        given = _read(others, system, **reading)
        by = _fitted(given, system)
        must_be_others(sweeps, given)
    checked = validation.validate_sweeps(sweeps, system, by, transport=transport)
    rows = validation.validation_rows(checked, by)
    emit_answer(
        form,
        document={"schema": "validation.v1", "system": system.id, "rows": rows},
        rows=rows,
        columns=validation.COLUMNS,
        table=lambda: validation_page(rows, system),
    )
    if plot is not None and any(each.size_deviations for each in checked):
        basis = "calibrated" if by else "from the catalog alone"
        title = f"{system.id}, model {basis}"
        save_picture(lambda: draw_model(sweep_panels(checked), title=title), plot)
        say_on_stderr(f"wrote {plot}")
    refused = [each.found.reason for each in checked if isinstance(each.found, NoPrice)]
    if refused and (fail_above is not None or len(refused) == len(checked)):
        raise CheckFailed(f"{len(refused)} of {len(checked)} sweeps cannot be priced: {refused[0]}")
    worst = max((own.median for each in checked if (own := each.deviation_summary) is not None), default=0.0)
    if fail_above is not None and worst > fail_above / 100:
        raise CheckFailed(f"a sweep's median error is {worst:.1%}, above the {fail_above:g} % allowed")


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
    """Calibrate the model of a machine by measured sweeps.

    Writes a small YAML file to keep beside the card, for --calibration. Printed
    is the error at sizes, and at node counts, that were left out of it, one at a
    time: what to expect where nothing was measured. Of a run, or its traces,
    count the transfers of its matched collectives, by kind, group and size.

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
    from cclbench.present.terminal.hardware import calibration_page, suspicion_words
    from cclbench.present.terminal.output import emit_answer

    with catalog.extended_catalog(files):
        system = catalog.system(machine)
    sweeps = _read(sources, system, **reading)
    for each in validation.validate_sweeps(sweeps, system):
        if isinstance(each.found, NoPrice):
            raise InputError(each.found.reason, where=each.sweep.display_name)
        if (own := each.deviation_summary) is not None and own.is_suspect:
            say_on_stderr(f"warning: {each.sweep.display_name}: {suspicion_words(own.slower)}")
    found = _fitted(sweeps, system)
    write_calibration(found, output)
    rows = [
        {"left_out": left_out, "sizes": band, "median_error": own.median, "p90_error": own.p90}
        for left_out, errors in (("one size", found.by_size), ("one node count", found.by_nodes))
        for band, own in errors.items()
    ]
    emit_answer(
        form,
        document={"schema": "calibration.v1", "calibration": msgspec.to_builtins(found), "rows": rows},
        rows=rows,
        columns=_CALIBRATED,
        table=lambda: calibration_page(found, rows),
    )
    say_on_stderr(f"wrote {output}")


def _stated_by(sources: tuple[str, ...], **reading: Any) -> System:
    """The machine that the sweeps' own words tell; `UsageError` where they do not."""
    from cclbench.hardware.matching import system_of
    from cclbench.sweep_sources import read_sweeps

    return system_of(read_sweeps(sources, **reading).stated)


def _read(sources: tuple[str, ...], system: System, **reading: Any) -> list[Sweep]:
    """All sweeps of the sources; what is in none is told on stderr."""
    from cclbench.sweep_sources import read_sweeps

    found = read_sweeps(sources, system, **reading)
    notes = [*found.caveats, *(f"not compared: {rows:,} rows {why}" for why, rows in found.left_out.items())]
    for note in notes:
        say_on_stderr(f"note: {note}")
    return found.sweeps


def _fitted(sweeps: list[Sweep], system: System) -> Calibration:
    """The calibration by sweeps; `InputError` with the reason where none fits."""
    from cclbench.ground.errors import InputError
    from cclbench.hardware.calibration import calibrate
    from cclbench.hardware.collectives import NoPrice

    found = calibrate(sweeps, system)
    if isinstance(found, NoPrice):
        raise InputError(found.reason)
    return found
