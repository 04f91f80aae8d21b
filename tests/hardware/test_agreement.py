# SPDX-License-Identifier: Apache-2.0
"""How predictions agree with measurements, and where they deviate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from cclbench.ground import yaml_file
from cclbench.ground.errors import InputError, UsageError
from cclbench.hardware import catalog
from cclbench.hardware.accelerator import Accelerator
from cclbench.hardware.agreement import check_replacement, tier_contradictions
from cclbench.hardware.calibration import Calibration, write_calibration
from cclbench.hardware.collectives import NoPrice, price_collective
from cclbench.hardware.collectives.transport import PROTOCOLS
from cclbench.hardware.deviation import Deviation, summarise_deviations
from cclbench.hardware.entry import check_entry, entry_problems
from cclbench.hardware.fabric import Fabric, Transport
from cclbench.hardware.prediction import COLUMNS, predict_rows
from cclbench.hardware.probe import KINDS, ProbeCommand, band_rows, choose_commands
from cclbench.hardware.sweep import Sweep
from cclbench.hardware.system import System
from cclbench.hardware.validation import SweepValidation, validate_sweeps, validation_rows

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
    own = FIGURES | {"scale_up_bytes_per_s": "100 GB/s (bench)"} | dict.fromkeys(PEAKS, "null") | fields
    peaks = [f"  {key}: {own.pop(key)}" for key in PEAKS]
    figures = [f"{key}: {text}" for key, text in own.items()]
    head = ["id: chip", "kind: accelerator", "vendor: generic", "names: [chip]", "peak_flops_per_s:"]
    return "\n".join([*head, *peaks, *figures, "sources: {bench: {title: x, date: 2026-11}}", more])


def said(text: str) -> list[str]:
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


@pytest.mark.parametrize(
    ("size", "band"),
    [
        *((1, "below 64 KiB"), (2**16 - 1, "below 64 KiB")),
        *((2**16, "64 KiB to 16 MiB"), (2**24, "64 KiB to 16 MiB")),
        *((2**24 + 1, "above 16 MiB"), (2**40, "above 16 MiB")),
    ],
)
def test_bands_of_sizes(size: int, band: str) -> None:
    assert Deviation(size, 1.0, 1.0, 1.0, 1.0).size_band == band


@pytest.mark.parametrize(
    ("low", "high", "within"), [(1.0, 2.0, True), (0.5, 1.0, True), (1.1, 2.0, False), (0.5, 0.9, False)]
)
def test_a_band_holds_its_ends(low: float, high: float, within: bool) -> None:
    assert Deviation(8, 1.0, 1.0, low, high).is_within_band is within


@pytest.mark.parametrize(
    ("measured", "held", "suspect"), [(4.0, 0, False), (4.1, 0, True), (4.1, 1, True), (4.1, 2, False)]
)
def test_a_run_far_slower_and_outside_its_band_is_suspect(measured: float, held: int, suspect: bool) -> None:
    found = summarise_deviations(
        [Deviation(8, measured, 1.0, 0.5, 9.0 if at < held else 2.0) for at in range(4)]
    )
    assert (found.slower, found.within, found.is_suspect) == (measured, held / 4, suspect)


def test_errors_are_of_the_measured_time() -> None:
    """Half of it and a half more: 50 % each, and twice and two thirds of the model in the middle."""
    found = summarise_deviations([Deviation(8, 2.0, 1.0, 1.0, 1.0), Deviation(8, 2.0, 3.0, 1.0, 1.0)])
    assert (found.count, found.median, found.p90) == (2, 0.5, 0.5)
    assert found.slower == pytest.approx((2 + 2 / 3) / 2)
    # rows of a sweep are by size
    rows = validation_rows([swept("all_reduce", 2.0)])
    assert [row["sizes"] for row in rows] == ["below 64 KiB", "64 KiB to 16 MiB", "all sizes"]
    swept_by = {"sweep": "a.csv", "collective": "all_reduce", "ranks": 4, "nodes": 2}
    swept_by |= {"library_version": "2.27.3", "sizes": "all sizes", "count": 2}
    errors = {"median_error": 0.5, "p90_error": 0.5, "within_band": 1.0, "measured_over_model": 2.0}
    assert rows[-1] == swept_by | errors | {"suspect": False, "basis": "spec", "reason": None}


def swept(kind: str, times: float, *, name: str = "a.csv") -> SweepValidation:
    """A sweep of 8 B and 1 MiB that the model of 1 s says takes so many seconds, each band ±1 s."""
    sweep = Sweep(kind, 4, 2, (8, 2**20), (times, times), "2.27.3", name)
    return SweepValidation(sweep, [Deviation(size, times, 1.0, 0.0, 2.0) for size in sweep.bytes])


def test_all_sweeps_together_are_without_the_suspect_ones() -> None:
    """And without those that have no price, which have a row with the reason."""
    sound, slow = swept("all_reduce", 2.0), swept("all_gather", 10.0)
    priceless = SweepValidation(sound.sweep, NoPrice("nobody knows"))
    suspect = [[*each.suspect_bands] for each in (slow, sound, priceless)]
    assert suspect == [["below 64 KiB", "64 KiB to 16 MiB"], [], []]
    assert (sound.suspicion, priceless.suspicion, priceless.deviation_summary) == (None, None, None)
    together = validation_rows([sound, slow, priceless])
    assert [row["reason"] for row in together if row["sweep"] == "a.csv"][-1] == "nobody knows"
    last = together[-1]
    assert (last["sweep"], last["sizes"], last["count"]) == (None, "all sizes", 2)
    assert last["reason"] == "excludes sweeps that are suspect or have no price"
    both = validation_rows([sound, sound])
    assert (both[-1]["count"], both[-1]["reason"]) == (4, None)
    assert all(row["sweep"] for row in validation_rows([sound]))


def by_size(nodes: int, **slower: float) -> SweepValidation:
    """A sweep whose sizes take so many times the model's 1 s, in a band of ±0.5 s: b8, k512, m64, m256."""
    units = {"b": 1, "k": 2**10, "m": 2**20}
    sizes = [int(name[1:]) * units[name[0]] for name in slower]
    sweep = Sweep("all_reduce", 4, nodes, tuple(sizes), tuple(slower.values()), None, "a.csv")
    times = zip(sizes, slower.values(), strict=True)
    return SweepValidation(sweep, [Deviation(size, time, 1.0, 0.5, 1.5) for size, time in times])


