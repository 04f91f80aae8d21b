# SPDX-License-Identifier: Apache-2.0
"""Search of published results, values of the shell, leaderboards and defects."""

from __future__ import annotations

import csv
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cclbench.ground.errors import CclbenchError, InputError
from cclbench.record.store import Store
from cclbench.studies.claims import subjects_with_results
from cclbench.studies.published import import_ccl_search, leaderboard
from cclbench.studies.published.defects import DEFECTS, defects_of
from cclbench.studies.published.launch import launched_step
from cclbench.studies.published.leaderboard import Publication, read_leaderboard
from cclbench.studies.published.search import read_search
from cclbench.studies.published.shell import passed_options

from .conftest import SEARCH_CARD, published

SCRIPT = """\
GLOBAL=$(( DP * MB ))
torchrun pretrain_gpt.py --global-batch-size $GLOBAL --seq-length 512 \\
    --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP
"""
LAYOUT = {"tp": 2, "dp": 4, "pp": 1, "mb": 2}


@pytest.fixture
def search(tmp_path: Path) -> Callable[..., tuple[Path, Path, Path]]:
    """Writes trials (settings, step time), the script and the card; the paths of all three."""

    def write(*trials: tuple[dict[str, Any], float | None], error: str = "") -> tuple[Path, Path, Path]:
        folder = tmp_path / "tiny"
        folder.mkdir(exist_ok=True)
        with (folder / "results.csv").open("w", newline="") as stream:
            table = csv.writer(stream)
            table.writerow(["iteration", "version", "config", "metrics", "score", "status", "error_msg"])
            for n, (settings, step) in enumerate(trials):
                metrics = {} if step is None else {"avg_step_time": step}
                status = "error" if step is None else "success"
                table.writerow([n, n, json.dumps(settings), json.dumps(metrics), step, status, error])
        (tmp_path / "run.sh").write_text(SCRIPT)
        (tmp_path / "card.yaml").write_text(SEARCH_CARD)
        return folder / "results.csv", tmp_path / "run.sh", tmp_path / "card.yaml"

    return write


def test_a_trial_is_a_run_with_its_work(search: Callable[..., Any], tmp_path: Path) -> None:
    """8 sequences of 512 in 2 s on 8 devices: 2,048 tokens/s, 256 each."""
    found = import_ccl_search(*search((LAYOUT, 2.0), (LAYOUT | {"dp": 2}, 1.5)), store=tmp_path / "s")
    runs = [(run.name, run.numbers, run.card) for run in found.runs]
    assert runs == [("tiny trial 00", 1, True), ("tiny trial 01", 1, True)]
    assert found.remarks == (
        "unequal work: steps of 4, 8 sequences; compare tokens per second, not step times",
        "batch: --global-batch-size of the script",
    )
    subjects, left_out = subjects_with_results(Store(tmp_path / "s"))
    assert left_out == {}
    first, second = (subject.workload for subject in subjects)
    assert (first.model, first.phase, first.accelerator) == ("llama-3.1-8b", "training", "nvidia_a100")
    assert (first.devices, first.batch, first.sequence_length) == (8, 8, 512)
    assert (first.framework, first.plan) == ("megatron-lm", "dp4 x tp2")
    assert (second.devices, second.batch) == (4, 4)
    rows = {row.metric: row for row in subjects[0].results.rows}
    values = [rows[name].value for name in ("time.step", "throughput.tokens", "throughput.tokens_per_device")]
    assert values == [2.0, 2048, 256]
    assert rows["throughput.tokens"].reason.endswith("; --global-batch-size of the script")
    assert rows["compute.mfu"].reason == "not published: the search measured other numbers"
    again = import_ccl_search(*search((LAYOUT, 2.0), (LAYOUT | {"dp": 2}, 1.5)), store=tmp_path / "s")
    assert [run.new for run in again.runs] == [False, False]


