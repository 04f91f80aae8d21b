# SPDX-License-Identifier: Apache-2.0
"""`cclbench hardware predict`, `validate` and `calibrate`, and the page that tells of them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.command_line import Call
from helpers.page_commands import blocks, here, printed_by

from cclbench.hardware import catalog, rates

HEADER = "size_bytes,count,dtype,redop,oop_time_us,oop_algbw_GBps,oop_busbw_GBps,"
HEADER += "ip_time_us,ip_algbw_GBps,ip_busbw_GBps\n"
ONE_MIB = ("--collective", "all_reduce", "--size", "1MiB")
P5 = ("--system", "aws-p5")
BARRIER = ("--collective", "barrier", "--ranks", "16")
Rows = Callable[..., Any]


def csv(path: Path, times_us: Mapping[int, float], *, kind: str = "all_reduce", nodes: int = 2) -> Path:
    """A sweep as published: 8 ranks a node."""
    facts = {"coll": kind, "ranks": 8 * nodes, "nodes": nodes, "gpus_per_node": 8}
    comments = "".join(f"# {key}: {value}\n" for key, value in facts.items())
    rows = "".join(f"{size},{size // 4},float,sum,{us:.6f},0,0,,,\n" for size, us in times_us.items())
    path.write_text(comments + HEADER + rows)
    return path


@pytest.fixture
def hardware(call: Call) -> Call:
    """`cclbench hardware ...`, of aws-p5 unless a word names another machine or a group of its own."""
    return lambda *words: call("hardware", *words, *(() if "--system" in words else P5))


@pytest.fixture
def rows_of(hardware: Call) -> Callable[..., list[dict[str, Any]]]:
    """The rows of its answer, which must not fail."""

    def rows(*words: object) -> list[dict[str, Any]]:
        answer = hardware(*words, "--json")
        assert answer.code == 0, answer.err
        return list(json.loads(answer.out)["rows"])

    return rows


@pytest.fixture
def modelled(rows_of: Rows) -> Callable[..., dict[int, dict[str, Any]]]:
    """What the model says of an all-reduce on p5, by size."""

    def modelled(*sizes: int, nodes: int = 2) -> dict[int, dict[str, Any]]:
        listed = ",".join(map(str, sizes))
        rows = rows_of("predict", "--collective", "all_reduce", "--size", listed, "--ranks", 8 * nodes)
        return {row["bytes"]: row for row in rows}

    return modelled


def stating(path: Path, **header: str) -> Path:
    """A sweep of 8 ranks on one node whose header has these lines too."""
    csv(path, {2**20: 100.0, 2**26: 1000.0}, nodes=1)
    path.write_text("".join(f"# {key}: {value}\n" for key, value in header.items()) + path.read_text())
    return path


def test_a_sweep_names_its_machine(call: Call, tmp_path: Path) -> None:
    """By GPU and network together; where two fit it asks; where another is named it refuses."""
    one = stating(tmp_path / "one.csv", gpu="H100-SXM5-80GB", scale_out="EFAv2 32x100 Gb/s per node")
    answer = call("hardware", "validate", one, "--json")
    assert (answer.code, json.loads(answer.out)["system"]) == (0, "aws-p5")
    two = stating(tmp_path / "two.csv", gpu="B200 (of a cloud)")
    answer = call("hardware", "validate", two)
    assert (answer.code, answer.out) == (2, "")
    fit = "4 machines in the catalog fit; give --system: aws-p6-b200, dgx-b200, gcp-a4, oci-b200-8"
    assert fit in answer.err
    assert call("hardware", "validate", two, "--system", "gcp-a4").code == 0
    amd = stating(tmp_path / "amd.csv", gpu="AMD Instinct MI300X")
    for command in (("validate",), ("calibrate", "-o", tmp_path / "made.yaml")):
        answer = call("hardware", *command, amd, "--system", "dgx-b200")
        assert answer.code == 2
        assert "amd.csv is not from dgx-b200: its device is AMD Instinct MI300X" in answer.err
        assert "it fits azure-nd-mi300x-v5, mi300x-8gpu" in answer.err
    assert not (tmp_path / "made.yaml").exists()
    answer = call("hardware", "validate", csv(tmp_path / "none.csv", {2**20: 100.0}))
    assert (answer.code, "states neither its devices nor its network" in answer.err) == (2, True)


def test_a_prediction_is_consistent(modelled: Rows, hardware: Call, rows_of: Rows) -> None:
    """algbw = S / t, busbw = 2 · 15/16 of it, time within its band; a barrier has no size and no rate."""
    rows = modelled(1024, 2**26)
    for size, row in rows.items():
        assert row["algbw"] == pytest.approx(size / row["time_s"])
        assert row["busbw"] == pytest.approx(1.875 * row["algbw"])
        assert row["low_s"] <= row["time_s"] <= row["high_s"]
        assert (row["ranks"], row["nodes"], row["basis"]) == (16, 2, "spec")
        assert row["provenance"] == "modelled"
    assert rows[2**26]["time_s"] > rows[1024]["time_s"]
    (row,) = rows_of("predict", *BARRIER)
    assert (row["bytes"], row["algbw"], row["busbw"]) == (None, None, None)
    assert 0 < row["low_s"] < row["time_s"] < row["high_s"]
    assert "tree LL" in hardware("predict", *BARRIER).out


def test_a_prediction_for_people(hardware: Call) -> None:
    """Sizes as asked, the winner, and what was assumed."""
    out = hardware("predict", "--collective", "all_reduce", "--size", "1 MiB,64MB", "--ranks", 16).out
    assert out.startswith("aws-p5: all_reduce, 16 ranks on 2 nodes; modelled from the catalog alone")
    assert re.search(r"^1 MiB .* to .* GB/s .* ring LL128$", out, re.MULTILINE)
    assert re.search(r"^64\.0 MB ", out, re.MULTILINE)
    assert "- 92% of the network's line rate is assumed usable" in out


def test_what_narrows_a_prediction_counts(rows_of: Rows) -> None:
    """Fewer choices never are faster; another transport and spread make a difference."""
    choices = ((), ("--algorithm", "ring", "--protocol", "Simple"), ("--nodes", 4))
    choices += (("--nodes", 4, "--library-version", "2.10"),)
    free, ring, spread, old = (rows_of("predict", *ONE_MIB, "--ranks", 8, *more)[0] for more in choices)
    assert (ring["algorithm"], ring["protocol"]) == ("ring", "Simple")
    assert ring["time_s"] > free["time_s"]
    assert (free["nodes"], spread["nodes"]) == (1, 4)
    assert spread["time_s"] > free["time_s"]
    assert old["time_s"] != spread["time_s"]


REFUSED = """\
--system aws-p55 {one} --ranks 8                           | 2 | did you mean aws-p5
--system aws-p6 {one} --ranks 8                            | 2 | did you mean aws-p6-b200
--collective allreduce --size 8 --ranks 8                  | 2 | did you mean all_reduce
{one} --ranks 8 --algorithm rings                          | 2 | did you mean ring
{one} --ranks 8 --protocol simple                          | 2 | did you mean Simple
{one} --ranks 16 --transport ofi                           | 2 | has no transport 'ofi'
{one} --ranks 16 --library-version new                     | 2 | not a version such as 2.23
{one} --ranks 1                                            | 2 | not in the range
{one} --ranks 1000000000                                   | 2 | not in the range
{one} --ranks 16 --nodes 3                                 | 2 | do not divide equally over 3 nodes
{one} --ranks 4 --nodes 8                                  | 2 | do not divide equally over 8 nodes
{one} --ranks 32 --nodes 2                                 | 2 | has 8 accelerators per node; give --nodes 4
{one} --ranks 12                                           | 3 | formulas need equal numbers
{one} --ranks 16 --algorithm pat                           | 3 | pat does not apply
{one} --ranks 16 --calibration none.yaml                   | 3 | none.yaml: cannot be read
{one} --ranks 16 --calibration x --algorithm ring          | 2 | leave out
{one}                                                      | 2 | --ranks is missing
--size 1MiB --ranks 8                                      | 2 | --collective is missing
--collective barrier --ranks 8 --calibration x             | 2 | cover barriers
--collective barrier --ranks 8 --size 8                    | 2 | a barrier has no --size
--collective all_gather --ranks 8                          | 2 | all_gather needs --size
"""
"""Options, exit code, what is said."""


@pytest.mark.parametrize("line", REFUSED.splitlines())
def test_refusals(hardware: Call, line: str) -> None:
    """One message that says what to do; no figures."""
    words, code, says = (part.strip() for part in line.split("|"))
    answer = hardware("predict", *words.format(one=" ".join(ONE_MIB)).split())
    assert (answer.code, answer.out) == (int(code), "")
    assert says in " ".join(answer.err.split())
    assert len(answer.err.splitlines()) <= 3


NO_SIZES = ["1M", "", "1MiB,", "0", "-1", "1.5B", "nan", "1e6", "9" * 400, "8 b", "²"]


@pytest.mark.parametrize("size", [*NO_SIZES, "2000000TiB", ",".join(["8"] * 1001)])
def test_what_is_no_size(hardware: Call, size: str) -> None:
    """A prefix without a unit is binary to one and decimal to another; how large, how many has a bound."""
    answer = hardware("predict", "--collective", "all_reduce", "--ranks", 8, f"--size={size}")
    assert (answer.code, answer.out) == (2, "")
    assert ("sizes must be between" if "TiB" in size else "--size") in answer.err


STEPS = """kind: all_gather
ranks: 4
steps:
  - [[0, 1, 0.25], [1, 0, 0.25], [2, 3, 0.25], [3, 2, 0.25]]
  - [[0, 2, 0.5], [2, 0, 0.5], [1, 3, 0.5], [3, 1, 0.5]]
