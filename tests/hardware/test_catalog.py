# SPDX-License-Identifier: Apache-2.0
"""The catalog: every file valid, figures as published, device names of real traces found."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from cclbench.ground import yaml_file
from cclbench.ground.errors import InputError, UsageError
from cclbench.hardware import catalog
from cclbench.hardware.accelerator import Accelerator
from cclbench.hardware.collectives import NoPrice, price_collective
from cclbench.hardware.describe import entry_summary
from cclbench.hardware.entry import entry_problems
from cclbench.hardware.figure import parse_figures, written_leaves

PACKAGE = Path(__file__).resolve().parents[2] / "cclbench"
FILES = sorted((PACKAGE / "hardware" / "data").glob("*.yaml"))
SCHEMA = json.loads((PACKAGE / "schemas" / "hardware.json").read_text())


def test_every_file_is_valid_and_named_by_its_id() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    for path in FILES:
        entry = yaml_file.read(path, "hardware file")
        assert [str(problem) for problem in entry_problems(entry)] == []
        errors = jsonschema.Draft7Validator(SCHEMA).iter_errors(entry.value)
        assert [error.message for error in errors] == [], path.stem
        assert entry.value["id"] == path.stem


def test_every_figure_has_a_source_with_a_date_or_is_marked_unverified() -> None:
    for path in FILES:
        raw = yaml.safe_load(path.read_text())
        cited = set()
        for field, value in figures_of(raw):
            match = re.fullmatch(r".+ \(([a-z0-9-]+)\)", str(value))
            assert match, f"{path.stem}: {field} is {value!r}: no source"
            cited.add(match[1])
        assert cited or path.stem == "generic-cpu"  # of which nothing is known
        sources = raw.get("sources", {})
        cited |= {other["source"] for other in raw.get("disagreements", ())}
        assert cited - set(sources) <= {"unverified"}, path.stem
        assert set(sources) <= cited, path.stem
        assert all(re.fullmatch(r"20\d\d-\d\d", source["date"]) for source in sources.values()), path.stem


def figures_of(raw: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """What a file says in figures: all its fields but names, references and what figures are of."""
    words = "id kind vendor names tier topology accelerator architecture fabric peers transport"
    for key, value in raw.items():
        if key in words.split() or key in ("sources", "disagreements", "notes"):
            continue
        if isinstance(value, dict):
            yield from figures_of(value, f"{path}{key}.")
        elif value is not None:
            yield path + key, value


def test_the_catalog_holds_every_file() -> None:
    kinds = [yaml.safe_load(path.read_text())["kind"] for path in FILES]
    entries = catalog.accelerators(), catalog.fabrics(), catalog.systems()
    assert [len(own) for own in entries] == [kinds.count(k) for k in ("accelerator", "fabric", "system")]
    assert all([*own] == sorted(own) for own in entries)
    assert [len(own) for own in entries] == [47, 38, 69]


def test_where_sources_disagree_it_is_recorded() -> None:
    (other,) = catalog.accelerator("nvidia-a100-sxm-80gb").disagreements
    assert (other.field, other.says, other.source) == ("hbm_bytes_per_s", "2 TB/s", "ml-engineering")
    assert "hbm_bytes_per_s" in catalog.accelerator("nvidia-a100-sxm-80gb").unverified_fields
    # what is only announced is marked
    marked = {entry.id for entry in catalog.catalog_entries().values() if entry.announced}
    assert marked == {"nvidia-rubin", "nvlink6", "vera-rubin-nvl72"}
    assert entry_summary(catalog.entry_of("nvidia-rubin")).endswith("; announced")
    found = price_collective("all_reduce", 2**20, range(72), catalog.system("vera-rubin-nvl72"))
    assert "vera-rubin-nvl72 is announced: its figures may change" in found.reason


@pytest.mark.parametrize(
    ("id", "flops"),
    [("nvidia-a100-sxm-80gb", 271e12), ("nvidia-h100-sxm", 794.5e12), ("amd-mi355x", 1565e12)],
)
def test_attainable_peaks_lie_below_the_dense_ones(id: str, flops: float) -> None:  # noqa: A002
    entry = catalog.accelerator(id)
    assert entry.attainable_flops_per_s["bf16"] == flops
    assert entry.cited["attainable_flops_per_s.bf16"] == "ml-engineering"
    stated = [
        (attainable, machine.peak_flops_per_s[dtype])
        for machine in catalog.accelerators().values()
        for dtype, attainable in machine.attainable_flops_per_s.items()
    ]
    assert len(stated) >= 7
    assert all((attainable or 0) < (peak or 0) for attainable, peak in stated)


FIGURES = """
nvidia-v100-sxm2-32gb fp16  125e12   32e9        900e9   80   150e9
nvidia-a100-sxm-40gb  bf16  312e12   40e9        1555e9  108  300e9
nvidia-a100-sxm-80gb  tf32  156e12   80e9        2039e9  108  300e9
nvidia-h100-sxm       bf16  989e12   80e9        3350e9  132  450e9
nvidia-h100-pcie      bf16  756e12   80e9        2000e9  114  63e9
nvidia-h200-sxm       fp8   1979e12  141e9       4800e9  132  450e9
nvidia-b200-sxm       fp4   9000e12  180e9       8000e9  148  900e9
nvidia-gb200          bf16  2500e12  186e9       8000e9  148  900e9
amd-mi210             fp16  181e12   64e9        1638e9  104  None
amd-mi250x            bf16  191.5e12 64e9        1640e9  110  175e9
amd-mi300x            bf16  1307e12  192e9       5300e9  304  448e9
google-tpu-v6e        bf16  918e12   32e9        1638e9  None 400e9
google-tpu-v5p        int8  918e12   95e9        2765e9  None 600e9
aws-trainium2         bf16  667e12   96e9        2900e9  None 640e9
aws-trainium3         bf16  671e12   154618822656 4900e9 None 1280e9
nvidia-gb300          fp4   15e15    288e9       8000e9  None 900e9
nvidia-gb300          int8  165e12   288e9       8000e9  None 900e9
nvidia-h20            bf16  148e12   96e9        4000e9  None 450e9
nvidia-h800           fp8   1979e12  80e9        3352e9  132  200e9
nvidia-l40s           bf16  362e12   48e9        864e9   142  31.5e9
nvidia-rtx-pro-6000   bf16  503.8e12 96e9        1792e9  188  63e9
nvidia-rtx-3090       bf16  71e12    24e9        936e9   82   31.5e9
nvidia-rtx-2080-ti    fp16  56.9e12  11e9        616e9   68   15.75e9
nvidia-rubin          bf16  4e15     288e9       22e12   None 1800e9
amd-mi300a            bf16  980.6e12 128e9       5300e9  228  384e9
amd-mi350x            fp8   4600e12  288e9       8000e9  256  535.5e9
intel-gaudi3          bf16  1835e12  128e9       3700e9  None 525e9
intel-max-1550        bf16  419.4e12 64e9        1638.4e9 64  None
generic-cpu           bf16  None     None        None    None None
"""
"""As published: a dtype and its FLOP/s, memory's bytes and B/s, processors, scale-up B/s."""


