# SPDX-License-Identifier: Apache-2.0
"""Options of `cclbench hardware predict`, `validate` and `calibrate`, and what they take."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from cclbench.hardware.system import System

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


def release(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A library's version as it is, where it can be one."""
    if value is not None and not _VERSION.fullmatch(value):
        raise click.BadParameter(f"{value!r} is no version such as 2.23 or 2.27.3", ctx, param)
    return value


system_option: Final = click.option(
    "--system", "machine", metavar="ID", required=True, help="The catalog's machine, such as aws-p5."
)
hardware_option: Final = click.option(
    "--hardware",
    "files",
    type=click.Path(path_type=Path),
    multiple=True,
    help="A hardware file, or a folder of them, of your own: adds to the catalog, or replaces the entry of"
    " its id; repeatable. $CCLBENCH_HARDWARE names more, for every command.",
)
calibration_option: Final = click.option(
    "--calibration",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What `cclbench hardware calibrate` wrote of this machine.",
)
transport_option: Final = click.option(
    "--transport", metavar="NAME", help="The software that drives its network, where not the default."
)


def check_transport(system: System, transport: str | None) -> None:
    """`UsageError` where the machine's network has no such software."""
    from cclbench.errors import UsageError, near

    if transport is None:
        return
    out = system.scale_out
    known = set() if out is None else {*out.fabric.transports, *filter(None, [out.transport])}
    if transport not in known:
        raise UsageError(f"{system.id} has no transport {transport!r}", hint=near(transport, known))
