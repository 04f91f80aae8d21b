# SPDX-License-Identifier: Apache-2.0
"""`cclbench whatif`: the run replayed under other hardware."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cclbench.cli.options import (
    QUIET,
    RankList,
    format_options,
    inference_option,
    jobs_option,
    store_option,
    verbosity_options,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from cclbench.replay.answer import Answer
    from cclbench.replay.critical_path import Path as Route

_TOLD: Final = 0.03
"""Share of the critical path from which on a place is shown."""
_LABEL: Final = 26


class Factor(click.ParamType[float | None]):
    """`off`, `fit`, or a factor from 1 on."""

    name = "off|fit|FACTOR"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | None:
        """The factor; None for what the run itself shows."""
        if value == "fit":
            return None
        try:
            factor = 1.0 if value == "off" else float(value)
        except ValueError:
            factor = 0.0
        if not 1 <= factor <= 100:
            self.fail(f"{value!r} is neither off nor fit nor a factor from 1 to 100", param, ctx)
        return factor


@click.command()
@click.argument("run", metavar="RUN")
@click.option("--set", "sets", metavar="KEY=VALUE", multiple=True, help="What changes; several act together.")
@click.option(
    "--scenario",
    "scenarios",
    metavar="KEY=VALUE,...",
    multiple=True,
    help="A further scenario, of its own, on top of what --set changes; repeatable.",
)
@click.option(
    "--sweep",
    "sweeps",
    metavar="KEY=xA..xB",
    multiple=True,
    help="A scenario for each doubling from factor A to B, and the knee of the curve; repeatable.",
)
@click.option("--system", metavar="ID", help="The catalog's machine the run used, where no card says so.")
@click.option("--per-node", type=click.IntRange(1), help="Ranks that share a node, where nothing says so.")
@click.option(
    "--contention",
    type=Factor(),
    default="off",
    show_default=True,
    help="How much longer kernels take beside communication; fit: the run's compute.contention.",
)
@click.option("--ranks", type=RankList(), help="Replay only these ranks; their collectives may lack others.")
@inference_option
@jobs_option
@store_option
@format_options
@verbosity_options
def whatif(
    run: str, form: str, verbosity: int, store: Path, jobs: int, inference: bool, **options: Any
) -> None:
    """Replay a run under other hardware: what would the step take?

    RUN is the id of a run, or any SOURCE that `cclbench run` takes. Waiting is worked out anew;
    transfers scale by a model's ratio of new to old.

    \b
    Keys:
      scale_up.bandwidth scale_out.bandwidth   x2, or a rate: 900GB/s
      scale_up.latency scale_out.latency       x0.5, or a time: 5us
      scale_up scale_out system accelerator    an entry of the catalog
      collective.all_reduce=tree               another algorithm
      compute=x0.9 rank.3.compute=x0.9         compute takes 0.9 of its time

    \b
    Examples:
      cclbench whatif my-job-3f2a91c0 --set scale_up.bandwidth=x2
      cclbench whatif my-job-3f2a91c0 --set scale_out=infiniband-ndr
      cclbench whatif my-job-3f2a91c0 --sweep scale_out.bandwidth=x0.25..x8
    """
    from cclbench.cli.answer import document
    from cclbench.cli.output import emit
    from cclbench.pipeline import open_run
    from cclbench.pipeline import whatif as replay
    from cclbench.schema import RESULTS

    opened = open_run(run, store=store, jobs=jobs, inference=inference)
    found = replay(opened, *options.pop("sets"), **options)
    window = found.figures[0].window
    emit(
        form,
        document=document(opened.record, found.figures, window),
        rows=found.rows,
        columns=RESULTS.names,
        table=lambda: _page(found, verbosity),
    )


def _page(found: Answer, verbosity: int) -> Sequence[RenderableType]:
    """Steps and speedups as a table, where the critical path runs, and what they rest on."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from cclbench.problem import printable
    from cclbench.units import humanise

    def time(ns: float | None) -> str:
        return "" if ns is None else humanise(ns / 1e9, "s")

    def route(path: Route) -> str:
        shares = sorted(path.places.items(), key=lambda place: -place[1])
        whole = max(path.length_ns, 1)
        told = [
            f"{place.replace('communication', 'comm.')} {humanise(ns / whole, '1')}"
            for place, ns in shares
            if ns >= _TOLD * whole
        ]
        return "\n".join(told)

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    longest = max(len(part) for one in found.predicted for part in one.scenario.label.split())
    table.add_column("", min_width=min(longest, _LABEL), overflow="fold")
    for heading in ("step", "bounds", "speedup"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("critical path", overflow="fold")
    table.add_row("measured", time(found.measured_ns))
    unchanged = found.unchanged
    table.add_row("replayed unchanged", time(unchanged.step_ns), "", "", route(unchanged.path))
    for one in found.predicted:
        step = one.step_ns
        low, high = time(one.low_ns), time(one.high_ns)
        table.add_row(
            Text(printable(one.scenario.label)),
            time(step) or "unknown",
            "" if low == high else f"{low} to {high}",
            "" if step is None else humanise(unchanged.step_ns / step, "ratio"),
            route(one.path),
        )
    if verbosity <= QUIET:
        return [table]
    knees = [
        f"knee of {row.category}: "
        + (row.reason or "" if row.value is None else f"x{row.value:g}; {row.reason}")
        for row in found.figures
        if row.metric == "whatif.knee"
    ]
    faith = [row.reason for row in found.figures if row.metric == "whatif.replayed_step" and row.reason]
    bases = dict.fromkeys(basis for one in found.predicted for basis in one.basis)
    lines = [*knees, *faith, *bases, *found.notes]
    return [table, *(Text(printable(f"- {line}")) for line in lines)]
