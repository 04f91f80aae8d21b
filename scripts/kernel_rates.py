# SPDX-License-Identifier: Apache-2.0
"""Learn attainable times of kernels from captures, and write cclbench/hardware/kernel_rates.yaml.

    python scripts/kernel_rates.py ../shared/fixtures

The captures are those of the folder and of traces/ whose accelerator and operators' shapes are known, on
machines of a single accelerator type.  docs/hardware-model.md says what the figures are.
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import yaml

import cclbench
from cclbench.hardware import catalog
from cclbench.hardware.kernel_rates import (
    ANY,
    FamilyRate,
    FamilySpread,
    KernelRates,
    LearnedCapture,
    usable_rates,
)
from cclbench.replay import nodes as n
from cclbench.replay.answer import Replay
from cclbench.replay.tables import graph_inputs

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "cclbench" / "hardware" / "kernel_rates.yaml"
HEAD = """\
# Written by scripts/kernel_rates.py: do not edit.  `share` of the roofline, `spread` of natural logarithms.
# docs/hardware-model.md says how they are learned.
"""
FIXTURES = {
    "kineto/h100_qwen": None,
    "kineto/resnet_mi300x": None,
    "kineto/ddp_a100": None,
    "kineto/dlrm_8xv100": None,
    "graph_replay/sglang_decode_mi300x": None,
    "graph_replay/vllm_decode_mi300x": "amd-mi300x",
    "graph_replay/xdit_flux_sage_mi300x": None,
    "kineto_more/norm_layers_mi300x.json.gz": None,
    "kineto_more/torch_compile_triton.json.gz": None,
    "xprof/mi300x_8gpu_jax_conv.xplane.pb": "amd-mi300x",
}
"""Captures by path in the folder; the accelerator where only SOURCES.md names it."""
DATA_POINTS = "*-h100.yaml"
SMALL_NS, LARGE_NS, LEAST = 1_000, 5_000, 3
LEAST_CALLS = 50
SHRINKAGE = 2
"""An accelerator's share is averaged with the one of all, which counts as so many captures."""


class Family(NamedTuple):
    """A family's kernels of a capture with a roofline time: that and the measured time, ns."""

    family: str
    accelerator: str
    capture: str
    roofline: np.ndarray[Any, Any]
    taken: np.ndarray[Any, Any]

    @property
    def small_ns(self) -> float | None:
        """Median time of small kernels."""
        small = self.taken[self.roofline < SMALL_NS]
        return float(np.median(small)) if len(small) >= LEAST else None

    @property
    def share(self) -> float | None:
        """Share of the roofline that large kernels reach together."""
        large = self.roofline >= LARGE_NS
        return float(self.roofline[large].sum() / self.taken[large].sum()) if large.sum() >= LEAST else None


def observe(name: str, source: str, accelerator: str | None, store: str) -> tuple[list[Family], float | None]:
    """A capture's families, and its median launch call, ns."""
    run = cclbench.ingest(source, store=store)
    replay = Replay(run)
    stated = replay.machine.accelerator.value
    device = catalog.accelerator(accelerator) if accelerator else stated
    if device is None or device.hbm_bytes_per_s is None:
        raise SystemExit(f"{name}: its accelerator is unknown")
    nodes, costs = replay.graph.nodes, replay.costs.node_costs
    chosen = (nodes.kind == n.COMPUTE) & replay.inside
    arithmetic = costs.arithmetic_ns(usable_rates(device))
    roofline = np.maximum(arithmetic, costs.memory_ns(device.hbm_bytes_per_s))
    families = []
    for code, family in enumerate(replay.graph.categories):
        own = chosen & (nodes.category == code) & ~np.isnan(roofline) & (nodes.dur > 0)
        if own.any():
            families.append(Family(family, device.id, name, roofline[own], nodes.dur[own]))
    # where one process launches on several accelerators, its calls wait for one another
    calls = [] if source.endswith(".xplane.pb") else [rank.launches for rank in graph_inputs(run, None)]
    took = np.concatenate(
        [(each.end - each.start)[each.rows_named("LaunchKernel")] for each in calls] or [[]]
    )
    return families, float(np.median(took)) if len(took) >= LEAST_CALLS else None


def geometric_median(values: Iterable[float | None]) -> float | None:
    """exp of the median of logarithms; None of none."""
    logs = [math.log(value) for value in values if value]
    return math.exp(statistics.median(logs)) if logs else None