"""


def test_steps_given_as_data(rows_of: Rows, tmp_path: Path) -> None:
    """Quarters then halves cross each link of one node: 3/4 S at the rate, whatever the steps' latency.

    Between 1 and 2 GiB on H100's NVLink, 450 GB/s of which a share is usable: 3/4 GiB / rate.
    """
    path = tmp_path / "steps.yaml"
    path.write_text(STEPS)
    one, two = rows_of("predict", "--system", "dgx-h100", "--schedule", path, "--size", "1GiB,2GiB")
    assert (one["collective"], one["ranks"], one["algorithm"]) == ("all_gather", 4, "schedule")
    usable = rates.rate_of(catalog.system("dgx-h100"), range(4))
    assert not isinstance(usable, str)
    assert two["time_s"] - one["time_s"] == pytest.approx(0.75 * 2**30 / usable.bytes_per_s, rel=1e-6)
    # two steps' latency and a launch: tens of µs
    assert 5e-6 < 2 * one["time_s"] - two["time_s"] < 50e-6


@pytest.mark.parametrize(
    ("text", "arguments", "code", "says"),
    [
        # it states collective and ranks itself, and leaves no choice of algorithm
        (STEPS, ("--ranks", 8), 2, "--ranks"),
        (STEPS, ("--collective", "all_reduce"), 2, "--collective"),
        (STEPS, ("--algorithm", "ring"), 2, "--algorithm"),
        (STEPS, ("--calibration", "x.yaml"), 2, "--calibration"),
        (STEPS, ("--nodes", 3), 2, "do not divide equally over 3 nodes"),
        ("", (), 3, "steps.yaml"),
        ("a: &a [*a]", (), 3, "steps.yaml"),
    ],
)
def test_what_is_no_schedule_and_what_one_excludes(
    hardware: Call, tmp_path: Path, text: str, arguments: tuple[object, ...], code: int, says: str
) -> None:
    path = tmp_path / "steps.yaml"
    path.write_text(text)
    machine = ("--system", "dgx-h100", "--schedule", path, "--size", "1MiB")
    answer = hardware("predict", *machine, *arguments)
    assert (answer.code, answer.out) == (code, ""), answer.err
    assert says in answer.err
    assert len(answer.err.splitlines()) <= 3


def test_a_run_calibrates_by_its_own_collectives(call: Call, tmp_path: Path, test_data: Path) -> None:
    """Eight V100: the kernels that were matched, by kind and size; the benchmark's options hold."""
    output, store = tmp_path / "v100.yaml", tmp_path / "runs"
    machine = ("--system", "aws-p3dn", "--store", store)
    answer = call("hardware", "calibrate", test_data / "kineto" / "dlrm_8xv100", *machine, "-o", output)
    assert answer.code == 0, answer.err
    sweeps = yaml.safe_load(output.read_text())["sweeps"]
    wanted = {(kind, 8, 1) for kind in ("all_reduce", "all_to_all")}
    assert {(each["kind"], each["ranks"], each["nodes"]) for each in sweeps} == wanted
    assert "one size" in answer.out
    (run,) = (path.name for path in store.iterdir())
    again = call("hardware", "calibrate", run, *machine, "-o", tmp_path / "again.yaml")
    assert again.code == 0, again.err
    assert yaml.safe_load((tmp_path / "again.yaml").read_text())["sweeps"] == sweeps
    assert call("hardware", "validate", run, *machine, "--calibration", output).code == 2


