# SPDX-License-Identifier: Apache-2.0
"""Each form of secret and identity: what it must catch, and what looks alike and must stay."""

from __future__ import annotations

import re

import pytest

from cclbench.contribute.redaction import kinds
from cclbench.contribute.redaction.names import Identities, Learner
from cclbench.contribute.redaction.pattern import PATTERNS
from cclbench.contribute.redaction.scrub import Scrubber

CATCHES = {
    "private key": (
        "k: -----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
        "k: redacted-private-key",
    ),
    "token by its prefix": (f"use ghp_{'Ab1' * 12} here", "use redacted-token here"),
    "web token": (f"t eyJhbGciOiJIUzI1NiJ9.{'eyJzdWIi' * 2}.{'x' * 20}", "t redacted-token"),
    "authorization": ("Authorization: Bearer abcdef0123456789", "Authorization: Bearer redacted-token"),
    "web hook": (
        "https://hooks.slack.com/services/T0/B0/xyz",
        "https://hooks.slack.com/services/redacted-token",
    ),
    "key of Weights & Biases": (f"wandb login {'0a1b2c3d' * 5}", "wandb login redacted-token"),
    "cloud key by its prefix": ("id AKIAIOSFODNN7EXAMPLE.", "id redacted-cloud-key."),
    "cloud key by its name": (
        "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYKEY",
        "aws_secret_access_key = redacted-cloud-key",
    ),
    "password in a URL": ("postgres://ada:pw12@db/x", "postgres://redacted-password@db/x"),
    "token in a URL": ("https://abc123@git.example.org/x", "https://redacted-password@git.example.org/x"),
    "secret in a variable": ('export MY_API_KEY="two words"', 'export MY_API_KEY="redacted-secret"'),
    "password in a configuration": ("password: correct-horse", "password: redacted-secret"),
    "secret in a configuration": ("api_key=abcd1234efgh", "api_key=redacted-secret"),
    "secret in an option": ("train --hf-token abcdefgh", "train --hf-token redacted-secret"),
    "client secret of Azure": (f"use abc8Q~{'Zx1' * 11} now", "use redacted-cloud-key now"),
    "user and password of a request": (
        "curl -s -u bobby:pw1234 https://x.example",
        "curl -s -u redacted-password https://x.example",
    ),
    "password of a client": ("mysql -h db -ubobby -phunter22 x", "mysql -h db -ubobby -predacted-secret x"),
    "password in .netrc": (
        "machine a.example\n  login bobby\n  password hunter22",
        "machine a.example\n  login bobby\n  password redacted-secret",
    ),
    "key of Kaggle": (
        f'{{"username":"bobby","key":"{"0a1b2c3d" * 4}"}}',
        '{"username":"user-1","key":"redacted-secret"}',
    ),
    "login in a configuration of Docker": ('{"auth": "Ym9iYnk6cHc="}', '{"auth": "redacted-secret"}'),
    "bare key behind its name": (f"my API key is {'0a1B2c3D' * 4}", "my API key is redacted-secret"),
    "bucket": ("aws s3 cp s3://lab-bucket/x .", "aws s3 cp s3://redacted-bucket ."),
    "bucket behind https": ("https://lab.s3.us-east-1.amazonaws.com/x", "https://redacted-bucket"),
    "variable of a user name": ("USER=bobby", "USER=user-1"),
    "variable of a host name": ("MASTER_ADDR=gpu-17:29500", "MASTER_ADDR=host-1:29500"),
    "variable of a job": ("SLURM_JOB_NAME=secret-plan", "SLURM_JOB_NAME=job-1"),
    "field of a host name": ("Hostname: gpu-17", "Hostname: host-1"),
    "field of a user name": ("{'username': 'bobby'}", "{'username': 'user-1'}"),
    "field of a job": ("job_id=4711-a", "job_id=job-1"),
    "job in an option": ("#SBATCH -J secret-plan", "#SBATCH -J job-1"),
    "job in prose": ("Submitted batch job 1234567", "Submitted batch job job-1"),
    "host in an option": ("srun --nodelist=gpu-17,gpu-18 x", "srun --nodelist=host-1,host-2 x"),
    "user in an option": ("sshd: bobby [priv]", "sshd: user-1 [priv]"),
    "e-mail address": ("mail ada@example.org now", "mail redacted-email now"),
    "home folder": ("/home/ada/train.py(12): step", "/home/user-1/train.py(12): step"),
    "folder of a user": ("experimental/users/ada/x.py", "experimental/users/user-1/x.py"),
    "home folder of Windows": (r"C:\Users\ada\x", r"C:\Users\user-1\x"),
    "network folder of a user": ("ls /mnt/nfs/bobby/x", "ls /mnt/nfs/user-1/x"),
    "folder of a user in a project": ("cd /scratch/m1234/bobby/x", "cd /scratch/user-1/user-2/x"),
    "home folder by its user": ("source ~bobby/env.sh", "source ~user-1/env.sh"),
    "user in the comment of an SSH key": (
        "ssh-ed25519 AAAAC3NzaC1lZDI1 bobby@gpu-17",
        "ssh-ed25519 redacted-ssh-key",
    ),
    "host in the comment of an SSH key": (
        "ssh-rsa AAAAB3NzaC1yc2EA bobby@gpu-17",
        "ssh-rsa redacted-ssh-key",
    ),
    "SSH key": ("ssh-ed25519 AAAAC3NzaC1lZDI1 my laptop", "ssh-ed25519 redacted-ssh-key"),
    "home folder of root": ("cat /root/.ssh/config", "cat redacted-home/.ssh/config"),
    "host before a line of NCCL": ("gpu17:12:34 [0] NCCL INFO x", "host-1:12:34 [0] NCCL INFO x"),
    "host of a cloud or cluster": ("on ip-10-0-1-22.ec2.internal", "on host-1"),
    "host by its domain": ("on gpu-17.cluster.local:80", "on host-1:80"),
    "host of an internal domain": ("see http://git.acme.corp/x", "see http://host-1/x"),
    "id of a GPU": (
        "GPU 0: H100 (UUID: GPU-672a921d-c216-dbaa-78b2-9b40581eedb6)",
        "GPU 0: H100 (UUID: GPU-device-1)",
    ),
    "serial number": ("Serial Number : 1650522012345", "Serial Number : device-1"),
    "GUID of InfiniBand": ("Node GUID: 0x506b4b0300c9a1b2", "Node GUID: address-1"),
    "phone number": ("call +49 170 1234567 now", "call redacted-phone-number now"),
    "IPv4 address": ("tcp://10.1.2.3:29500", "tcp://address-1:29500"),
    "IPv6 address": ("at fe80::1ff:fe23:4567:890a%eth0", "at address-1%eth0"),
    "hardware address": ("link/ether 00:11:22:aa:bb:cc brd", "link/ether address-1 brd"),
}
"""By a form's name: a text, and what it becomes."""

