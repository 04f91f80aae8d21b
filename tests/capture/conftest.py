# SPDX-License-Identifier: Apache-2.0
"""Programs that capture themselves, each in a process of its own: torch's state outlives a test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

Ran = Callable[..., str]


@pytest.fixture
def run_program(repository: Path, tmp_path: Path) -> Ran:
    """`run_program(text)`: what the program prints, warnings included, run in `tmp_path`.

    `ranks` starts as many, by torchrun.  `needs` are the packages without which the test is skipped; where it
    needs none, torch and jax are stand-ins.
    """

    def run(text: str, *, ranks: int = 1, needs: tuple[str, ...] = (), **variables: str) -> str:
        for name in needs:
            if find_spec(name) is None:
                pytest.skip(f"{name} is not installed")
        stand_in = [] if needs else [str(Path(__file__).parent / "stand_in")]
        path = [*stand_in, str(repository), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        (tmp_path / "program.py").write_text(text)
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        done = subprocess.run(
            [sys.executable, *(launch if ranks > 1 else []), "program.py"],
            cwd=tmp_path,
            env=os.environ
            | {"PYTHONPATH": os.pathsep.join(filter(None, path)), "OMP_NUM_THREADS": "1"}
            | {"GLOO_SOCKET_IFNAME": "lo", "JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1"}
            | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    return run