def test_a_card_names_its_calibration(call: Call, hardware: Call, tmp_path: Path, trace: Path) -> None:
    """A file beside it, of its machine; else the run is refused."""
    sweep = csv(tmp_path / "sweep.csv", {2**20: 130.0, 2**22: 200.0})
    folder = tmp_path / "point"
    folder.mkdir()
    shutil.copy(trace, folder)

    def ran(system: str, calibration: str) -> Any:
        machine = {"accelerator": "nvidia-h100-sxm", "system": system, "calibration": calibration}
        document = {"version": 2, "id": "tiny", "description": "x", "workload": {"phase": "training"}}
        (folder / "card.yaml").write_text(yaml.safe_dump({**document, "hardware": machine}))
        return call("run", folder, "--store", tmp_path / "runs", "--metric", "time.step")

    assert hardware("calibrate", sweep, "-o", folder / "p5.yaml").code == 0
    answer = ran("aws-p5", "p5.yaml")
    assert answer.code == 0, answer.err
    assert "were not read" not in answer.out + answer.err
    (kept,) = (tmp_path / "runs").glob("*/calibration.yaml")
    assert yaml.safe_load(kept.read_text()) == yaml.safe_load((folder / "p5.yaml").read_text())
    for system, name, code, says in (
        ("aws-p5en", "p5.yaml", 3, "is a calibration of aws-p5"),
        ("aws-p5", "none.yaml", 3, "the card names this calibration"),
        *(("aws-p5", name, 1, "hardware.calibration") for name in ("../p5.yaml", "/etc/p5.yaml", "p5.txt")),
    ):
        refused = ran(system, name)
        assert (refused.code, says in refused.err) == (code, True), name


