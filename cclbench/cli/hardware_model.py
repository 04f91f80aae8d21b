# SPDX-License-Identifier: Apache-2.0
"""`cclbench hardware predict`, `validate` and `calibrate`: the model of collectives, and how good it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cclbench.cli.hardware_sweeps import (
    ALL_SIZES,
    VALIDATED,
    Checked,
    calibration_for,
    merged,
    suspicion,
    swept_in,
    validated,
)
from cclbench.cli.options import debug_option, format_options

if TYPE_CHECKING:
    from cclbench.hardware.collectives import Prediction, Refusal
    from cclbench.hardware.system import System

_PREDICTED: Final = (
    *("system", "collective", "ranks", "nodes", "bytes", "time_s", "low_s", "high_s", "algbw", "busbw"),
    *("algorithm", "protocol", "basis", "provenance", "reason"),
)
_CALIBRATED: Final = ("left_out", "sizes", "median_error", "p90_error")
_MOST_RANKS: Final = 1 << 20
_MOST_SIZES: Final = 1000
_VERSION = re.compile(r"v?\d{1,4}\.\d{1,4}(\.\d{1,6})?([-+.]\S{1,20})?", re.ASCII)


class Sizes(click.ParamType[list[int]]):
    """`1MiB,64MiB`: bytes, with or without a unit."""

    name = "SIZE,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        """Whole bytes, in the order given."""
        if isinstance(value, list):
            return value
        parts = value.split(",")
        if len(parts) > _MOST_SIZES:
            self.fail(f"{len(parts):,} sizes: at most {_MOST_SIZES:,}", param, ctx)
        return [self._bytes(part.strip(), param, ctx) for part in parts]

    def _bytes(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from cclbench.errors import CheckFailed
        from cclbench.units import parse_quantity

        spaced = re.sub(r"(?<=\d)\s*(?=[A-Za-z])", " ", text, count=1)
        try:
            size = parse_quantity(spaced if " " in spaced else f"{spaced} B", "size")
        except CheckFailed as error:
            self.fail(f"{text!a} is no size such as 1MiB, 64 MB or 4096: {error}", param, ctx)
        if not size.is_integer():
            self.fail(f"{text!a} is no whole number of bytes", param, ctx)
        return int(size)


def _version(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not _VERSION.fullmatch(value):
        raise click.BadParameter(f"{value!r} is no version such as 2.23 or 2.27.3", ctx, param)
    return value


_system_option: Final = click.option(
    "--system", "machine", metavar="ID", required=True, help="The catalog's machine, such as aws-p5."
)
_hardware_option: Final = click.option(
    "--hardware",
    "files",
    type=click.Path(path_type=Path),
    multiple=True,
    help="A hardware file, or a folder of them, of your own; repeatable.",
)
_calibration_option: Final = click.option(
    "--calibration",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What `cclbench hardware calibrate` wrote of this machine.",
)
_transport_option: Final = click.option(
    "--transport", metavar="NAME", help="The software that drives its network, where not the default."
)
_sweeps_argument: Final = click.argument(
    "paths", metavar="SWEEP...", nargs=-1, required=True, type=click.Path(path_type=Path)
)


@click.command()
@_system_option
@click.option("--collective", "kind", metavar="KIND", required=True, help="all_reduce, all_gather, ...")
@click.option("--size", "sizes", type=Sizes(), required=True, help="Bytes S, such as 1MiB,64MiB.")
@click.option("--ranks", type=click.IntRange(2, _MOST_RANKS), required=True, help="Ranks of the group.")
@click.option(
    "--nodes",
    type=click.IntRange(1, _MOST_RANKS),
    help="Nodes that they are spread over evenly.  [default: as few as hold them]",
)
@click.option("--algorithm", metavar="NAME", help="Only this algorithm: ring, tree, nvls, ...")
@click.option("--protocol", metavar="NAME", help="Only this protocol: LL, LL128 or Simple.")
@_transport_option
@click.option("--library-version", callback=_version, metavar="X.Y", help="NCCL's, such as 2.23.")
@_calibration_option
@_hardware_option
@format_options
@debug_option
def predict(
    machine: str, kind: str, sizes: list[int], ranks: int, nodes: int | None, form: str, **options: Any
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
    """
    from cclbench.cli.hardware_pages import prediction_page
    from cclbench.cli.output import emit
    from cclbench.errors import UsageError, near
    from cclbench.hardware import catalog
    from cclbench.schema import COLLECTIVE_KINDS

    if kind not in COLLECTIVE_KINDS:
        raise UsageError(f"there is no collective {kind!r}", hint=near(kind, COLLECTIVE_KINDS))
    with catalog.using(options.pop("files")):
        system = catalog.system(machine)
    members = _members(system, ranks, nodes)
    found = _priced(kind, sizes, members, system, **options)
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
            **{name: float(getattr(found, name)[at]) for name in figures},
            "algorithm": found.algorithm[at],
            "protocol": found.protocol[at],
        }
        for at, size in enumerate(sizes)
    ]
    rows = [{name: row[name] for name in _PREDICTED} for row in rows]
    emit(
        form,
        document={"schema": "prediction.v1", "rows": rows},
        rows=rows,
        columns=_PREDICTED,
        table=lambda: prediction_page(rows),
    )


