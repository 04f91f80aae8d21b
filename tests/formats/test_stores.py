# SPDX-License-Identifier: Apache-2.0
"""FIO, iostat and elbencho: units by hand, versions, cut and damaged files, names that are not published."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cclbench.contribute.redaction import redact_evidence
from cclbench.formats import READERS, Evidence, recognise_format
from cclbench.ground.errors import InputError

PLANTED = "moonshot"
# A job of FIO 3.33 on a virtual disk: 486 reads of 4 KiB in 33 ms, with its counts of latencies.
BINS = """34048:1 34560:10 35072:39 35584:56 36096:64 36608:47 37120:40 37632:40 38144:22 38656:13 39168:5
39680:4 40192:4 40704:4 41216:6 41728:25 42240:11 42752:13 43264:5 43776:10 44288:1 44800:2 45312:2 45824:3
46336:3 46848:2 47872:2 48384:2 48896:6 49408:3 49920:2 50432:1 50944:1 51456:2 51968:3 52992:2 53504:2
54528:3 55040:2 55552:1 56064:2 56576:2 57088:1 57600:2 58624:1 59648:2 63232:1 63744:1 66048:1 75264:2
98816:1 317440:1 684032:1 937984:1 987136:1 1138688:1 3522560:1"""
PERCENTILES = {"50.000000": 37120, "90.000000": 48896, "99.000000": 684032, "99.900000": 3522560}
CLAT = {"min": 34151, "max": 3525445, "mean": 54697.248971, "N": 486, "percentile": PERCENTILES}
READ: dict[str, Any] = {"io_bytes": 1990656, "bw_bytes": 60322909, "bw": 58909, "iops": 14727.272727}
READ |= {"runtime": 33, "clat_ns": CLAT, "lat_ns": {"min": 34171, "max": 3525495, "mean": 54715.0, "N": 486}}
LOAD = {"jobname": "load", "error": 0, "job options": {"filename": PLANTED}, "read": READ}
FIO_3: dict[str, Any] = {"fio version": "fio-3.33", "global options": {"directory": f"/mnt/{PLANTED}"}}
FIO_3 |= {"jobs": [LOAD | {"write": {"io_bytes": 0}}], "disk_util": [{"name": "vda", "util": 12.5}]}
# FIO 2: sizes in KiB, rates in KiB/s, latencies in µs, and places of percentiles that nobody asked for.
WRITE = {"io_bytes": 37500000, "bw": 62500, "iops": 15625.0, "runtime": 600000}
WRITE |= {"clat": {"min": 964, "max": 261110, "mean": 8151.5, "percentile": {"99.00": 8640, "0.00": 0}}}
FIO_2: dict[str, Any] = {"fio version": "fio-2.2.10", "jobs": [{"jobname": "test", "write": WRITE}]}
IOSTAT = f"""Linux 6.18.44 ({PLANTED}) \t11/27/26 \t_x86_64_\t(2 CPU)

11/27/26 18:31:38
avg-cpu:  %user   %nice %system %iowait  %steal   %idle
          53.62    3.80    7.06    0.22    0.04   35.25

Device            r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz     f/s f_await  aqu-sz  %util
vda             58.92    985.66     4.82   7.57    1.12    16.73    3.40    0.15    0.13   1.50


11/27/26 18:31:39
avg-cpu:  %user   %nice %system %iowait  %steal   %idle
          86.43    0.00   12.56    0.50    0.00    0.50