@pytest.mark.parametrize(
    ("checked", "bands", "cause"),
    [
        (by_size(2, b8=1, b16=1, k512=1.2, m64=5.5), ["above 16 MiB"], "possibly GPUDirect is off"),
        (by_size(1, b8=1, b16=1, k512=1.2, m64=5.5), ["above 16 MiB"], "possibly peer-to-peer access is off"),
        (by_size(2, b8=6, k512=6, m64=1, m256=1), ["below 64 KiB", "64 KiB to 16 MiB"], "share cores"),
        (by_size(2, b8=6, k512=1), ["below 64 KiB"], "share cores; or GPUDirect is off"),
        (by_size(2, m64=5.5, m256=1), [], None),  # the median of the band is 3.25
    ],
)
def test_each_band_of_sizes_is_judged(checked: SweepValidation, bands: list[str], cause: str | None) -> None:
    """Of a run that is right in latency, most rows are; its large messages are suspect nonetheless."""
    assert [*checked.suspect_bands] == bands
    rows = validation_rows([checked])
    assert [row["sizes"] for row in rows if row["suspect"]] == bands + ["all sizes"] * bool(bands)
    assert len({row["reason"] for row in rows}) == 1
    reason = rows[0]["reason"]
    assert reason is None if cause is None else cause in reason
    assert all(f"times {band}" in (reason or "") for band in bands)


def test_a_calibration_by_another_collective_says_so() -> None:
    by = Calibration("node", (swept("all_gather", 1.0).sweep,))
    rows = validation_rows([swept("all_reduce", 1.0), swept("all_gather", 1.0)], by)
    reasons = {row["collective"]: row["reason"] for row in rows}
    why = "the calibration has no sweep of all_reduce: deviations of other collectives apply"
    assert reasons["all_reduce"] == why
    assert reasons["all_gather"] is None
    assert {row["basis"] for row in rows} == {"calibrated"}
    # one that does not fit has no price; the others have a deviation each size
    machine = catalog.system("dgx-h100")
    odd = Sweep("all_reduce", 9, 2, (8,), (1e-5,))
    good, refused = validate_sweeps([Sweep("all_reduce", 8, 1, (8, 16), (1e-5, 1e-5)), odd], machine)
    assert [each.size for each in good.size_deviations] == [8, 16]
    assert refused.size_deviations == []
    assert refused.deviations == NoPrice("9 ranks on 2 nodes do not fit dgx-h100, which has 8 per node")


DGX = catalog.system("dgx-h100")


