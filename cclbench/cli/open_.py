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
@options.file("-o", "--output", help="Write the trace to this .json or .json.gz file, and serve nothing.")
@options.ranks
@options.steps
@options.opening
@options.debug
def open_(run: str, output: Path | None, opening: dict[str, Any], **wishes: Any) -> None:
    """Look at all ranks on one time axis, in Perfetto's viewer.

    RUN is the id of a run (`cclbench list runs`), or any SOURCE that `cclbench run` takes. Each rank has its
    streams and threads, its steps, and a lane of what it waits in collectives, and for whom; arrows link the
    ranks' parts of a collective. Times are on the clock that all ranks share.

    Without --output the trace is served to the page ui.perfetto.dev in your browser, from this machine's
    port 9001 and only once; it goes nowhere else. The browser may ask whether the page may reach this
    machine. Through ssh, forward the port: `ssh -L 9001:127.0.0.1:9001 HOST`.

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
        say_on_stderr(f"wrote {output}: {write_trace(opened, output, **wishes)}")
        return

    from cclbench.ground.scratch import temporary
    from cclbench.present.perfetto.serve import serve_file

    with temporary() as folder:
        path = folder / "trace.json.gz"
        say_on_stderr(f"{opened.id}: {write_trace(opened, path, **wishes)}")
        serve_file(path, _show)
    click.echo("the viewer has it", err=True)


def _show(link: str) -> None:
    import webbrowser

    click.echo(f"{link}\nopening it in your browser; Ctrl-C gives up", err=True)
    webbrowser.open(link)
