# SPDX-License-Identifier: Apache-2.0
"""Sweeps on their first screen: tables of hand-made benchmarks whose figures follow from size and time."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from cclbench.hardware import catalog
from cclbench.hardware.prediction import predict_rows

Call = Callable[..., Any]

MIB = 1 << 20
HEAD = """\
# nccl-tests version 2.17.6 nccl-headers=22705 nccl-library=22705
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 4 minBytes 8 maxBytes 268435456 step: 2(factor) warmup iters: 5 iters: 20
#
# Using devices
"""
DEVICES = "".join(
    f"#  Rank  {rank} Group  0 Pid   {100 + rank} on host device  {rank} [0000:0{rank}:00] {{}}\n"
    for rank in range(4)
)
COLUMNS = """\
#
#                                  out-of-place                 in-place
# size count type redop root   time algbw busbw #wrong   time algbw busbw #wrong
#  (B) (elements)              (us) (GB/s) (GB/s)        (us) (GB/s) (GB/s)
"""


def row(size: int, out_us: float, in_us: float, wrong: tuple[str, str] = ("0", "0")) -> str:
    """A row as four ranks print it: algbw = size / time, busbw = 1.5 × algbw."""
    cells = [size, size // 4, "float", "sum", -1]
    for time, count in ((out_us, wrong[0]), (in_us, wrong[1])):
        rate = size / time / 1e3
        cells += [f"{time:.2f}", f"{rate:.2f}", f"{1.5 * rate:.2f}", count]
    return " ".join(map(str, cells)) + "\n"


def sweep(*rows: str, device: str = "Some GPU") -> str:
    """A benchmark's output."""
    return HEAD + DEVICES.format(*[device] * 4) + COLUMNS + "".join(rows)


ROWS = (row(8, 10, 12), row(32 * MIB, 500, 500), row(64 * MIB, 1000, 1000), row(128 * MIB, 4000, 1900))


@pytest.fixture
def summary(call: Call, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """The only summary of a file of that text."""

    def summarised(text: str, name: str = "all_reduce.txt", card: str | None = None) -> dict[str, Any]:
        folder = tmp_path / "job"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text)
        if card is not None:
            (folder / "card.yaml").write_text(card)
        answer = call("run", folder / "card.yaml" if card else folder / name, "--json")
        assert (answer.code, answer.err) == (0, "")
        (found,) = json.loads(answer.out)["summaries"]
        return dict(found)

    return summarised


def test_figures_of_a_table_of_sizes(summary: Callable[..., dict[str, Any]]) -> None:
    """64 MiB in 1 ms is 67.108864 GB/s, 1.5 times that on the bus; 8 B in 10 µs is 0.8 MB/s."""
    found = summary(sweep(*ROWS))
    assert found["heading"] == "Sweep of all_reduce, 4 ranks on 1 node, float"
    (table,) = found["tables"]
    rows = {one["size"]: one for one in table["rows"]}
    assert list(rows) == [8, 32 * MIB, 64 * MIB, 128 * MIB]
    assert rows[64 * MIB]["time"] == pytest.approx(1e-3)
    assert rows[64 * MIB]["algbw"] == pytest.approx(67.108864e9)
    assert rows[64 * MIB]["busbw"] == pytest.approx(100.663296e9)
    assert rows[8]["busbw"] == pytest.approx(1.2e6)
    assert rows[128 * MIB]["busbw in place"] == pytest.approx(1.5 * 128 * MIB / 1.9e-3)
    assert [one["wrong"] for one in rows.values()] == [0] * 4
    assert found["warnings"] == []
    assert found["sentences"] == [
        *("At most 106 GB/s bus bandwidth, at 128 MiB, in place.", "A message of 8 B takes 10.0 µs."),
        "Bandwidth dips at 128 MiB: 50.3 GB/s at 128 MiB after 101 GB/s at 64 MiB.",
        "No wrong results in 8 checked rows.",
    ]
    said = "no model: no machine in the catalog fits what the file states"
    assert found["absent"] == [f"{said}; a card can name the system (hardware.system)"]