STAYS = {
    "private key": ("-----BEGIN CERTIFICATE-----", "-----BEGIN PUBLIC KEY-----"),
    "token by its prefix": ("hf_transfer", "task-force-of-twenty-two-kernels", "ghp_", "sk-learn"),
    "web token": ("eyJ", "eyJhbGciOiJIUzI1NiJ9"),
    "authorization": ("the bearer of news", "Bearer $TOKEN"),
    "web hook": ("https://slack.com/services/x",),
    "key of Weights & Biases": ("wandb offline", f"commit {'0a1b2c3d' * 5}"),
    "cloud key by its prefix": ("AKIA", "XAKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLEX"),
    "cloud key by its name": ("AWS_SECRET_ACCESS_KEY=$SECRET", "aws_access_key_id"),
    "password in a URL": ("http://example.org:80/x@y", "https://$USER:$PASS@host"),
    "token in a URL": ("ssh://git@example.org/x", "https://git@example.org/x"),
    "secret in a variable": ("HF_TOKEN=$HF_TOKEN", "MAX_TOKEN=4096", "API_KEY = load_key()", 'HF_API_KEY=""'),
    "password in a configuration": ("password: null", "password=getpass()", "password: str"),
    "secret in a configuration": ("eos_token: </s>", "num_tokens: 12345678", "token=read(path1)"),
    "secret in an option": ("--max-token 4096", "--hf-token $HF_TOKEN", "sort --key 2"),
    "client secret of Azure": ("abc8Q~", "the 8Q~ of all"),
    "user and password of a request": ("curl -u $USER:$PW x", "docker run -u 1000:1000 x", "sort -u a:b"),
    "password of a client": ("mysql -p x", "mysqldump -p$PW", "mkdir -p /data/mysql"),
    "password in .netrc": ("machine learning", "machine a login b password $PW"),
    "key of Kaggle": ('"username":"$USER","key":"x"',),
    "login in a configuration of Docker": ('"auth": "basic"', '"auth": {}', '"author": "x"'),
    "bare key behind its name": (
        "key = sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64",
        "RendezvousKey{run_id=RunId: 5749}",
        "key 128",
        "keyword aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1",
        "token: 12345678901234567890123456789012",
        "key=/usr/lib/python3/site-packages/torch/x1",
    ),
    "bucket": ("s3://$BUCKET/x", "unix:///run/x"),
    "bucket behind https": ("https://aws.amazon.com/s3", "https://docs.example.org/"),
    "variable of a user name": ("USER=$USER", "SUPERUSER=x", "USER=`id -un`"),
    "variable of a host name": ("MASTER_ADDR=127.0.0.1", "MASTER_ADDR=localhost:29500", "HOST=$(hostname)"),
    "variable of a job": ("JOB_NAME=$1", "TORCHELASTIC_RUN_ID=none"),
    "field of a host name": ("hostname: str = None", "hostname = socket.gethostname()", "hostname=hostname"),
    "field of a user name": ("username: Optional[str]", "username = None"),
    "field of a job": ("job_name=args.job_name", "job_id: int"),
    "job in an option": ("--job-name=$NAME", "--accounting"),
    "job in prose": ("a job of 4 ranks", "job 12", "subjob1234567"),
    "host in an option": ("--host 0.0.0.0", "--nodelist=$NODES", "--hostfile x"),
    "user in an option": ("pip install --user torch", "--user=$USER"),
    "e-mail address": ("memcpy@GLIBC_2.14", "fi_getinfo@@FABRIC_1", "git@github.com:x/y", "@torch.compile"),
    "home folder": ("/homework/x", "packages/home/base.py", "$HOME/x", "/usr/lib/x", "/home/$USER/x"),
    "folder of a user": ("users/models.py", "scratch/tmp/x", "superusers/x/"),
    "home folder of Windows": (r"C:\Users\Public\x", r"C:\Windows"),
    "network folder of a user": ("/mnt/nfs/datasets/c4", "/opt/nfs/x", "/mnt/lustre/models/llama"),
    "folder of a user in a project": ("/scratch/$PROJECT/$USER", "/scratch/tmp/data/x"),
    "home folder by its user": ("~/x", "std::~vector(", "a ~Foo()", "~100ms", "x~y/z"),
    "user in the comment of an SSH key": ("ssh-rsa key of bobby@x", "AAAA bobby@x"),
    "host in the comment of an SSH key": ("ssh-rsa of x@gpu", "AAAA x@gpu"),
    "SSH key": ("ssh-rsa", "AAAAAAAA AAAAAAA"),
    "home folder of root": ("/rootfs/x", "/opt/root/x", "chroot/root"),
    "host before a line of NCCL": ("12:34 [0] x", "aten::add:1"),
    "host of a cloud or cluster": ("strip-10-0-1-2", "ip-address", "nid12", "i-0123"),
    "host by its domain": ("google.protobuf.internal", "threading.local", "torch.v2.internal()"),
    "host of an internal domain": ("google.protobuf.internal", "threading.local", "torch.internal.ops"),
    "id of a GPU": ("GPU-0", "672a921d-c216-dbaa-78b2-9b40581eedb6"),
    "serial number": ("Serial: none", "serialized: 12345678", "serial=False"),
    "GUID of InfiniBand": ("guid 0x0000000000000000", "pgid: 12", "gid 0"),
    "phone number": (
        "kernel+0x12345678",
        "1.5e+10",
        "+1 2 3",
        "a +12 34",
        "telemetry: 12345678",
        "phone: none",
    ),
    "IPv4 address": (
        "NCCL version 2.21.5.1",
        "/opt/papi/7.0.0.1/bin",
        "cublas==12.4.5.8",
        "127.0.0.1",
        "0.0.0.0:80",
        "2026.2.1.210",
        "12.8.57.1-1",
    ),
    "IPv6 address": ("c10d::add", "at::native::fd::ab", "std::face::b00c", "12:30:45", "::1"),
    "hardware address": (
        "0000:03:00.0",
        "12:34:56",
        "aa:bb:cc:dd:ee:ff:00",
        "ff:ff:ff:ff:ff:ff",
        "2026-05-26",
    ),
}
"""By a form's name: texts that stay as they are."""


