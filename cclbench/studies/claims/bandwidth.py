# SPDX-License-Identifier: Apache-2.0
"""Claim 2: does doubling the bandwidth inside a node help TPUs more than GPUs?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from operator import itemgetter
from statistics import median
from typing import Any, Final

from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.units import humanise
from cclbench.record.metric_name import metric_name
from cclbench.studies.claims.claim import (
    Claim,
    Line,
    complete_value,
    count_words,
    group_items,
    value_remark,
    workload_fields,
)

STATEMENT: Final = "Doubling the bandwidth inside a node shortens steps far more on TPUs than on GPUs."
_DOUBLED: Final = metric_name("whatif.scale_up_bandwidth_x2")
_KINDS: Final = ("GPU", "TPU")
_BASES: Final = ("published", "computed")


def examine_bandwidth(runs: Sequence[ComparisonSubject]) -> Claim:
    """Compare the share of the step that GPU and TPU runs save at twice the scale-up bandwidth.

    Published gains are compared with published ones, computed with computed.
    """
    rows = [_gain_row(run) for run in runs if run.workload.accelerator_kind in _KINDS]
    groups = [(kind, basis) for basis in _BASES for kind in _KINDS]
    gains = {
        group: [r["gain"] for r in rows if _kind_and_basis(r) == group and r["gain"] is not None]
        for group in groups
    }
    middle = {group: median(values) if values else None for group, values in gains.items()}
    tpu_is_higher = [
        tpu > gpu
        for basis in _BASES
        if (gpu := middle["GPU", basis]) is not None and (tpu := middle["TPU", basis]) is not None
    ]
    sentences = [
        _group_words(rows, group, gains[group])
        for group in groups
        if group in set(map(_kind_and_basis, rows))
    ]
    absent = [f"the store has no {kind} run" for kind in _KINDS if all(row["kind"] != kind for row in rows)]
    return Claim(
        key="bandwidth",
        statement=STATEMENT,
        outcome="cannot be examined" if not tpu_is_higher else "holds" if all(tpu_is_higher) else "not shown",
        verdict="; ".join([*sentences, *absent]),
        counts={
            f"{basis}_{kind.lower()}_{name}": value
            for kind, basis in groups
            for name, value in (
                ("runs", sum(_kind_and_basis(row) == (kind, basis) for row in rows)),
                ("known", len(gains[kind, basis])),
                ("median", middle[kind, basis]),
            )
        },
        summary=_summarise_by_accelerator(rows),
        rows=sorted(rows, key=lambda row: (row["gain"] is None, -(row["gain"] or 0))),
        caveats=tuple(_gain_caveats(rows)),
    )


def _kind_and_basis(row: Line) -> tuple[str, str]:
    return row["kind"], row["basis"]


def _gain_row(run: ComparisonSubject) -> dict[str, Any]:
    ratio, row = complete_value(run, _DOUBLED), run.results.row(_DOUBLED)
    low, high = (complete_value(run, _DOUBLED, stat=stat) for stat in ("low", "high"))
    return {
        "kind": run.workload.accelerator_kind,
        "basis": "published" if run.is_published else "computed",
        **workload_fields(run, "accelerator", "devices", "model", "phase", "plan"),
        "gain": None if ratio is None else 1 - ratio,
        # The largest gain is the smallest step.
        "gain_low": None if high is None else 1 - high,
        "gain_high": None if low is None else 1 - low,
        "provenance": row.provenance if row else None,
        "note": value_remark(run, _DOUBLED),
        "run": run.id,
    }


def _group_words(rows: Sequence[Line], group: tuple[str, str], gains: Sequence[float]) -> str:
    kind, basis = group
    of_group = [row for row in rows if _kind_and_basis(row) == group]
    runs = count_words(len(of_group), f"{basis} {kind} run")
    if not gains:
        (why, _), *_ = Counter(row["note"] for row in of_group).most_common()
        return f"none of {runs} has a gain ({why})"
    middle, least, most = (humanise(gain, "1") for gain in (median(gains), min(gains), max(gains)))
    if len(gains) == 1:
        return f"1 of {runs} has a gain: {middle}"
    return f"{len(gains)} of {runs} have a gain: median {middle}, {least} to {most}"


def _summarise_by_accelerator(rows: Sequence[Line]) -> list[Line]:
    keys = ("kind", "accelerator", "phase", "basis")
    groups = group_items(rows, itemgetter(*keys))
    lines: list[Line] = []
    for group, members in sorted(groups.items(), key=lambda item: tuple(map(str, item[0]))):
        gains = [row["gain"] for row in members if row["gain"] is not None]
        lines.append(
            {
                **dict(zip(keys, group, strict=True)),
                "runs": len(members),
                "known": len(gains),
                "low": min(gains, default=None),
                "median": median(gains) if gains else None,
                "high": max(gains, default=None),
            }
        )
    return lines


def _gain_caveats(rows: Sequence[Line]) -> Iterator[str]:
    for note, count in Counter(row["note"] for row in rows if row["gain"] is None).most_common():
        yield f"no gain for {count_words(count, 'run')}: {note}"
    with_gain = [row for row in rows if row["gain"] is not None]
    published = [row for row in with_gain if row["provenance"] == "published"]
    if published:
        notes = sorted({row["note"] for row in published if row["note"]})
        yield ": ".join(
            filter(None, [f"{count_words(len(published), 'gain')} as published", "; ".join(notes)])
        )
    modelled = sum(row["provenance"] == "modelled" for row in with_gain)
    if modelled:
        yield f"{count_words(modelled, 'gain')} modelled by a replay of the run's own traces"
    gpu, tpu = ({row["model"] for row in with_gain if row["kind"] == kind} for kind in _KINDS)
    if gpu and tpu and not gpu & tpu:
        yield "no model ran on both GPUs and TPUs: the gap may come from the models"
    if with_gain:
        yield (
            "the gain depends on the exposed communication within a node, so on plan, batch size and model"
        )