Device            r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz     f/s f_await  aqu-sz  %util
vda             65.00    328.00     0.00   0.00    0.09     5.05    0.00    0.00    0.03   1.60
{PLANTED}-lv0     2.00      8.00     0.00   0.00    0.50     4.00    0.00    0.00    0.03   0.10
"""
DISKS: list[dict[str, Any]] = [{"disk_device": "vda", "r/s": 1.0, "rMB/s": 1.0, "util": 1.0}]
DISKS.append({"disk_device": f"{PLANTED}-lv0", "r/s": 9015.0, "rMB/s": 1047.44, "r_await": 0.44})
HOST = {"nodename": PLANTED, "statistics": [{"disk": [disk]} for disk in DISKS]}
SYSSTAT = {"sysstat": {"hosts": [HOST]}}
ELBENCHO_CSV = f"""ISO date,label,operation,time ms [first],time ms [last],entries/s [last],IOPS [last],\
MiB/s [last],IO lat us [min],IO lat us [avg],IO lat us [max],\
rwmix read IOPS [last],rwmix read MiB/s [last],command
2026-05-22T16:09:38,{PLANTED},MKDIRS,2,5,1466,,,,,,,,"elb" "/{PLANTED}"
2026-05-22T16:09:38,{PLANTED},RWMIX25,2134,2784,11,2941,2941,1661,9383,120903,980,979,"elb" "/{PLANTED}"
2026-05-22T16:09:41,{PLANTED},READ,846,905,35,9048,9048,553,3223,6922,,,"elb" "/{PLANTED}"
"""
LAST: dict[str, Any] = {"iops": "250", "rwmix_read": {"iops": "7"}}
LAST |= {"latency": {"IO": {"min_us": "3", "avg_us": "40", "max_us": "90"}}}
PHASE = {"phase_type": "WRITE", "label": PLANTED, "config": {"command": f'"elb" "/{PLANTED}"'}}
PHASE |= {"first_done": {"elapsed_time_ms": "10"}}
ELBENCHO_JSON = "".join(
    json.dumps(PHASE | {"last_done": LAST | {"bytes/s": rate}}) + "\n" for rate in ("1000000001", "999999999")
)
FILES: dict[str, tuple[str, str, str]] = {
    "FIO 3": ("fio", "fio.json", json.dumps(FIO_3, indent=2)),
    "FIO 2": ("fio", "fio-2.json", json.dumps(FIO_2, indent=2)),
    "iostat": ("iostat", "iostat.txt", IOSTAT),
    "iostat's JSON": ("iostat", "iostat.json", json.dumps(SYSSTAT, indent="\t")),
    "elbencho's table": ("elbencho", "elbencho.csv", ELBENCHO_CSV),
    "elbencho's JSON": ("elbencho", "elbencho.json", ELBENCHO_JSON),
}
Figures = dict[tuple[str | None, str, str, str | None], list[float]]


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str, str], Path]:
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


Written = Callable[[str, str], Path]


def read(path: Path) -> Evidence:
    return recognise_format(path, path.read_bytes()).read(path)


def figures(found: Evidence) -> Figures:
    """Values by job, operation, figure and stat, in the order of samples."""
    values: Figures = {}
    for row in found.storage.to_pylist():
        values.setdefault((row["job"], row["phase"], row["figure"], row["stat"]), []).append(row["value"])
    return values


def test_fio_3_states_bytes_and_nanoseconds(written: Written) -> None:
    """486 reads of 4,096 B in 33 ms: 60,322,909 B/s, which `bw` rounds to 58,909 KiB/s, and 14,727.27 /s."""
    found = read(written(*FILES["FIO 3"][1:]))
    of_reads = {key[2:]: values for key, values in figures(found).items() if key[:2] == ("load", "read")}
    assert of_reads.pop(("bytes_per_s", None)) == [60_322_909.0]
    assert of_reads.pop(("operations_per_s", None)) == [14_727.272727]
    in_us = {stat: 1e6 * value for (_, stat), (value,) in of_reads.items()}
    percentiles = {"p50": 37.12, "p90": 48.896, "p99": 684.032, "p99.9": 3522.56}
    assert in_us == pytest.approx({None: 54.697248971, "min": 34.151, "max": 3525.445} | percentiles)
    assert figures(found)["vda", "all", "utilization", None] == [0.125]
    assert {phase for _, phase, _, _ in figures(found)} == {"read", "all"}
    assert found.facts == {"producer": "fio-3.33"}


def test_fio_2_states_kibibytes_and_microseconds(written: Written) -> None:
    """37,500,000 KiB in 600 s are 62,500 KiB/s: 64,000,000 B/s, 15,625 blocks of 4,096 B."""
    assert figures(read(written(*FILES["FIO 2"][1:]))) == {
        ("test", "write", "bytes_per_s", None): [64e6],
        ("test", "write", "operations_per_s", None): [15625.0],
        ("test", "write", "latency", None): [pytest.approx(8.1515e-3)],
        ("test", "write", "latency", "min"): [pytest.approx(964e-6)],
        ("test", "write", "latency", "max"): [pytest.approx(0.26111)],
        ("test", "write", "latency", "p99"): [pytest.approx(8.64e-3)],
    }


def test_counts_of_latencies_give_the_percentiles_that_fio_states(written: Written) -> None:
    stated = figures(read(written(*FILES["FIO 3"][1:])))
    bins = {value: int(count) for value, _, count in (pair.partition(":") for pair in BINS.split())}
    clat = {key: value for key, value in CLAT.items() if key != "percentile"} | {"bins": bins}
    counted = fio_of(READ | {"clat_ns": clat})
    assert figures(read(written("fio.json", json.dumps(counted)))) == stated


def fio_of(*reads: object, **others: object) -> dict[str, Any]:
    """FIO 3's result with a job for each of these reads."""
    job: dict[str, Any] = FIO_3["jobs"][0]
    return FIO_3 | {"jobs": [job | {"read": stated} | others for stated in reads]}


