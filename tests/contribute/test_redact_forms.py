# SPDX-License-Identifier: Apache-2.0
"""Each form of secret and identity: what it must catch, and what looks alike and must stay."""

from __future__ import annotations

import re

import pytest

from cclbench.contribute.redaction import kinds
from cclbench.contribute.redaction.names import Learner
from cclbench.contribute.redaction.pattern import PATTERNS
from cclbench.contribute.redaction.scrub import Scrubber


def scrubbed(text: str) -> str:
    """A text as one sees it who knows no names yet."""
    return Scrubber(Learner()).text(text)[0]


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p.name)
def test_each_form_is_caught_and_what_looks_alike_stays(pattern) -> None:
    assert pattern.source
    assert pattern.text_pattern.search(pattern.found), "the example is of another rule"
    assert scrubbed(pattern.found) == pattern.becomes
    assert scrubbed(pattern.becomes) == pattern.becomes
    assert pattern.stays
    for other in pattern.stays:
        assert scrubbed(other) == other


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p.name)
def test_a_form_is_looked_for_only_where_its_marks_are(pattern) -> None:
    assert pattern.may_match(pattern.found, pattern.found.lower())


NAMES_OF_KERNELS = (
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<c10::BFloat16>(at::Tensor&)",
    "_ZN2at6native27unrolled_elementwise_kernelINS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT_T0_",
    "Cijk_Ailk_Bljk_BBS_BH_MT256x128x64_MI16x16x16x1_SN_1LDSB0_APM1_AF0EM8_ASEM8",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel",
    "triton_poi_fused_add_mul_native_layer_norm_0",
    "all reduce RendezvousKey{run_id=RunId: 5749, global_devices=[2, 6], op_id=1}",
    "cclbench::collective kind=all_reduce seq=3 rows=1 threads=12,13 pg=0 ranks=0,1,2,3 desc=mesh_dp",
    "%all-reduce.1 = f32[4]{0} all-reduce(f32[4]{0} %a), replica_groups=[4,2]<=[2,4]T(1,0)",
    "nccl:all_reduce",
    "execute_context_1(128)_generation_3(3)",
    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "torch/nn/modules/module.py(1532): _call_impl",
    "<built-in method mm of type object at 0x7f0000000000>",
    "gqa_decode_10.0.0.1_not_quite.kd",
)


@pytest.mark.parametrize("name", NAMES_OF_KERNELS)
def test_names_that_metrics_go_by_stay(name: str) -> None:
    learner = Learner()
    for user in ("adam", "max", "norm", "rank", "ring", "gemm", "step12", "bobby"):
        learner.pseudonym_of(kinds.USER, user, learn=True)
    known = learner.learnt_identities(frozenset())
    assert {name for _, name in known.everywhere} == {"bobby"}
    assert Scrubber(known).text(name) == (name, {})


@pytest.mark.parametrize("pattern", [p for p in PATTERNS if p.learn], ids=lambda p: p.name)
def test_a_bare_name_is_replaced_wherever_a_rule_has_shown_it(pattern) -> None:
    """A host's without its domain."""
    learner = Learner()
    Scrubber(learner).text(pattern.found)
    known = learner.learnt_identities(frozenset())
    begin, end = pattern.hidden_span(pattern.text_pattern.search(pattern.found))
    name = pattern.found[begin:end].rpartition("/")[2].partition(",")[0].strip("@")
    name = re.split("[.:]", name)[0] if pattern.role == kinds.HOST else name
    if pattern.role == kinds.HOST and kinds.is_common_word(kinds.HOST, name):
        return  # of `proxy.acme.io` the domain alone is learnt
    new, counts = Scrubber(known).text(f"node-{name}_x and (epoch-{name})")
    pseudonym = known.pseudonym_of(pattern.role, name)
    assert not pseudonym.endswith("unknown")
    assert new == f"node-{pseudonym}_x and (epoch-{pseudonym})"
    assert sum(counts.values()) == 2


@pytest.mark.parametrize(
    ("text", "elsewhere"),
    [
        ("mpirun --host gpu-18 train", "on GPU-18:"),
        ("#SBATCH -w gpu-18", "on gpu-18:"),
        ("torchrun --rdzv-endpoint=gpu-18:29500", "on gpu-18:"),
        ("train --master_addr gpu-18", "on gpu-18:"),
        ("at nid001234.", "on NID001234:"),  # the form alone, in other letters elsewhere
    ],
)
def test_a_host_told_by_one_form_alone_is_replaced_wherever_it_stands(text: str, elsewhere: str) -> None:
    learner = Learner()
    Scrubber(learner).text(text)
    assert Scrubber(learner.learnt_identities(frozenset())).text(elsewhere)[0] == "on host-1:"


