# SPDX-License-Identifier: Apache-2.0
"""Figures as a file for the textfile collector of Prometheus's node exporter.

Text exposition format 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats): all are gauges, since each
is the state of one run.  A metric without a value has a comment that says why, and no sample.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from cclbench.export.figures import Figure, labels_of, missing_words

PREFIX: Final = "cclbench_"
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})


def prometheus_name(figure: Figure) -> str:
    """`cclbench_time_step_seconds`."""
    return PREFIX + re.sub(r"\W", "_", figure.name, flags=re.ASCII)


def prometheus_text(run: str, figures: Iterable[Figure]) -> str:
    """The figures, each sample with the label `run`."""
    return "".join(f"{line}\n" for figure in figures for line in _figure_lines(run, figure))


def _figure_lines(run: str, figure: Figure) -> Iterator[str]:
    name = prometheus_name(figure)
    if figure.missing is not None:
        yield f"# {figure.metric} has no value: {missing_words(figure.missing)}"
    if not figure.valued:
        return
    yield f"# HELP {name} {figure.definition.translate(_HELP_ESCAPES)}"
    yield f"# TYPE {name} gauge"
    for row in figure.valued:
        labels = {"run": run, **labels_of(row)}
        text = ",".join(f'{label}="{value.translate(_ESCAPES)}"' for label, value in labels.items())
        yield f"{name}{{{text}}} {row.number!r}"