@pytest.mark.parametrize("line", FIGURES.split("\n")[1:-1])
def test_figures(line: str) -> None:
    name, dtype, *cells = line.split()
    entry = catalog.accelerator(name)
    found = [entry.peak_flops_per_s[dtype], entry.hbm_bytes, entry.hbm_bytes_per_s, entry.sm_count]
    published = [None if cell == "None" else float(cell) for cell in cells]
    assert [*found, entry.scale_up_bytes_per_s] == published


@pytest.mark.parametrize(("id", "dtype"), [("nvidia-a100-sxm-80gb", "fp8"), ("nvidia-gb10", "bf16")])
def test_what_nobody_could_source_is_null(id: str, dtype: str) -> None:  # noqa: A002
    assert catalog.accelerator(id).peak_flops_per_s[dtype] is None


def test_dense_peaks_halve_from_fp8_to_fp16() -> None:
    """Sparse figures, twice the dense ones, are the common mistake: fp8 and fp16 would not agree."""
    compared = set()
    for entry in catalog.accelerators().values():
        fp8, fp16 = entry.peak_flops_per_s["fp8"], entry.peak_flops_per_s["fp16"]
        if fp8 and fp16 and entry.vendor in ("nvidia", "amd") and not entry.announced:
            assert fp8 / fp16 == pytest.approx(2, rel=0.03), entry.id
            compared.add(entry.id)
    assert compared >= {"nvidia-h100-sxm", "nvidia-b200-sxm", "nvidia-l4", "amd-mi300x", "amd-mi355x"}