def test_latency_is_the_whole_one_where_only_that_has_percentiles(written: Written) -> None:
    of_completion = {key: value for key, value in CLAT.items() if key != "percentile"}
    of_all = READ["lat_ns"] | {"percentile": {"99.000000": 700000}}
    found = read(written("fio.json", json.dumps(fio_of(READ | {"clat_ns": of_completion, "lat_ns": of_all}))))
    assert figures(found)["load", "read", "latency", "p99"] == [pytest.approx(700e-6)]
    assert figures(found)["load", "read", "latency", None] == [pytest.approx(54.715e-6)]


def test_jobs_of_one_name_are_numbered_and_failed_and_short_ones_left_out(written: Written) -> None:
    short = READ | {"runtime": 0, "bw_bytes": 0}
    document = fio_of(READ, READ | {"iops": 5}, short)
    document["jobs"].append(FIO_3["jobs"][0] | {"error": 28})
    found = read(written("fio.json", json.dumps(document)))
    rates = {key[0]: values for key, values in figures(found).items() if key[2] == "operations_per_s"}
    assert rates == {"load #1": [14_727.272727], "load #2": [5.0]}
    short = "directions of jobs that took less than a millisecond"
    assert found.left_out == {short: 1, "jobs that failed": 1}


def test_of_reports_of_a_running_job_the_last_counts(written: Written) -> None:
    """--status-interval prints each report behind the one before, and errors go between them."""
    reports = [json.dumps(fio_of(READ | {"iops": iops}), indent=2) for iops in (1, 2, 3)]
    found = read(written("fio.json", "fio: note: both iodepth >= 1\n" + "\n".join(reports) + "\n"))
    assert figures(found)["load", "read", "operations_per_s", None] == [3.0]
    assert found.notes == ["3 reports of a running job: the last is read"]


def test_iostat_counts_in_1024s_and_milliseconds(written: Written) -> None:
    """328 kB/s are 335,872 B/s; of no flush the wait of 0 is none; the first report is since the boot."""
    found = read(written(*FILES["iostat"][1:]))
    assert figures(found) == {
        ("vda", "read", "operations_per_s", None): [65.0],
        ("vda", "read", "bytes_per_s", None): [335_872.0],
        ("vda", "read", "latency", None): [pytest.approx(90e-6)],
        ("vda", "flush", "operations_per_s", None): [0.0],
        ("vda", "all", "utilization", None): [0.016],
        (f"{PLANTED}-lv0", "read", "operations_per_s", None): [2.0],
        (f"{PLANTED}-lv0", "read", "bytes_per_s", None): [8192.0],
        (f"{PLANTED}-lv0", "read", "latency", None): [0.0005],
        (f"{PLANTED}-lv0", "flush", "operations_per_s", None): [0.0],
        (f"{PLANTED}-lv0", "all", "utilization", None): [0.001],
    }
    boot = "rows of the first report, which is of the time since the boot unless iostat was given -y"
    assert found.left_out == {boot: 1}


def test_each_start_of_iostat_begins_with_a_report_since_the_boot(written: Written) -> None:
    """Two runs appended to one file: of three reports each, the first of both is left out."""
    reports = (f"Device  r/s  rkB/s  %util\nsda  {rate}  1  1\n\n" for rate in (9, 1, 2))
    found = read(written("iostat.txt", 2 * ("Linux 6.18 (host)\n\n" + "".join(reports))))
    assert figures(found)["sda", "read", "operations_per_s", None] == [1.0, 2.0, 1.0, 2.0]


