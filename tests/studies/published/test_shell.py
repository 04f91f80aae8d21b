# SPDX-License-Identifier: Apache-2.0
"""Options that scripts pass, worked out by hand; what is not followed is unknown, never guessed."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cclbench.studies.published.launch import launched_step
from cclbench.studies.published.shell import passed_options

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
TITAN = """
python -m torchtitan.train --training.local_batch_size $(( 32 / DP )) --training.seq_len 1024
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
