# SPDX-License-Identifier: Apache-2.0
"""What a card names is in the catalog, or the card or a hardware file describes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cclbench.card import validate_card
from cclbench.card.references import accelerators_like, fabrics_like
from cclbench.hardware import catalog

Change = Callable[[str, str], Path]
UP = "{fabric: nvlink4, bandwidth: 450 GB/s}"
OUT = "fabric: infiniband-ndr, bandwidth: 400 Gb/s, "


def found(card: Path, severity: str = "error") -> list[tuple[str, str]]:
    return [(p.path, p.message.partition(";")[2]) for p in validate_card(card) if p.severity == severity]


@pytest.mark.parametrize(
    ("old", "new", "path", "hint"),
    [
        ("nvidia-h100-sxm", "amd-mi300", "accelerator", "did you mean amd-mi300a or amd-mi300x"),
        ("count: 16", "count: 16\n  system: dgx-h10", "system", "did you mean dgx-h100"),
        (UP, "{fabric: nvlink7}", "scale_up.fabric", "did you mean nvlink"),
        (UP, "{fabric: infiniband-ndr}", "scale_up.fabric", "known: "),
        (OUT, "fabric: infiniband-nrd, ", "scale_out.fabric", "did you mean infiniband-"),
    ],
)
def test_an_unknown_name_is_an_error_with_the_nearest(
    changed: Change, old: str, new: str, path: str, hint: str
) -> None:
    ((where, message),) = found(changed(old, new))
    assert where == f"hardware.{path}"
    assert hint in message
    assert catalog.VARIABLE in message


def test_a_fabric_that_the_catalog_lacks_is_no_error_where_its_rate_is_stated_or_of_hosts(
    changed: Change,
) -> None:
    card = changed("{fabric: nvlink4,", "{fabric: my-links,")
    assert found(card) == []
    assert [path for path, _ in found(card, "warning")] == ["hardware.scale_up.fabric"]
    card = changed("accelerator: nvidia-h100-sxm", "accelerator: generic-cpu")
    card.write_text(card.read_text().replace(UP, "{fabric: tcp-loopback}"))
    assert found(card) == []


def test_a_hardware_file_describes_what_the_catalog_lacks(
    changed: Change, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = changed("nvidia-h100-sxm", "amd-mi300")
    shipped = Path(catalog.__file__).parent / "data" / "amd-mi300x.yaml"
    own = tmp_path / "own.yaml"
    own.write_text(shipped.read_text().replace("id: amd-mi300x", "id: amd-mi300"))
    monkeypatch.setenv(catalog.VARIABLE, str(own))
    assert found(card) == []


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("tpu_v6e", ["google-tpu-v6e"]),
        ("nvidia_a100", ["nvidia-a100-sxm-40gb", "nvidia-a100-sxm-80gb"]),
        ("nvidia_a100_80gb", ["nvidia-a100-sxm-80gb"]),
        ("a10", []),
    ],
)
def test_accelerators_have_all_words_of_a_name(name: str, ids: list[str]) -> None:
    assert accelerators_like(name) == ids


@pytest.mark.parametrize(
    ("name", "tier", "accelerator", "ids"),
    [
        ("slingshot", "scale_out", None, ["slingshot-11"]),
        ("Slingshot-11", "scale_out", None, ["slingshot-11"]),
        ("2D torus", "scale_up", "google-tpu-v5p", ["ici-v5p"]),
        ("roce", "scale_out", None, ["roce-100", "roce-200", "roce-400"]),
        ("nvlink4", "scale_up", "nvidia-a100-sxm-40gb", ["nvlink4"]),
        ("string", "scale_out", None, []),
    ],
)
def test_fabrics_are_of_those_words_or_that_topology(
    name: str, tier: str, accelerator: str | None, ids: list[str]
) -> None:
    assert fabrics_like(name, tier, accelerator) == ids  # type: ignore[arg-type]