def test_operations_that_elbencho_does_not_have_are_left_out(written: Written) -> None:
    more = "".join(f"2026-05-22T16:09:38,x,OWN{n},2,5,1466,,,,,,,,x\n" for n in range(200))
    found = read(written("r.csv", ELBENCHO_CSV + more))
    assert found.left_out == {"phases of operations that are not known": 200}


HEADINGS = {
    "sysstat 10: one wait for reads and writes": """\
Device:         rrqm/s   wrqm/s     r/s     w/s    rMB/s    wMB/s avgqu-sz   await  svctm  %util
sda               0.00     1.00    2.00    6.00     0.50     0.25     0.10    4.00   1.00   0.80
read operations 2, write operations 6, read bytes 524288, write bytes 262144, all latency 0.004,\
 all operations 8, all utilization 0.008""",
    "sectors": """\
Device:  r/s  rsec/s  %util
sda     1.00    8.00   0.80
read operations 1, read bytes 4096, all utilization 0.008""",
    "without -x": """\
Device             tps    kB_read/s    kB_wrtn/s    kB_read    kB_wrtn
sda             190.00         2.00         0.50   69497321  212547500
all operations 190, read bytes 2048, write bytes 512""",
    "-s": """\
Device             tps      kB/s    rqm/s   await  areq-sz  aqu-sz  %util
sda             112.00   1016.00     0.00    0.07     9.07    0.01   1.20
all operations 112, all bytes 1040384, all latency 7e-05, all utilization 0.012""",
}
"""Heading, row, and what they say."""


@pytest.mark.parametrize("case", HEADINGS)
def test_iostat_of_other_versions_and_options(written: Written, case: str) -> None:
    heading, row, said = HEADINGS[case].splitlines()
    found = figures(read(written("iostat.log", f"{heading}\n{row}\n\n" * 2)))
    told = {(phase, figure): value for (_, phase, figure, _), (value,) in found.items()}
    known = {(phase, figure): float(value) for phase, figure, value in map(str.split, said.split(", "))}
    rates = {"operations": "operations_per_s", "bytes": "bytes_per_s"}
    assert told == pytest.approx({(of, rates.get(figure, figure)): v for (of, figure), v in known.items()})


def test_elbencho_counts_bytes_in_json_and_mebibytes_in_tables(written: Written) -> None:
    """A phase that mixes reads in has a row of writes and one of reads; directories alone have entries."""
    found = figures(read(written(*FILES["elbencho's table"][1:])))
    assert {key[1:]: values for key, values in found.items() if key[2] != "latency"} == {
        ("mkdirs", "entries_per_s", None): [1466.0],
        ("write", "entries_per_s", None): [11.0],
        ("write", "operations_per_s", None): [2941.0],
        ("write", "bytes_per_s", None): [2941.0 * 1024**2],
        ("read", "entries_per_s", None): [35.0],
        ("read", "operations_per_s", None): [980.0, 9048.0],
        ("read", "bytes_per_s", None): [979.0 * 1024**2, 9048.0 * 1024**2],
    }
    latencies = {key[1:]: values for key, values in found.items() if key[2] == "latency"}
    assert latencies == {
        (phase, "latency", stat): [pytest.approx(micro * 1e-6)]
        for phase, mean, least, most in (("write", 9383, 1661, 120903), ("read", 3223, 553, 6922))
        for stat, micro in ((None, mean), ("min", least), ("max", most))
    }
    of_json = figures(read(written(*FILES["elbencho's JSON"][1:])))
    assert of_json[None, "write", "bytes_per_s", None] == [1_000_000_001.0, 999_999_999.0]
    assert of_json[None, "write", "latency", None] == [pytest.approx(40e-6)] * 2
    assert of_json[None, "read", "operations_per_s", None] == [7.0, 7.0]


def fio_with(**read: object) -> str:
    return json.dumps(fio_of(READ | read), indent=2)