def test_an_environment_keeps_what_tells_of_the_run() -> None:
    text = "RANK=3 NCCL_ALGO=Ring SECRET_PLAN=x PATH=/bin:/usr/bin PS1='a b' LANG=C MY=1"
    new, counts = Scrubber(Learner()).text(text)
    assert new == "RANK=3 NCCL_ALGO=Ring redacted-environment"
    hidden = {f"environment variable ({name})" for name in ("SECRET_PLAN", "PATH", "PS1", "LANG", "MY")}
    assert counts == dict.fromkeys(hidden, 1)
    assert Scrubber(Learner()).text(new) == (new, {})


def test_a_command_with_variables_is_no_environment() -> None:
    command = "PATH=/x/bin:$PATH A=1 B=2 C=3 LANG=C python train.py --lr 1e-4\n"
    carried_on = "PATH=/x/bin:$PATH A=1 B=2 C=3 LANG=C \\\n"
    for text in (command, carried_on):
        assert Scrubber(Learner()).text(text, by_line=True) == (text, {})
    dumped = "env: PATH=/x/bin A=1 B=2 C=3 LANG=C\n"
    assert Scrubber(Learner()).text(dumped, by_line=True)[0] == "redacted-environment\n"


def test_assignments_without_a_shell_s_own_are_an_environment_from_twelve_on() -> None:
    """With one of a shell's own from five on."""
    few = [f"PLAN_{i}=x" for i in range(11)]
    text = " ".join(few)
    assert Scrubber(Learner()).text(text) == (text, {})
    assert Scrubber(Learner()).text(" ".join([*few, "PLAN_11=x"]))[0] == "redacted-environment"
    shells_own = "HOME=/x USER=y SHELL=/bin/z PWD=/w LANG=C"
    assert Scrubber(Learner()).text(shells_own)[0] == "redacted-environment"


def test_an_environment_is_apart_by_nul_and_semicolon_too() -> None:
    for between in ("\0", ";", "\n"):
        text = between.join(["USER=bobby", "HOSTNAME=gpu-17", "A=1", "B=2", "WORLD_SIZE=8"])
        learner = Learner()
        assert Scrubber(learner).text(text)[0] == "WORLD_SIZE=8 redacted-environment"
        assert {name for _, name in learner.learnt_identities(frozenset()).everywhere} == {"bobby", "gpu-17"}


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (kinds.USER, "ada", "user-1"),
        (kinds.HOST, "gpu-17.example.org", "host-1"),
        (kinds.HOST, "nid[0009-0010,0012]", "host-1,host-2,host-3"),
        (kinds.HOST, "10.1.2.3", "address-1"),
        (kinds.HOST, "localhost", "localhost"),
        (kinds.HOST, "Local (CLI)", "Local (CLI)"),
        (kinds.COMMAND, "python train.py --user=ada", "redacted-command-line"),
        (kinds.SECRET, "hunter2", "redacted-secret"),
        (kinds.SECRET, "true", "true"),
        (kinds.ENVIRONMENT, 'HOME="/root"', 'HOME="redacted-home"'),
        (kinds.ENVIRONMENT, "PLAN=secret", "PLAN=redacted-environment"),
        (kinds.ENVIRONMENT, 'RANK="3"', 'RANK="3"'),
        (kinds.ENVIRONMENT, 'EMPTY=""', 'EMPTY=""'),
        (kinds.ENVIRONMENT, "prod-cluster", "redacted-environment"),
    ],
)
def test_a_field_says_what_its_value_is(kind: str, text: str, expected: str) -> None:
    scrubber = Scrubber(Learner())
    assert scrubber.field(kind, text)[0] == expected
    assert scrubber.field(kind, expected) == (expected, {})


def test_a_command_line_that_is_hidden_has_told_its_names() -> None:
    learner = Learner()
    command = "python /home/zoe4/train.py --host gpu-18"
    assert Scrubber(learner).field(kinds.COMMAND, command)[0] == "redacted-command-line"
    known = learner.learnt_identities(frozenset())
    assert Scrubber(known).text("by zoe4 on gpu-18")[0] == "by user-1 on host-1"


def test_names_do_not_print() -> None:
    learner = Learner()
    learner.pseudonym_of(kinds.USER, "bobby", learn=True)
    for known in (learner, learner.learnt_identities(frozenset())):
        assert not re.search("bobby", f"{known} {known!r}")
