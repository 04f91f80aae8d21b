# SPDX-License-Identifier: Apache-2.0
"""Whether entries of the catalog agree, and what of one file alone cannot be: at bounds and beside them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from cclbench.ground import yaml_file
from cclbench.ground.errors import InputError
from cclbench.hardware.accelerator import Accelerator
from cclbench.hardware.agreement import check_replacement, tier_contradictions
from cclbench.hardware.entry import check_entry, entry_problems
from cclbench.hardware.fabric import Fabric, Transport

LINKS = Fabric("links", "fabric", "scale_up", "switch", 25e9)
NETWORK = Fabric("net", "fabric", "scale_out", "fat-tree", 25e9, transports={"ib-verbs": Transport(None)})
CHIP = Accelerator("chip", "accelerator", "generic", (), {}, None, None, None, 100e9)


def found(tier: str, used: Fabric, machine: Accelerator | None = None, **part: Any) -> list[str]:
    """Fields and reasons, as one text each."""
    return [f"{'.'.join(path)} {why}" for path, why in tier_contradictions(tier, part, used, machine)]


def test_a_tier_has_a_fabric_of_its_own_and_its_transport() -> None:
    assert found("scale_up", NETWORK) == ["scale_up.fabric is net, a scale_out fabric"]
    assert found("scale_out", NETWORK, transport="ib-verbs") == []
    (why,) = found("scale_out", NETWORK, transport="ip-verbs")
    assert why.startswith("scale_out.transport is not a transport of net; did you mean ib-verbs?")
    # with so many links of the fabric, then with the accelerator; the first that differs is said
    (why,) = found("scale_up", LINKS, CHIP, bytes_per_s=900e9, links=4)
    against = "against 100 GB/s (4 links of links): are bits and bytes confused?"
    assert why == f"scale_up.bytes_per_s is 900 GB/s, {against}"
    own = found("scale_up", LINKS, CHIP, bytes_per_s=300e9, links=12)
    assert own == ["scale_up.bytes_per_s is 300 GB/s, against 100 GB/s (the scale-up rate of chip)"]
    assert found("scale_up", LINKS, None, bytes_per_s=300e9) == []
    assert found("scale_up", LINKS, structs.replace(CHIP, scale_up_bytes_per_s=None), bytes_per_s=3e11) == []
    assert found("scale_up", structs.replace(LINKS, link_bytes_per_s=None), bytes_per_s=1.0, links=4) == []
    # an accelerator says nothing of the network
    assert found("scale_out", NETWORK, CHIP, bytes_per_s=25e9, links=99) == []


@pytest.mark.parametrize(
    ("rate", "against"),
    [
        *((50e9, None), (12.5e9, None), (50.1e9, ""), (99.9e9, ""), (401e9, ""), (None, None)),
        *((rate, ": are bits and bytes confused?") for rate in (100e9, 400e9, 6.25e9)),
    ],
)
def test_rates_more_than_twice_apart_are_not_the_same(rate: float | None, against: str | None) -> None:
    """Four to sixteen times apart the unit is mistaken."""
    said = found("scale_out", NETWORK, bytes_per_s=rate)
    assert len(said) == (against is not None)
    if against is not None:
        assert said[0].endswith(f", against 25.0 GB/s (the line rate of net){against}")


def fabric(rate: str = "25 GB/s (unverified)", tier: str = "scale_up", more: str = "") -> str:
    """A file of a fabric."""
    return f"id: links\nkind: fabric\ntier: {tier}\ntopology: mesh\nlink_bytes_per_s: {rate}\n{more}"


@pytest.mark.parametrize(
    ("rate", "refused"),
    [
        *((f"{rate} GB/s (unverified)", True) for rate in ("200", "204", "3.125")),
        *((f"{rate} GB/s (unverified)", False) for rate in ("205", "195", "50")),
        ("null", False),
    ],
)
def test_a_fabric_at_eight_times_the_known_rate_has_the_wrong_unit(rate: str, refused: bool) -> None:
    read = yaml_file.parse(fabric(rate), "mine.yaml", "hardware file")
    if refused:
        with pytest.raises(InputError, match=r"mine.yaml:5: .*\(links in the catalog\): are bits"):
            check_replacement(read, LINKS)
    else:
        check_replacement(read, LINKS)
    check_replacement(read, None)
    check_replacement(read, structs.replace(LINKS, link_bytes_per_s=None))


PEAKS = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4")
FIGURES = {"hbm_bytes": "16 GB (bench)", "hbm_bytes_per_s": "400 GB/s (bench)", "sm_count": "null"}


def chip(more: str = "", **fields: str) -> str:
    """A file of an accelerator."""
    own = FIGURES | {"scale_up_bytes_per_s": "100 GB/s (bench)"} | dict.fromkeys(PEAKS, "null") | fields
    peaks = [f"  {key}: {own.pop(key)}" for key in PEAKS]
    figures = [f"{key}: {text}" for key, text in own.items()]
    head = ["id: chip", "kind: accelerator", "vendor: generic", "names: [chip]", "peak_flops_per_s:"]
    return "\n".join([*head, *peaks, *figures, "sources: {bench: {title: x, date: 2026-11}}", more])


def said(text: str) -> list[str]:
    """What is wrong with a file, without its name."""
    read = yaml_file.parse(text, "x.yaml", "hardware file")
    return [str(one).partition(": ")[2] for one in entry_problems(read)]


@pytest.mark.parametrize(
    ("field", "most", "more", "words"),
    [
        ("bf16", "1000 PFLOP/s (bench)", "1000.1 PFLOP/s (bench)", "1,000 PFLOP/s"),
        ("hbm_bytes", "100 TB (bench)", "100.1 TB (bench)", "100 TB"),
        ("hbm_bytes_per_s", "100 TB/s (bench)", "100.1 TB/s (bench)", "100 TB/s"),
    ],
)
def test_no_device_has_more(field: str, most: str, more: str, words: str) -> None:
    assert said(chip(**{field: most})) == []
    (why,) = said(chip(**{field: more}))
    assert why.endswith(f"is {more}, above the plausible maximum of {words}; is the unit right?")


def test_bounds_of_hops_and_interfaces() -> None:
    assert said(fabric(more="hop_latency_s: 1 s (unverified)\n")) == []
    (hop,) = said(fabric(more="hop_latency_s: 1.1 s (unverified)\n"))
    assert "above the plausible maximum of 1 s" in hop
    (software,) = said(fabric(more="transports: {x: {latency_s: 2 s (unverified)}}\n"))
    assert software.startswith("transports.x.latency_s")
    # from 1.6 Tb/s on; links of accelerators have it
    assert said(fabric("199 GB/s (unverified)", "scale_out")) == []
    (why,) = said(fabric("200 GB/s (unverified)", "scale_out"))
    assert why.endswith("faster than any interface: are bits meant, not bytes?")
    assert said(fabric("200 GB/s (unverified)")) == []
    assert said(fabric("null", "scale_out")) == []
    # what another source says is of a field and of a source
    good = "disagreements: [{field: peak_flops_per_s.bf16, says: 9 TFLOP/s, source: bench}]"
    assert said(chip(more=good)) == []
    assert said(chip(more=good.replace("source: bench", "source: unverified"))) == []
    (source,) = said(chip(more=good.replace("source: bench", "source: banch")))
    assert "is not among sources; did you mean bench?" in source
    (field,) = said(chip(more=good.replace("bf16", "bf61")))
    assert "is not a field of the entry; did you mean peak_flops_per_s.bf16" in field


def test_problems_come_in_the_order_of_lines_and_the_first_two_are_told() -> None:
    text = chip(bf16="9000 PFLOP/s (banch)", hbm_bytes="16 GB (bonch)", hbm_bytes_per_s="400 GB/s (bunch)")
    fields = [why.partition(":")[0] for why in said(text)]
    assert fields == ["peak_flops_per_s.bf16"] * 2 + ["hbm_bytes", "hbm_bytes_per_s"]
    with pytest.raises(InputError) as raised:
        check_entry(yaml_file.parse(text, "x.yaml", "hardware file"))
    assert "peak_flops_per_s.bf16" in str(raised.value)
    assert "2 more" in str(raised.value)
    check_entry(yaml_file.parse(chip(), "x.yaml", "hardware file"))
    # a kind is one of three
    assert said("id: x\n") == ["kind: is missing: accelerator or fabric or system"]
    assert said("kind: fabrik\n") == ['kind: is "fabrik"; did you mean fabric?']