@click.command()
@_sweeps_argument
@_system_option
@click.option(
    "--calibrate",
    "others",
    metavar="SWEEP",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Calibrate the model by this other sweep first; repeatable.",
)
@_calibration_option
@_transport_option
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
@_hardware_option
@format_options
@debug_option
def validate(
    paths: tuple[Path, ...],
    machine: str,
    transport: str | None,
    plot: Path | None,
    fail_above: float | None,
    form: str,
    **options: Any,
) -> None:
    """Compare the model with measured sweeps: how far is it off, by size?

    SWEEP is what nccl-tests or rccl-tests wrote (printed, JSON, CSV), or a
    folder. The error is predicted / measured - 1; its median and 90th
    percentile are of absolute values. Without calibration only the catalog's
    specification speaks.

    \b
    Examples:
      cclbench hardware validate sweep.csv --system aws-p5 --plot model.png
      cclbench hardware validate 8-nodes.csv --system alps-gh200 \\
          --calibrate 2-nodes.csv --calibrate 16-nodes.csv
    """
    from cclbench.cli.hardware_pages import panels, validation_page
    from cclbench.cli.output import emit
    from cclbench.errors import CheckFailed
    from cclbench.hardware import catalog
    from cclbench.hardware.calibration import deviations
    from cclbench.hardware.collectives import Refusal
    from cclbench.report.model_picture import plot_model
    from cclbench.report.picture import check_picture

    if plot is not None:
        check_picture(plot)
    with catalog.using(options.pop("files")):
        system = catalog.system(machine)
    _check_transport(system, transport)
    swept = swept_in(paths)
    calibration = calibration_for(system, swept, **options)
    checked = [
        Checked(each, deviations(each.sweep, system, calibration, transport=transport)) for each in swept
    ]
    rows = validated(checked, calibration)
    emit(
        form,
        document={"schema": "validation.v1", "system": system.id, "rows": rows},
        rows=rows,
        columns=VALIDATED,
        table=lambda: validation_page(rows, system),
    )
    if plot is not None and any(each.deviations for each in checked):
        basis = "calibrated" if calibration else "from the catalog alone"
        plot_model(panels(checked), plot, title=f"{system.id}, model {basis}")
        click.echo(f"wrote {plot}", err=True)
    refused = [each.found.reason for each in checked if isinstance(each.found, Refusal)]
    if refused and (fail_above is not None or len(refused) == len(checked)):
        raise CheckFailed(f"{len(refused)} of {len(checked)} sweeps cannot be priced: {refused[0]}")
    worst = max(
        (row["median_error"] for row in rows if row["sweep"] and row["sizes"] == ALL_SIZES), default=0
    )
    if fail_above is not None and worst > fail_above / 100:
        raise CheckFailed(f"a sweep's median error is {worst:.1%}, above the {fail_above:g} % allowed")


