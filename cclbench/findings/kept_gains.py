# SPDX-License-Identifier: Apache-2.0
"""Replayed gains, stored with a run's results, so that a stored run is shown without a replay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

import cclbench
from cclbench.findings.culprits import Culprit
from cclbench.ground.code_hash import code_hash, plugin_files
from cclbench.ground.scratch import scratch
from cclbench.hardware.catalog import user_entries_hash
from cclbench.record.files import UNFINISHED
from cclbench.record.results import Scope
from cclbench.record.run import Run

GAINS_FILE: Final = ".gains.json"


class StepGain(NamedTuple):
    """Lower and upper bound of a step's gain, in seconds and as shares of the step."""

    seconds: tuple[float, float]
    shares: tuple[float, float]


class _KeptFile(msgspec.Struct):
    """Gains, or why there is none, and culprits by settings; valid for the key `by`."""

    by: str
    gains: dict[str, StepGain | str] = {}
    culprits: dict[str, Culprit | None] = {}


class KeptGains:
    """Gains of a scope in a run's folder, computed by this version of the code, and new ones."""

    def __init__(self, run: Run, scope: Scope) -> None:
        self._path = run.path / GAINS_FILE
        by = sha256(
            repr((_replaying_hash(), user_entries_hash(), run.record.stored, scope)).encode()
        ).hexdigest()
        self._kept, self._added = _KeptFile(by), False
        with suppress(OSError, msgspec.MsgspecError):
            stored = msgspec.json.decode(self._path.read_bytes(), type=_KeptFile)
            if stored.by == by:
                self._kept = stored

    def kept_gain(self, settings: Sequence[str]) -> StepGain | str | None:
        """The gain of the settings, or why it is unknown; None where it was not replayed."""
        return self._kept.gains.get("\n".join(settings))

    def add_gain(self, settings: Sequence[str], gain: StepGain | str) -> None:
        """Add the gain of the settings, written by `save_gains`."""
        self._kept.gains["\n".join(settings)] = gain
        self._added = True

    def kept_culprit(self, settings: Sequence[str], find: Callable[[], Culprit | None]) -> Culprit | None:
        """The calls behind the settings, searched by `find` where they are not stored."""
        key = "\n".join(settings)
        if key not in self._kept.culprits:
            self._kept.culprits[key] = find()
            self._added = True
        return self._kept.culprits[key]

    def save_gains(self) -> None:
        """Write additions; a folder that cannot be written keeps none, which only costs time."""
        if not self._added:
            return
        with suppress(OSError), scratch(self._path.parent.parent, UNFINISHED) as folder:
            (folder / GAINS_FILE).write_bytes(msgspec.json.encode(self._kept))
            (folder / GAINS_FILE).replace(self._path)
        self._added = False


@cache
def _replaying_hash() -> str:
    """The hash of all that may change what a replay gains: the package's modules, and plug-ins.

    Of the package's own modules, which are many, the size and time of change; copied ones replay anew.
    """
    module_paths = sorted(path for folder in cclbench.__path__ for path in Path(folder).rglob("*.py"))
    stamps = [(str(path), stat.st_size, stat.st_mtime_ns) for path in module_paths for stat in [path.stat()]]
    outside = plugin_files("cclbench.scenarios", "cclbench.collectives", "cclbench.operators")
    return sha256(repr((stamps, code_hash(outside))).encode()).hexdigest()