def learned_rates(observed: list[Family]) -> dict[str, dict[str, FamilyRate]]:
    """Rates by family and scope."""
    scopes: dict[tuple[str, str], list[Family]] = defaultdict(list)
    for one in observed:
        vendor = catalog.accelerator(one.accelerator).vendor
        for family in (one.family, ANY):
            for scope in (one.accelerator, vendor, ANY):
                scopes[family, scope].append(one)
    rates: dict[str, dict[str, FamilyRate]] = defaultdict(dict)
    for (family, scope), members in scopes.items():
        shares = [math.log(one.share) for one in members if one.share]
        pooled = geometric_median(one.share for one in scopes[family, ANY])
        share = None
        if pooled is not None:
            own = statistics.median(shares) if shares else 0.0
            mean = (len(shares) * own + SHRINKAGE * math.log(pooled)) / (len(shares) + SHRINKAGE)
            share = math.exp(mean)
        captures = len({one.capture for one in members})
        rates[family][scope] = FamilyRate(captures, geometric_median(m.small_ns for m in members), share)
    return rates


def log_excess(one: Family, rates: dict[str, dict[str, FamilyRate]]) -> float:
    """log c of a capture by rates that others gave."""
    vendor = catalog.accelerator(one.accelerator).vendor

    def figure(get: Callable[[FamilyRate], float | None], scopes: tuple[str, ...]) -> float:
        known = (
            get(rates[family][scope])
            for family in (one.family, ANY)
            for scope in scopes
            if scope in rates.get(family, {})
        )
        return float(next(value for value in known if value is not None))

    small = figure(lambda rate: rate.small_ns, (one.accelerator, vendor, ANY))
    share = figure(lambda rate: rate.share, (one.accelerator, ANY))
    return math.log(one.taken.sum() / (small + one.roofline / share).sum())


def root_mean_square(values: list[float]) -> float | None:
    """None of fewer than two."""
    return math.sqrt(statistics.fmean(v * v for v in values)) if len(values) > 1 else None


def learned_spread(observed: list[Family]) -> dict[str, FamilySpread]:
    """Spread by family, each capture against the others."""
    seen: dict[str, list[float]] = defaultdict(list)
    unseen: dict[str, list[float]] = defaultdict(list)
    for one in observed:
        others = [other for other in observed if other.capture != one.capture]
        alike = [o for o in others if (o.family, o.accelerator) == (one.family, one.accelerator)]
        elsewhere = [other for other in others if other.accelerator != one.accelerator]
        for values, rates_of in ((seen, others if alike else []), (unseen, elsewhere)):
            if rates_of:
                value = log_excess(one, learned_rates(rates_of))
                for family in (one.family, ANY):
                    values[family].append(value)
    pooled = root_mean_square(unseen[ANY]) or 0.0
    spread = {}
    for family in unseen:
        own = seen.get(family, [])
        # two or three captures agree by chance: the spread of all counts as SHRINKAGE more
        both = [
            None
            if not values
            else math.sqrt((sum(v * v for v in values) + SHRINKAGE * pooled**2) / (len(values) + SHRINKAGE))
            for values in (own, unseen[family])
        ]
        captures = len({one.capture for one in observed if family in (one.family, ANY)})
        spread[family] = FamilySpread(captures, both[0], max(both[1] or pooled, both[0] or 0.0))
    return spread


def rounded(value: Any) -> Any:
    """Figures of three digits."""
    if isinstance(value, float):
        return float(f"{value:.3g}")
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in sorted(value.items())}
    return [rounded(inner) for inner in value] if isinstance(value, list) else value


def main() -> int:
    """Write the file."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    sources = {path: (str(Path(sys.argv[1]) / path), device) for path, device in FIXTURES.items()}
    for card in sorted((ROOT / "workload_cards").glob(DATA_POINTS)):
        sources[card.stem] = (str(card), None)
    observed, launches, captures = [], [], []
    with tempfile.TemporaryDirectory() as store:
        for name, (source, accelerator) in sources.items():
            families, launch_ns = observe(name, source, accelerator, store)
            if not families:
                continue  # operators' shapes are not recorded
            observed += families
            if launch_ns:
                launches.append(math.log(launch_ns))
            kernels = sum(len(one.taken) for one in families)
            captures.append(LearnedCapture(name, families[0].accelerator, kernels))
    table = KernelRates(
        datetime.now(UTC).date().isoformat(),
        cclbench.__version__,
        learned_rates(observed),
        learned_spread(observed),
        statistics.stdev(launches),
        tuple(captures),
    )
    figures = msgspec.to_builtins(table)
    figures = {key: rounded(value) for key, value in figures.items()}
    TARGET.write_text(
        HEAD + yaml.safe_dump(figures, sort_keys=False, default_flow_style=None, width=110), "utf-8"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