def test_a_failed_trial_says_so_and_nothing_of_its_hosts(search: Callable[..., Any], tmp_path: Path) -> None:
    import_ccl_search(*search((LAYOUT, None), error="exit 143: nid001 /home/user"), store=tmp_path / "s")
    (subject,) = subjects_with_results(Store(tmp_path / "s"))[0]
    row = subject.results.row("time.step")  # type: ignore[arg-type]
    assert row is not None
    assert (row.value, row.status) == (None, "not_applicable")
    assert row.reason == "not published: the trial failed (exit 143)"
    files = [path for path in (tmp_path / "s").rglob("*") if path.is_file()]
    assert [path for path in files if b"nid001" in path.read_bytes()] == []


def test_a_repeated_number_is_no_second_measurement(search: Callable[..., Any]) -> None:
    """A number of a trial that did not succeed is flagged."""
    results, script, _ = search((LAYOUT, 2.0), (LAYOUT, 2.1), (LAYOUT, 2.0))
    repeated = "settings and number of trial 0: one measurement, not two"

    def remarks() -> list[str | None]:
        return [row.remarks.get("avg_step_time") for row in read_search(results, script, None).rows]

    assert remarks() == [None, None, repeated]
    results.write_text(results.read_text().replace("success", "timeout"))
    failed = "status of the trial: timeout"
    assert remarks() == [failed, failed, f"{failed}; {repeated}"]


def test_the_card_may_hold_the_agents_history(search: Callable[..., Any], tmp_path: Path) -> None:
    """Without a card model and hardware are unknown."""
    results, script, card = search((LAYOUT, 2.0))
    history = "runs:\n- config: &id001\n    tp: 4\n\n- config: *id001\n  status: error\n"
    card.write_text(history + SEARCH_CARD + history)
    (row,) = read_search(results, script, card).rows
    assert (row.text("model_family"), row.text("hardware_model")) == ("llama-3.1-8b", "nvidia_a100")
    import_ccl_search(results, script, store=tmp_path / "s")
    (subject,) = subjects_with_results(Store(tmp_path / "s"))[0]
    assert (subject.workload.model, subject.workload.accelerator, subject.workload.batch) == (None, None, 8)
    assert subject.hardware_key is None


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (("iteration,", "number,"), "has no column iteration"),
        (('"{""tp""', '"{""tp'), "trial 0: "),
        (("2.0}", "NaN}"), "trial 0: a metric is not a finite number"),
        (("2.0}", '""fast""}'), "trial 0: Expected `float | null`"),
        (("\n0,", "\nx,"), "trial 0: "),
        (("\n0,", "\n-1,"), "trial 0: its number is negative"),
        (("\n1,", "\n0,"), "numbers two trials alike"),
        (('""tp""', '""\\ud800""'), "trial 0: 'utf-8' codec can't encode"),
        (("\n0,", "\n" + "[" * 100_000 + ","), "trial 0: "),
    ],
)
def test_bad_ones(search: Callable[..., Any], tmp_path: Path, changed: tuple[str, str], says: str) -> None:
    results, script, card = search((LAYOUT, 2.0), (LAYOUT, 3.0))
    text = results.read_text()
    assert changed[0] in text.replace("\r", "")
    results.write_text(text.replace("\r", "").replace(*changed, 1))
    with pytest.raises(InputError, match=r"results\.csv") as raised:
        import_ccl_search(results, script, card, tmp_path / "s")
    assert says in str(raised.value)
    assert not list((tmp_path / "s").glob("*"))


def test_wrong_files_are_named(search: Callable[..., Any], tmp_path: Path) -> None:
    results, script, card = search((LAYOUT, 2.0))
    with pytest.raises(InputError, match=r"results\.csv"):
        read_search(search()[0], script, card)
    results = search((LAYOUT, 2.0))[0]
    for bad in ((results, tmp_path / "none", card), (results, tmp_path, card), (results, script, results)):
        with pytest.raises(InputError):
            read_search(*bad)
    card.write_text("version: 2\nworkload: {}\n")
    with pytest.raises(InputError, match="not a version 1 card"):
        read_search(results, script, card)