RACKS = {
    "gb300-nvl72": "fp4 1080e15 fp8 360e15 bf16 180e15 hbm_bytes_per_s 576e12 scale_up_bytes_per_s 65e12",
    "gb200-nvl72": "fp4 720e15 bf16 180e15 hbm_bytes 13.4e12 hbm_bytes_per_s 576e12",
    "vera-rubin-nvl72": "hbm_bytes 20.7e12 hbm_bytes_per_s 1580e12 scale_up_bytes_per_s 130e12",
    "aws-trn3-ultraserver": "fp8 362.448e15 bf16 96.624e15 fp32 26.352e15"
    " hbm_bytes 22265110462464 hbm_bytes_per_s 705.6e12",
    "aws-trn2-ultraserver": "fp8 83.2e15 hbm_bytes_per_s 185e12",
    "google-tpu-v6e-pod": "bf16 234.9e15",
    "google-tpu-v5e-pod": "bf16 50.63e15",
}


@pytest.mark.parametrize("name", RACKS)
def test_the_total_that_a_vendor_prints_of_a_rack_is_that_of_its_accelerators(name: str) -> None:
    """Dense, and of one direction: half of what is printed with sparsity, or of both directions."""
    machine, printed = catalog.system(name), RACKS[name].split()
    device = catalog.accelerator(machine.accelerator)
    for figure, total in zip(printed[::2], printed[1::2], strict=True):
        each = device.peak_flops_per_s.get(figure) or getattr(device, figure)
        assert machine.domain_size * each == pytest.approx(float(total), rel=0.01), figure


@pytest.mark.parametrize(
    ("name", "total"),
    [
        *(("aws-p6e-gb200", 28.8e12), ("azure-nd-gb200-v6", 28.8e12), ("gb300-nvl72", 57.6e12)),
        *(("azure-nd-h100-v5", 3.2e12), ("azure-nd-mi300x-v5", 3.2e12), ("oci-a100-v2-8", 1.6e12)),
        *(("oci-h100-8", 3.2e12), ("google-tpu-v5e-pod", 6.4e12), ("google-tpu-v6e-pod", 25.6e12)),
        *(("google-tpu-v5p-pod", 8960 * 50e9), ("google-tpu-v7x-pod", 9216 * 100e9)),
    ],
)
def test_networks_are_as_fast_as_printed(name: str, total: float) -> None:
    """The interfaces of a domain's nodes (a rack, a pod, a server) together, bits/s in one direction."""
    machine = catalog.system(name)
    nodes = machine.domain_size // machine.per_node
    assert nodes * machine.scale_out.nics * machine.scale_out.bytes_per_s * 8 == pytest.approx(total)


@pytest.mark.parametrize(
    ("id", "ranks"), [("gaudi3-8", 8), ("gaudi3-8", 16), ("aws-trn3-ultraserver", 144), ("aurora", 12)]
)
def test_collectives_of_other_libraries_have_no_price(id: str, ranks: int) -> None:  # noqa: A002
    """NCCL's constants say nothing of HCCL, oneCCL, or Neuron's collectives through switches."""
    found = price_collective("all_reduce", 2**20, range(ranks), catalog.system(id))
    assert isinstance(found, NoPrice)
    assert "no formulas of its library's collectives are known" in found.reason