def test_a_missing_figure_is_named(call: Call, tmp_path: Path, repository: Path) -> None:
    """A machine of one's own without a rate: the field, and where to state it."""
    mine = yaml.safe_load((repository / "cclbench" / "hardware" / "data" / "aws-p5.yaml").read_text())
    mine["id"] = "my-cluster"
    mine["scale_out"]["bytes_per_s"] = None
    mine["scale_out"].pop("transport_latency_s")
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(mine))
    machine = ("--system", "my-cluster", "--hardware", path)
    answer = call("hardware", "predict", *machine, *ONE_MIB, "--ranks", 16)
    assert answer.code == 3, answer.err
    assert "scale_out.bytes_per_s" in answer.err
    assert "--hardware" in answer.err


def test_a_validation_is_a_check_when_asked(hardware: Call, modelled: Rows, tmp_path: Path) -> None:
    """Median 20 %: within 25, not within 15; the table is printed both times."""
    rows = modelled(1024, 2**20)
    path = csv(tmp_path / "a.csv", {size: 1.25 * row["time_s"] * 1e6 for size, row in rows.items()})
    for more, code in (((), 0), (("--fail-above", 25), 0), (("--fail-above", "nan"), 2)):
        assert hardware("validate", path, *more).code == code
    failed = hardware("validate", path, "--fail-above", 15)
    assert failed.code == 1
    assert "all sizes" in failed.out
    assert "20.0%, above the 15 % allowed" in failed.err


def test_a_cluster_without_gpudirect_fails_by_its_large_messages(call: Call, test_data: Path) -> None:
    """Two H100 nodes: right below 64 KiB, 5.5 times slower above 16 MiB, 1.3 times over all sizes."""
    sweep = test_data / "nccl_tests_more" / "misconf_lccn_h100_2n16_allreduce.csv"
    failed = call("hardware", "validate", sweep, "--system", "dgx-h100", "--fail-above", 60, "--json")
    assert failed.code == 1
    assert "misconf_lccn_h100_2n16_allreduce.csv, above 16 MiB: median error 81.9%" in failed.err
    assert "5.5 times above 16 MiB; possibly GPUDirect is off" in failed.err
    rows = {row["sizes"]: row for row in json.loads(failed.out)["rows"]}
    suspect = {"below 64 KiB": False, "64 KiB to 16 MiB": False, "above 16 MiB": True, "all sizes": True}
    assert {band: row["suspect"] for band, row in rows.items()} == suspect
    assert rows["all sizes"]["median_error"] == pytest.approx(0.233, abs=5e-4)