def test_no_damage_ends_in_a_traceback(search: Callable[..., Any]) -> None:
    results, script, card = search((LAYOUT, 2.0), (LAYOUT, None), error="exit 1: x")
    whole, draw, read = results.read_bytes(), random.Random(7), 0  # noqa: S311
    for _ in range(2_000):
        damaged = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(damaged))
            damaged[at : at + draw.randint(0, 3)] = draw.randbytes(draw.randint(0, 3))
        results.write_bytes(damaged)
        try:
            read_search(results, script, card)
            read += 1
        except CclbenchError:
            pass
    assert 0 < read < 2_000


def test_the_real_searches(test_data: Path, tmp_path: Path) -> None:
    """One fixes 32 sequences a step, the other's follow the layout: facts of the two launch scripts."""
    agent, card = test_data / "job_logs_ccl" / "agent", tmp_path / "card.yaml"
    card.write_text(SEARCH_CARD)
    titan, megatron = (
        read_search(agent / "ccl_bench_agent" / "runs" / run / "results.csv", agent / script, card)
        for run, script in (
            ("20260429_093910_titan_best", "perlmutter_torchtitan_llama8b/scripts/train_llama8b.sh"),
            ("20260429_115146_megatron_best", "megatron_llama8b/scripts/run.sh"),
        )
    )
    assert [row.whole_number("batch_size") for row in titan.rows] == [32] * 15
    batches = [8, 16, 32, 16, 8, 16, 4, 8, 8, 2, 1, 2, 1, 1, 2, 1, 1, 2]
    assert [row.whole_number("batch_size") for row in megatron.rows] == batches
    both = (*titan.rows, *megatron.rows)
    assert {(row.whole_number("total_count"), row.whole_number("seq_len")) for row in both} == {(16, 1024)}
    assert [row.number for row in megatron.rows if not row.metrics] == [1, 2, 3]
    repeated = [row.number for row in megatron.rows if "avg_step_time" in row.remarks and row.metrics]
    assert repeated == [15, 16]


GOOD = {"trace": "t", "metadata": {"workload_name": "a"}, "metrics": {"mfu": 50.0, "ttft": None}}


def test_the_real_file_and_whole_numbers(board: Publication, board_of: Callable[..., Path]) -> None:
    assert len(board.rows) == 102
    assert len({row.sha256 for row in board.rows}) == 102
    assert board.generated_at == "2026-05-07T07:17:59.275695+00:00"
    assert len({column for row in board.rows for column in row.metrics}) == 25
    told = [value for row in board.rows for value in row.metrics.values()]
    assert (len(told), sum(value is not None for value in told)) == (2139, 1742)
    board = read_leaderboard(board_of(GOOD | {"metrics": {"mfu": 50}}))
    assert board.rows[0].metrics == {"mfu": 50.0}


WRONG = "row 2: Expected `float | null`, got `{}` - at `$.metrics[...]`"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([], "row 2: Expected `object`, got `array`"),
        ({"metrics": {}}, "row 2: Object missing required field `trace`"),
        (GOOD | {"more": 1}, "row 2: Object contains unknown field `more`"),
        (GOOD | {"metadata": "x"}, "row 2: Expected `object`, got `str` - at `$.metadata`"),
        (GOOD | {"metadata": {}}, "row 2: its metadata has no workload_name"),
        (GOOD | {"metadata": {"workload_name": 7}}, "row 2: its metadata has no workload_name"),
        (GOOD | {"metrics": {"mfu": "50"}}, WRONG.format("str")),
        (GOOD | {"metrics": {"mfu": True}}, WRONG.format("bool")),
        (GOOD | {"metrics": {"mfu": [1]}}, WRONG.format("array")),
        (GOOD | {"trace": "\ud800"}, "row 2: contains text that is not Unicode"),
        (None, "row 2: Expected `object`, got `null`"),
    ],
)
def test_a_bad_row_is_named(board_of: Callable[..., Path], row: Any, words: str) -> None:
    path = board_of(GOOD, row)
    with pytest.raises(InputError) as caught:
        read_leaderboard(path)
    assert caught.value.what == words
    assert caught.value.where == str(path)


