# SPDX-License-Identifier: Apache-2.0
"""What collectives cost: one file an algorithm, each a formula over a group's tiers."""

from cclbench.hardware.collectives.algorithm import ALGORITHMS
from cclbench.hardware.collectives.cost import Cost, Steps, Traffic
from cclbench.hardware.collectives.group import Group, Refusal, group_of
from cclbench.hardware.collectives.price import Prediction, costs, price, price_group
from cclbench.hardware.collectives.schedule import Schedule, read_schedule, schedule

__all__ = [
    "ALGORITHMS",
    "Cost",
    "Group",
    "Prediction",
    "Refusal",
    "Schedule",
    "Steps",
    "Traffic",
    "costs",
    "group_of",
    "price",
    "price_group",
    "read_schedule",
    "schedule",
]