@pytest.mark.parametrize(
    ("name", "memory_bytes", "expected"),
    [
        ("Tesla V100-SXM2-32GB", 34079899648, "nvidia-v100-sxm2-32gb"),
        ("NVIDIA A100-PG509-200", 42505273344, "nvidia-a100-sxm-40gb"),
        ("NVIDIA A100-PG509-200", 85000000000, None),
        ("NVIDIA A100-SXM4-40GB", None, "nvidia-a100-sxm-40gb"),
        ("NVIDIA A100-SXM4-80GB", 85024112640, "nvidia-a100-sxm-80gb"),
        ("nvidia h100 80gb hbm3", 85018279936, "nvidia-h100-sxm"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None, None),
        ("NVIDIA H100 PCIe", None, "nvidia-h100-pcie"),
        ("NVIDIA H200", 150755999744, "nvidia-h200-sxm"),
        ("NVIDIA GH200 120GB", 102005473280, "nvidia-gh200-96gb"),
        ("NVIDIA GH200 144G HBM3e", None, "nvidia-gh200-141gb"),
        ("AMD Instinct MI300X", 206141652992, "amd-mi300x"),
        ("AMD Instinct MI210", 68702699520, "amd-mi210"),
        ("TPU v6 Lite", None, "google-tpu-v6e"),
        ("TPU v5 lite", None, "google-tpu-v5e"),
        ("TPU v5", None, "google-tpu-v5p"),
        ("TPU7x", None, "google-tpu-v7x"),
        ("NVIDIA H100", None, None),
        ("NVIDIA GeForce RTX 3090", 25438126080, "nvidia-rtx-3090"),
        ("NVIDIA GeForce RTX 3090 Ti", None, None),
        ("GeForce RTX 2080 Ti", 11554717696, "nvidia-rtx-2080-ti"),
        ("NVIDIA GeForce RTX 2080", None, "nvidia-rtx-2080"),
        ("NVIDIA GeForce RTX 2070", None, "nvidia-rtx-2070"),
        ("NVIDIA GeForce RTX 3080", 10503225344, "nvidia-rtx-3080"),
        ("NVIDIA GeForce RTX 3080", 12630884352, None),
        ("NVIDIA GeForce RTX 3070", None, "nvidia-rtx-3070"),
        ("NVIDIA L40S", 47810936832, "nvidia-l40s"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", None, "nvidia-rtx-pro-6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", None, "nvidia-rtx-pro-6000-server"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", None, None),
        ("NVIDIA H20", 102098141184, "nvidia-h20"),
        ("NVIDIA H20-3e", None, None),
        ("NVIDIA H800", 85014872064, "nvidia-h800"),
        ("NVIDIA H800 PCIe", None, None),
        ("NVIDIA GB300", None, "nvidia-gb300"),
        ("AMD Instinct MI300A", None, "amd-mi300a"),
        ("AMD Instinct MI350X", None, "amd-mi350x"),
        ("AMD Instinct MI350X VF", None, "amd-mi350x"),
        ("AMD Instinct MI300X VF", None, "amd-mi300x"),
        ("GAUDI3", None, "intel-gaudi3"),
        ("Intel(R) Data Center GPU Max 1550", 68719476736, "intel-max-1550"),
        ("Trainium3", None, "aws-trainium3"),
        ("NVIDIA GeForce RTX 4090", None, "nvidia-rtx-4090"),
        ("", None, None),
    ],
)
def test_lookup_by_device_name(name: str, memory_bytes: int | None, expected: str | None) -> None:
    found = catalog.by_device_name(name, memory_bytes)
    assert (found.id if found else None) == expected


def test_unknown_ids_get_near_matches() -> None:
    with pytest.raises(UsageError, match="nvidia-h100-sxm"):
        catalog.accelerator("nvidia-h100-smx")
    # an entry that nobody knows gets near matches of any kind
    with pytest.raises(UsageError, match="the catalog has no 'nvlinc4'; did you mean nvlink4"):
        catalog.entry_of("nvlinc4")


def test_devices_of_real_traces_are_found(test_data: Path) -> None:
    """Of each capture the first file: the ranks of one are alike."""
    found = {}
    for capture in sorted((test_data / "kineto").iterdir()):
        trace = json.loads(gzip.decompress(min(capture.glob("*.json.gz")).read_bytes()))
        for device in trace.get("deviceProperties", []) if isinstance(trace, dict) else []:
            if "name" in device:
                entry = catalog.by_device_name(device["name"], device["totalGlobalMem"])
                found[device["name"]] = (entry.id, entry.sm_count == device["numSms"]) if entry else None
    assert found == {
        "AMD Instinct MI210": ("amd-mi210", True),
        "AMD Instinct MI300X": ("amd-mi300x", True),
        "NVIDIA A100-PG509-200": ("nvidia-a100-sxm-40gb", True),
        "NVIDIA H100 80GB HBM3": ("nvidia-h100-sxm", True),
        "Tesla V100-SXM2-32GB": ("nvidia-v100-sxm2-32gb", True),
    }


