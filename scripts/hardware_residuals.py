# SPDX-License-Identifier: Apache-2.0
"""Learn the residuals of the collective formulas, and write cclbench/hardware/residuals.yaml.

    python scripts/hardware_residuals.py ../shared/fixtures/nccl_tests ../shared/fixtures/nccl_tests_more

The sweeps are those that scripts/hardware_errors.py reads from the first folder, without the misconfigured
one.  Those in the second one give scores of classes, and the deviation between racks; they teach
nothing else.  Scores are those of the scoreboard: each sweep by what all other systems teach.
"""

from __future__ import annotations

import hashlib
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import yaml
from msgspec import structs
from public_sweeps import (
    PublicSweep,
    folder_sweeps,
    predicted_system,
    price_sweep,
    priced_sweeps,
    with_formulas,
)
from unseen_machines import class_scores, residuals_without_system

import cclbench
from cclbench.hardware.collectives import NoPrice
from cclbench.hardware.residual_learning import largest_between_domains, learn_residuals
from cclbench.hardware.residuals import ResidualTable, Swept

TARGET = Path(__file__).parents[1] / "cclbench" / "hardware" / "residuals.yaml"
HEAD = """\
# Written by scripts/hardware_residuals.py: do not edit.  Figures of `centre`, `low` and `high` are log
# factors at 8 KiB, 1 MiB and 128 MiB; `kept` are shares; `classes` are errors by size band, systems left out.
# docs/hardware-model.md says how they are learned.
"""


def table(folder: Path, scored: Path, date: str) -> ResidualTable:
    """Residuals of the sweeps of the folder and of tests/hardware/published; scores of those in `scored`,
    too."""
    learned = priced_sweeps(folder)
    others = with_formulas(folder_sweeps(scored))
    observed = [sweep for _, sweep in learned]
    racks = largest_between_domains([*observed, *(sweep for _, sweep in others)])
    residuals = structs.replace(learn_residuals(observed), between_domains=racks)
    predicted = [
        sweep
        for public, _ in (*learned, *others)
        if not isinstance(sweep := price_sweep(public, predicted_system(public)), NoPrice)
    ]
    without = residuals_without_system([sweep for _, sweep in (*learned, *others)])
    return ResidualTable(
        date,
        cclbench.__version__,
        residuals,
        tuple(_swept(public) for public, _ in learned),
        class_scores(predicted, without),
        tuple(_swept(public) for public, _ in others),
    )


def _swept(public: PublicSweep) -> Swept:
    return Swept(
        public.file,
        public.machine,
        public.system,
        len(public.sweep.bytes),
        hashlib.sha256(public.path.read_bytes()).hexdigest(),
    )


def main() -> int:
    """Write the file."""
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    found = table(Path(sys.argv[1]), Path(sys.argv[2]), datetime.now(UTC).date().isoformat())
    text = yaml.safe_dump(
        msgspec.to_builtins(found), sort_keys=False, default_flow_style=None, width=110, allow_unicode=True
    )
    TARGET.write_text(HEAD + text, "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
