# SPDX-License-Identifier: Apache-2.0
"""Figures as OpenTelemetry metrics: an ExportMetricsServiceRequest in OTLP's JSON, as collectors read files.

Units are in the field `unit`, by UCUM, as OpenTelemetry asks, not in names.  A metric without a value has a
data point with the flag `NO_RECORDED_VALUE`, and its status and reason as attributes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from cclbench import __version__
from cclbench.export.figures import Figure, labels_of
from cclbench.ground.text import printable

UNITS: Final = {
    "B": "By",
    "B/s": "By/s",
    "s/B": "s/By",
    "ratio": "1",
    "count": "{count}",
    "FLOP/s": "{FLOP}/s",
    "USD": "{USD}",
    "USD/token": "{USD}/{token}",
}
"""UCUM's code of a unit, where it is another."""
_NO_RECORDED_VALUE: Final = 1


def otlp_text(run: str, facts: Mapping[str, str], time_ns: int, figures: Iterable[Figure]) -> str:
    """The request on one line; `facts` are attributes of the resource, `time_ns` is since the Unix epoch."""
    resource = {"service.name": "cclbench", "cclbench.run": run, **facts}
    metrics = [
        metric for figure in figures if (metric := _metric(figure, str(time_ns)))["gauge"]["dataPoints"]
    ]
    scope = {"scope": {"name": "cclbench", "version": __version__}, "metrics": metrics}
    request = {
        "resourceMetrics": [{"resource": {"attributes": _attributes(resource)}, "scopeMetrics": [scope]}]
    }
    return json.dumps(request, ensure_ascii=False, allow_nan=False) + "\n"


def _metric(figure: Figure, time_ns: str) -> dict[str, Any]:
    points: list[dict[str, Any]] = [
        {"attributes": _attributes(labels_of(row)), "timeUnixNano": time_ns, "asDouble": row.number}
        for row in figure.valued
    ]
    if (row := figure.missing) is not None:
        why = {"reason": printable(row.reason)} if row.reason else {}
        points.append(
            {
                "attributes": _attributes({**labels_of(row), **why}),
                "timeUnixNano": time_ns,
                "flags": _NO_RECORDED_VALUE,
            }
        )
    return {
        "name": f"cclbench.{figure.metric}",
        "description": figure.definition,
        "unit": UNITS.get(figure.unit, figure.unit),
        "gauge": {"dataPoints": points},
    }


def _attributes(labels: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"key": name, "value": {"stringValue": value}} for name, value in labels.items()]
