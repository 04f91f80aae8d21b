# SPDX-License-Identifier: Apache-2.0
"""Counters, NCCL Inspector's files and step times alone: figures by hand, on screen, page and in compare."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from html import unescape
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import cclbench
from cclbench.present.figure_tables import cell_text
from cclbench.present.page import MOST_ROWS
from cclbench.source_summaries.summary import FigureColumn

Call = Callable[..., Any]

SCHEMAS = Path(cclbench.__file__).parent / "schemas"
DMON = """\
1700000000.0 #Entity   SMCLK DVCCTR GPUTL POWER TOTEC FBUSD NVLTX
1700000000.0 ID
1700000000.0 GPU 0     1980  0      0     90    0     1024  0
1700000000.0 GPU 1     1980  0      0     90    0     1024  0
1700000001.0 GPU 0     1980  0      100   300   300000  2048  1000000000
1700000001.0 GPU 1     1980  0      50    200   200000  2048  2000000000
1700000004.0 GPU 0     1410  64     80    400   1500000 2048  3000000000
1700000004.0 GPU 1     1980  4      50    200   800000  2048  2000000000
"""


def only_summary(call: Call, path: Path) -> dict[str, Any]:
    """The only summary of a source, which is on its screen and page as well."""
    document = json.loads(call("run", path, "--json").out)
    jsonschema.validate(document, json.loads((SCHEMAS / "result.json").read_text()))
    (found,) = document["summaries"]
    page = path.parent / "page.html"
    assert call("report", path, "-o", page).code == 0
    html, screen = unescape(page.read_text()), " ".join(call("run", path).out.split())
    assert "No step time" not in screen + html.partition('id="metrics"')[0]
    for words in (*found["warnings"], *found["sentences"]):
        assert words in screen
        assert words in " ".join(html.split())
    return dict(found)


def test_devices_by_their_counters(call: Call, tmp_path: Path) -> None:
    """Means over 1 s and 3 s: device 0 is busy (100 + 3 · 80) / 4 = 85 %, at (1980 + 3 · 1410) / 4 MHz."""
    path = tmp_path / "dcgm.txt"
    path.write_text(DMON)
    found = only_summary(call, path)
    devices, ports = (table["rows"] for table in found["tables"])
    stated = {"utilisation": 0.85, "power": 375.0, "SM clock": 1.5525e9, "memory": 2048 * (1 << 20)}
    stated |= {"power limit": 0.0, "thermal limit": 0.75, "hardware limit": 0.0}
    stated |= {"highest power": 400.0, "lowest SM clock": 1.41e9, "energy": 1500.0}
    lacking = ("SM active", "tensor active", "DRAM active", "memory busy", "memory clock")
    assert devices[0].pop("device") == "device 0"
    assert devices[0] == pytest.approx(dict.fromkeys(lacking) | stated)
    assert [row["power limit"] for row in devices] == [0.0, 0.75]
    assert ports[0]["sent"] == pytest.approx(1e9 + 3 * 3e9)
    assert ports[0]["send rate"] == pytest.approx(2.5e9)
    assert ports[0]["received"] is None
    assert found["warnings"] == ["device 0: clocks lowered for their temperature for 75.0 % of the time"]
    assert found["sentences"][0] == "2 devices and 2 links and ports by dcgm, over 4.00 s."
    assert "Energy: 2.30 kJ." in found["sentences"]


def snapshot(seconds: int, words: Sequence[int], again: int) -> str:
    """Ports of a host after `seconds`: words of 4 B that they sent, packets that the second sent again."""
    lines = [f"# time_ns {1_700_000_000_000_000_000 + seconds * 10**9}"]
    for port, count in enumerate(words):
        root = f"/sys/class/infiniband/mlx5_{port}/ports/1"
        lines.append(f"{root}/counters/port_xmit_data:{count}")
        lines.append(f"{root}/hw_counters/roce_adp_retrans:{port * again}")
    return "\n".join(lines) + "\n"


def test_ports_of_a_network(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "fabric.txt"
    path.write_text(snapshot(0, (100, 100), 0) + snapshot(2, (1100, 600), 3))
    found = only_summary(call, path)
    (ports,) = found["tables"]
    assert [(row["port"], row["sent"], row["send rate"], row["retransmits"]) for row in ports["rows"]] == [
        *(("mlx5_0/1", 4000, 2000, 0), ("mlx5_1/1", 2000, 1000, 3)),
    ]
    assert found["warnings"] == ["mlx5_1/1: 3 packets were sent again"]


def test_counters_without_times_are_plain_means_without_energy(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "smi.csv"
    rows = "100 W, 20 %, 0\n300 W, 40 %, 0\n[N/A], [N/A], 1\n"
    path.write_text(f"power.draw [W], utilization.gpu [%], index\n{rows}")
    found = only_summary(call, path)
    (row,) = found["tables"][0]["rows"]
    assert (row["power"], row["highest power"], row["energy"]) == (200.0, 300.0, None)
    assert row["utilisation"] == pytest.approx(0.3)
    assert found["absent"][0].startswith("no times")


def test_counters_of_two_hosts_keep_their_files_and_are_compared(call: Call, tmp_path: Path) -> None:
    (tmp_path / "hosts").mkdir()
    for name, busy in (("a.txt", "100"), ("b.txt", "90")):
        (tmp_path / "hosts" / name).write_text(DMON.replace("100   300", f"{busy}   300"))
    (found,) = json.loads(call("run", tmp_path / "hosts", "--json").out)["summaries"]
    assert [row["device"] for row in found["tables"][0]["rows"]] == [
        f"{name}: device {device}" for name in ("a.txt", "b.txt") for device in (0, 1)
    ]
    half = DMON.replace("100   300", " 20   300").replace(" 80    400", " 20    400")
    (tmp_path / "half.txt").write_text(half)
    (tmp_path / "dcgm.txt").write_text(DMON)
    document = json.loads(call("compare", tmp_path / "dcgm.txt", tmp_path / "half.txt", "--json").out)
    jsonschema.validate(document, json.loads((SCHEMAS / "comparison.json").read_text()))
    row = document["tables"][0]["rows"][0]
    assert row["utilisation"]["ratio"] == pytest.approx(0.2 / 0.85)


def inspector(folder: Path, times: Sequence[Sequence[int]], ranks: int = 2) -> Path:
    """A file for each process: its AllReduces of 1 MiB, in µs, in one communicator."""
    folder.mkdir()
    for rank, of_rank in enumerate(times):
        head = {"header": {"id": "0x7f8c", "rank": rank, "n_ranks": ranks, "nnodes": 1}}
        lines = []
        for seq, time in enumerate(of_rank):
            told = {"coll": "AllReduce", "coll_sn": seq, "coll_msg_size_bytes": 1 << 20}
            told |= {"coll_exec_time_us": time, "coll_busbw_gbs": (1 << 20) / time / 1e3}
            lines.append(head | {"coll_perf": told})
        (folder / f"pid{rank}.log").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_calls_by_communicator_and_kind(call: Call, tmp_path: Path) -> None:
    """1 MiB among two ranks in 100 µs: 10.48576 GB/s on the bus, whose factor is 1."""
    found = only_summary(call, inspector(tmp_path / "job", [[100, 200, 100], [100, 200, 100]]))
    (row,) = found["tables"][0]["rows"]
    assert (row["communicator"], row["kind"], row["calls"]) == ("2 ranks on 1 node", "all_reduce", 6)
    assert (row["bytes"], row["median size"]) == (6 << 20, 1 << 20)
    assert row["median time"] == pytest.approx(100e-6)
    assert row["busbw"] == pytest.approx(10.486e9, rel=1e-3)
    assert found["warnings"] == []


@pytest.mark.parametrize("seed", range(6))
def test_the_process_that_arrives_last(call: Call, tmp_path: Path, seed: int) -> None:
    """Its calls are short, since nobody is left to wait for; where it changes at random, nobody is named."""
    rng = np.random.default_rng(seed)
    waits = rng.integers(20, 60, 200)
    fixed, drawn = np.full(200, 2), rng.integers(0, 4, 200)
    for name, late in (("fixed", fixed), ("drawn", drawn)):
        times = [(100 + np.where(late == rank, 0, waits)).tolist() for rank in range(4)]
        warnings = only_summary(call, inspector(tmp_path / name, times, ranks=4))["warnings"]
        assert len(warnings) == (name == "fixed")
        said = "4 ranks on 1 node: the process of pid2.log arrives last in 100.0 %"
        assert all(words.startswith(said) for words in warnings)


def test_nobody_is_late_by_less_than_the_clock_shows_or_in_one_file(call: Call, tmp_path: Path) -> None:
    times = [[50] * 100, [51] * 100]
    assert only_summary(call, inspector(tmp_path / "close", times))["warnings"] == []
    mixed = inspector(tmp_path / "mixed", [[50] * 100, [90] * 100])
    (mixed / "pid0.log").write_text("".join(path.read_text() for path in sorted(mixed.iterdir())))
    assert only_summary(call, mixed)["warnings"] == []


def step_times(path: Path, seconds: Sequence[float]) -> Path:
    """A rank's file with those unprofiled steps, and profiled ones of 2 s."""
    phases = {"unprofiled": list(seconds), "profiled": [2.0, 2.0]}
    document: dict[str, Any] = {"schema": "cclbench.step-times.v1", "rank": 3, "profiler": "torch.profiler"}
    for name, each in phases.items():
        document[name] = {"steps": len(each), "seconds": sum(each), "each": each}
    path.write_text(json.dumps(document))
    return path