MINE = """\
id: lab-chip
kind: accelerator
vendor: generic
names: ['Lab Chip']
peak_flops_per_s: {fp32: null, tf32: null, fp16: null, bf16: 90 TFLOP/s (bench), fp8: null,
    int8: null, fp4: null}
hbm_bytes: 16 GB (bench)
hbm_bytes_per_s: 400 GB/s (bench)
sm_count: null
scale_up_bytes_per_s: 100 GB/s (bench)
sources:
  bench: {title: 'our own measurement', date: 2026-11}
"""
MY_LINKS = """\
id: lab-link
kind: fabric
tier: scale_up
topology: mesh
link_bytes_per_s: 25 GB/s (unverified)
"""
MY_NODE = """\
id: lab-node
kind: system
accelerator: lab-chip
per_node: 4 (unverified)
architecture: ampere
scale_up:
  fabric: lab-link
  peers: mesh
  domain: 4 (unverified)
  links: 4 (unverified)
  bytes_per_s: 100 GB/s (unverified)
scale_out:
  fabric: infiniband-hdr
  nics: 2 (unverified)
  bytes_per_s: 200 Gb/s (unverified)
  transport: ib-verbs
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder with an accelerator, a fabric and a system of their own."""
    folder = tmp_path / "hardware"
    folder.mkdir()
    for name, text in (("chip", MINE), ("link", MY_LINKS), ("node", MY_NODE)):
        (folder / f"{name}.yaml").write_text(text)
    monkeypatch.setenv("CCLBENCH_HARDWARE", str(folder))
    return folder


@pytest.mark.usefixtures("lab")
def test_a_users_entries_are_added() -> None:
    assert catalog.accelerator("lab-chip").peak_flops_per_s["bf16"] == 90e12
    assert catalog.by_device_name("lab chip") == catalog.accelerator("lab-chip")
    node = catalog.system("lab-node")
    assert (node.scale_up.fabric.id, node.scale_up.bytes_per_s) == ("lab-link", 100e9)
    assert "nvidia-h100-sxm" in catalog.accelerators()


def test_a_users_entry_replaces_the_one_with_its_id(lab: Path) -> None:
    (lab / "chip.yaml").write_text(MINE.replace("lab-chip", "nvidia-l4"))
    (lab / "node.yaml").unlink()
    assert catalog.accelerator("nvidia-l4").hbm_bytes == 16e9


def test_a_fabric_may_be_replaced_at_another_rate(lab: Path) -> None:
    """A throttled NDR interface: systems that name the fabric are still there, at their own rates."""
    (lab / "slow.yaml").write_text(
        "id: infiniband-ndr\nkind: fabric\ntier: scale_out\ntopology: fat-tree\n"
        "link_bytes_per_s: 100 Gb/s (unverified)\n"
    )
    assert catalog.fabrics()["infiniband-ndr"].link_bytes_per_s == 12.5e9
    out = catalog.system("dgx-h100").scale_out
    assert (out.fabric.link_bytes_per_s, out.bytes_per_s) == (12.5e9, 50e9)


def test_a_single_file_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.yaml").write_text(MINE)
    monkeypatch.setenv("CCLBENCH_HARDWARE", f"{tmp_path / 'mine.yaml'}")
    assert catalog.accelerator("lab-chip").hbm_bytes == 16e9


