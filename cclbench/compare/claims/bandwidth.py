# SPDX-License-Identifier: Apache-2.0
"""Claim 2: does doubling the bandwidth inside a node help TPUs more than GPUs?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, Final

from cclbench.compare.claims.claim import Claim, Line, plural
from cclbench.compare.claims.evidence import Evidence
from cclbench.units import humanise

STATEMENT: Final = "Doubling the bandwidth inside a node shortens steps far more on TPUs than on GPUs."
_DOUBLED: Final = "whatif.scale_up_bandwidth_x2"


def examine_bandwidth(runs: Sequence[Evidence]) -> Claim:
    """The share of its step that each run saves at twice the scale-up bandwidth, GPU against TPU."""
    rows = [_row(run) for run in runs if run.kind in ("GPU", "TPU")]
    gains = {
        kind: [row["gain"] for row in rows if row["kind"] == kind and row["gain"] is not None]
        for kind in ("GPU", "TPU")
    }
    middle = {kind: median(told) if told else None for kind, told in gains.items()}
    gpu, tpu = middle["GPU"], middle["TPU"]
    outcome: Any = "cannot be examined"
    if gpu is not None and tpu is not None:
        outcome = "holds" if tpu > gpu else "not shown"
    return Claim(
        key="bandwidth",
        statement=STATEMENT,
        outcome=outcome,
        verdict="; ".join(_told(kind, rows, gains[kind]) for kind in ("GPU", "TPU")),
        counts={f"{kind.lower()}_runs": sum(row["kind"] == kind for row in rows) for kind in gains}
        | {f"{kind.lower()}_told": len(told) for kind, told in gains.items()}
        | {"gpu_median": gpu, "tpu_median": tpu},
        summary=_by_accelerator(rows),
        rows=sorted(rows, key=lambda row: (row["gain"] is None, -(row["gain"] or 0))),
        caveats=tuple(_caveats(rows)),
    )


def _row(run: Evidence) -> dict[str, Any]:
    ratio, row = run.value(_DOUBLED), run.figures.get(_DOUBLED)
    low, high = (run.value(f"{_DOUBLED}[{stat}]") for stat in ("low", "high"))
    return {
        "kind": run.kind,
        "accelerator": run.accelerator,
        "devices": run.devices,
        "model": run.model,
        "phase": run.phase,
        "plan": run.plan,
        "gain": None if ratio is None else 1 - ratio,
        # The largest gain is the smallest step.
        "gain_low": None if high is None else 1 - high,
        "gain_high": None if low is None else 1 - low,
        "provenance": row["provenance"] if row else None,
        "note": run.note(_DOUBLED),
        "run": run.run,
    }


def _told(kind: str, rows: Sequence[Line], gains: Sequence[float]) -> str:
    of_kind = [row for row in rows if row["kind"] == kind]
    if not of_kind:
        return f"the store has no {kind} run"
    runs = plural(len(of_kind), f"{kind} run")
    if not gains:
        return f"none of {runs} tells the gain ({_why(of_kind)})"
    told = [humanise(gain, "1") for gain in (median(gains), min(gains), max(gains))]
    return f"{len(gains)} of {runs} tell the gain: median {told[0]}, {told[1]} to {told[2]}"


def _why(rows: Sequence[Line]) -> str:
    """The most frequent reason for a missing gain."""
    reasons = Counter(row["note"] for row in rows if row["gain"] is None)
    return str(reasons.most_common(1)[0][0]) if reasons else ""


def _by_accelerator(rows: Sequence[Line]) -> list[Line]:
    keys = ("kind", "accelerator", "phase")
    groups: dict[tuple[Any, ...], list[Line]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[key] for key in keys)].append(row)
    found: list[Line] = []
    for group, members in sorted(groups.items(), key=lambda item: tuple(map(str, item[0]))):
        gains = [row["gain"] for row in members if row["gain"] is not None]
        found.append(
            {
                **dict(zip(keys, group, strict=True)),
                "runs": len(members),
                "told": len(gains),
                "least": min(gains, default=None),
                "median": median(gains) if gains else None,
                "most": max(gains, default=None),
            }
        )
    return found


def _caveats(rows: Sequence[Line]) -> Iterator[str]:
    for why, number in Counter(row["note"] for row in rows if row["gain"] is None).most_common():
        yield f"no gain of {plural(number, 'run')}: {why}"
    published = [row for row in rows if row["gain"] is not None and row["provenance"] == "published"]
    if published:
        notes = sorted({row["note"] for row in published if row["note"]})
        yield f"{plural(len(published), 'gain')} as published: {'; '.join(notes)}"
    modelled = sum(row["gain"] is not None and row["provenance"] == "modelled" for row in rows)
    if modelled:
        yield f"{plural(modelled, 'gain')} from a replay of the run's own traces, modelled"
    models = {
        kind: {row["model"] for row in rows if row["kind"] == kind and row["gain"] is not None}
        for kind in ("GPU", "TPU")
    }
    if models["GPU"] and models["TPU"] and not models["GPU"] & models["TPU"]:
        yield "no model is on both sides: the gap may be the models'"
    if any(row["gain"] is not None for row in rows):
        yield (
            "the gain depends on how much of a step is exposed communication inside a node, so on plan, batch"
            " and model"
        )