def test_rows_by_size() -> None:
    rows = predict_rows("all_reduce", [8, 1 << 20], 16, DGX)
    found = price_collective("all_reduce", [8, 1 << 20], range(16), DGX)
    assert [row["bytes"] for row in rows] == [8, 1 << 20]
    for at, row in enumerate(rows):
        assert tuple(row) == COLUMNS
        figures = {name: row[name] for name in ("time_s", "low_s", "high_s", "algbw", "busbw")}
        assert figures == {name: getattr(found, name)[at] for name in figures}
        assert (row["algorithm"], row["protocol"]) == (found.algorithm[at], found.protocol[at])
        asked = [row[name] for name in ("system", "collective", "ranks", "nodes")]
        assert asked == ["dgx-h100", "all_reduce", 16, 2]
        assert (row["basis"], row["provenance"], row["reason"]) == ("spec", "modelled", None)
    # ranks are spread over nodes where these are given
    (row,) = predict_rows("all_reduce", [8], 4, DGX, nodes=4)
    assert (row["ranks"], row["nodes"]) == (4, 4)
    (narrowed,) = predict_rows("all_reduce", [8], 4, DGX, algorithm="tree", protocol="LL")
    assert (narrowed["algorithm"], narrowed["protocol"]) == ("tree", "LL")


@pytest.mark.parametrize("system", catalog.systems().values(), ids=lambda system: system.id)
def test_a_protocol_that_is_asked_for_has_a_band(system: System) -> None:
    """Network software that may not let LL through does so where LL is asked for, at worst too."""
    for kind in ("gather", "all_reduce"):
        for protocol in PROTOCOLS:
            found = price_collective(
                kind, 4096, system.group_members(4 * system.per_node, None), system, protocol=protocol
            )
            assert isinstance(found, NoPrice) or found.low_s[0] < found.time_s[0] < found.high_s[0]


def test_a_figure_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        predict_rows("all_reduce", [8], 2, catalog.system("mi250x-node"))
    assert raised.value.hint == "state scale_up in a hardware file of your own (--hardware)"
    with pytest.raises(InputError) as raised:
        predict_rows("all_gather", [8], 16, DGX, algorithm="tree")
    assert raised.value.hint is None
    # a calibration tells of what libraries choose
    path = tmp_path / "calibration.yaml"
    write_calibration(Calibration(DGX.id, (Sweep("all_reduce", 8, 1, (8, 16), (1e-3, 2e-3)),)), path)
    (row,) = predict_rows("all_reduce", [8], 8, DGX, calibration=path)
    assert (row["basis"], row["time_s"]) == ("calibrated", pytest.approx(1e-3))
    for narrowed in ({"algorithm": "ring"}, {"protocol": "LL"}):
        with pytest.raises(UsageError, match="does not cover one algorithm or protocol; leave out --calib"):
            predict_rows("all_reduce", [8], 8, DGX, calibration=path, **narrowed)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="does not cover barriers"):
        predict_rows("barrier", None, 8, DGX, calibration=path)


P5 = catalog.system("aws-p5")


def test_commands_of_a_probe() -> None:
    one = ProbeCommand("all_to_all", 8, 1, 8, 64)
    assert one.sizes == (8, 512, 32768, 2097152)
    assert " ".join(one.arguments) == "env NCCL_DEBUG=VERSION alltoall_perf -b 8 -e 2097152 -f 64 -g 8"
    several = ProbeCommand("all_reduce", 16, 2, 8, 64)
    assert several.arguments[:5] == ("mpirun", "-np", "16", "--map-by", "ppr:8:node")
    assert several.arguments[-2:] == ("-g", "1")
    # one node and two: a command for each, no third one, as every group is then measured
    chosen = choose_commands(P5, ["all_gather"], 2, 5)
    assert sorted((own.kind, own.nodes) for own in chosen) == [("all_gather", 1), ("all_gather", 2)]
    # machines of other libraries are refused
    with pytest.raises(UsageError, match="nccl-tests and rccl-tests do not run on google-tpu-v4-pod"):
        choose_commands(catalog.system("google-tpu-v4-pod"), KINDS, 1, 1)


def test_no_other_window_narrows_more() -> None:
    """The first choice leaves the narrowest bands, compared with each single command of other sizes."""

    def left(command: ProbeCommand) -> float:
        rows = band_rows(P5, ["all_reduce"], 1, [command])
        return sum(row["after"] for row in rows)

    (chosen,) = choose_commands(P5, ["all_reduce"], 1, 1)
    assert left(chosen) <= min(left(ProbeCommand("all_reduce", 8, 1, first, 8)) for first in (8, 1024))


@pytest.mark.parametrize("machine", ["aws-p5", "gb200-nvl72", "mi300x-8gpu", "rtx4090-8gpu"])
def test_no_band_grows_by_measuring(machine: str) -> None:
    system = catalog.system(machine)
    nodes = 2 if system.scale_out else 1
    commands = choose_commands(system, KINDS, nodes, 2)
    assert 1 <= len(commands) <= 2
    rows = band_rows(system, KINDS, nodes, commands)
    assert all(row["after"] <= row["before"] + 1e-9 for row in rows)
    assert min(row["after"] / row["before"] for row in rows) < 0.7