@pytest.mark.parametrize(
    ("file", "old", "new", "line", "said"),
    [
        ("chip", "hbm_bytes: 16 GB", "hbm_bytes: -16 GB", 7, "not a number, one space and a unit"),
        ("chip", "400 GB/s", "0 GB/s", 8, "is zero"),
        ("chip", "400 GB/s", "-400 GB/s", 8, "not a number"),
        ("chip", "400 GB/s", "nan GB/s", 8, "not a number"),
        ("chip", "400 GB/s (bench)", "4e11", 8, "does not fit"),
        ("chip", "400 GB/s", "400 GBps", 8, "no known unit of bandwidth"),
        ("chip", "400 GB/s", "400 Gb/s", 8, "does not fit: device memory bandwidth"),
        ("chip", "400 GB/s (bench)", "400 GB/s", 8, "states no source"),
        ("chip", "400 GB/s (bench)", "400 GB/s (banch)", 8, "did you mean bench?"),
        ("chip", "400 GB/s", "999999999 TB/s", 8, "above the plausible maximum of 100 TB/s"),
        ("chip", "16 GB", "16 GiB", 7, "does not fit"),
        ("chip", "sm_count: null", "sm_count: 0 (bench)", 9, "does not fit"),
        ("chip", "sm_count", "sm_cuont", 9, "did you mean sm_count?"),
        ("chip", "kind: accelerator", "kind: toaster", 2, "known: accelerator, fabric, system"),
        ("chip", "'Lab Chip'", "'Lab ('", 4, "is not a regular expression"),
        ("chip", "date: 2026-11", "date: yesterday", 12, "does not fit"),
        ("chip", "hbm_bytes: 16 GB (bench)", "hbm_bytes: &x 16 GB", 7, "YAML anchor"),
        ("link", "tier: scale_up", "tier: scale_sideways", 3, "did you mean scale_up or scale_out?"),
        ("link", "topology: mesh", "topology: net", 4, "known: dragonfly"),
        ("link", "scale_up", "scale_out", 7, "a scale_out fabric"),
        ("link", "25 GB/s", "25 Gb/s", 11, "are bits and bytes confused?"),
        ("node", "accelerator: lab-chip", "accelerator: lab-chop", 3, "did you mean lab-chip?"),
        ("node", "fabric: lab-link", "fabric: lab-lynk", 7, "did you mean lab-link?"),
        ("node", "200 Gb/s", "200 GB/s", 15, "are bits and bytes confused?"),
        ("node", "bytes_per_s: 100 GB/s", "bytes_per_s: 100 Gb/s", 11, "are bits and bytes confused?"),
        ("node", "ib-verbs", "ip-verbs", 16, "did you mean ib-verbs?"),
        ("node", "fabric: lab-link", "fabric: 8 (unverified)", 7, "does not fit"),
        ("node", "peers: mesh", "peers: mash", 8, "did you mean mesh?"),
        ("node", "nics: 2", "nics: 0", 14, "does not fit"),
        ("node", "architecture: ampere", "architecture: turing", 5, "did you mean trainium?"),
        ("node", "links: 4 (unverified)", "dims: 2 x 3 (unverified)", 10, "has 6 positions, but domain is 4"),
    ],
)  # fmt: skip
def test_nonsense_is_refused_by_line(lab: Path, file: str, old: str, new: str, line: int, said: str) -> None:
    path = lab / f"{file}.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(InputError) as refused:
        catalog.systems()
    assert re.search(rf"\.yaml:{line}: ", str(refused.value)), str(refused.value)
    assert said in str(refused.value)
    assert len(str(refused.value).splitlines()) <= 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (("25 GB/s", "25 Gb/s"), r":5: .* against 25.0 GB/s \(nvlink4 in the catalog\): are bits"),
        (("scale_up", "scale_out"), ":3: tier: is scale_out, but nvlink4 is a scale_up fabric"),
    ],
)
def test_a_fabric_that_cannot_replace_another_is_refused(lab: Path, text: tuple[str, str], said: str) -> None:
    (lab / "mine.yaml").write_text(MY_LINKS.replace(*text).replace("lab-link", "nvlink4"))
    with pytest.raises(InputError, match=said):
        catalog.fabrics()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"), (b"- a\n", "is a list"), (b"id: \xff", "not UTF-8"),
        (b"id: x\n", "kind: is missing"), (b"{" * 50, "nested"), (b"a: [\n", "not valid YAML"),
        (b"x" * 1_000_001, "over 1 MB"), (b"kind: fabric\nkind: system\n", "is there twice"),
    ],
)  # fmt: skip
def test_what_is_no_hardware_file_is_refused(lab: Path, content: bytes, said: str) -> None:
    (lab / "chip.yaml").write_bytes(content)
    with pytest.raises(InputError, match=said):
        catalog.accelerators()


def test_no_file_is_refused_and_the_later_one_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCLBENCH_HARDWARE", str(tmp_path))
    with pytest.raises(InputError, match="contains no YAML file"):
        catalog.fabrics()
    monkeypatch.setenv("CCLBENCH_HARDWARE", str(tmp_path / "none.yaml"))
    with pytest.raises(InputError, match="cannot be read"):
        catalog.fabrics()
    # a later file of the same id is the one that counts
    (tmp_path / "a.yaml").write_text(MINE)
    (tmp_path / "b.yaml").write_text(MINE.replace("16 GB", "32 GB"))
    monkeypatch.setenv("CCLBENCH_HARDWARE", str(tmp_path))
    assert catalog.accelerator("lab-chip").hbm_bytes == 32e9


@pytest.mark.parametrize(
    ("known", "reported", "has"),
    [(None, 1, True), (10, 9, True), (10.0, 8.99, False), (10.0, 10.99, True), (10, 11.1, False)],
)
def test_memory_within_a_tenth_is_an_accelerator_s(known: int | None, reported: int, has: bool) -> None:
    chip = Accelerator("chip", "accelerator", "generic", ("Chip [AB]", "X"), {}, known, None, None, None)
    assert chip.has_memory(reported) is has
    assert [chip.has_name(name) for name in ("chip a", "Chip AB", "x", "xx")] == [True, False, True, False]


