# SPDX-License-Identifier: Apache-2.0
"""The machine of a run: which entries match it, and how it is described."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from cclbench.ground.errors import UsageError
from cclbench.hardware import catalog
from cclbench.hardware.accelerator import Accelerator
from cclbench.hardware.describe import Entry, entry_summary, figures_of
from cclbench.hardware.fabric import Fabric, Transport
from cclbench.hardware.matching import StatedMachine, must_fit, system_contradiction, system_of
from cclbench.hardware.system import ScaleOut, ScaleUp, System

H100 = "NVIDIA H100 80GB HBM3"
EFA = "EFAv2 32x100 Gb/s per node (p5.48xlarge)"
MI300X = ("AMD Instinct MI300X", "", "")


@pytest.mark.parametrize(
    ("stated", "system"),
    [
        (StatedMachine("a", ("H100-SXM5-80GB",), 8, EFA), "aws-p5"),
        (StatedMachine("a", (H100,), 8, driver="AWS Libfabric"), "aws-p5"),
        (StatedMachine("a", (H100,), 8, "GPUDirect-TCPXO (FasTrak) 8x200 Gb/s per node"), "gcp-a3-mega"),
        (StatedMachine("a", ("GH200-120GB",), 4, "Slingshot-11 4x200 Gb/s per node"), "alps-gh200"),
        (StatedMachine("a", ("AMD Instinct MI300X",), 8, "InfiniBand NDR"), "azure-nd-mi300x-v5"),
        (StatedMachine("a", ("MI350X",), 8, "RoCE"), "mi350x-8gpu"),
        (StatedMachine("a", (H100,), 8, "InfiniBand NDR400"), "dgx-h100"),
        (StatedMachine("a", ("NVIDIA GeForce RTX 4090",), 8), "rtx4090-8gpu"),
    ],
)
def test_one_machine_fits(stated: StatedMachine, system: str) -> None:
    assert system_of([stated]).id == system
    assert system_contradiction(stated, catalog.system(system)) is None


@pytest.mark.parametrize(
    ("stated", "says"),
    [
        ([StatedMachine("a.csv", ("A100-SXM4-80GB",), 8)],
         "3 machines in the catalog fit; give --system: aws-p4de, dgx-a100, oci-a100-v2-8"),
        ([StatedMachine("a", (H100,), 8, driver="IB")], "give --system: dgx-h100, oci-h100-8"),
        ([StatedMachine("a.csv", ("NVIDIA B200",), 8)], "give --system: aws-p6-b200, dgx-b200, gcp-a4"),
        ([StatedMachine("a.csv")], "states neither its devices nor its network; give --system ID"),
        ([StatedMachine("a.csv", ("AMD Instinct MI308X",), 8)], "no machine in the catalog fits"),
        ([StatedMachine("a.csv", (H100,), 16)], "no machine in the catalog fits"),
        ([StatedMachine("a.csv", (H100,), 8, EFA), StatedMachine("b.csv", ("NVIDIA B200",), 8)],
         "a.csv, b.csv: no machine"),
    ],
)  # fmt: skip
def test_otherwise_it_is_asked(stated: list[StatedMachine], says: str) -> None:
    with pytest.raises(UsageError) as raised:
        system_of(stated)
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("device", "system", "says"),
    [
        (MI300X, "dgx-b200", "its device is AMD Instinct MI300X, but dgx-b200 has"),
        ((H100, EFA, ""), "dgx-h100", "its network is efa-v2, but dgx-h100 has infiniband-ndr"),
        ((H100, "", "IB"), "aws-p5", "its transport is IB, but that of aws-p5 is aws-ofi-nccl"),
    ],
)
def test_another_machine_is_refused(device: Any, system: str, says: str) -> None:
    name, network, driver = device
    stated = StatedMachine("a", (name,), 8, network, driver)
    with pytest.raises(UsageError, match=f"a is not from {system}") as raised:
        must_fit([stated], catalog.system(system))
    assert says in str(raised.value)


@pytest.mark.parametrize(
    "stated",
    [
        StatedMachine("a"),
        StatedMachine("a", ("AMD Instinct MI308X",), 8),
        StatedMachine("a", ("AMD Instinct MI300X",), 4, "none"),
        StatedMachine("a", (), 8, "TCP fallback (misconfigured: no plugin)", "Socket"),
    ],
)
def test_what_the_catalog_does_not_know_contradicts_nothing(stated: StatedMachine) -> None:
    must_fit([stated], catalog.system("mi300x-8gpu"))


@pytest.mark.parametrize(
    ("field", "text", "system", "why"),
    [
        ("network", "InfiniBand HDR", "rtx4090-8gpu", "infiniband-hdr, but rtx4090-8gpu has no network"),
        ("driver", "AWS Libfabric", "rtx4090-8gpu", "AWS Libfabric, but that of rtx4090-8gpu is unknown"),
        ("driver", "IB", "google-tpu-v5e-pod", "IB, but that of google-tpu-v5e-pod is unknown"),
        *(("driver", "AWS Libfabric", "alps-gh200", None), ("driver", "Socket", "alps-gh200", None)),
        ("network", "EFA v3", "aws-p5en", None),
        ("network", "EFA v3", "aws-p5", "efa-v3, but aws-p5 has efa-v2"),
        *(("network", "some IB", "dgx-a100", None), ("network", "slingshot11", "alps-gh200", None)),
        ("network", "FasTrak", "gcp-a3-mega", None),
        # a family of networks is any generation
        ("network", "EFA", "dgx-h100",
         "efa-v1 or efa-v2 or efa-v3 or efa-v4, but dgx-h100 has infiniband-ndr"),
    ],
)  # fmt: skip
def test_networks_and_what_drives_them(field: str, text: str, system: str, why: str | None) -> None:
    found = system_contradiction(StatedMachine("a", **{field: text}), catalog.system(system))
    what = {"network": "network", "driver": "transport"}[field]
    assert found == (why and f"its {what} is {why}")


def test_what_fits_instead_is_listed() -> None:
    says = r"a is not from dgx-h100: .*; it fits azure-nd-mi300x-v5, mi300x-8gpu, oci-mi300x-8$"
    stated = [StatedMachine("b"), StatedMachine("a", ("AMD Instinct MI300X",), 8)]
    with pytest.raises(UsageError, match=says):
        must_fit(stated, catalog.system("dgx-h100"))
    with pytest.raises(UsageError, match=r"; no machine in the catalog fits$"):
        must_fit([StatedMachine("a", ("AMD Instinct MI300X",), 9)], catalog.system("dgx-h100"))
    # as many as it has devices; all that are stated together
    trainium = StatedMachine("a", network="EFA v1"), StatedMachine("b", ranks_a_node=16)
    with pytest.raises(UsageError, match="give --system: aws-trn1, aws-trn1n"):
        system_of(trainium)
    says = "a, b: no machine in the catalog fits what is stated; give --system ID"
    with pytest.raises(UsageError, match=says):
        system_of([trainium[0], StatedMachine("b", ranks_a_node=17)])
    with pytest.raises(UsageError, match="a: states neither its devices nor its network"):
        system_of([StatedMachine("a", driver="Socket", ranks_a_node=8)])
    with pytest.raises(UsageError, match="machines in the catalog fit; give --system: "):
        system_of([StatedMachine("a"), StatedMachine("a", driver="IB")])
    # with or without its maker, what stands in parentheses aside, hyphens for blanks
    for name in ("H100 80GB HBM3", "NVIDIA H100-80GB-HBM3 (SXM)", "h100-sxm5-80gb"):
        assert system_contradiction(StatedMachine("a", (name,)), catalog.system("dgx-h100")) is None
        assert system_contradiction(StatedMachine("a", (name,)), catalog.system("dgx-b200")) == (
            f"its device is {name}, but dgx-b200 has nvidia-b200-sxm"
        )


PEAKS = {"bf16": 90e12, "fp16": 80e12, "int8": 180e12}
CITED = {"hbm_bytes": "bench", "sm_count": "unverified", "peak_flops_per_s.bf16": "bench"}
MEMORY = (16 * 10**9, 400e9)
CHIP = Accelerator("chip", "accelerator", "generic", ("Chip",), PEAKS, *MEMORY, 8, 100e9, cited=CITED)
LINKS = Fabric("links", "fabric", "scale_up", "mesh", 25e9, usable_fraction=0.8, wraps=False)
NETWORK = Fabric(
    "net", "fabric", "scale_out", "fat-tree", 50e9, transports={"fast": Transport(3e-6)}, hop_latency_s=2e-7
)
JOINED = ScaleUp(LINKS, "torus", 8, bytes_per_s=100e9, dims=(2, 4)), ScaleOut(NETWORK, 2, 50e9, "fast")
NODE = System("node", "system", "chip", 4, *JOINED, "ampere")
SLOW = [structs.replace(tier, bytes_per_s=None) for tier in JOINED]
NOTHING = {"peak_flops_per_s": {}}
NOTHING |= dict.fromkeys(("hbm_bytes", "hbm_bytes_per_s", "scale_up_bytes_per_s"))


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        (CHIP, "bf16 90.0 TFLOP/s, 16.0 GB at 400 GB/s, scale-up 100 GB/s"),
        (structs.replace(CHIP, hbm_bytes=None), "bf16 90.0 TFLOP/s, at 400 GB/s, scale-up 100 GB/s"),
        (structs.replace(CHIP, peak_flops_per_s={"bf16": None, "fp16": 80e12}, hbm_bytes_per_s=None),
         "fp16 80.0 TFLOP/s, 16.0 GB, scale-up 100 GB/s"),
        (structs.replace(CHIP, **NOTHING), "no figures"),
        (LINKS, "mesh, 25.0 GB/s a link, 80.0 % usable"),
        (NETWORK, "fat-tree, 50.0 GB/s an interface"),
        (structs.replace(NETWORK, link_bytes_per_s=None), "fat-tree, rate unknown an interface"),
        (NODE, "4 × chip; links torus 100 GB/s; net 2 × 50.0 GB/s"),
        (structs.replace(NODE, scale_up=None), "4 × chip; net 2 × 50.0 GB/s"),
        (structs.replace(NODE, scale_up=SLOW[0], scale_out=SLOW[1]),
         "4 × chip; links torus; net 2 × unknown rate"),
        (structs.replace(NODE, scale_up=None, scale_out=None), "4 × chip"),
    ],
)  # fmt: skip
def test_an_entry_in_one_line(entry: Entry, line: str) -> None:
    assert entry_summary(entry) == line


def rows(entry: Entry) -> dict[str, tuple[Any, str, str | None]]:
    """Value, text and source by field."""
    return {row["field"]: (row["value"], row["shown"], row["source"]) for row in figures_of(entry)}


def test_figures_have_units_and_sources() -> None:
    """Operations of integers are no FLOP; what nobody knows has no row."""
    assert rows(structs.replace(CHIP, scale_up_bytes_per_s=None)) == {
        "vendor": ("generic", "generic", None),
        "peak_flops_per_s.bf16": (90e12, "90.0 TFLOP/s", "bench"),
        "peak_flops_per_s.fp16": (80e12, "80.0 TFLOP/s", None),
        "peak_flops_per_s.int8": (180e12, "180 TOP/s", None),
        "hbm_bytes": (16 * 10**9, "16.0 GB", "bench"),
        "hbm_bytes_per_s": (400e9, "400 GB/s", None),
        "sm_count": (8, "8", "unverified"),
    }
    # figures of a fabric
    assert rows(structs.replace(NETWORK, in_network_reduction=True)) == {
        "tier": ("scale_out", "scale_out", None),
        "topology": ("fat-tree", "fat-tree", None),
        "link_bytes_per_s": (50e9, "50.0 GB/s", None),
        "hop_latency_s": (2e-7, "200 ns", None),
        "in_network_reduction": (True, "yes", None),
        "transports.fast.latency_s": (3e-6, "3.00 µs", None),
    }
    assert rows(LINKS)["wraps"] == (False, "no", None)
    assert rows(LINKS)["usable_fraction"] == (0.8, "80.0 %", None)
    # figures of a system name its fabrics
    found = rows(NODE)
    assert found["scale_up.fabric"] == ("links", "links", None)
    assert found["scale_up.dims"] == ((2, 4), "2 x 4", None)
    assert found["scale_out.transport"] == ("fast", "fast", None)
    assert found["scale_out.nics"] == (2, "2", None)
    assert not {"id", "kind", "sources", "notes", "scale_up.links"} & found.keys()