def test_sweeps_that_have_no_price_say_why(hardware: Call, rows_of: Rows, tmp_path: Path) -> None:
    """Beside others a row with a reason; alone, or as a check, exit 1."""
    good = csv(tmp_path / "a.csv", {1024: 80.0, 4096: 81.0})
    bad = csv(tmp_path / "b.csv", {1024: 80.0}, nodes=1)
    bad.write_text(bad.read_text().replace("# ranks: 8", "# ranks: 16").replace("node: 8", "node: 16"))
    (row,) = (row for row in rows_of("validate", good, bad) if row["sweep"] == "b.csv")
    assert (row["count"], row["median_error"]) == (None, None)
    assert "do not fit aws-p5" in row["reason"]
    assert hardware("validate", good, bad, "--fail-above", 1000).code == 1
    alone = hardware("validate", bad, "--plot", tmp_path / "a.png")
    assert (alone.code, (tmp_path / "a.png").exists()) == (1, False)
    assert "1 of 1 sweeps cannot be priced" in alone.err


def test_a_plot_beside_the_table(hardware: Call, tmp_path: Path) -> None:
    """Only where its suffix is one of a picture."""
    path = csv(tmp_path / "a.csv", {1024: 80.0, 2**20: 130.0})
    answer = hardware("validate", path, "--plot", tmp_path / "a.svg")
    assert answer.code == 0, answer.err
    drawn = (tmp_path / "a.svg").read_text()
    assert "a.csv" in drawn
    assert "aws-p5, model from the catalog alone" in drawn
    refused = hardware("validate", path, "--plot", tmp_path / "a.bmp")
    assert (refused.code, refused.out) == (2, "")


def test_a_calibration_is_written_and_used(hardware: Call, rows_of: Rows, tmp_path: Path) -> None:
    """1 and 4 ms at 1 and 4 MiB: 4 ms there, whatever the catalog says."""
    path = csv(tmp_path / "a.csv", {2**20: 1000.0, 2**22: 4000.0})
    output = tmp_path / "p5.yaml"
    answer = hardware("calibrate", path, "-o", output, "--json")
    assert answer.code == 0, answer.err
    document = json.loads(answer.out)
    assert {row["left_out"] for row in document["rows"]} == {"one size"}
    assert document["calibration"]["system"] == "aws-p5"
    assert f"wrote {output}" in answer.err
    asked = ("--collective", "all_reduce", "--size", "4MiB", "--ranks", 16)
    (row,) = rows_of("predict", *asked, "--calibration", output)
    assert row["time_s"] == pytest.approx(4e-3)
    assert row["basis"] == "calibrated"
    assert "measured among 16 ranks" in row["reason"]
    text = hardware("calibrate", path, "-o", output).out
    assert "only one node count was measured: the error for others is unknown" in text


def test_calibrated_by_others(hardware: Call, modelled: Rows, rows_of: Rows, tmp_path: Path) -> None:
    """Twice the model on 2 and 8 nodes: about twice on 4; what is to be compared may not be among them."""

    def doubled(nodes: int) -> Path:
        rows = modelled(1024, 2**16, 2**20, 2**26, nodes=nodes)
        times = {size: 2e6 * row["time_s"] for size, row in rows.items()}
        return csv(tmp_path / f"{nodes}.csv", times, nodes=nodes)

    two, four, eight = map(doubled, (2, 4, 8))
    assert rows_of("validate", four)[-1]["median_error"] == pytest.approx(0.5, abs=1e-3)
    found = rows_of("validate", four, "--calibrate", two, "--calibrate", eight)[-1]
    assert found["basis"] == "calibrated"
    assert found["median_error"] < 0.05
    itself = hardware("validate", two, "--calibrate", two)
    assert itself.code == 2
    assert "2.csv is one of the calibration's own sweeps" in itself.err


