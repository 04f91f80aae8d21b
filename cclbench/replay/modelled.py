# SPDX-License-Identifier: Apache-2.0
"""Times of the machine's model for changes that need one: collectives of a group of the run, by formulas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cclbench.ground.errors import InputError
from cclbench.hardware.collectives import NoPrice, price_collective
from cclbench.hardware.collectives.cost import Floats
from cclbench.hardware.collectives.group import Group, group_of
from cclbench.hardware.system import System
from cclbench.replay.change import ChangeSubject


def modelled_s(
    subject: ChangeSubject, what: str, kind: str, members: tuple[int, ...], size: ArrayLike, **how: Any
) -> Floats:
    """Formula times of collectives of those sizes on the run's named machine, s.

    `how` are options of `price_collective`.

    `InputError`, which begins with `what`, where no machine is named or it has no price.
    """
    system, devices = _named_machine(subject, what, members)
    named = "send_recv" if kind in ("send", "recv") else kind
    found = price_collective(named, np.asarray(size, np.float64), devices, system, **how)
    if isinstance(found, NoPrice):
        raise InputError(f"{what}: {found.reason}", where=system.id)
    return found.formula_s


def modelled_group(subject: ChangeSubject, what: str, members: tuple[int, ...]) -> Group:
    """The group on the run's named machine; `InputError` as in `modelled_s`."""
    system, devices = _named_machine(subject, what, members)
    found = group_of(system, devices)
    if isinstance(found, NoPrice):
        raise InputError(f"{what}: {found.reason}", where=system.id)
    return found


def _named_machine(
    subject: ChangeSubject, what: str, members: tuple[int, ...]
) -> tuple[System, Sequence[int]]:
    """The run's named machine, and the members as it numbers its devices."""
    named = subject.machine.named_system
    if named.value is None:
        raise InputError(
            f"{what}: {named.reason or 'needs a machine to start from'}", hint="give --system ID"
        )
    devices = subject.machine.numbered_in(named.value, members)
    if devices is None:
        raise InputError(f"{what}: which ranks share a node is not known", hint="give --per-node N")
    return named.value, devices
