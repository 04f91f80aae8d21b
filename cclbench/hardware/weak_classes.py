# SPDX-License-Identifier: Apache-2.0
"""Classes of machines whose predictions were farther off than others', or compared with hardly any machine.

`scripts/hardware_residuals.py` writes the scores of classes into the residual table: |error| of published
sweeps, each predicted without what its system taught.  A prediction carries the marks of its classes.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cclbench.hardware.residuals import BANDS, Floats, ResidualSetting, residual_table

PROMISED_ERRORS: Final = (0.2, 0.2, 0.09)
"""By size band, the median |predicted / measured − 1| above which a class is weak."""
LEAST_MACHINES: Final = 3
"""Machines that a class needs in a size band: fewer say how far off these were, not the class."""
_NETWORKS: Final = {
    "ib-verbs": "InfiniBand and RoCE",
    "aws-ofi-nccl": "EFA",
    "cxi": "Slingshot",
    "tcpx": "TCPX and TCPXO",
    "tcpxo": "TCPX and TCPXO",
}


def machine_class(setting: ResidualSetting) -> str:
    """Maker of the accelerators, and the network's software; or a single node: `NVIDIA, Slingshot`."""
    maker = "AMD" if setting.architecture == "amd" else "NVIDIA"
    network = _NETWORKS.get(setting.network, setting.network) if setting.several_nodes else "one node"
    return f"{maker}, {network}"


def class_names(setting: ResidualSetting) -> tuple[str, ...]:
    """The classes that a prediction belongs to: of machines, of collectives, of architectures, of racks."""
    racks = ("between scale-up domains",) if setting.between_domains else ()
    return machine_class(setting), setting.kind, f"architecture {setting.architecture}", *racks


def class_marks(setting: ResidualSetting, sizes: Floats) -> tuple[tuple[str, ...], ...]:
    """The marks of each size, shape (sizes,): one for each weak class that the prediction belongs to.

    Nothing is said of machines without any published sweep: their predictions have a note of their own.
    """
    if not setting.swept:
        return ((),) * len(sizes)
    by_band = [
        tuple(mark for name in class_names(setting) if (mark := _class_mark(name, number, band)) is not None)
        for number, band in enumerate(BANDS)
    ]
    numbers = np.searchsorted([*BANDS.values()], sizes, side="right")
    return tuple(by_band[number] for number in numbers.tolist())


def _class_mark(name: str, number: int, band: str) -> str | None:
    scores = residual_table().classes.get(name)
    machines, error = (0, None) if scores is None else (scores.machines[number], scores.errors[number])
    if error is None:
        return f"weak class: {name}, {band}: published machines: none"
    if error > PROMISED_ERRORS[number]:
        return f"weak class: {name}, {band}: median error {error:.0%}, published machines: {machines}"
    if machines < LEAST_MACHINES:
        return f"weak class: {name}, {band}: published machines: {machines}"
    return None
