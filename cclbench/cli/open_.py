# SPDX-License-Identifier: Apache-2.0
"""`cclbench open`: a run in Perfetto's viewer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cclbench.cli import options
from cclbench.present.terminal.streams import say_on_stderr


@click.command("open")
@options.run
@options.file("-o", "--output", help="Write the trace to this .json or .json.gz file instead of serving it.")
@options.ranks
@options.steps
@options.opening
@options.debug
def open_(run: str, output: Path | None, opening: dict[str, Any], **arguments: Any) -> None:
    """Open a run in Perfetto's viewer, all ranks on one time axis.

    RUN is the id of a run (`cclbench list runs`), or any SOURCE that `cclbench run` takes. Each rank has its
    streams, threads and steps, and a lane that shows how long it waits in collectives and for which rank;
    arrows link the ranks of a collective. Times are on a common clock.

    Without --output, the trace is served once, from port 9001 of this machine, to the page ui.perfetto.dev in
    your browser; it is sent nowhere else. The browser may ask for permission to access this machine. Over
    ssh, forward the port: `ssh -L 9001:127.0.0.1:9001 HOST`.

    \b
    Examples:
      cclbench open traces/my-job
      cclbench open my-job-3f2a91c0 --ranks 0-7 --steps 3:5
      cclbench open traces/my-job -o my-job.json.gz
    """
    from cclbench.present.perfetto.trace import check_trace, write_trace
    from cclbench.workspace import open_run

    if output is not None:
        check_trace(output)
    opened = open_run(run, **opening)
    if output is not None:
        say_on_stderr(f"wrote {output}: {write_trace(opened, output, **arguments)}")
        return

    from cclbench.ground.scratch import temporary_folder
    from cclbench.present.perfetto.serve import serve_file

    with temporary_folder() as folder:
        path = folder / "trace.json.gz"
        say_on_stderr(f"{opened.id}: {write_trace(opened, path, **arguments)}")
        serve_file(path, _open_link)
    click.echo("loaded by the viewer", err=True)


def _open_link(link: str) -> None:
    import webbrowser

    click.echo(f"{link}\nopening it in your browser; Ctrl-C to stop", err=True)
    webbrowser.open(link)