def test_step_times_have_median_percentiles_and_slow_steps(call: Call, tmp_path: Path) -> None:
    """A cold step of 9 s, then 20 steps of 1.00 to 1.19 s, then one of 3 s: the 22nd."""
    steps = [1 + i / 100 for i in range(20)]
    found = only_summary(call, step_times(tmp_path / "rank3_step_times.json", [9.0, *steps, 3.0]))
    row = found["tables"][0]["rows"][0]
    assert (row["count"], row["median"], row["max"], row["slow"]) == (21, pytest.approx(1.1), 3.0, 1)
    assert row["p95"] == pytest.approx(np.percentile([*steps, 3.0], 95))
    assert "Rank 3, slow steps without the profiler: 22: 3.00 s." in found["sentences"]
    # of sums alone there are means
    path = step_times(tmp_path / "rank3_step_times.json", [1.0, 2.0])
    document = json.loads(path.read_text())
    for phase in ("unprofiled", "profiled"):
        del document[phase]["each"]
    path.write_text(json.dumps(document))
    found = only_summary(call, path)
    assert found["sentences"] == ["Rank 3: a step takes 1.50 s in the mean of 2 steps."]
    assert found["tables"][0]["rows"][0]["slow"] is None
    assert found["absent"]


SOURCES = {"nccl_tests/aws_p5_2n16_allreduce.csv": ["sweep"], "nccl_tests": ["sweep"]}
SOURCES |= {"nccl_logs/h100_8gpu_all_reduce.txt": ["sweep"]}
SOURCES |= {"nccl_logs/h100_4gpu_torn_rows.log": ["sweep", "library"]}
SOURCES |= {"nccl_job_logs/b0_fsdp8.tar.gz": ["job_log", "calls", "library"]}
SOURCES |= {"memory/training_ctx128.pickle": ["memory"], "memory/inference_ctx128.pickle": ["memory"]}
SOURCES |= {"serving_vllm/nebius/results_exp": ["serving", "server_metrics"]}
SOURCES |= {"serving_vllm/nebius/results_exp/sweep_c16.json": ["serving"], "serving_repeats": ["serving"]}
ABOUT_STEPS = re.compile(r"\bno (?:numbered )?steps?\b|no step time", re.IGNORECASE)


