# SPDX-License-Identifier: Apache-2.0
"""Kinds of what is redacted, what stands in its place, and the fields and variables whose names tell a kind.

What stands in its place needs no quotes in YAML, JSON or a shell.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from cclbench.contribute.redaction.words import COMMON
from cclbench.formats.rewriting import ADDRESS as ADDRESS
from cclbench.formats.rewriting import ANNOTATION as ANNOTATION
from cclbench.formats.rewriting import ENVIRONMENT as ENVIRONMENT
from cclbench.formats.rewriting import HOST as HOST
from cclbench.formats.rewriting import JOB as JOB

USER: Final = "user name"
HOME: Final = "home path"
EMAIL: Final = "e-mail address"
COMMAND: Final = "command line"
CLOUD_KEY: Final = "cloud key"
TOKEN: Final = "token"  # noqa: S105 - the name of a kind
PRIVATE_KEY: Final = "private key"
PASSWORD: Final = "password in a URL"  # noqa: S105 - the name of a kind
SECRET: Final = "secret"  # noqa: S105 - the name of a kind
BUCKET: Final = "bucket"
FILE_NAME: Final = "file name"

NUMBERED: Final = {USER: "user", HOST: "host", JOB: "job", ADDRESS: "address", ANNOTATION: "annotation"}
"""Kinds whose instances stay apart: the same name is `host-1` in all files of a data point."""
HIDDEN: Final = {
    HOME: "redacted-home",
    EMAIL: "redacted-email",
    ENVIRONMENT: "redacted-environment",
    COMMAND: "redacted-command-line",
    CLOUD_KEY: "redacted-cloud-key",
    TOKEN: "redacted-token",
    PRIVATE_KEY: "redacted-private-key",
    PASSWORD: "redacted-password",
    SECRET: "redacted-secret",
    BUCKET: "redacted-bucket",
}
CLEAN: Final = (
    r"(?:user|host|job|address|annotation)-(?:\d+|unknown)(?![\w-])|redacted-[a-z]+(?:-[a-z]+)*(?![\w-])"
)
"""What this package itself writes."""

_FIELDS: Final = {
    USER: "user username user_id login login_name logname owner created_by submitted_by export_user author",
    HOST: "host hostname host_name hostnames hosts node_name nodename node_list nodelist machine_name"
    " computer_name pod_name fqdn master_addr master_address export_host device_display_name server_name",
    JOB: "job job_name job_id slurm_job_id slurm_job_name slurm_jobid slurm_account account job_account"
    " wandb_project wandb_run_id",
    ENVIRONMENT: "env environ environment env_vars environment_variables device_environment"
    " environment_variable",
    COMMAND: "argv sys_argv cmd cmdline command_line command launch_command command_args",
    SECRET: "token secret password passwd passphrase credentials api_key access_key secret_key private_key"
    " authorization cookie",
}
_SECRET_FIELD: Final = re.compile(
    r"(?<!bos)(?<!eos)(?<!pad)(?<!unk)(?<!sep)(?<!cls)(?<!mask)[_-](?i:token|secret|password|passwd|passphrase)$"
    r"|(?i:(?:api|access|secret|private|account|auth|ssh|wandb|license|signing|deploy|encryption)[_-]?key(?:_id)?)$"
    r"|[A-Z0-9]_(?:KEY|PAT|PWD|CREDENTIALS|COOKIE)$"
)

VARIABLES: Final = {
    USER: "USER LOGNAME USERNAME SUDO_USER SLURM_JOB_USER SBATCH_USER PBS_O_LOGNAME LSFUSER JUPYTERHUB_USER"
    " GIT_AUTHOR_NAME GIT_COMMITTER_NAME WANDB_ENTITY WANDB_USERNAME",
    HOST: "HOSTNAME HOST COMPUTERNAME SLURMD_NODENAME SLURM_NODELIST SLURM_JOB_NODELIST SLURM_STEP_NODELIST"
    " SLURM_SUBMIT_HOST SLURM_TOPOLOGY_ADDR MASTER_ADDR HEAD_NODE NODE_NAME POD_NAME PBS_O_HOST LSB_HOSTS"
    " LSB_MCPU_HOSTS SLURM_LAUNCH_NODE_IPADDR SLURM_SRUN_COMM_HOST TPU_WORKER_HOSTNAMES",
    JOB: "SLURM_JOB_ID SLURM_JOBID SLURM_JOB_NAME SLURM_JOB_ACCOUNT SLURM_ARRAY_JOB_ID SBATCH_ACCOUNT"
    " SBATCH_JOB_NAME PMI_JOBID PALS_APID PBS_JOBID PBS_JOBNAME LSB_JOBID LSB_JOBNAME JOB_ID JOB_NAME"
    " MODAL_TASK_ID MODAL_IMAGE_ID TORCHELASTIC_RUN_ID WANDB_RUN_ID WANDB_PROJECT WANDB_NAME WANDB_RUN_GROUP"
    " AWS_BATCH_JOB_ID GOOGLE_CLOUD_PROJECT GCP_PROJECT CLOUDSDK_CORE_PROJECT",
}
"""Variables of shells, launchers and schedulers whose value is a name of that kind."""
_BY_FIELD: Final = {
    name.replace("_", "").lower(): kind
    for listed in (VARIABLES, _FIELDS)
    for kind, names in listed.items()
    for name in names.split()
}

_KEPT: Final = re.compile(
    r"(?:LOCAL_|NODE_|GROUP_|ROLE_)?RANK|(?:LOCAL_|ROLE_|GROUP_)?WORLD_SIZE|OMPI_COMM_WORLD_(?:LOCAL_|NODE_)?(?:RANK|SIZE)"
    r"|PMI_(?:LOCAL_)?(?:RANK|SIZE)|SLURM_(?:PROCID|LOCALID|NODEID|NTASKS|NNODES|NPROCS|TASKS_PER_NODE"
    r"|NTASKS_PER_NODE|GPUS|GPUS_PER_\w+|CPUS_PER_\w+|GPU_BIND|CPU_BIND_TYPE)"
    r"|(?:OMP|MKL|KMP|OPENBLAS|BLIS)_\w+|CUDA_(?!HOME|PATH)\w+|HIP_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES"
    r"|NVTE_\w+|NCCL_(?!COMM_ID|HOSTID|DEBUG_FILE|\w*PLUGIN\w*|\w*FILE\w*)\w+|RCCL_\w+|MSCCLPP?_\w+|GLOO_SOCKET_IFNAME"
    r"|FI_\w+|UCX_\w+|TORCH_NCCL_\w+|TORCH_ALLOW\w+|PYTORCH_\w*ALLOC_CONF|XLA_FLAGS|LIBTPU_INIT_ARGS|JAX_PLATFORMS"
    r"|MPICH_GPU_SUPPORT_ENABLED|PYTHONHASHSEED|[A-Z_]+_VERSION"
)

SHORTEST: Final = 4
"""Letters of a name that is replaced wherever it stands, of a user's one less; shorter ones stay but where
something calls them a name."""
_MACHINES: Final = frozenset(
    {"node", "gpu", "login", "compute", "server", "host", "machine", "head", "master"}
)
"""Of these, words that with two digits are a machine's name."""


@lru_cache(maxsize=1 << 14)
def kind_of_field(name: str) -> str | None:
    """The kind that a field of this name holds, as `hostname`, `Host Name` or `PROCESS_0:USER_NAME` do."""
    last = name.rpartition(":")[2]
    kind = _BY_FIELD.get(re.sub(r"[^a-z0-9]", "", last.lower())) if len(last) < 64 else None
    if kind is None and re.fullmatch(r"ARGUMENT_\d+", last):
        return COMMAND
    return SECRET if kind is None and len(last) < 64 and _SECRET_FIELD.search(last) else kind


def kept(variable: str) -> bool:
    """Whether an environment's variable tells of the run's shape or its libraries, and of nobody."""
    return _KEPT.fullmatch(variable) is not None


def common(kind: str, name: str) -> bool:
    """Whether a name is too short or too common a word to be replaced wherever it stands."""
    folded = name.casefold()
    stem = re.sub(r"[-_.]?\d{1,2}$", "", folded)
    machine = stem in _MACHINES and re.search(r"\d\d$", folded) is not None
    short = len(folded) < SHORTEST - (kind == USER)
    return short or folded in COMMON or (stem in COMMON and not machine) or len(stem) < 2
