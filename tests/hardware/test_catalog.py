# SPDX-License-Identifier: Apache-2.0
"""The catalog: every file valid, figures as published, device names of real traces found."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from cclbench.errors import UsageError
from cclbench.hardware.catalog import accelerator, accelerators, by_device_name

PACKAGE = Path(__file__).resolve().parents[2] / "cclbench"
FILES = sorted((PACKAGE / "hardware" / "data").glob("*.yaml"))
SCHEMA = json.loads((PACKAGE / "schemas" / "hardware.json").read_text())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_is_valid_and_named_by_its_id(path: Path) -> None:
    machine = yaml.safe_load(path.read_text())
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    errors = [error.message for error in jsonschema.Draft7Validator(SCHEMA).iter_errors(machine)]
    assert errors == []
    assert machine["id"] == path.stem
    for pattern in machine["names"]:
        re.compile(pattern)
    for field in machine["unverified"]:
        name, _, dtype = field.partition(".")
        assert (machine[name][dtype] if dtype else machine[name]) is not None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hbm_bytes", "80 GB"),
        ("sm_count", 0),
        ("kind", "toaster"),
        ("peak_flops_per_s", {"bf16": 1e15}),
        ("x", 1),
    ],
)
def test_the_schema_refuses(field: str, value: object) -> None:
    machine: dict[str, Any] = yaml.safe_load(FILES[0].read_text())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(machine | {field: value}, SCHEMA)


def test_the_catalog_holds_every_file() -> None:
    assert list(accelerators()) == [path.stem for path in FILES]
    assert len(FILES) == 28


@pytest.mark.parametrize(
    ("id", "dtype", "flops", "hbm_bytes", "hbm_bytes_per_s", "sms", "scale_up"),
    [
        ("nvidia-v100-sxm2-32gb", "fp16", 125e12, 32e9, 900e9, 80, 150e9),
        ("nvidia-a100-sxm-40gb", "bf16", 312e12, 40e9, 1555e9, 108, 300e9),
        ("nvidia-a100-sxm-80gb", "tf32", 156e12, 80e9, 2039e9, 108, 300e9),
        ("nvidia-h100-sxm", "bf16", 989e12, 80e9, 3350e9, 132, 450e9),
        ("nvidia-h100-pcie", "bf16", 756e12, 80e9, 2000e9, 114, 63e9),
        ("nvidia-h200-sxm", "fp8", 1979e12, 141e9, 4800e9, 132, 450e9),
        ("nvidia-b200-sxm", "fp4", 9000e12, 180e9, 8000e9, 148, 900e9),
        ("nvidia-gb200", "bf16", 2500e12, 186e9, 8000e9, 148, 900e9),
        ("amd-mi210", "fp16", 181e12, 64e9, 1638e9, 104, None),
        ("amd-mi250x", "bf16", 191.5e12, 64e9, 1640e9, 110, 175e9),
        ("amd-mi300x", "bf16", 1307e12, 192e9, 5300e9, 304, 448e9),
        ("google-tpu-v6e", "bf16", 918e12, 32e9, 1638e9, None, 400e9),
        ("aws-trainium2", "bf16", 667e12, 96e9, 2900e9, None, 640e9),
        ("generic-cpu", "bf16", None, None, None, None, None),
    ],
)
def test_figures(  # the table of published figures, one row an accelerator
    id: str,  # noqa: A002
    dtype: str,
    flops: float | None,
    hbm_bytes: float | None,
    hbm_bytes_per_s: float | None,
    sms: int | None,
    scale_up: float | None,
) -> None:
    entry = accelerator(id)
    assert entry.peak_flops_per_s[dtype] == flops
    assert entry.hbm_bytes == hbm_bytes
    assert entry.hbm_bytes_per_s == hbm_bytes_per_s
    assert entry.sm_count == sms
    assert entry.scale_up_bytes_per_s == scale_up


@pytest.mark.parametrize(("id", "dtype"), [("nvidia-a100-sxm-80gb", "fp8"), ("nvidia-gb10", "bf16")])
def test_what_nobody_could_source_is_null(id: str, dtype: str) -> None:  # noqa: A002
    assert accelerator(id).peak_flops_per_s[dtype] is None


def test_dense_peaks_halve_from_fp8_to_fp16() -> None:
    """Sparse figures, twice the dense ones, are the common mistake: fp8 and fp16 would not agree."""
    for entry in accelerators().values():
        fp8, fp16 = entry.peak_flops_per_s["fp8"], entry.peak_flops_per_s["fp16"]
        if fp8 and fp16 and entry.vendor in ("nvidia", "amd"):
            assert fp8 / fp16 == pytest.approx(2, rel=0.01), entry.id


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
        ("NVIDIA GeForce RTX 4090", None, None),
        ("", None, None),
    ],
)
def test_lookup_by_device_name(name: str, memory_bytes: int | None, expected: str | None) -> None:
    found = by_device_name(name, memory_bytes)
    assert (found.id if found else None) == expected


def test_an_unknown_id_gets_near_matches() -> None:
    with pytest.raises(UsageError, match="nvidia-h100-sxm"):
        accelerator("nvidia-h100-smx")


def test_devices_of_real_traces_are_found(test_data: Path) -> None:
    found = {}
    for path in sorted((test_data / "kineto").glob("*/*.json.gz")):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        for device in trace.get("deviceProperties", []) if isinstance(trace, dict) else []:
            if "name" in device:
                entry = by_device_name(device["name"], device["totalGlobalMem"])
                found[device["name"]] = (entry.id, entry.sm_count == device["numSms"]) if entry else None
    assert found == {
        "AMD Instinct MI210": ("amd-mi210", True),
        "AMD Instinct MI300X": ("amd-mi300x", True),
        "NVIDIA A100-PG509-200": ("nvidia-a100-sxm-40gb", True),
        "NVIDIA H100 80GB HBM3": ("nvidia-h100-sxm", True),
        "Tesla V100-SXM2-32GB": ("nvidia-v100-sxm2-32gb", True),
    }