INFINITE = '{"rows": [{"trace": "", "metadata": {"workload_name": "a"}, "metrics": {"mfu": 1e999}}]}'
BEYOND = json.dumps({"rows": [GOOD | {"metrics": {"mfu": 10**400}}]})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not valid JSON"), ("{", "is not valid JSON"), ("[]", "has no list of rows"),
        ('{"rows": {}}', "has no list of rows"), ('{"rows": []}', "has no list of rows"),
        ('{"rows": [], "rows": []}', 'the key "rows" is repeated'),
        ('{"rows": [NaN]}', "NaN is not a JSON number"),
        ('{"rows": [-Infinity]}', "-Infinity is not a JSON number"),
        (INFINITE, 'row 1: "mfu" is not a finite number'), (BEYOND, "row 1"),
        ('{"rows": ' + "[" * 200_000, "is nested too deeply"),
        ('{"rows": [' + "9" * 5000 + "]}", "is not valid JSON"), ("\x00", "is not valid JSON"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "board.json"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        read_leaderboard(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a file"):
        read_leaderboard(tmp_path)
    with pytest.raises(InputError, match="No such file"):
        read_leaderboard(tmp_path / "none")
    with pytest.raises(InputError, match="cannot be read"):
        read_leaderboard(Path("a\0b"))
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(InputError, match="is not valid JSON"):
        read_leaderboard(tmp_path / "bytes")


def test_bounds(board_of: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = board_of(GOOD, GOOD)
    monkeypatch.setattr(leaderboard, "_MOST_ROWS", 1)
    with pytest.raises(InputError, match="has 2 rows, more than 1"):
        read_leaderboard(path)
    monkeypatch.setattr(leaderboard, "LARGEST_BYTES", 10)
    with pytest.raises(InputError, match="is over"):
        read_leaderboard(path)


COUNTS = """
longer_than_step 47  whole_capture 58  summed_share 101  merged_chips 14  alone 2  equals_step 53
first_pass 53  engine_iteration 54  idle_left_out 17  gib 121  waiting_included 121  small_side 26
small_side_volume 52  bytes_accessed 114  nothing_recognised 12  no_payload_known 225  copies_left_out 26
lower_bound 17  straggler_without_data 48  least_in_collectives 24  busy_ratio 74  unweighted 8
category_for_kernel 17  simulated 43  sampled 16
"""
TPU = {"hardware_type": "TPU", "trace_types": ["json_tpu"]}
NSYS = {"trace_types": ["nsys", "json"]}
GATHER = "bandwidth_utilization_allgather_group_6"
REDUCE = "bandwidth_utilization_allreduce_group_6"
P2P = "bandwidth_utilization_peertopeer_group_6"
GATHERED = "collective_vol_allgather_gb"
TIME, VOLUME = "total_communication_time", "collective_vol_total_gb"
OVERLAP, MFU, STEP = "compute_comm_overlap", "mfu", "avg_step_time"
BANDWIDTH, COPIES = "average_memory_bandwidth", "memory_transfer_overhead"
DOMINANT = "dominant_kernel_concentration"
EXAMPLES: dict[str, tuple[str, tuple[dict[str, float], Any], tuple[dict[str, float], Any]]] = {
    # what: column, (numbers, metadata) that have it, (numbers, metadata) that have not
    "unavailable": (MFU, ({MFU: -1.0}, {}), ({MFU: 1.0}, {})),
    "longer_than_step": (TIME, ({TIME: 1.1, STEP: 1.0}, {}), ({TIME: 1.0, STEP: 1.0}, {})),
    "whole_capture": (TIME, ({TIME: 1.0}, NSYS), ({TIME: 1.0}, {})),
    "summed_share": ("communication_fraction", ({"communication_fraction": 5.0}, {}), ({OVERLAP: 5.0}, {})),
    "merged_chips": (OVERLAP, ({OVERLAP: 5.0}, TPU), ({OVERLAP: 5.0}, {})),
    "alone": (OVERLAP, ({OVERLAP: 82.5}, {"total_count": 1}), ({OVERLAP: 82.5}, {"total_count": 2})),
    "equals_step": ("tpot", ({"tpot": 0.2, STEP: 0.2}, {}), ({"tpot": 0.2, STEP: 0.3}, {})),
    "first_pass": ("ttft", ({"ttft": 0.1}, {}), ({"tpot": 0.1}, {})),
    "engine_iteration": (STEP, ({STEP: 1.0}, {"phase": "inference"}), ({STEP: 1.0}, {})),
    "idle_left_out": (MFU, ({MFU: 50.0}, TPU), ({MFU: 50.0}, {})),
    "gib": (REDUCE, ({REDUCE: 1.0}, {}), ({P2P: 1.0}, {})),
    "waiting_included": (REDUCE, ({REDUCE: 1.0}, {}), ({VOLUME: 1.0}, {})),
    "link_samples": (P2P, ({P2P: 5.0}, NSYS), ({GATHER: 5.0}, {})),
    "small_side": (GATHER, ({GATHER: 1.0}, {}), ({REDUCE: 1.0}, {})),
    "small_side_volume": (VOLUME, ({VOLUME: 2.0, GATHERED: 1.0}, {}), ({VOLUME: 2.0, GATHERED: 0.0}, {})),
    "bytes_accessed": (VOLUME, ({VOLUME: 2.0}, TPU), ({VOLUME: 2.0}, {})),
    "nothing_recognised": (TIME, ({TIME: 0.0}, {"tp": 4}), ({TIME: 0.0}, {})),
    "no_payload_known": (VOLUME, ({VOLUME: 0.0}, {"tp": 4}), ({VOLUME: 1.0}, {"tp": 4})),
    "copies_left_out": (COPIES, ({COPIES: 1.0}, {}), ({COPIES: 1.0}, NSYS)),
    "lower_bound": (BANDWIDTH, ({BANDWIDTH: 1.0}, TPU), ({BANDWIDTH: 1.0}, {})),
    "straggler_without_data": ("straggler", ({"straggler": 0.0}, {}), ({"straggler": 0.1}, {})),
    "least_in_collectives": ("straggler", ({"straggler": 0.1}, {}), ({"straggler": 0.0}, {})),
    "busy_ratio": ("load_imbalance_ratio", ({"load_imbalance_ratio": 1.0}, {}), ({"straggler": 0.1}, {})),
    "unweighted": ("mean_sm_coverage", ({"mean_sm_coverage": 5.0}, NSYS), ({"mean_sm_coverage": 5.0}, {})),
    "category_for_kernel": (DOMINANT, ({DOMINANT: 5.0}, TPU), ({DOMINANT: 5.0}, {})),
    "simulated": ("scale_up_bw_utility", ({"scale_up_bw_utility": 5.0}, {}), ({MFU: 5.0}, {})),
    "sampled": (STEP, ({STEP: 1.0}, {"total_count": 17}), ({STEP: 1.0}, {"total_count": 16})),
}


def test_counts_on_the_real_rows_and_examples_of_all_defects(board: Publication) -> None:
    found = Counter(
        defect.key for row in board.rows for column in row.metrics for defect in defects_of(row, column)
    )
    words = COUNTS.split()
    assert found == dict(zip(words[::2], map(int, words[1::2]), strict=True))
    assert list(EXAMPLES) == [defect.key for defect in DEFECTS]
    assert list(defects_of(published({"straggler": None}), "straggler")) == []


@pytest.mark.parametrize("key", EXAMPLES)
def test_a_row_with_the_defect_and_one_without(key: str) -> None:
    column, (bad, of_bad), (good, of_good) = EXAMPLES[key]
    assert key in [defect.key for defect in defects_of(published(bad, **of_bad), column)]
    row = published(good, **of_good)
    assert all(key != defect.key for column in good for defect in defects_of(row, column))


def test_facts_behind_the_counts(board: Publication) -> None:
    """The figures that the definitions' page states, from the numbers alone."""

    def numbers(column: str) -> list[tuple[float, float]]:
        return [
            (value, row.number_in("avg_step_time"))
            for row in board.rows
            if (value := row.metrics.get(column)) is not None
        ]

    assert sum(time > step for time, step in numbers(TIME)) == 47
    assert [tpot == step for tpot, step in numbers("tpot")] == [True] * 53
    stragglers = [value for value, _ in numbers("straggler")]
    assert (stragglers.count(0.0), len(stragglers)) == (48, 72)
    alone = [
        row.metrics["compute_comm_overlap"] for row in board.rows if row.whole_number("total_count") == 1
    ]
    assert alone == [82.4935, 55.2837]
    assert sum((row.whole_number("total_count") or 0) > 16 for row in board.rows) == 2


COMMAND = "\npython train.py --batch $BATCH\n"


def batch_of(script: str, **environment: str) -> str | None:
    """The value of `--batch`; fails where the script does not pass it."""
    return passed_options(script, environment, ["--batch"])["--batch"]


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("BATCH=32", "32"),
        ("export BATCH='32'", "32"),
        ('BATCH="32" # of the card', "32"),
        ("BATCH=${BATCH:-4}", "4"),
        ("BATCH=${BATCH:-${OTHER:-6}}", "6"),
        ("A=3\nBATCH=$A$A", "33"),
        ("A=3\nBATCH=$(( A * 2 ))", "6"),
        ("A=17\nBATCH=$(( (A + 4 - 1) / 4 ))", "5"),
        ("A=-7\nBATCH=$(( A / 2 ))", "-3"),
        ("A=-7\nBATCH=$(( A % 4 ))", "-3"),
        ("BATCH=1\nBATCH=2", "2"),
        ("BATCH=8\ncat > f << YAML\nBATCH=9\nYAML", "8"),
        ("BATCH=8\nBITS=$(( 1 << WIDTH ))", "8"),
        ('BATCH=8\necho "BATCH=$BATCH"', "8"),
        ("# BATCH=9\nBATCH=8", "8"),
        # what is not followed
        ("", None),
        ("BATCH=$(nproc)", None),
        ("BATCH=`nproc`", None),
        ("BATCH=$1", None),
        ("BATCH=8\nif [ $A -eq 1 ]; then\n  BATCH=9\nfi", None),
        ("BATCH=8\nif [ $A -eq 1 ]; then BATCH=9; fi", None),
        ("BATCH=8\n[ $A -eq 1 ] && BATCH=9", None),
        ("BATCH=8\nfor BATCH in 1 2; do :; done", None),
        ("BATCH=8\nchange() {\n  BATCH=9\n}", None),
        ("BATCH=8\nread BATCH", None),
        ("BATCH=8\nunset BATCH", None),
        ("BATCH=$(( A < 2 ? 1 : 2 ))", None),
        ("BATCH=$(( 2 ** 9 ))", None),
        ("A=0\nBATCH=$(( 4 / A ))", None),
        ("BATCH=$(( 9" + "9" * 300 + " ))", None),
        ("BATCH=$BATCH$BATCH", None),
    ],
)
def test_values_as_the_shell_gives_them_or_unknown(script: str, value: str | None) -> None:
    assert batch_of(script + COMMAND) == value


def test_the_environment_comes_first_and_options_have_every_spelling() -> None:
    assert batch_of("BATCH=${BATCH:-4}" + COMMAND, BATCH="7") == "7"
    assert batch_of("BATCH=4" + COMMAND, BATCH="7") == "4"
    assert batch_of('B=4\nA="run.py \\\n  --batch $B \\\n --x 1"\ntorchrun $A') == "4"
    assert batch_of("torchrun --batch=4 \nif x; then\n torchrun --batch '4'\nfi") == "4"
    assert batch_of("torchrun --batch 4 \ntorchrun --batch 8") is None
    assert passed_options("torchrun --micro-batch 4 --batch-size 8 x--batch 1", {}, ["--batch"]) == {}


MEGATRON = """
GLOBAL=$(( DP * MICRO_BATCH_SIZE ))
ARGS="pretrain_gpt.py --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP --seq-length 512"
torchrun $ARGS
"""


def test_megatron_batches() -> None:
    settings = {"tp": 2, "dp": 3, "pp": 4, "micro_batch_size": 5}

    def step(option: str, settings: dict[str, int] = settings) -> Any:
        return launched_step(MEGATRON.replace("--seq", f"{option} --seq"), settings)

    passed = step("--global-batch-size $GLOBAL")
    assert (passed.framework, passed.sequence_length) == ("megatron-lm", 512)
    assert (passed.global_batch, passed.devices) == (15, 24)
    assert passed.degrees == {"tp": 2, "pp": 4, "dp_replicate": 3}
    default = step("--micro-batch-size $MICRO_BATCH_SIZE")
    assert default.global_batch == 15
    assert "times the data-parallel degree" in default.basis
    unknown = step("")
    assert unknown.global_batch is None
    assert unknown.basis == "the script's --global-batch-size or --micro-batch-size is unknown"
    no_degree = step("--micro-batch-size 2", {"tp": 2, "pp": 1})
    assert (no_degree.global_batch, no_degree.devices) == (None, None)


def test_torchtitan_batches() -> None:
    """64 over 4 replicas is 16 each; 32 over 5 is 6 each, and 30 together."""
    script = (
        "LOCAL=$(( GLOBAL / DP ))\ntorchrun -m torchtitan.train --training.local_batch_size $LOCAL"
        " --parallelism.data_parallel_shard_degree $DP --parallelism.data_parallel_replicate_degree 2"
        " --parallelism.tensor_parallel_degree 1 --parallelism.pipeline_parallel_degree 1"
    )
    step = launched_step("GLOBAL=64\n" + script, {"dp": 4})
    assert (step.global_batch, step.devices) == (16 * 4 * 2, 8)
    assert launched_step("GLOBAL=32\n" + script, {"dp": 5}).global_batch == 6 * 5 * 2
    rest = launched_step("GLOBAL=32\n" + script.replace("$DP --par", "-1 --par"), {"dp": 4})
    assert (rest.global_batch, rest.devices) == (None, None)
    assert rest.degrees == {"dp_replicate": 2, "tp": 1, "pp": 1}
    unlimited = script.replace(" --training.local", " --training.global_batch_size -1 --training.local")
    assert launched_step("GLOBAL=64\n" + unlimited, {"dp": 4}).global_batch == 128


def test_another_program_has_no_known_work() -> None:
    step = launched_step("python train.py --global-batch-size 4", {"tp": 1, "dp": 2, "pp": 1})
    assert (step.framework, step.global_batch, step.devices) == (None, None, None)
    assert step.basis == "the script launches none of megatron-lm, torchtitan"


PIECES = "BATCH= $(( )) ${ } $ ` fi ' \" <<E E # 8 A ( * { é pretrain_x.py"


def test_no_script_is_run_or_breaks_the_reader() -> None:
    draw = random.Random(5)  # noqa: S311
    pieces = [*PIECES.split(), "if ", "\n", "\\\n", "--batch ", "--global-batch-size ", "\x00"]
    for _ in range(3_000):
        script = "".join(draw.choices(pieces, k=40))
        passed_options(script, {"A": "3"}, ["--batch"])
        launched_step(script, {"tp": 1, "A": script})