def test_a_calibration_by_another_collective_says_so(hardware: Call, tmp_path: Path) -> None:
    """Deviations of other collectives apply."""
    gather = csv(tmp_path / "g.csv", {2**20: 130.0, 2**22: 200.0}, kind="all_gather")
    answer = hardware(
        "validate", csv(tmp_path / "r.csv", {2**20: 130.0, 2**22: 200.0}), "--calibrate", gather
    )
    assert answer.code == 0, answer.err
    said = "the calibration has no sweep of all_reduce: deviations of other collectives apply"
    assert said in " ".join(answer.out.split())


def test_wrong_calibrations(hardware: Call, tmp_path: Path) -> None:
    """Of another machine, two at once, of two releases, of a network that is not configured."""
    path = csv(tmp_path / "a.csv", {2**20: 130.0, 2**22: 200.0})
    output = tmp_path / "p5.yaml"
    assert hardware("calibrate", path, "-o", output).code == 0
    other = csv(tmp_path / "b.csv", {2**20: 131.0, 2**22: 201.0})
    of_another = hardware("validate", other, "--system", "aws-p5en", "--calibration", output)
    assert (of_another.code, "is for aws-p5, not for aws-p5en" in of_another.err) == (2, True)
    both = hardware("validate", other, "--calibration", output, "--calibrate", path)
    assert (both.code, "exclude each other" in both.err) == (2, True)
    other.write_text("# nccl: 2.19.3\n" + other.read_text())
    mixed = hardware("calibrate", path, other, "-o", tmp_path / "c.yaml")
    assert (mixed.code, (tmp_path / "c.yaml").exists()) == (2, False)
    assert "with releases unknown and 2.19.3; a calibration covers one" in mixed.err
    warned = hardware("calibrate", csv(tmp_path / "slow.csv", {2**20: 13e3, 2**22: 20e3}), "-o", output)
    assert warned.code == 0
    assert "warning: slow.csv: suspicious: slower than predicted" in warned.err


@pytest.mark.parametrize("command", ["validate", "calibrate"])
def test_what_holds_no_sweep(hardware: Call, tmp_path: Path, trace: Path, command: str) -> None:
    """Nothing there, an empty folder or file, garbage, a trace, a cut table, absurd figures: one message."""
    (tmp_path / "empty").mkdir()
    good = csv(tmp_path / "good.csv", {1024: 80.0}).read_text()
    texts = {"empty.csv": "", "header.csv": good[: good.index("1024")], "cut.csv": good[:-20]}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "garbage.csv").write_bytes(bytes(range(256)) * 9)
    csv(tmp_path / "absurd.csv", {1024: 1e300})
    csv(tmp_path / "large.csv", {2**62: 80.0})
    names = ("none.csv", "empty", *texts, "garbage.csv", "absurd.csv", "large.csv", trace.name)
    for name in names:
        more = ("-o", tmp_path / "out.yaml") if command == "calibrate" else ()
        answer = hardware(command, tmp_path / name, *more)
        assert (answer.code, answer.out) == (3, ""), name
        assert name in answer.err
        assert len(answer.err.splitlines()) <= 3
    assert not (tmp_path / "out.yaml").exists()


def test_the_page_shows_what_its_commands_print(repository: Path, test_data: Path, tmp_path: Path) -> None:
    """Every line shown is printed by the command above it; the tables are those of the script."""
    page = (repository / "docs" / "hardware-model.md").read_text()
    shutil.copy(test_data / "nccl_tests" / "aws_p5_2n16_allreduce.csv", tmp_path / "sweep.csv")
    (tmp_path / "docs" / "images").mkdir(parents=True)
    found = [(kind, block) for kind, _, block in blocks(page) if kind in ("sh", "text")]
    assert [kind for kind, _ in found] == ["sh", "text"] * 7
    printed = ""
    for kind, block in found:
        if kind == "text":
            assert block == printed
        else:
            printed = printed_by(block, tmp_path, here(tmp_path))
    assert (tmp_path / "docs" / "images" / "hardware-model.png").stat().st_size < 200_000
    command = [sys.executable, repository / "scripts" / "hardware_errors.py", test_data / "nccl_tests"]
    script = subprocess.run(command, capture_output=True, text=True, check=True)
    name = r"<!-- scripts/hardware_errors\.py: "
    (shown,) = re.findall(rf"{name}begin -->\n(.*?)\n{name}end -->", page, re.DOTALL)
    assert shown.strip() == script.stdout.strip()
