# SPDX-License-Identifier: Apache-2.0
"""Secrets and identities of fifteen kinds, and captures, cards and scripts that hold them.

Tokens are put together here so that nobody takes them for real ones.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from cclbench.contribute.redaction import kinds
from cclbench.formats.xplane import proto
from helpers.scalar_files import field

PEM = "\n".join(
    ("-----BEGIN OPENSSH PRIVATE KEY-----", "b3BlbnNzaC1rZXktdjEAAAAA", "-----END OPENSSH PRIVATE KEY-----")
)

SECRETS = {
    kinds.USER: ("zoltan7", "Quimby-Lead", "quinoa77"),
    kinds.HOST: ("gpunode-117", "nid004242", "ip-10-9-8-7.us-west-2.compute.internal", "tw0031"),
    kinds.JOB: ("llm-moonshot-v9", "88123456", "m9931_g"),
    kinds.HOME: ("/home/zoltan7/", "/global/homes/q/quorra9", "/Users/zebedee5", "/pscratch/sd/y/yolanda3"),
    kinds.ADDRESS: ("10.44.3.21", "fe80::42:acff:fe11:2", "02:42:ac:11:00:02"),
    kinds.EMAIL: ("zoltan.q@lab.example.org", "quimby@corp.example.com"),
    kinds.ENVIRONMENT: ("moonshot-staging", "/opt/secret-sauce/bin"),
    kinds.COMMAND: ("--tuning-trick=warp9", "finetune_moonshot.py"),
    kinds.CLOUD_KEY: (
        "AKIA" + "Q3EGRIXAMPLE7777",
        "wJalrXUtnFEMI" + "/K7MDENGbPxRfiCYzzzzzzzzz",
        "AIza" + "Sy" * 17 + "9",
    ),
    kinds.TOKEN: (
        "hf_" + "QmZxRtWvYpLkJhGfDsAqWeRtYuIoPzXcVb", "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8",
        "github_pat_" + "11ABCDEFG0" * 4, "sk-proj-" + "T3BlbkFJ" * 4, "xoxb-" + "123456789012-abcdefghijkl",
        "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiJ6b2x0YW4ifQ" + ".c2lnbmF0dXJlLXo", "f0e1d2c3" * 5,
    ),
    kinds.PRIVATE_KEY: ("b3BlbnNzaC1rZXktdjEAAAAA",),
    kinds.PASSWORD: ("zoltan7:tr0ub4dor",),
    kinds.SECRET: ("s3cr3t-pa55", "api-k3y-9f8e7d", "0123abcd-session", "correct horse battery"),
    kinds.BUCKET: ("moonshot-checkpoints/run9", "moonshot-logs"),
}  # fmt: skip
"""More than forty of them, by kind."""

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
    f"aws_access_key_id={SECRETS[kinds.CLOUD_KEY][0]}",
    f"aws_secret_access_key: {SECRETS[kinds.CLOUD_KEY][1]}",
    f"maps {SECRETS[kinds.CLOUD_KEY][2]}",
    *(f"token {token}" for token in SECRETS[kinds.TOKEN][:-1]),
    f"wandb login {SECRETS[kinds.TOKEN][-1]}",
    "curl https://zoltan7:tr0ub4dor@registry.example.org/v2",
    "password: s3cr3t-pa55",
    "serve --api-key api-k3y-9f8e7d",
    "export SESSION_TOKEN=0123abcd-session",
    'export VAULT_PASSPHRASE="correct horse battery"',
    "aws s3 cp s3://moonshot-checkpoints/run9 . && gsutil ls gs://moonshot-logs",
)
"""Where people leave them."""
TEXT = "\n".join([*LINES, PEM])
ENVIRONMENT = {"DEPLOY": "moonshot-staging", "PATH": "/opt/secret-sauce/bin:/bin", "RANK": "0"}
ENVIRONMENT |= {"USER": "zoltan7"}
ARGUMENTS = ["python", "finetune_moonshot.py", "--tuning-trick=warp9"]


def left_in(path: Path) -> list[str]:
    """The secrets that a file still holds, in its own bytes or decompressed."""
    data = path.read_bytes()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    data = data.lower()
    return [s for of in SECRETS.values() for s in of if s.encode().lower() in data]


def kineto(source: Path, target: Path) -> None:
    """A trace with metadata, texts of events and Python frames that tell too much."""
    trace = json.loads(gzip.decompress(source.read_bytes()))
    extra: dict[str, Any] = {"hostname": "gpunode-117", "username": "Quimby-Lead", "job_id": 88123456}
    extra |= {"argv": ARGUMENTS, "environment": ENVIRONMENT, "env_dump": TEXT}
    extra |= {"wandb_api_key": SECRETS[kinds.TOKEN][-1]}
    extra |= {"traceName": "/home/zoltan7/traces/gpunode-117_12.json"}
    events = trace["traceEvents"]
    first = min(event["ts"] for event in events if event.get("cat") == "kernel")
    frame = {"args": {"note": TEXT}, **events[-1], "ph": "X", "cat": "python_function"}
    frame |= {"ts": first, "dur": 0, "pid": 1, "tid": 1}
    events[3:3] = [frame | {"name": f"/home/zoltan7/m.py({i}): {line}"} for i, line in enumerate(LINES)]
    target.write_bytes(gzip.compress(json.dumps({**extra, **trace}).encode(), mtime=0))


CAPTURED = [("PROCESS_9:COMMAND", "finetune_moonshot.py"), ("PROCESS_9:ARGUMENT_0", "--tuning-trick=warp9")]
CAPTURED += [("PROCESS_9:USER_NAME", "Quimby-Lead")]
CAPTURED += [("PROCESS_9:ENVIRONMENT_VARIABLE", 'DEPLOY="moonshot-staging"'), ("NOTE", TEXT)]


def nsys(source: Path, target: Path) -> None:
    """An export whose tables of metadata, strings, processes and an unread one tell too much."""
    shutil.copyfile(source, target)
    target.chmod(0o644)
    told = [*(f"{name}={value}" for name, value in ENVIRONMENT.items()), "LANG=C", "HOME=/root"]
    strings = [(900_000 + i, line) for i, line in enumerate([*LINES, PEM])]
    system = "UPDATE TARGET_INFO_SYSTEM_ENV SET value = ? WHERE name = ?"
    with closing(sqlite3.connect(target)) as base, base:
        base.executemany("INSERT INTO META_DATA_CAPTURE VALUES (?, ?)", CAPTURED)
        base.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_USER', 'zoltan7')")
        base.execute(system, ["gpunode-117", "Hostname"])
        base.execute(system, ["\0".join(told), "DeviceEnvironment"])
        base.executemany("INSERT INTO StringIds VALUES (?, ?)", strings)
        base.execute("INSERT INTO PROCESSES VALUES (1, 1, 'sshd: Quimby-Lead [priv]')")
        base.execute("CREATE TABLE NOTES (id INTEGER PRIMARY KEY, note, raw)")
        base.execute("INSERT INTO NOTES VALUES (1, ?, ?)", (TEXT, b"\0\1" + TEXT.encode() + b"\xff"))
        base.execute("PRAGMA secure_delete = OFF")
        base.execute("CREATE TABLE GONE (note TEXT)")
        base.execute("INSERT INTO GONE VALUES (?)", [TEXT])
        base.execute("DROP TABLE GONE")


def xplane(source: Path, target: Path) -> None:
    """A profile with hosts, stats, texts in unknown fields and in a compiled program's bytes."""
    parts = []
    for where in proto.find_planes(source).planes:
        plane = proto.parse_plane(source, where)
        if where.name == "/host:CPU":
            _tell(plane)
        parts.append(field(1, plane.SerializeToString()))
    unknown = field(1, field(15, TEXT.encode()) + b"\x80\x01\x07")
    parts += [field(4, b"gpunode-117"), field(2, TEXT.encode()), field(100, unknown)]
    target.write_bytes(b"".join(parts))