ONE_REPORT, LESS = IOSTAT[: IOSTAT.index("11/27/26 18:31:39")], IOSTAT.replace("328.00", "")
NO_JOB = "{'fio version': 'fio-3.33', 'jobs': []}".replace("'", '"')
BAD = [
    ("fio.json", json.dumps(FIO_3, indent=2)[:-20], r"line \d+: is not JSON"),
    ("fio.json", NO_JOB, "has no job that read or wrote"),
    ("fio.json", NO_JOB.replace("[]", "[7]"), "jobs has an entry that is not an object"),
    *(("fio.json", fio_with(iops=odd), "iops is not a number from 0") for odd in ("many", None)),
    *(("fio.json", fio_with(bw_bytes=odd), "bw_bytes is not a") for odd in (float("nan"), -1, 10**30)),
    ("fio.json", fio_with(clat_ns=CLAT | {"percentile": {"101": 1}}), "has a percentile that is not one"),
    ("fio.json", fio_with(clat_ns=CLAT | {"bins": {"soon": 1}}), "has a bin that is not a time"),
    ("fio.json", fio_with(clat_ns="\ud800"), "line 1: has a text with half a surrogate pair"),
    ("iostat.txt", ONE_REPORT, "has one report only, which may be of the time since the boot"),
    ("iostat.txt", "Device  r/s  rkB/s  %util\n\n" * 2, "has no device"),
    ("iostat.txt", LESS, "line 16: 10 cells under 11 headings"),
    ("iostat.txt", IOSTAT.replace("328.00", "328,00"), "line 16: '328,00' where a number belongs"),
    (
        "iostat.json",
        json.dumps(SYSSTAT).replace("9015.0", '"x"'),
        "statistics 2: disk 1: r/s is not a number",
    ),
    ("r.csv", ELBENCHO_CSV.replace("READ,", ""), "line 4: 13 cells, not 14"),
    ("r.csv", ELBENCHO_CSV.replace("9048", "fast"), "line 4: MiB/s .last. is not a number"),
    ("r.csv", ELBENCHO_CSV.partition("\n")[0] + "\n", "has no phase with figures"),
    ("r.json", ELBENCHO_JSON.replace('"250"', "250"), "line 1: iops is not a number"),
]


@pytest.mark.parametrize(("name", "text", "says"), BAD, ids=range(len(BAD)))
def test_damage_is_an_error_that_says_where(written: Written, name: str, text: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as error:
        read(written(name, text))
    assert name in str(error.value)


@pytest.mark.parametrize("case", ["iostat", "elbencho's table"])
def test_a_last_line_without_its_end_is_left_out(written: Written, case: str) -> None:
    _, name, text = FILES[case]
    found = read(written(name, text[:-3]))
    assert found.left_out["the last line, which has no end"] == 1
    assert found.notes
    whole = read(written(name, text[: text.rstrip().rindex("\n") + 1]))
    assert found.storage == whole.storage


@pytest.mark.parametrize("case", FILES)
def test_what_is_published_has_the_same_figures_and_no_name(written, tmp_path, case):
    _, name, text = FILES[case]
    source, target = written(name, text), tmp_path / "copy" / name
    target.parent.mkdir()
    redact_evidence(source, target)
    assert PLANTED not in target.read_text()
    own, copied = (found.storage for found in (read(source), read(target)))
    columns = [column for column in own.column_names if column != "job"]
    assert own.select(columns) == copied.select(columns)
    assert len(own["job"].unique()) == len(copied["job"].unique())


@pytest.mark.parametrize("case", FILES)
def test_cut_files_are_read_or_refused(written: Written, case: str) -> None:
    """Never a figure that the whole file does not have: a cut number, or fewer rows without a word."""
    name, file, text = FILES[case]
    whole = figures(read(written(file, text)))
    for length in range(0, len(text), max(len(text) // 60, 1)):
        try:
            found = READERS.get(name).read(written(file, text[:length]))
        except InputError:
            continue
        assert all(whole[key][: len(values)] == values for key, values in figures(found).items())
        assert found.left_out or text[:length].endswith("\n") or text[length:].strip() == ""


def test_published_iostat_of_a_benchmark(test_data: Path) -> None:
    """131 reports of 132; the requests' mean size, in kB, times their rate is the rate in MB, in 1024s."""
    path = test_data / "dlio" / "tests" / "test_data" / "iostat.json"
    values = figures(read(path))["vda", "read", "bytes_per_s", None]
    assert (len(values), values[0]) == (131, 1365.62 * 1024**2)
    assert values[0] == pytest.approx(11729 * 119.23 * 1024, rel=1e-4)
