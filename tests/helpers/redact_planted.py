# SPDX-License-Identifier: Apache-2.0
"""Secrets and identities of fifteen kinds, and a text that holds them as people leave them.

Tokens are put together here so that nobody takes them for real ones.
"""

from __future__ import annotations

import gzip
from pathlib import Path

PEM = "\n".join(
    ("-----BEGIN OPENSSH PRIVATE KEY-----", "b3BlbnNzaC1rZXktdjEAAAAA", "-----END OPENSSH PRIVATE KEY-----")
)
CLOUD_KEYS = (
    "AKIA" + "Q3EGRIXAMPLE7777",
    "wJalrXUtnFEMI" + "/K7MDENGbPxRfiCYzzzzzzzzz",
    "AIza" + "Sy" * 17 + "9",
)
TOKENS = (
    "hf_" + "QmZxRtWvYpLkJhGfDsAqWeRtYuIoPzXcVb", "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8",
    "github_pat_" + "11ABCDEFG0" * 4, "sk-proj-" + "T3BlbkFJ" * 4, "xoxb-" + "123456789012-abcdefghijkl",
    "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiJ6b2x0YW4ifQ" + ".c2lnbmF0dXJlLXo", "f0e1d2c3" * 5,
)  # fmt: skip
SECRETS = (
    *("zoltan7", "Quimby-Lead", "quinoa77", "gpunode-117", "nid004242", "tw0031", "llm-moonshot-v9"),
    *("ip-10-9-8-7.us-west-2.compute.internal", "88123456", "m9931_g", "/home/zoltan7/"),
    *("/global/homes/q/quorra9", "/Users/zebedee5", "/pscratch/sd/y/yolanda3", "10.44.3.21"),
    *("fe80::42:acff:fe11:2", "02:42:ac:11:00:02", "zoltan.q@lab.example.org", "quimby@corp.example.com"),
    *("moonshot-staging", "/opt/secret-sauce/bin", *CLOUD_KEYS, *TOKENS, "b3BlbnNzaC1rZXktdjEAAAAA"),
    *("zoltan7:tr0ub4dor", "s3cr3t-pa55", "api-k3y-9f8e7d", "0123abcd-session", "correct horse battery"),
    *("moonshot-checkpoints/run9", "moonshot-logs"),
)
"""More than forty of them."""

LINES = (
    "export USER=zoltan7",
    "launched by Quimby-Lead on gpunode-117",
    "username: Quimby-Lead",
    "Hostname: gpunode-117",
    "nid004242:4711:4712 [0] NCCL INFO Bootstrap : Using eth0:10.44.3.21<0>",
    "worker ip-10-9-8-7.us-west-2.compute.internal joined",
    "MASTER_ADDR=tw0031",
    "#SBATCH --job-name=llm-moonshot-v9 --account=m9931_g",
    "Submitted batch job 88123456; see slurm-88123456.out",
    "cd /home/zoltan7/train && ls /global/homes/q/quorra9/x /Users/zebedee5/y /pscratch/sd/y/yolanda3/z",
    "inet6 fe80::42:acff:fe11:2 link 02:42:ac:11:00:02 brd ff:ff:ff:ff:ff:ff",
    "remote quinoa-sftp via sshd: quinoa77",
    "mail zoltan.q@lab.example.org or quimby@corp.example.com",
    "DEPLOY=moonshot-staging PATH=/opt/secret-sauce/bin:/bin HOME=/home/zoltan7 LANG=C TERM=xterm A=1",
    f"aws_access_key_id={CLOUD_KEYS[0]}",
    f"aws_secret_access_key: {CLOUD_KEYS[1]}",
    f"maps {CLOUD_KEYS[2]}",
    *(f"token {token}" for token in TOKENS[:-1]),
    f"wandb login {TOKENS[-1]}",
    "curl https://zoltan7:tr0ub4dor@registry.example.org/v2",
    "password: s3cr3t-pa55",
    "serve --api-key api-k3y-9f8e7d",
    "export SESSION_TOKEN=0123abcd-session",
    'export VAULT_PASSPHRASE="correct horse battery"',
    "aws s3 cp s3://moonshot-checkpoints/run9 . && gsutil ls gs://moonshot-logs",
)
"""Where people leave them."""
TEXT = "\n".join([*LINES, PEM])


def left_in(path: Path) -> list[str]:
    """The secrets that a file still holds, in its own bytes or decompressed."""
    data = path.read_bytes()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    data = data.lower()
    return [secret for secret in SECRETS if secret.encode().lower() in data]
