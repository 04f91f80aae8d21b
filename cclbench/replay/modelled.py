# SPDX-License-Identifier: Apache-2.0
"""Modelled times of collectives of a group of the run, for changes that need them."""

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
    """Modelled times of collectives of these sizes on the run's named machine, s.

    `how`: options of `price_collective`.

    `InputError`, prefixed by `what`, where no machine is named or it has no model.
    """
    system, devices = _named_machine(subject, what, members)
    model_kind = "send_recv" if kind in ("send", "recv") else kind
    price = price_collective(model_kind, np.asarray(size, np.float64), devices, system, **how)
    if isinstance(price, NoPrice):
        raise InputError(f"{what}: {price.reason}", where=system.id)
    return price.formula_s


def modelled_group(subject: ChangeSubject, what: str, members: tuple[int, ...]) -> Group:
    """The group on the run's named machine; `InputError` as in `modelled_s`."""
    system, devices = _named_machine(subject, what, members)
    group = group_of(system, devices)
    if isinstance(group, NoPrice):
        raise InputError(f"{what}: {group.reason}", where=system.id)
    return group


def _named_machine(
    subject: ChangeSubject, what: str, members: tuple[int, ...]
) -> tuple[System, Sequence[int]]:
    """The run's named machine, and the members as it numbers its devices."""
    named = subject.machine.named_system
    if named.value is None:
        raise InputError(f"{what}: {named.reason or 'needs a named machine'}", hint="give --system ID")
    devices = subject.machine.numbered_in(named.value, members)
    if devices is None:
        raise InputError(f"{what}: which ranks share a node is unknown", hint="give --per-node N")
    return named.value, devices
