# SPDX-License-Identifier: Apache-2.0
"""The work and layout of a step, from a training job's launch script and the settings that it is given."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

import msgspec

from cclbench.studies.published.shell import passed_options


class Launcher(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A training framework's launch options: an entry of `launchers.yaml`."""

    framework: str
    sign: str
    options: dict[str, str]
    """Option by what it sets: global_batch, replica_batch, sequence_length, or a parallel degree."""


LAUNCHERS: Final = msgspec.yaml.decode(
    files(__package__).joinpath("launchers.yaml").read_bytes(), type=tuple[Launcher, ...]
)
_DEGREES: Final = ("tp", "pp", "cp", "ep", "dp_shard", "dp_replicate")
_REPLICAS: Final = {"dp_shard", "dp_replicate"}
"""Degrees of data parallelism; experts are spread over its ranks."""


@dataclass(frozen=True, slots=True)
class LaunchedStep:
    """What one launch runs; numbers are None where script and settings do not state them."""

    framework: str | None
    global_batch: int | None
    """Sequences of a step."""
    sequence_length: int | None
    devices: int | None
    degrees: Mapping[str, int]
    """Known parallel degrees, by name."""
    basis: str
    """What the batch follows from, or why it is unknown."""


def launched_step(script: str, settings: Mapping[str, Any]) -> LaunchedStep:
    """What the script runs if each setting is an environment variable of its name in upper case.

    Where the script passes no degree of its own, a setting called tp, pp, cp, ep or dp is the degree.
    """
    launcher = next((candidate for candidate in LAUNCHERS if re.search(candidate.sign, script)), None)
    if launcher is None:
        frameworks = ", ".join(candidate.framework for candidate in LAUNCHERS)
        return LaunchedStep(None, None, None, None, {}, f"the script launches none of {frameworks}")
    environment = {key.upper(): str(value) for key, value in settings.items()}
    passed = passed_options(script, environment, launcher.options.values())
    numbers = {name: _count(passed[option]) for name, option in launcher.options.items() if option in passed}
    degrees = {name: numbers.get(name, _count(settings.get(name))) for name in _DEGREES}
    if not _REPLICAS & numbers.keys():
        degrees["dp_replicate"] = _count(settings.get("dp"))
    stated = {name: degree for name, degree in degrees.items() if degree is not None or name in numbers}
    replicas = _product(stated, _REPLICAS & stated.keys())
    replica, option = numbers.get("replica_batch"), launcher.options["replica_batch"]
    if batch := numbers.get("global_batch"):
        basis = f"{launcher.options['global_batch']} of the script"
    elif replica and replicas:
        batch = replica * replicas
        basis = f"{option} of the script times the data-parallel degree"
    else:
        basis = f"the script's {launcher.options['global_batch']} or {option} is unknown"
    return LaunchedStep(
        framework=launcher.framework,
        global_batch=batch,
        sequence_length=numbers.get("sequence_length"),
        devices=replicas and _product(stated, {"tp", "pp", *({"cp"} & stated.keys())}, replicas),
        degrees={name: degree for name, degree in stated.items() if degree is not None},
        basis=basis,
    )


def _product(degrees: Mapping[str, int | None], names: Set[str], start: int = 1) -> int | None:
    """Product of the degrees; None if there are none, or one is unknown."""
    chosen = [degrees.get(name) or 0 for name in names]
    return math.prod(chosen, start=start) or None if chosen else None


def _count(value: Any) -> int | None:
    """A positive whole number, also as text; None for anything else."""
    text = str(value)
    return int(text) if not isinstance(value, bool) and re.fullmatch(r"[1-9][0-9]{0,9}", text) else None