def test_figures_are_numbers_with_the_key_of_their_source() -> None:
    """Sizes whole, rates in base SI, what has no source in parentheses as it is written."""
    words = {"id": "8 (x)", "notes": "8 GB (x)", "vendor": "nvidia (A)"}
    sizes = {"hbm_bytes": "1.5 GB (a-1)", "per_node": "8 (a)", "usable_fraction": "0.5 (a)"}
    rates: dict[str, Any] = {"peak_flops_per_s": {"bf16": "2 TFLOP/s (b)", "fp8": None}}
    rates["transports"] = {"x": {"latency_s": "3 us (unverified)"}}
    links = {"dims": "2 x 4 (a)", "bytes_per_s": "8 Gb/s (a)", "wraps": "false (a)", "fabric": "y"}
    given, cited = parse_figures({**words, **sizes, **rates, "scale_up": links})
    expected = {**words, "hbm_bytes": 1_500_000_000, "per_node": 8, "usable_fraction": 0.5}
    expected |= {"peak_flops_per_s": {"bf16": 2e12, "fp8": None}, "transports": {"x": {"latency_s": 3e-6}}}
    expected["scale_up"] = {"dims": (2, 4), "bytes_per_s": 1e9, "wraps": False, "fabric": "y"}
    assert given == expected
    assert isinstance(given["hbm_bytes"], int)
    others = {"hbm_bytes": "a-1", "peak_flops_per_s.bf16": "b", "transports.x.latency_s": "unverified"}
    of_a = ("scale_up.dims", "scale_up.bytes_per_s", "scale_up.wraps", "per_node", "usable_fraction")
    assert cited == others | dict.fromkeys(of_a, "a")
    # texts of all fields but those of words; below a field any word is one
    entry = {"id": "x", "notes": "n", "kind": "k", "a": "1", "b": {"id": "2", "c": None}, "d": ["e"]}
    assert list(written_leaves(entry)) == [(("a",), "1"), (("b", "id"), "2")]


