# SPDX-License-Identifier: Apache-2.0
"""FLOPs of factorisations and solutions of JAX on a CPU, by the sizes in scripts/workloads/jax_operators.py.

Of m by n and its smaller size k: LU of a tall matrix m·k² − k³/3, R of QR 2·m·k² − 2·k³/3 (of a wide one
2·n·k² − 2·k³/3), Q of it 4·m·n·k − 2·(m + n)·k² + 4·k³/3; a triangle n an element.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import cclbench
import cclbench.operator_table

FAMILY = "linear algebra"
OPERATORS = ("lu", "geqrf", "householder_product", "triangular_solve", "eigh", "svd")
FLOPS = {
    "lu(fp32[3,96,64])": 3 * 96 * 64**2 - 64**3,
    "geqrf(fp32[160,48])": 2 * 160 * 48**2 - 2 * 48**3 // 3,
    "householder_product(fp32[160,48], fp32[48])": 4 * 160 * 48**2 - 2 * 208 * 48**2 + 4 * 48**3 // 3,
    "geqrf(fp32[2,48,80])": 2 * (2 * 80 * 48**2 - 2 * 48**3 // 3),
    "householder_product(fp32[2,48,48], fp32[2,48])": 2 * 4 * 48**3 // 3,
    "lu(fp32[64,64])": 2 * 64**3 // 3,
    # two triangles, each of 64 rows
    "triangular_solve(fp32[64,64], fp32[64,8])": 2 * 64 * 64 * 8,
    "triangular_solve(fp32[64,64], fp32[24,64])": 64 * 24 * 64,
}


def test_flops_are_those_of_the_programs_sizes(repository: Path, tmp_path: Path) -> None:
    packed = repository / "tests/golden/jax_linear_algebra_cpu.xplane.pb.gz"
    profile = tmp_path / "linear_algebra.xplane.pb"
    profile.write_bytes(gzip.decompress(packed.read_bytes()))
    run = cclbench.ingest(profile, store=tmp_path / "runs")
    table = cclbench.operator_table.operator_costs(run, "shape", window="trace")
    rows = {row.key: row for row in table.rows if row.operator in OPERATORS and row.family == FAMILY}
    assert {key: row.flops for key, row in rows.items() if row.flops is not None} == FLOPS
    assert rows["lu(fp32[64,64])"].precision == "fp32"
    assert {row.why_not for row in table.rows if row.why_not} == {
        f"the number of iterations of {name} depends on the values of its matrix" for name in ("eigh", "svd")
    }
