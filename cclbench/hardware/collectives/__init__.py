# SPDX-License-Identifier: Apache-2.0
"""Cost model of collectives: one file per algorithm, each a formula over a group's tiers."""

from cclbench.hardware.collectives.algorithm import ALGORITHMS
from cclbench.hardware.collectives.cost import CollectiveCost, CollectiveSteps, Traffic
from cclbench.hardware.collectives.group import Group, NoPrice, group_of
from cclbench.hardware.collectives.price import Prediction, algorithm_costs, price_collective, price_group
from cclbench.hardware.collectives.schedule import SendSchedule, parse_schedule, read_schedule

__all__ = [
    "ALGORITHMS",
    "CollectiveCost",
    "CollectiveSteps",
    "Group",
    "NoPrice",
    "Prediction",
    "SendSchedule",
    "Traffic",
    "algorithm_costs",
    "group_of",
    "parse_schedule",
    "price_collective",
    "price_group",
    "read_schedule",
]