def _tell(plane: Any) -> None:
    program = field(1, field(2, b"/home/zoltan7/m.py") + field(3, TEXT.encode()))
    told = {"hostname": "gpunode-117", "username": "Quimby-Lead", "command_line": " ".join(ARGUMENTS)}
    told |= {"environment": "DEPLOY=moonshot-staging", "Hlo Proto": program, "source": TEXT}
    told |= {"opaque": b"\xff\xfe" + TEXT.encode() + b"\xff"}
    first = 1 + max(entry.key for entry in plane.stat_metadata)
    for at, (name, value) in enumerate(told.items(), first):
        entry = plane.stat_metadata.add(key=at)
        entry.value.id, entry.value.name = at, name
        stat = plane.stats.add(metadata_id=at)
        setattr(stat, "bytes_value" if isinstance(value, bytes) else "str_value", value)
    key = 1 + max(entry.key for entry in plane.event_metadata)
    for i, line in enumerate(LINES):
        plane.event_metadata.add(key=key + i).value.name = f"$m.py:1 {line}"


CARD = f"""\
version: 2
id: planted
# run by Quimby-Lead
description: |-
{"".join(f"  {line}{chr(10)}" for line in TEXT.splitlines())}
workload:
  phase: training   # as always
contributor:
  name: Quimby-Lead
  contact: quimby@corp.example.com
evidence:
  source_url: https://example.org/planted
"""
SCRIPT = "#!/bin/bash\n" + TEXT + '\nsrun python train.py --lr 1e-4 --token "$HF_TOKEN" --out "$HOME/x"\n'
