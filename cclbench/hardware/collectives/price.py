# SPDX-License-Identifier: Apache-2.0
"""Prices of collectives: each applicable algorithm is costed, the fastest wins, a band states uncertainty."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
from numpy.typing import ArrayLike

from cclbench.classify import bus_factor
from cclbench.ground.errors import UsageError, near
from cclbench.ground.schema import COLLECTIVE_KINDS
from cclbench.ground.units import EIB
from cclbench.hardware.collectives.algorithm import ALGORITHMS, CollectiveCall, chosen_always
from cclbench.hardware.collectives.cost import BEST, EXPECTED, WORST, Assumed, CollectiveCost, Floats
from cclbench.hardware.collectives.group import Group, NoPrice, group_of
from cclbench.hardware.collectives.nccl import nccl_constants, unread_version_note, usable_protocols
from cclbench.hardware.collectives.open_mpi import (
    OPEN_MPI_NOTE,
    ChosenFormulas,
    chosen_formulas,
    has_open_mpi_rules,
)
from cclbench.hardware.collectives.schedule import SendSchedule, schedule_cost
from cclbench.hardware.collectives.transport import PROTOCOLS, SIMPLE
from cclbench.hardware.residuals import ResidualSetting, current_residuals
from cclbench.hardware.system import System
from cclbench.hardware.weak_classes import class_marks

# No sweeps of their collectives are published: only the width of the band is learned for them.
_NEVER_SWEPT: Final = ("tpu", "trainium")
MOST_SWEPT_RANKS: Final = 256
"""The largest group of a published sweep that residuals were learned from."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Modelled times (s), bandwidths (B/s, with nccl-tests' factors) and the winning algorithm, by size.

    The true time is expected between `low_s` and `high_s` in four of five cases.  `basis` is `calibrated` if
    the figure rests on measured times of the same machine, else `spec`.  `reason` states the assumptions;
    `marks` are those of weak classes by size (`weak_classes`).

    `formula_s` is the time by formulas alone, `fastest_s` and `slowest_s` the same with the assumptions at
    either edge (`ratio` needs them).  `setting` is what the residual depends on.
    """

    setting: ResidualSetting
    sizes: Floats
    formula_s: Floats
    fastest_s: Floats
    slowest_s: Floats
    time_s: Floats
    algbw: Floats
    busbw: Floats
    low_s: Floats
    high_s: Floats
    algorithm: tuple[str, ...]
    protocol: tuple[str, ...]
    basis: Literal["spec", "calibrated"]
    reason: str | None
    marks: tuple[tuple[str, ...], ...]

    @property
    def all_marks(self) -> tuple[str, ...]:
        """The marks of all sizes, each once."""
        return tuple(dict.fromkeys(mark for marks in self.marks for mark in marks))


def price_collective(
    kind: str,
    size: ArrayLike,
    group: Sequence[int],
    system: System,
    *,
    library_version: str | None = None,
    algorithm: str | None = None,
    protocol: str | None = None,
    transport: str | None = None,
    plan: SendSchedule | None = None,
) -> Prediction | NoPrice:
    """Time of a collective of `size` bytes S (one or many) among the global ranks `group` of a system.

    S is the larger buffer of all-gather and reduce-scatter, and each rank's total of an all-to-all.
    `algorithm` and `protocol` restrict the choice to one; `plan` is priced instead of any algorithm.  With a
    `library_version` such as `Open MPI 4.1.4` that library's own choice is priced, not the fastest.  Returns
    a `NoPrice` that names the missing field if there is no price.
    """
    if kind not in COLLECTIVE_KINDS:
        raise UsageError(f"there is no collective {kind!r}", hint=near(kind, COLLECTIVE_KINDS))
    for word, registry in ((algorithm, ALGORITHMS), (protocol, PROTOCOLS)):
        if word is not None and word not in registry:
            raise UsageError(f"there is no algorithm or protocol {word!r}", hint=near(word, registry))
    sizes = sizes_of(kind, size)
    known_group = group_of(system, group, transport=transport)
    if isinstance(known_group, NoPrice):
        return known_group
    return price_group(
        kind,
        sizes,
        known_group,
        library_version=library_version,
        algorithm=algorithm,
        protocol=protocol,
        plan=plan,
    )


def sizes_of(kind: str, size: ArrayLike) -> Floats:
    """Sizes as an array, B; a barrier counts as one byte; `UsageError` if a size is out of range."""
    sizes = np.atleast_1d(np.asarray(size, np.float64))
    if kind == "barrier":
        sizes = np.full(sizes.shape, 1.0)
    if not ((sizes >= 0) & (sizes <= EIB)).all():
        raise UsageError("sizes must be between 0 B and 1 EiB")
    return sizes


def price_group(
    kind: str,
    sizes: Floats,
    group: Group,
    *,
    library_version: str | None = None,
    algorithm: str | None = None,
    protocol: str | None = None,
    plan: SendSchedule | None = None,
) -> Prediction | NoPrice:
    """`price_collective` for a given `Group`."""

    chosen = algorithm is None and protocol is None and plan is None
    by_rules = chosen_formulas(kind, group.ranks, sizes) if has_open_mpi_rules(library_version) else None
    if by_rules is not None:
        library_version = None  # steps are those of NCCL's newest release
    if chosen and by_rules is not None:
        lacking = sorted(name for name, (formula, _) in by_rules.items() if formula is None)
        if lacking:
            return NoPrice(f"Open MPI takes {', '.join(lacking)} for {kind}: no formula is known")

    def modelled_times(assumed: Assumed) -> tuple[list[CollectiveCost], Floats]:
        if chosen and by_rules is not None:
            return _times_by_rules(kind, sizes, group, assumed, by_rules)
        # A protocol asked for by name is taken to work, also at the worst edge.
        let_through = usable_protocols(group, assumed if protocol is None else EXPECTED, library_version)
        costs = [
            cost
            for cost in algorithm_costs(
                kind, group, assumed, library_version, plan=plan, algorithm=algorithm, let_through=let_through
            )
            if protocol in (None, cost.protocol) and algorithm in (None, cost.algorithm)
        ]
        return costs, np.array([cost.time_s(sizes) for cost in costs], np.float64)

    costs, every = modelled_times(EXPECTED)
    if chosen and by_rules is not None:
        costed = {cost.algorithm for cost in costs}
        if lacking := sorted(set(by_rules) - costed):
            ranks = f"no formula for {group.ranks} ranks"
            return NoPrice(f"Open MPI takes {', '.join(lacking)} for {kind}: {ranks}")
    if not costs:
        choice = " ".join(word for word in (algorithm, protocol) if word)
        why = f"{choice} does not apply" if choice else "no known algorithm applies"
        return NoPrice(f"{kind} of {group.ranks} ranks on {group.nodes} node(s): {why}")
    winner = every.argmin(axis=0)
    ordered = np.sort(every, axis=0)
    # One process may drive all accelerators of a host, and then launches on them one after another.
    serial = replace(WORST, launch_s=max(WORST.launch_s, EXPECTED.launch_s * group.hosted))
    best, worst = modelled_times(BEST)[1].min(axis=0), modelled_times(serial)[1].min(axis=0)
    # Libraries choose by their own estimates: the runner-up may run instead.
    slowest = worst if by_rules else np.maximum(worst, ordered[min(1, len(costs) - 1)])
    setting = setting_of(kind, group)
    residuals = current_residuals()
    # Residuals are learned from what libraries choose: algorithms asked for by name have only their formula.
    learned = chosen and by_rules is None
    expected = ordered[0] * np.exp(residuals.log_correction(setting, sizes)) if learned else ordered[0]
    low, high = residuals.band_half_widths(setting, sizes)
    algbw = sizes / expected
    return Prediction(
        setting=setting,
        sizes=sizes,
        formula_s=ordered[0],
        fastest_s=np.minimum(best, ordered[0]),
        slowest_s=slowest,
        time_s=expected,
        algbw=algbw,
        busbw=algbw * bus_factor(kind, group.ranks),
        low_s=expected * np.exp(-low),
        high_s=expected * np.exp(high),
        algorithm=tuple(costs[i].algorithm for i in winner),
        protocol=tuple(costs[i].protocol for i in winner),
        basis="spec",
        reason="; ".join(
            (
                *group.assumptions,
                *unread_version_note(library_version),
                *([OPEN_MPI_NOTE] if chosen and by_rules is not None else []),
                *_unswept_note(setting),
                *_extrapolation_notes(group, setting),
            )
        )
        or None,
        marks=class_marks(setting, sizes),
    )


def _times_by_rules(
    kind: str, sizes: Floats, group: Group, assumed: Assumed, by_rules: ChosenFormulas
) -> tuple[list[CollectiveCost], Floats]:
    """Costs of the algorithms that rules choose, by their names there; times are infinite at other sizes."""
    costs, times = [], []
    for name, (formula, is_chosen) in by_rules.items():
        for cost in algorithm_costs(kind, group, assumed, algorithm=formula, let_through=(SIMPLE,)):
            if cost.algorithm == formula:
                costs.append(replace(cost, algorithm=name))
                times.append(np.where(is_chosen, cost.time_s(sizes), np.inf))
    return costs, np.array(times, np.float64)


def _unswept_note(setting: ResidualSetting) -> tuple[str, ...]:
    if setting.swept:
        return ()
    return ("no sweep of such a machine is published: the band is that of other machines",)


def _extrapolation_notes(group: Group, setting: ResidualSetting) -> Iterator[str]:
    """What no published sweep covers: so many ranks, several domains of several nodes."""
    if not setting.swept:
        return
    if group.ranks > MOST_SWEPT_RANKS:
        yield f"no sweep of more than {MOST_SWEPT_RANKS} ranks is published: an extrapolation"
    if setting.between_domains:
        yield "between scale-up domains of several nodes: hardly a sweep is published, hence the wide band"


def setting_of(kind: str, group: Group) -> ResidualSetting:
    """What the residual of that collective on the group depends on; a barrier is an all-reduce."""
    swept = group.architecture not in _NEVER_SWEPT
    return ResidualSetting(
        group.machine,
        group.nodes > 1,
        group.network,
        "all_reduce" if kind == "barrier" else kind,
        group.ranks,
        swept=swept,
        architecture=group.architecture,
        between_domains=swept and group.between_domains,
    )


def algorithm_costs(
    kind: str,
    group: Group,
    assumed: Assumed,
    library_version: str | None = None,
    *,
    plan: SendSchedule | None = None,
    algorithm: str | None = None,
    let_through: tuple[str, ...] | None = None,
) -> list[CollectiveCost]:
    """Costs of all algorithms and protocols that apply to the group; a barrier is an all-reduce.

    `let_through` are the protocols in use; None: those that the assumptions permit.
    """
    kind = "all_reduce" if kind == "barrier" else kind
    table = nccl_constants(library_version)
    if group.architecture == "amd":
        table = table.rccl_constants()
    if group.peers == "pcie-tree":
        table = table.over_pci()
    used = usable_protocols(group, assumed, library_version) if let_through is None else let_through
    call = CollectiveCall(kind, group, table, assumed, used)
    if plan is not None:
        cost = schedule_cost(plan, call)
        return [] if cost is None else [cost]
    applying = [
        candidate
        for name in ALGORITHMS
        if (candidate := ALGORITHMS.get(name)).applies_to(group, by_name=name == algorithm)
    ]
    # The first of equally fast ones wins (a ring and a direct exchange of two ranks): list common ones first.
    applying.sort(key=lambda candidate: candidate.chosen is not chosen_always)
    return [cost for candidate in applying for cost in candidate.costs(call)]