@click.command()
@_sweeps_argument
@_system_option
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    required=True,
    help="The YAML file to write.",
)
@_hardware_option
@format_options
@debug_option
def calibrate(
    paths: tuple[Path, ...], machine: str, output: Path, files: tuple[Path, ...], form: str
) -> None:
    """Calibrate the model of a machine by measured sweeps.

    Writes a small YAML file to keep beside the card, for --calibration. Printed
    is the error at sizes, and at node counts, that were left out of it, one at a
    time: what to expect where nothing was measured.

    \b
    Examples:
      cclbench hardware calibrate 2-nodes.csv 8-nodes.csv --system alps-gh200 \\
          -o alps.yaml
    """
    import msgspec

    from cclbench.cli.hardware_pages import calibration_page
    from cclbench.cli.output import emit
    from cclbench.errors import CheckFailed
    from cclbench.hardware import calibration, catalog
    from cclbench.hardware.collectives import Refusal
    from cclbench.hardware.collectives.sweeps import summary

    with catalog.using(files):
        system = catalog.system(machine)
    swept = swept_in(paths)
    for each in swept:
        own = calibration.deviations(each.sweep, system)
        if isinstance(own, Refusal):
            raise CheckFailed(own.reason, where=each.file)
        found_own = summary(own)
        if found_own is not None and found_own.suspect:
            click.echo(f"warning: {each.file}: {suspicion(found_own.slower)}", err=True)
    found = calibration.calibrate(merged(swept), system)
    if isinstance(found, Refusal):
        raise CheckFailed(found.reason)
    calibration.write_calibration(found, output)
    rows = [
        {"left_out": left_out, "sizes": band, "median_error": own.median, "p90_error": own.p90}
        for left_out, errors in (("one size", found.by_size), ("one node count", found.by_nodes))
        for band, own in errors.items()
    ]
    emit(
        form,
        document={"schema": "calibration.v1", "calibration": msgspec.to_builtins(found), "rows": rows},
        rows=rows,
        columns=_CALIBRATED,
        table=lambda: calibration_page(found, rows),
    )
    click.echo(f"wrote {output}", err=True)


def _members(system: System, ranks: int, nodes: int | None) -> Sequence[int]:
    """The group's global ranks: the first of each node, or as few nodes as hold them."""
    from cclbench.errors import UsageError

    if nodes is None:
        return range(ranks)
    per_node, rest = divmod(ranks, nodes)
    if rest or not per_node:
        raise UsageError(
            f"{ranks:,} ranks are not {nodes:,} equal parts", hint="formulas are for equal parts"
        )
    if per_node > system.per_node:
        hint = f"--nodes {-(-ranks // system.per_node)} at least"
        raise UsageError(f"{per_node:,} ranks a node: {system.id} has {system.per_node}", hint=hint)
    return [node * system.per_node + local for node in range(nodes) for local in range(per_node)]


def _check_transport(system: System, transport: str | None) -> None:
    from cclbench.errors import UsageError, near

    if transport is None:
        return
    out = system.scale_out
    known = set() if out is None else {*out.fabric.transports, *filter(None, [out.transport])}
    if transport not in known:
        raise UsageError(f"{system.id} has no transport {transport!r}", hint=near(transport, known))


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
) -> Prediction:
    """The prediction; `CheckFailed` with the reason, and the field that is missing, where there is none."""
    from cclbench.errors import CheckFailed, UsageError
    from cclbench.hardware.calibration import read_calibration
    from cclbench.hardware.collectives import Refusal, price

    _check_transport(system, transport)
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
