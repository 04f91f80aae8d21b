# SPDX-License-Identifier: Apache-2.0
"""Phases of a step of reinforcement learning by their names, and the role that each is of.

Sources: verl, verl/trainer/ppo/ray_trainer.py and recipe/one_step_off_policy (names of `marked_timer`), and
verl/workers/fsdp_workers.py (names and roles of `DistProfiler.annotate`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ROLES: Final = ("generate", "tools", "score", "update", "weight_sync")
"""Roles in the order of a step: sample, call tools, score samples, train on them, send weights back."""

TIMERS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("gen", "gen_max"), "generate"),
    **dict.fromkeys(("reward", "old_log_prob", "ref", "values", "adv"), "score"),
    **dict.fromkeys(("update_critic", "update_actor"), "update"),
    **dict.fromkeys(("update_weights", "sync_rollout_weights"), "weight_sync"),
    "wait_prev_gen": "wait_generate",
}
"""Role by the name of a timer of verl's trainer, which times one after the other."""
WITHIN_GENERATION: Final[Mapping[str, str]] = {"reshard": "weight_sync"}
"""Role of the timers of what workers do within `gen`."""
NOT_ALWAYS_WITHIN: Final = ("testing", "save_checkpoint")
"""Timers that some versions start within the step and others after it."""
ASYNCHRONOUS: Final = ("wait_prev_gen", "sync_rollout_weights")
"""Timers of trainers whose generation runs beside the step."""

_ANNOTATIONS: Final[Mapping[str, str]] = {
    **{f"rl.{role}": role for role in ROLES},
    **dict.fromkeys(("rollout_generate", "generate_sequences"), "generate"),
    **dict.fromkeys(
        (
            *("actor_compute_log_prob", "compute_log_prob", "ref_compute_log_prob", "compute_ref_log_prob"),
            *("compute_values", "compute_rm_score"),
        ),
        "score",
    ),
    **dict.fromkeys(("actor_update", "update_actor", "update_critic"), "update"),
    **dict.fromkeys(("update_weights", "sync_rollout_weights"), "weight_sync"),
}


def annotated_role(name: str) -> str | None:
    """The role of a range (record_function, NVTX) with that name: `rl.ROLE`, or a name of verl's workers."""
    return _ANNOTATIONS.get(name)
