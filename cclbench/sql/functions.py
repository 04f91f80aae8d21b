# SPDX-License-Identifier: Apache-2.0
"""Functions that views call: what the package computes in Python, for SQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from cclbench.classify import base_name, bus_factor, kernel_category
from cclbench.operators.call import Call, NoModel, parse_call
from cclbench.operators.cost import cost_of, model_of


@dataclass(frozen=True, slots=True)
class Function:
    """A function of SQL: DuckDB's types of its parameters and of its value, NULL in and out as None."""

    call: Callable[..., Any]
    parameters: tuple[str, ...]
    returns: str


def _family(operator: str | None) -> str | None:
    """The family of the operator's cost model, None where it has none."""
    model = model_of(operator or "")
    return model.family if model else None


def _cost(
    operator: str | None,
    shapes: str | None,
    dtypes: str | None,
    strides: str | None,
    values: str | None,
    kernels: list[str | None] | None,
    annotation: str | None,
    forward: list[str | None] | None,
    inner: list[list[str | None]] | None,
) -> dict[str, Any]:
    """FLOPs, bytes, those written and precision of a call, or why nothing counts them.

    `forward`: name and arguments of the call whose gradients it computes, None without one; `inner`: those of
    the calls that it makes.
    """
    launched = tuple(name or "" for name in kernels or ())
    call = parse_call(operator or "", shapes, dtypes, strides, values, launched, annotation)
    if forward is not None:
        call = replace(call, forward=_recorded_call(forward))
    call = replace(call, inner=tuple(map(_recorded_call, inner or ())))
    try:
        cost = cost_of(call)
    except NoModel as reason:
        unknown = dict.fromkeys(("flops", "bytes", "written_bytes", "precision", "assumes"))
        return {**unknown, "why_not": str(reason)}
    return {
        "flops": float(cost.flops),
        "bytes": float(cost.bytes),
        "written_bytes": float(cost.written_bytes),
        "precision": cost.precision,
        "assumes": cost.assumes,
        "why_not": None,
    }


def _recorded_call(texts: list[str | None]) -> Call:
    """A call by its name, shapes, element types, strides and values."""
    name, shapes, dtypes, strides, values = texts
    return parse_call(name or "", shapes, dtypes, strides, values)


FUNCTIONS: Final = {
    "operator_family": Function(_family, ("VARCHAR",), "VARCHAR"),
    "operator_reads_inner": Function(
        lambda operator: bool((model := model_of(operator or "")) and model.reads_inner),
        ("VARCHAR",),
        "BOOLEAN",
    ),
    "operator_cost": Function(
        _cost,
        (*("VARCHAR",) * 5, "VARCHAR[]", "VARCHAR", "VARCHAR[]", "VARCHAR[][]"),
        "STRUCT(flops DOUBLE, bytes DOUBLE, written_bytes DOUBLE, precision VARCHAR, assumes VARCHAR,"
        " why_not VARCHAR)",
    ),
    "kernel_base_name": Function(lambda name: base_name(name or ""), ("VARCHAR",), "VARCHAR"),
    "name_category": Function(lambda name: kernel_category(name or "") or "other", ("VARCHAR",), "VARCHAR"),
    "bus_factor": Function(
        lambda kind, ranks: bus_factor(kind or "", ranks) if ranks else None, ("VARCHAR", "INTEGER"), "DOUBLE"
    ),
}
"""By name."""
