# SPDX-License-Identifier: Apache-2.0
"""The first screen: what a step of a run takes and why, in a sentence and in a few numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from cclbench.analyzers.verdict import verdict
from cclbench.report.seen import Seen
from cclbench.report.words import number
from cclbench.units import humanise

_TILES: Final = (
    ("time.step", "step time"),
    ("throughput.tokens_per_device", "tokens per device"),
    ("compute.mfu", "model FLOPs utilisation"),
    ("overlap.ratio", "communication overlapped"),
    ("comm.bandwidth_utilization", "of the links' rate"),
    ("balance.load_imbalance", "load imbalance"),
    ("time.idle", "idle"),
)
_PARTS: Final = (
    ("time.compute_only", "compute alone"),
    ("time.overlapped", "compute and communication at once"),
    ("time.exposed_comm", "exposed communication"),
    ("time.exposed_copy", "exposed copies"),
    ("time.idle", "idle"),
)


@dataclass(frozen=True, slots=True)
class Tile:
    """A number of the first screen and what qualifies it."""

    label: str
    value: Markup
    below: str


def tiles(run: Seen) -> list[Tile]:
    """The numbers that the run has, in the order of their weight."""
    found = []
    for metric, label in _TILES:
        row = run.rows.run.get(metric)
        if row and row["status"] == "ok":
            found.append(Tile(label, number(row), _below(run, metric)))
    return found


def _below(run: Seen, metric: str) -> str:
    step = run.rows.value("time.step")
    if metric == "time.idle" and step:
        return f"{humanise((run.rows.value(metric) or 0) / step, '1')} of a step"
    if metric == "time.step":
        stats = {r["stat"]: r["value"] for r in run.rows.parts(metric)[0] if r["stat"] in ("cv", "p95")}
        steps = len(run.rows.over_steps(metric))
        told = [f"{steps} steps"] if steps > 1 else []
        told += [f"cv {humanise(stats['cv'], '1')}"] if "cv" in stats and steps > 1 else []
        return ", ".join(told)
    ranks = run.rows.ranks(metric)
    if len(ranks) < 2:
        return ""
    unit = run.rows.run[metric]["unit"]
    return f"{humanise(min(ranks.values()), unit)} .. {humanise(max(ranks.values()), unit)}"


def story(run: Seen) -> list[str]:
    """The sentences: where a step of the ranks goes; whether waiting or the network exposes communication."""
    sentences = []
    parts = [(run.rows.value(metric), words) for metric, words in _PARTS]
    whole = sum(seconds or 0.0 for seconds, _ in parts)
    step = run.rows.run.get("time.step")
    if whole and step and step["status"] == "ok" and all(seconds is not None for seconds, _ in parts):
        shares = [f"{_percent(s / whole)} {words}" for s, words in parts if s]
        what = "The whole trace takes" if step["window"] == "trace" else "A step takes"
        sentences.append(f"{what} {humanise(step['value'], 's')}: {_listed(shares)}.")
    said = verdict(list(run.rows.run.values()))
    return [*sentences, *([said] if said else [])]


def _percent(share: float) -> str:
    return "less than 1 %" if share < 0.005 else f"{100 * share:.0f} %"


def _listed(words: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
