# SPDX-License-Identifier: Apache-2.0
"""Random layouts under random settings: what is faster lengthens no step, what is slower shortens none."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import cclbench
from cclbench.card.model import Hardware
from cclbench.ground.errors import InputError
from cclbench.machine import Machine
from cclbench.replay.answer import Replay
from cclbench.replay.scenario import parse_scenario
from helpers.synthetic import Case, Distortion, in_layouts, write

KEYS = (
    *(f"scale_{where}.{what}" for what in ("bandwidth", "latency") for where in ("up", "out")),
    *("kernels.time", "rank", "copies.bandwidth", "host.time", "host[loader].time"),
)
FASTER = ("launches", "stragglar")
SLOWER = (
    *("scale_out.reconfiguration", "scale_out.oversubscription", "scale_out.rail_oversubscription"),
    *("scale_out.failed_links", "scale_out.fence"),
)
SYSTEMS = (None, "dgx-h100", "aws-p5", "mi300x-8gpu")
"""By the run's own fit, or by the model of a machine."""


@dataclass(slots=True)
class Drawn:
    """Layouts and settings drawn; of these, how many touch nothing or cannot be priced; and violations."""

    layouts: int = 0
    settings: int = 0
    idle: int = 0
    refused: int = 0
    violations: list[str] = field(default_factory=list)


def drawn(count: int, each: int, seed: int) -> Drawn:
    """So many layouts, the same ones for a seed, under so many settings each."""
    found, random = Drawn(), Random(seed)  # noqa: S311  (tests)

    def one(case: Case) -> None:
        with TemporaryDirectory() as folder:
            write(case.simulate(), Path(folder) / "traces", Distortion(events=random.random() < 0.5))
            run = cclbench.ingest(Path(folder) / "traces", store=Path(folder) / "store")
            replay = Replay(run)
        found.layouts += 1
        for _ in range(each):
            hosted = case.layout.gpus_per_host
            replay.machine = Machine(Hardware(per_node=hosted, system=random.choice(SYSTEMS)))
            faster = random.choice((True, False, None))
            texts = [_setting(random, key, faster, case.layout.world) for key in _keys(random, faster)]
            found.settings += 1
            _check(replay, texts, faster, found)

    in_layouts(count, seed, one)
    return found


def _keys(random: Random, faster: bool | None) -> list[str]:
    only = {True: FASTER, False: SLOWER, None: SLOWER[1:]}
    return random.sample((*KEYS, *only[faster]), random.choice((1, 1, 2, 3)))


def _setting(random: Random, key: str, faster: bool | None, world: int) -> str:
    """The key with a factor that makes it faster, slower, or (None) neither."""
    factor = 1.0 if faster is None else round(1 + random.random() * random.choice((0.1, 1, 10)), 4)
    if key in FASTER:
        return {"launches": "launches=graph", "stragglar": "stragglar=measured"}[key]
    if key.endswith("failed_links"):
        return f"{key}=0:{round(1 - 1 / factor, 4):g}"
    if key.endswith(("reconfiguration", "fence")):
        return f"{key}={round(10 * (factor - 1), 3):g}us"
    if key.endswith("oversubscription"):
        return f"{key}=x{factor}"
    if key == "rank":
        key = f"rank[{random.randrange(world)}].kernels.time"
    more = faster is not False if key.endswith("bandwidth") else faster is False
    return f"{key}=x{factor if more else 1 / factor:.6f}"


def _check(replay: Replay, texts: list[str], faster: bool | None, found: Drawn) -> None:
    try:
        one = replay.predict(parse_scenario(texts))
    except InputError:
        found.refused += 1
        return
    found.idle += one.idle is not None
    unchanged = replay.unchanged.step_ns
    steps = [one.low_ns, one.high_ns, *([] if one.step_ns is None else [one.step_ns])]
    rounding = 1e-12 * unchanged
    longer = any(step > unchanged + rounding for step in steps)
    shorter = any(step < unchanged - rounding for step in steps)
    bad = {True: longer, False: shorter, None: any(step != unchanged for step in steps)}
    if bad[faster]:
        system = replay.machine.hardware.system
        found.violations.append(f"{replay.graph.windowed} {system} {texts}: {unchanged} -> {steps}")