def plain(text: str) -> str:
    """A text on one line."""
    return " ".join(text.split())


@pytest.mark.parametrize("source", SOURCES)
def test_all_views_agree(source: str, test_data: Path, call: Call, tmp_path: Path, repository: Path) -> None:
    path = test_data / source
    document = json.loads(call("run", path, "--json").out)
    schema = json.loads((repository / "cclbench" / "schemas" / "result.json").read_text())
    jsonschema.validate(document, schema)
    summaries = document["summaries"]
    assert [one["kind"] for one in summaries] == SOURCES[source]

    screen = call("run", path).out
    lines = screen.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert not ABOUT_STEPS.search(screen)
    assert not ABOUT_STEPS.search(call("diagnose", path).out)

    page = tmp_path / "page.html"
    assert call("report", path, "-o", page).code == 0
    html = page.read_text()
    assert not ABOUT_STEPS.search(html.partition('id="metrics"')[0])
    text, shown = plain(unescape(html)), plain(screen)
    whole = plain(call("run", path, "-v").out)
    for summary in summaries:
        assert summary["heading"] in text
        for words in (*summary["warnings"], *summary["sentences"]):
            assert plain(words) in text
            assert plain(words) in shown
        for table in summary["tables"]:
            columns = [FigureColumn(**column) for column in table["columns"]]
            for row in table["rows"][:MOST_ROWS]:
                for column in columns:
                    cell = cell_text(column, row[column.name])
                    assert cell is None or f">{cell}</td>" in unescape(html)
                    assert cell is None or column.unit is None or cell in whole


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("nccl_tests/aws_p5_2n16_allreduce.csv", "nccl_tests/gcp_a3mega_2n16_allreduce.csv"),
        ("nccl_logs/h100_4gpu_torn_rows.log", "nccl_logs/h100_8gpu_all_reduce.txt"),
        ("memory/training_ctx128.pickle", "memory/inference_ctx128.pickle"),
        ("serving_repeats/A0_baseline_rep2.json", "serving_repeats/B0_chunk8192_rep2.json"),
    ],
)
def test_two_of_a_kind_are_compared_by_their_tables(
    first: str, second: str, test_data: Path, call: Call, tmp_path: Path, repository: Path
) -> None:
    pair = test_data / first, test_data / second
    document = json.loads(call("compare", *pair, "--json").out)
    jsonschema.validate(document, json.loads((repository / "cclbench/schemas/comparison.json").read_text()))
    assert document["tables"]
    assert document["versus"][0]["outcome"] != "not comparable"
    alone = [json.loads(call("run", path, "--json").out)["summaries"] for path in pair]
    for table in document["tables"]:
        keys = [column["name"] for column in table["columns"] if column["key"]]
        sides = [rows_of(summaries, table, keys) for summaries in alone]
        for row in table["rows"]:
            for name in (column["name"] for column in table["columns"] if not column["key"]):
                before, after = (side[tuple(row[key] for key in keys)][name] for side in sides)
                assert (row[name]["base"], row[name]["other"]) == (before, after)
                known = isinstance(before, float | int) and before and after is not None
                assert row[name]["ratio"] == pytest.approx(after / before if known else None)
    printed = call("compare", *pair).out
    assert not ABOUT_STEPS.search(printed)
    assert "time.step" not in printed
    assert max(map(len, printed.splitlines())) <= 80
    page = tmp_path / "page.html"
    assert call("compare", *pair, "-o", page, "-q").code == 0
    html = page.read_text()
    assert not ABOUT_STEPS.search(html.partition('id="metrics"')[0])


def rows_of(
    summaries: list[dict[str, Any]], table: dict[str, Any], keys: list[str]
) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The rows of the same table of one source, by their keys."""
    of_kind = (one for summary in summaries if summary["kind"] == table["kind"] for one in summary["tables"])
    found = [one for one in of_kind if one["subject"] == table["subject"]]
    return {tuple(row[key] for key in keys): row for one in found for row in one["rows"]}


def test_a_trace_has_no_summary(test_data: Path, call: Call) -> None:
    document = json.loads(call("run", test_data / "kineto" / "ddp_a100", "--json").out)
    assert document["summaries"] == []