def scrubbed(text: str) -> str:
    """A text as one sees it who knows no names yet."""
    return Scrubber(Learner()).text(text)[0]


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p.name)
def test_each_form_is_caught_and_what_looks_alike_stays(pattern) -> None:
    text, expected = CATCHES[pattern.name]
    assert pattern.text.search(text), "the example is of another form"
    assert scrubbed(text) == expected
    assert scrubbed(expected) == expected
    for other in STAYS[pattern.name]:
        assert scrubbed(other) == other


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p.name)
def test_a_form_is_looked_for_only_where_its_marks_are(pattern) -> None:
    text, _ = CATCHES[pattern.name]
    assert any(mark in text for mark in pattern.marks)
    assert Scrubber(Identities()).suspicious(b"\x08\x41" + text.encode() + b"Z\x12")


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
        learner.pseudonym(kinds.USER, user, learn=True)
    known = learner.identities(frozenset())
    assert {name for _, name in known.everywhere} == {"bobby"}
    assert Scrubber(known).text(name) == (name, {})


LEARNT = {
    "variable of a user name": "bobby",
    "variable of a host name": "gpu-17",
    "variable of a job": "secret-plan",
    "field of a host name": "gpu-17",
    "field of a user name": "bobby",
    "field of a job": "4711-a",
    "job in an option": "secret-plan",
    "job in prose": "1234567",
    "host in an option": "gpu-18",
    "user in an option": "bobby",
    "home folder": "ada",
    "home folder of Windows": "ada",
    "host before a line of NCCL": "gpu17",
    "host of a cloud or cluster": "ip-10-0-1-22",
    "host by its domain": "gpu-17",
    "key of Kaggle": "bobby",  # by the user name beside it
    "network folder of a user": "bobby",
    "folder of a user in a project": "bobby",
    "home folder by its user": "bobby",
    "user in the comment of an SSH key": "bobby",
    "host in the comment of an SSH key": "gpu-17",
    "id of a GPU": "672a921d-c216-dbaa-78b2-9b40581eedb6",
    "serial number": "1650522012345",
    "GUID of InfiniBand": "0x506b4b0300c9a1b2",
    "IPv6 address": "fe80::1ff:fe23:4567:890a",
    "hardware address": "00:11:22:aa:bb:cc",
}
"""By a form that learns: the name in its example, a host's without its domain."""


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p.name)
def test_a_bare_name_is_replaced_wherever_a_form_has_told_it(pattern) -> None:
    learner = Learner()
    Scrubber(learner).text(CATCHES[pattern.name][0])
    known = learner.identities(frozenset())
    if pattern.name not in LEARNT:
        assert known.everywhere == frozenset()
        return
    name = LEARNT[pattern.name]
    new, counts = Scrubber(known).text(f"node-{name}_x and (epoch-{name})")
    pseudonym = known.pseudonym(pattern.role or kinds.USER, name)
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
    assert Scrubber(learner.identities(frozenset())).text(elsewhere)[0] == "on host-1:"


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
        assert {name for _, name in learner.identities(frozenset()).everywhere} == {"bobby", "gpu-17"}


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
    known = learner.identities(frozenset())
    assert Scrubber(known).text("by zoe4 on gpu-18")[0] == "by user-1 on host-1"


def test_markers_are_frameworks_own() -> None:
    for name in ("ProfilerStep#3", "train_step 5", "nccl:all_reduce", "dataloader_next", "FSDP::all_gather"):
        assert Scrubber(Identities()).is_marker(name), name
    for name in ("my trick", "batch of ada", "exp 12"):
        assert not Scrubber(Identities()).is_marker(name), name


def test_names_do_not_print() -> None:
    learner = Learner()
    learner.pseudonym(kinds.USER, "bobby", learn=True)
    for known in (learner, learner.identities(frozenset())):
        assert not re.search("bobby", f"{known} {known!r}")