def test_wrong_results_come_first(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "wrong.txt"
    path.write_text(sweep(row(8, 1, 2), row(MIB, 50, 50, wrong=("0", "3")), row(2 * MIB, 60, 60, ("2", "0"))))
    answer = call("run", path)
    assert answer.code == 0
    lines = answer.out.splitlines()
    begin = lines.index("Sweep of all_reduce, 4 ranks on 1 node, float")
    assert lines[begin + 1] == "5 wrong results (1 MiB in place: 3, 2 MiB out of place: 2)"
    assert "wrong" in answer.out.split("size")[1]
    assert "No wrong results" not in answer.out
    diagnosed = call("diagnose", path)
    assert "5 wrong results" in diagnosed.out
    assert "not diagnosed" not in diagnosed.out


def test_what_a_sweep_does_not_tell(summary: Callable[..., dict[str, Any]]) -> None:
    """Unchecked results are not right; half the bandwidth at 16 B is jitter, no dip; at 128 KiB, the first of
    three, nothing is smaller; measurements of one size are averaged."""
    found = summary(sweep(row(8, 10, 12, ("N/A", "N/A"))))
    assert [one["wrong"] for one in found["tables"][0]["rows"]] == [None]
    assert "whether results are right is not stated (nccl-tests checks them with -c 1)" in found["absent"]
    assert not any("wrong" in words for words in found["sentences"])
    jitter = summary(sweep(row(8, 10, 10), row(16, 40, 40)))
    assert not any("dips" in words for words in jitter["sentences"])
    found = summary(sweep(row(MIB, 50, 50), row(2 * MIB, 60, 60)), name="large.txt")
    assert "no latency: no time of a message up to 64 KiB" in found["absent"]
    (one,) = summary(sweep(row(MIB, 40, 40), row(MIB, 60, 60)))["tables"][0]["rows"]
    assert one["time"] == pytest.approx(50e-6)


def test_a_cut_table_keeps_its_rows_and_says_so(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "cut.txt"
    text = sweep(*ROWS)
    path.write_text(text[: text.rindex("float") - 4])
    answer = call("run", path)
    assert answer.code == 0
    assert "At most 101 GB/s bus bandwidth, at 64 MiB" in answer.out
    assert "the last table is incomplete: the benchmark did not finish" in " ".join(answer.out.split())


def test_two_sweeps_have_an_overview(call: Call, tmp_path: Path) -> None:
    """The highest bandwidth, the smallest message and the dips of each; tables of sizes follow."""
    folder = tmp_path / "sweeps"
    folder.mkdir()
    (folder / "a.txt").write_text(sweep(*ROWS))
    (folder / "b.txt").write_text(sweep(row(MIB, 50, 50)).replace("all_reduce", "all_gather"))
    (found,) = json.loads(call("run", folder, "--json").out)["summaries"]
    overview, *tables = found["tables"]
    assert [one["sweep"] for one in overview["rows"]] == ["b.txt", "a.txt"]
    assert [one["dips at"] for one in overview["rows"]] == [None, "128 MiB"]
    assert [one["smallest"] for one in overview["rows"]] == [None, pytest.approx(1e-5)]
    assert [table["subject"] for table in tables] == ["all_gather", "all_reduce"]
    assert found["absent"][0].startswith("2 sweeps: no model: ")


def test_the_model_is_that_of_hardware_predict(test_data: Path, call: Call) -> None:
    """The band of a real sweep is what `hardware predict` gives for its sizes on the machine it states."""
    path = test_data / "nccl_tests" / "aws_p5_2n16_allreduce.csv"
    (found,) = json.loads(call("run", path, "--json").out)["summaries"]
    rows = found["tables"][0]["rows"]
    sizes = [one["size"] for one in rows]
    predicted = predict_rows("all_reduce", sizes, 16, catalog.system("aws-p5"), nodes=2)
    for one, model in zip(rows, predicted, strict=True):
        assert one["model"] == pytest.approx(model["busbw"])
        assert one["model low"] == pytest.approx(model["busbw"] * model["time_s"] / model["high_s"])
        assert one["of model"] == pytest.approx(model["time_s"] / one["time"])
    # The file's own last row: 66,132 µs for 16 GiB, stated as 259.78 and 487.09 GB/s.
    assert rows[-1]["time"] == pytest.approx(66132e-6)
    assert rows[-1]["algbw"] == pytest.approx(259.78e9, abs=5e6)
    assert rows[-1]["busbw"] == pytest.approx(487.09e9, abs=5e6)


CARD = """\
version: 2
id: misconfigured
description: two nodes
workload: {{phase: training}}
hardware: {{system: {system}}}
evidence:
  traces:
    - {{path: {name}, format: nccl_tests, sha256: {digest}}}
"""


def test_the_card_names_the_machine(call: Call, tmp_path: Path, test_data: Path) -> None:
    """Two nodes of H100 whose author found GPUDirect off; without a card several machines fit the file."""
    name = "misconf_lccn_h100_2n16_allreduce.csv"
    content = (test_data / "nccl_tests_more" / name).read_bytes()
    (tmp_path / name).write_bytes(content)
    (alone,) = json.loads(call("run", tmp_path / name, "--json").out)["summaries"]
    assert alone["warnings"] == []
    assert any("machines in the catalog fit" in words for words in alone["absent"])
    card = tmp_path / "card.yaml"
    digest = sha256(content).hexdigest()
    card.write_text(CARD.format(system="dgx-h100", name=name, digest=digest))
    (named,) = json.loads(call("run", card, "--json").out)["summaries"]
    assert "slower than predicted, 5.5 times above 16 MiB; possibly GPUDirect is off" in named["warnings"][0]
    card.write_text(CARD.format(system="dgx-a100", name=name, digest=digest))
    (other,) = json.loads(call("run", card, "--json").out)["summaries"]
    assert other["warnings"] == []
    assert any("but dgx-a100 has nvidia-a100" in words for words in other["absent"])


def test_compared_sweeps_are_ratios_by_size(call: Call, tmp_path: Path) -> None:
    """Half the time is twice the bandwidth; a size that only one has is counted."""
    for name, factor, sizes in (("a.txt", 1, (8, 64 * MIB)), ("b.txt", 2, (8, 64 * MIB, 128 * MIB))):
        (tmp_path / name).write_text(sweep(*(row(size, 1000 / factor, 1000) for size in sizes)))
    answer = call("compare", tmp_path / "a.txt", tmp_path / "b.txt", "--json")
    document = json.loads(answer.out)
    (table,) = document["tables"]
    assert (table["base"], table["other"], table["unmatched"]) == ("A", "B", [0, 1])
    large = table["rows"][1]
    assert large["size"] == 64 * MIB
    assert large["busbw"]["ratio"] == pytest.approx(2)
    assert large["busbw"]["other"] == pytest.approx(2 * large["busbw"]["base"])
    assert large["busbw in place"]["ratio"] == pytest.approx(1)
    (versus,) = document["versus"]
    assert versus["outcome"] == "undecided"
    assert "B's busbw is 2.00× A's in the median of 2 rows, 2.00× to 2.00×." in versus["words"]
    assert "step" not in call("compare", tmp_path / "a.txt", tmp_path / "b.txt").out
    # the faster one may compute something else
    (tmp_path / "b.txt").write_text(sweep(row(MIB, 25, 25, ("7", "0"))))
    document = json.loads(call("compare", tmp_path / "a.txt", tmp_path / "b.txt", "--json").out)
    assert document["warnings"] == ["B: 7 wrong results (1 MiB out of place: 7)"]
