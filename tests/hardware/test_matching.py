# SPDX-License-Identifier: Apache-2.0
"""Sweeps and the machines that they state: one fits, several do, none does, another was named."""

from __future__ import annotations

import pytest

from cclbench.errors import UsageError
from cclbench.hardware import catalog
from cclbench.hardware.matching import Stated, contradiction, must_fit, system_of

H100 = "NVIDIA H100 80GB HBM3"
EFA = "EFAv2 32x100 Gb/s per node (p5.48xlarge)"


@pytest.mark.parametrize(
    ("stated", "system"),
    [
        (Stated("a", ("H100-SXM5-80GB",), 8, EFA), "aws-p5"),
        (Stated("a", (H100,), 8, driver="AWS Libfabric"), "aws-p5"),
        (Stated("a", (H100,), 8, "GPUDirect-TCPXO (FasTrak) 8x200 Gb/s per node"), "gcp-a3-mega"),
        (Stated("a", ("GH200-120GB",), 4, "Slingshot-11 4x200 Gb/s per node"), "alps-gh200"),
        (Stated("a", ("AMD Instinct MI300X",), 8), "mi300x-8gpu"),
        (Stated("a", ("MI355X",), 8, "RoCE"), "mi355x-8gpu"),
        (Stated("a", (H100,), 8, "InfiniBand NDR400"), "dgx-h100"),
        (Stated("a", (H100,), 8, driver="IB"), "dgx-h100"),
        (Stated("a", ("NVIDIA GeForce RTX 4090",), 8), "rtx4090-8gpu"),
    ],
)
def test_one_machine_fits(stated: Stated, system: str) -> None:
    assert system_of([stated]).id == system
    assert contradiction(stated, catalog.system(system)) is None


@pytest.mark.parametrize(
    ("stated", "says"),
    [
        (
            [Stated("a.csv", ("A100-SXM4-80GB",), 8)],
            "2 machines of the catalog fit; give --system: aws-p4de, dgx-a100",
        ),
        ([Stated("a.csv", ("NVIDIA B200",), 8)], "give --system: aws-p6-b200, dgx-b200, gcp-a4"),
        ([Stated("a.csv")], "states neither its devices nor its network; give --system ID"),
        ([Stated("a.csv", ("AMD Instinct MI308X",), 8)], "no machine of the catalog fits"),
        ([Stated("a.csv", (H100,), 16)], "no machine of the catalog fits"),
        (
            [Stated("a.csv", (H100,), 8, EFA), Stated("b.csv", ("NVIDIA B200",), 8)],
            "a.csv, b.csv: no machine",
        ),
    ],
)
def test_otherwise_it_is_asked(stated: list[Stated], says: str) -> None:
    with pytest.raises(UsageError) as raised:
        system_of(stated)
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("stated", "system", "says"),
    [
        (
            Stated("a", ("AMD Instinct MI300X",), 8),
            "dgx-b200",
            "it is of AMD Instinct MI300X, and dgx-b200 has",
        ),
        (Stated("a", (H100,), 8, EFA), "dgx-h100", "its network is efa-v2, and dgx-h100 has infiniband-ndr"),
        (Stated("a", (H100,), 8, driver="IB"), "aws-p5", "is driven by IB, and aws-p5's by aws-ofi-nccl"),
    ],
)
def test_another_machine_is_refused(stated: Stated, system: str, says: str) -> None:
    with pytest.raises(UsageError, match=f"a is not of {system}") as raised:
        must_fit([stated], catalog.system(system))
    assert says in str(raised.value)


@pytest.mark.parametrize(
    "stated",
    [
        Stated("a"),
        Stated("a", ("AMD Instinct MI308X",), 8),
        Stated("a", ("AMD Instinct MI300X",), 4, "none"),
        Stated("a", (), 8, "TCP fallback (misconfigured: no plugin)", "Socket"),
    ],
)
def test_what_the_catalog_does_not_know_contradicts_nothing(stated: Stated) -> None:
    must_fit([stated], catalog.system("mi300x-8gpu"))