def test_files_are_named_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside those that the environment names, which stay as they were afterwards."""
    chip, link = tmp_path / "chip.yml", tmp_path / "link.yaml"
    chip.write_text(MINE)
    link.write_text(MY_LINKS)
    monkeypatch.delenv("CCLBENCH_HARDWARE", raising=False)
    with catalog.extended_catalog([]):
        assert "CCLBENCH_HARDWARE" not in os.environ
    with catalog.extended_catalog([tmp_path]):
        assert catalog.entry_of("lab-chip") == catalog.accelerator("lab-chip")
        assert catalog.entry_of("lab-link").kind == "fabric"
    assert "CCLBENCH_HARDWARE" not in os.environ
    monkeypatch.setenv("CCLBENCH_HARDWARE", str(link))
    nothing = catalog.user_entries_hash()
    with catalog.extended_catalog([chip]):
        assert {"lab-link", "lab-chip"} <= catalog.catalog_entries().keys()
        assert catalog.user_entries_hash() != nothing
    with pytest.raises(UsageError), catalog.extended_catalog([chip]):
        catalog.entry_of("lab-chop")
    assert os.environ["CCLBENCH_HARDWARE"] == str(link)
    assert catalog.user_entries_hash() == nothing
    assert "lab-chip" not in catalog.catalog_entries()


def test_a_folder_holds_so_many_files_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "chip.yaml").write_text(MINE)
    (tmp_path / "link.yml").write_text(MY_LINKS)
    (tmp_path / "notes.txt").write_text("no YAML")
    monkeypatch.setenv("CCLBENCH_HARDWARE", str(tmp_path))
    monkeypatch.setattr("cclbench.hardware.catalog._MOST_FILES", 2)
    assert "lab-link" in catalog.fabrics()
    (tmp_path / "node.yaml").write_text(MY_NODE)
    monkeypatch.setenv("CCLBENCH_HARDWARE", f"{tmp_path}{os.pathsep}")
    with pytest.raises(InputError, match="contains more than 2 YAML files"):
        catalog.fabrics()


# Lanes of fp32 in a multiprocessor; a lane multiplies and adds in a cycle.
TURING, AMPERE = 64, 128


@pytest.mark.parametrize(
    ("name", "lanes", "boost_mhz", "bus_bits", "gbit_per_s"),
    # boost clocks, of Founders Editions for the RTX 20, and memory: bits of the bus, Gb/s of a pin
    [
        ("nvidia-rtx-2070", TURING, 1710, 256, 14), ("nvidia-rtx-2080", TURING, 1800, 256, 14),
        ("nvidia-rtx-2080-ti", TURING, 1635, 352, 14), ("nvidia-rtx-3070", AMPERE, 1725, 256, 14),
        ("nvidia-rtx-3080", AMPERE, 1710, 320, 19), ("nvidia-rtx-3090", AMPERE, 1695, 384, 19.5),
        ("nvidia-rtx-4090", AMPERE, 2520, 384, 21), ("nvidia-l4", AMPERE, 2040, 192, 12.5),
        ("nvidia-a10g", AMPERE, 1710, 384, 12.5), ("nvidia-l40s", AMPERE, 2520, 384, 18),
        ("nvidia-rtx-pro-6000", AMPERE, 2617, 512, 28),
    ],
)  # fmt: skip
def test_rates_by_parts(name: str, lanes: int, boost_mhz: float, bus_bits: int, gbit_per_s: float) -> None:
    device = catalog.accelerator(name)
    fp32 = device.peak_flops_per_s["fp32"]
    assert fp32 == pytest.approx(device.sm_count * lanes * 2 * boost_mhz * 1e6, rel=0.01)
    assert device.hbm_bytes_per_s == pytest.approx(bus_bits / 8 * gbit_per_s * 1e9, rel=0.001)


@pytest.mark.parametrize(
    ("id", "ratios"),
    # Products of 16 bits summed in 32: as fast as summed in 16, but half of it in GeForce.
    [
        *((f"nvidia-rtx-{name}", {"fp16": 4, "int8": 16}) for name in ("2070", "2080", "2080-ti")),
        *((f"nvidia-rtx-{name}", {"tf32": 1, "fp16": 2, "int8": 8}) for name in ("3070", "3080", "3090")),
        ("nvidia-rtx-4090", {"tf32": 1, "fp16": 2, "fp8": 4, "int8": 8}),
        ("nvidia-l40s", {"tf32": 2, "fp16": 4, "fp8": 8, "int8": 8}),
        ("nvidia-rtx-pro-6000", {"tf32": 2, "fp16": 4, "fp8": 8, "int8": 8, "fp4": 16}),
    ],
)
def test_peaks_of_products_are_multiples(id: str, ratios: dict[str, int]) -> None:  # noqa: A002
    peaks = catalog.accelerator(id).peak_flops_per_s
    fp32 = peaks["fp32"]
    assert fp32 is not None
    assert {dtype: (peaks[dtype] or 0) / fp32 for dtype in ratios} == pytest.approx(ratios, rel=0.02)


def test_gaudi_3_and_possible_clocks() -> None:
    """8 engines of 256 x 256 multipliers at 1.75 GHz; 24 ports of 200 Gb/s, 3 to each of 7 peers."""
    device = catalog.accelerator("intel-gaudi3")
    assert device.peak_flops_per_s["bf16"] == pytest.approx(8 * 256**2 * 2 * 1.75e9, rel=0.001)
    assert device.scale_up_bytes_per_s == 7 * 3 * 25e9
    out = catalog.system("gaudi3-8").scale_out
    assert (out.nics, out.bytes_per_s) == (8 * (24 - 21), 25e9)
    # of every NVIDIA device with vector lanes: 128 or 64 of fp32, 0.9 to 3 GHz
    for id in catalog.accelerators():  # noqa: A001
        device = catalog.accelerator(id)
        fp32, count = device.peak_flops_per_s.get("fp32"), device.sm_count
        if device.vendor == "nvidia" and fp32 and count and not device.announced:
            clocks = [fp32 / (count * lanes * 2) for lanes in (TURING, AMPERE)]
            assert any(0.9e9 <= clock <= 3e9 for clock in clocks), (id, clocks)


@pytest.mark.parametrize(
    ("id", "interfaces"),
    # NCCL_IB_HCA of each shape: docs/recommended-nccl-rccl-parameters-by-shape.md of oci-hpc-oke at 0d0fde2
    [
        *(("oci-a100-v2-8", 16), ("oci-h100-8", 16), ("oci-h200-8", 8), ("oci-b200-8", 8)),
        *(("oci-gb200-4", 4), ("oci-gb300-4", 8), ("oci-mi300x-8", 8), ("oci-mi355x-8", 8)),
    ],
)
def test_interfaces_of_oci_s_shapes(id: str, interfaces: int) -> None:  # noqa: A002
    assert catalog.system(id).scale_out.nics == interfaces
