# SPDX-License-Identifier: Apache-2.0
"""Learn the residuals of the collective formulas, and write cclbench/hardware/residuals.yaml.

    python scripts/hardware_residuals.py ../shared/fixtures/nccl_tests

The sweeps are those that scripts/hardware_errors.py reads, without the misconfigured one.
"""

from __future__ import annotations

import hashlib
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import yaml
from public_sweeps import priced_sweeps

import cclbench
from cclbench.hardware.residual_learning import learn_residuals
from cclbench.hardware.residuals import ResidualTable, Swept

TARGET = Path(__file__).parents[1] / "cclbench" / "hardware" / "residuals.yaml"
HEAD = """\
# Written by scripts/hardware_residuals.py: do not edit.  Figures of `centre`, `low` and `high` are log
# factors at 8 KiB, 1 MiB and 128 MiB; `kept` are shares.  docs/hardware-model.md says how they are learned.
"""


def table(folder: Path, date: str) -> ResidualTable:
    """Residuals of the sweeps of the folder and of tests/hardware/published."""
    observed_sweeps = priced_sweeps(folder)
    sweeps = tuple(
        Swept(
            public.file,
            public.machine,
            public.system,
            len(public.sweep.bytes),
            hashlib.sha256(public.path.read_bytes()).hexdigest(),
        )
        for public, _ in observed_sweeps
    )
    return ResidualTable(
        date, cclbench.__version__, learn_residuals([observed for _, observed in observed_sweeps]), sweeps
    )


def main() -> int:
    """Write the file."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    found = table(Path(sys.argv[1]), datetime.now(UTC).date().isoformat())
    text = yaml.safe_dump(
        msgspec.to_builtins(found), sort_keys=False, default_flow_style=None, width=110, allow_unicode=True
    )
    TARGET.write_text(HEAD + text, "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
