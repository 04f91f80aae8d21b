# SPDX-License-Identifier: Apache-2.0
"""cclbench: where each step's time went, on every rank, and why; from the traces.

    import cclbench
    run = cclbench.run("traces/my-job")       # a card, a folder of traces or one trace
    run["time.step"].value                    # a number, with unit, status and reason
    run.findings                              # what makes it slow, what it would gain, what to try
    run.ops(), run.memory()                   # Arrow tables, with .to_pandas()
    run.results                               # pandas DataFrame, one row a number
    cclbench.plot(run).save("bars.png")       # and timeline(run), report(run, "report.html")
    run.sql("SELECT name, sum(dur_ns) FROM events WHERE kind = 'kernel' GROUP BY name")
    cclbench.compare("run-a", "run-b").versus[0].words

The package, from the bottom up: `errors`, `units`; `intervals`, `schema`, `registry`; `card`, `classify`,
`hardware`, `engine`; `formats` (one folder each), `normalize` (rows, ranks, steps, collectives); `record` (a
run and its store); `ingestion`; `analyzers` (one file a topic), `replay`; `workspace` (ids, paths and URLs
become runs); `api`, which puts them together; `present`; `interactive` and `cli` on top.
"""

import sys

# Older interpreters must be able to compile this file, so it has no `from __future__ import annotations`.
if sys.version_info < (3, 11):  # noqa: UP036 (a checkout can be imported without pip, which would refuse)
    sys.exit("cclbench needs Python 3.11 or newer, this is " + ".".join(map(str, sys.version_info[:3])))

TYPE_CHECKING = False  # typing is not loaded for a name: `cclbench --help` is to answer at once
if TYPE_CHECKING:
    from cclbench.interactive import (
        Comparison,
        Run,
        compare,
        ingest,
        metrics,
        plot,
        project,
        report,
        run,
        runs,
        search,
        timeline,
        whatif,
    )

__version__ = "0.2.0"
__all__ = [
    "Comparison",
    "Run",
    "compare",
    "ingest",
    "metrics",
    "plot",
    "project",
    "report",
    "run",
    "runs",
    "search",
    "timeline",
    "whatif",
]


def __getattr__(name: str) -> object:
    # Loaded on first use: `cclbench --help` needs none of Arrow, NumPy and pandas.
    if name in __all__:
        from importlib import import_module

        return getattr(import_module("cclbench.interactive"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
