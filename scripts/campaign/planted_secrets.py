# SPDX-License-Identifier: Apache-2.0
"""Plant generated secrets and identities in every format that redaction rewrites; count what is published.

`planted_secrets.py --secrets 200 --seed 1` makes a job of each format, with every secret in what gives it
away and again, bare and encoded, in other places; runs `cclbench contribute`; and searches what it has
written, byte for byte.  It prints a line a class, and exits with 1 where any survives or a job is refused.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import gzip
import importlib
import io
import json
import pickle
import random
import sqlite3
import string
import struct
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

# This folder's files are called like modules that Python has; builders of small files are the tests'.
sys.path.remove(str(Path(__file__).resolve().parent))
sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))

from cclbench.cli import main as cclbench
from cclbench.formats.xplane import proto

LOWER, ALNUM, HEX = string.ascii_lowercase, string.ascii_letters + string.digits, "0123456789abcdef"
Draw = Callable[[random.Random], str]
CARD = """\
version: 2
id: campaign
description: >-
  A job of the campaign, {description}
workload:
  phase: training
  precision: fp32
  model: {{parameters: 8325632, embedding_parameters: 1048576, tied_embeddings: false,
          layers: 2, heads: 8, head_dim: 64}}
  batch: {{global: 16, sequence_length: 128}}
hardware: {{per_node: 2}}
software: {{framework: {{name: {framework}}}}}
parallelism: {{dp_replicate: 2}}
"""


def of(letters: str, count: int) -> Draw:
    """So many of these letters, a digit among them where letters have digits."""

    def draw(rng: random.Random) -> str:
        drawn = "".join(rng.choices(letters, k=count))
        return drawn[:3] + str(rng.randrange(2, 10)) + drawn[4:] if "0" in letters else drawn

    return draw


def name(rng: random.Random) -> str:
    """A user's or host's: no word of any language."""
    return (
        "".join(rng.choices("bcdfghjklmnpqrstvwxz", k=3))
        + "".join(rng.choices(LOWER, k=4))
        + str(rng.randrange(10, 99))
    )


@dataclass(frozen=True)
class Kind:
    """A class: what its secrets look like, and the text that gives one away.

    `alone`: that text is all that tells it is one, so it is planted nowhere else.
    """

    draw: Draw
    told: str = "{}"
    alone: bool = False


def prefixed(begin: str, letters: str = ALNUM, count: int = 40) -> Kind:
    """A token that its issuer's prefix gives away."""
    tail = of(letters, count)
    return Kind(lambda rng: begin + tail(rng))


def hexed(rng: random.Random, *groups: int, between: str = "-") -> str:
    """Hexadecimal groups of these lengths."""
    return between.join("".join(rng.choices(HEX, k=size)) for size in groups)


KINDS = {
    "Stripe": prefixed("sk_live_", count=24),
    "SendGrid": prefixed("SG.", ALNUM + "_-", 66),
    "Vault": prefixed("hvs.", ALNUM, 92),
    "Databricks": prefixed("dapi", HEX, 32),
    "LangSmith": prefixed("lsv2_pt_", HEX, 32),
    "Tailscale": prefixed("tskey-auth-", ALNUM, 30),
    "Fireworks": prefixed("fw_", ALNUM, 24),
    "age": prefixed("AGE-SECRET-KEY-1", "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58),
    "Twilio": prefixed("SK", HEX, 32),
    "Hugging Face": prefixed("hf_", string.ascii_letters, 34),
    "GitHub": prefixed("ghp_", ALNUM, 36),
    "AWS": Kind(lambda rng: "AKIA" + "".join(rng.choices(string.ascii_uppercase + "234567", k=16))),
    "W&B hex": Kind(of(HEX, 40), "wandb login {}"),
    "curl -u": Kind(of(ALNUM, 14), "curl -s -u robot:{} https://api.example.org/v1"),
    "mysql -p": Kind(of(ALNUM, 12), "mysql -h db -u robot -p{} runs"),
    "kaggle.json": Kind(of(HEX, 32), '{{"username":"robot","key":"{}"}}'),
    "docker auth": Kind(
        lambda rng: base64.b64encode(("robot:" + of(ALNUM, 12)(rng)).encode()).decode(),
        '{{"auths": {{"registry.example.org": {{"auth": "{}"}}}}}}',
    ),
    "Azure client secret": Kind(
        lambda rng: of(ALNUM, 3)(rng)[:3] + "8Q~" + of(ALNUM, 34)(rng), "az login {}"
    ),
    "variable": Kind(of(ALNUM, 16), "export DEPLOY_PASSWORD={}"),
    "bare key": Kind(of(ALNUM, 32), "the API key is {}"),
    "bucket": Kind(name, "aws s3 sync out s3://{}/run"),
    "private key": Kind(of(ALNUM, 64), "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----"),
    "user by variable": Kind(name, "USER={}"),
    "user in /mnt/nfs": Kind(name, "cd /mnt/nfs/{}/src"),
    "user in /scratch/project": Kind(name, "ls /scratch/m2718/{}/out"),
    "~user": Kind(name, "source ~{}/env.sh"),
    "home with a space": Kind(
        lambda rng: f"{name(rng).capitalize()} {name(rng).capitalize()}", "open /Users/{}/Desktop/x"
    ),
    "e-mail with umlaut": Kind(lambda rng: f"{name(rng)}.mül{name(rng)}@grün-{name(rng)}.example", "mail {}"),
    "user of an SSH key": Kind(name, "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIO {}@laptop"),
    "host by variable": Kind(name, "SLURMD_NODENAME={}"),
    "host of a domain": Kind(name, "see http://{}.build.corp/x"),
    "internal domain": Kind(lambda rng: f"{name(rng)}.example", "HOSTNAME=gpu17.{} and ops.{}"),
    "job": Kind(lambda rng: f"llm-{name(rng)}", "#SBATCH --job-name={}"),
    "GPU UUID": Kind(lambda rng: hexed(rng, 8, 4, 4, 4, 12), "GPU 0: H100 (UUID: GPU-{})"),
    "InfiniBand GUID": Kind(lambda rng: f"0x{hexed(rng, 16)}", "Node GUID: {}"),
    "hardware address": Kind(lambda rng: "02:" + hexed(rng, 2, 2, 2, 2, 2, between=":"), "link/ether {} brd"),
    "IPv4 address": Kind(
        lambda rng: ".".join(["10", *(str(rng.randrange(11, 250)) for _ in range(3))]), "tcp://{}:29500", True
    ),
    "phone number": Kind(lambda rng: f"+49 170 {rng.randrange(10**6, 10**7)}", "call {} at night"),
    "captured environment": Kind(lambda rng: f"{name(rng)}-{name(rng)}", "", True),
}
"""Captured environments are planted where a format has them, and told by nothing else."""


@dataclass(frozen=True)
class Planted:
    """One secret of a class."""

    kind: str
    value: str

    @property
    def told(self) -> str:
        """The text that gives it away."""
        return KINDS[self.kind].told.replace("{{", "{").replace("}}", "}").replace("{}", self.value)

    def echoes(self) -> Iterator[str]:
        """The value again, as other programs write it."""
        if KINDS[self.kind].alone and self.kind != "captured environment":
            return
        raw = self.value.encode()
        yield f"seen {self.value} again"
        yield f"seen {self.value.swapcase()} again"
        yield f"query?q={quote(self.value, safe='')}"
        yield f"blob {base64.b64encode(raw).decode()} end"
        yield f"blob {base64.b64encode(b'x:' + raw + b'!').decode()} end"
        yield f"hex {raw.hex()} end"
        yield f"said {json.dumps(json.dumps(self.value))[1:-1]} end"


def searched(values: list[Planted], data: bytes) -> Iterator[Planted]:
    """Those that are in the bytes, in any of the encodings; written apart from what cclbench looks with."""
    folded = data.lower()
    for one in values:
        raw = one.value.encode()
        shifted = [base64.b64encode(bytes(by) + raw)[skip:-4] for by, skip in ((0, 0), (1, 4), (2, 4))]
        escaped = "".join(f"\\u{ord(letter):04x}" for letter in one.value).encode()
        forms = [raw, raw.hex().encode(), quote(one.value, safe="").encode(), raw[::-1], escaped]
        forms += [
            one.value.encode("utf-16-le"),
            one.value.encode("utf-16-be"),
            json.dumps(one.value)[1:-1].encode(),
        ]
        if any(form.lower() in folded for form in forms) or any(len(s) > 5 and s in data for s in shifted):
            yield one


def environment(values: list[Planted]) -> dict[str, str]:
    """A process's environment with those that stand in one."""
    own = (one.value for one in values if one.kind == "captured environment")
    return {"RANK": "0", "LANG": "C.UTF-8", "SHLVL": "1", **{f"PLAN_{i}": v for i, v in enumerate(own)}}


def texts(values: list[Planted]) -> list[str]:
    """All that is planted as texts."""
    return [text for one in values for text in (one.told, *one.echoes()) if text]


def hidden(values: list[Planted]) -> bytes:
    """What no reader sees: for free pages, unknown fields and headers."""
    return b"\n".join(one.value.encode() for one in values)


def packed(data: bytes, unseen: bytes) -> bytes:
    """A gzip file with an extra field, a name and a comment (RFC 1952)."""
    deflate = zlib.compressobj(wbits=-15)
    body = deflate.compress(data) + deflate.flush()
    line = unseen.replace(b"\n", b" ")[:2000]
    fields = struct.pack("<H", len(line)) + line + line + b"\0" + line + b"\0"
    return b"\x1f\x8b\x08\x1c" + bytes(6) + fields + body + struct.pack("<II", zlib.crc32(data), len(data))


def kineto(folder: Path, values: list[Planted]) -> str:
    """Two ranks, and a dump of PyTorch's Flight Recorder and a memory snapshot beside them."""
    job = importlib.import_module("contribute.conftest")
    recorder = importlib.import_module("formats.test_flight_recorder")
    for rank in (0, 1):
        trace = job.trace(rank) | {"owner": None, "environment": environment(values), "notes": texts(values)}
        first = trace["traceEvents"][0]
        trace["traceEvents"] += [
            {
                **first,
                "cat": "python_function",
                "name": f"m.py({i}): {text}",
                "dur": 0,
                "args": {"note": text},
            }
            for i, text in enumerate(texts(values))
        ]
        content = packed(json.dumps(trace, ensure_ascii=bool(rank)).encode(), hidden(values))
        (folder / f"rank{rank}.json.gz").write_bytes(content)
    dump = recorder.dump(recorder.entry()) | {"env": environment(values), "notes": texts(values)}
    (folder / "nccl_trace_rank_0").write_bytes(pickle.dumps(dump, protocol=2) + hidden(values))
    snapshots = importlib.import_module("formats.test_memory_snapshot")
    frames = [{"name": text, "filename": text, "line": 1} for text in texts(values)]
    event = snapshots.event("alloc", 4096, 8, frames=frames)
    taken = snapshots.snapshot([], [event]) | {"environment": environment(values)}
    (folder / "rank0_memory_snapshot.pickle").write_bytes(pickle.dumps(taken) + hidden(values))
    return "pytorch"


def nsys(folder: Path, values: list[Planted]) -> str:
    """An export with texts in three tables, bytes, and pages that it no longer uses."""
    files = importlib.import_module("formats.nsys_files")
    path = folder / "capture.sqlite"
    steps = (0, 1000, 2000)
    marks = [files.nvtx(at, at + 900, f"step {at // 1000}") for at in steps]
    files.write(
        path,
        StringIds=files.strings("gemm", "cudaLaunchKernel", *texts(values)),
        CUPTI_ACTIVITY_KIND_KERNEL=[
            files.kernel(at + 100, at + 500, correlationId=1 + at) for at in (0, 1000, 2000)
        ],
        CUPTI_ACTIVITY_KIND_RUNTIME=[files.call(at + 10, at + 20, 1 + at) for at in steps],
        NVTX_EVENTS=marks,
        TARGET_INFO_SESSION_START_TIME=files.SESSION,
        META_DATA_CAPTURE=[
            {"name": "PROCESS_1:ENVIRONMENT_VARIABLE", "value": f'{key}="{value}"'}
            for key, value in environment(values).items()
        ],
        NOTES=[{"note": text, "raw": b"\0\1" + text.encode() + b"\xff"} for text in texts(values)],
        WIDE=[{"raw": b"\0" + one.value.encode("utf-16-le") + b"\0"} for one in values if list(one.echoes())],
    )
    with closing(sqlite3.connect(path)) as base, base:
        base.execute("PRAGMA secure_delete = OFF")
        base.execute("CREATE TABLE GONE (note)")
        base.execute("INSERT INTO GONE VALUES (?)", [hidden(values)])
        base.execute("DROP TABLE GONE")
    return "pytorch"


def xplane(folder: Path, values: list[Planted]) -> str:
    """A profile of a TPU with texts in stats, bytes, metadata, errors, and in fields that nobody knows."""
    files = importlib.import_module("formats.xplane_files")
    plane = files.tpu(0, [("loop", 0, 400, {}), ("dot", 500, 300, {}), ("psum", 1000, 200, {})])
    blob = "\n".join(texts(values)).encode()
    told = files.Plane(
        "/host:notes", program=b"\x0a" + files.varint(len(blob)) + blob, raw=b"\xff\xfe" + blob
    )
    for text in dict.fromkeys(texts(values)):
        told.described(text, note=text)
    variables = "\0".join(f"{key}={value}" for key, value in environment(values).items())
    told._say(told.message.stats, {"environment": variables})
    unknown = files.varint(100 << 3 | 2) + files.varint(len(hidden(values))) + hidden(values)
    message = proto.message_class().FromString(told.message.SerializeToString() + unknown)
    told.message = message
    data = files.space(plane, files.environment(), told) + unknown
    data += b"\x12" + files.varint(len(blob)) + blob
    (folder / "host.xplane.pb").write_bytes(data)
    return "jax"


FORMATS = {"kineto and pickle": kineto, "nsys": nsys, "xplane": xplane}


def job(folder: Path, make: Callable[[Path, list[Planted]], str], values: list[Planted]) -> list[str]:
    """A contributor's files in the folder, and the command that contributes them."""
    for part in ("capture", "launch", "collection"):
        (folder / part).mkdir(parents=True)
    framework = make(folder / "capture", values)
    script = "#!/bin/sh\n" + "\n".join(texts(values)) + "\n"
    (folder / "launch" / "run.sh").write_text(script, encoding="utf-8")
    (folder / "launch" / "notes.json").write_text(json.dumps({"notes": texts(values)}) + "\n" + "\0" * 512)
    of_card = "; ".join(one.told for one in values[:5] if "\n" not in one.told)
    card = CARD.format(description=json.dumps(of_card), framework=framework)
    (folder / "card.yaml").write_text(card, encoding="utf-8")
    paths = [
        str(folder / "card.yaml"),
        "--traces",
        str(folder / "capture"),
        "--scripts",
        str(folder / "launch"),
    ]
    paths += ["--collection", str(folder / "collection"), "--licence", "Apache-2.0", "--jobs", "1"]
    return ["contribute", *paths, "--allow-gaps", "--no-input", "--json"]


def called(words: list[str]) -> tuple[int, str]:
    """Exit code and messages of a call of cclbench."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = cclbench(words)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
    return int(code or 0), err.getvalue()


def found_in(folder: Path, values: list[Planted]) -> set[Planted]:
    """Those that files below the folder hold: in names, in bytes, and decompressed."""
    found = set[Planted]()
    for path in sorted(folder.rglob("*")):
        found.update(searched(values, str(path.relative_to(folder)).encode()))
        if path.is_file():
            data = path.read_bytes()
            found.update(searched(values, data))
            if data[:2] == b"\x1f\x8b":
                found.update(searched(values, gzip.decompress(data)))
    return found


def campaign(secrets: int, seed: int) -> tuple[Counter[str], Counter[str], list[str]]:
    """How many of each class were planted and survived, by class and format; and why jobs were refused."""
    planted, survived, refused = Counter[str](), Counter[str](), list[str]()
    rng = random.Random(seed)  # noqa: S311 - of nothing real
    kinds = list(KINDS)
    for title, make in FORMATS.items():
        of_kinds = [kinds[i % len(kinds)] for i in range(secrets)]
        values = [Planted(kind, KINDS[kind].draw(rng)) for kind in of_kinds]
        with tempfile.TemporaryDirectory() as folder:
            words = job(Path(folder), make, values)
            planted.update(one.kind for one in found_in(Path(folder), values))
            code, told = called(words)
            if code:
                refused.append(f"{title}: exit code {code}: {told.strip()}")
            found = found_in(Path(folder) / "collection", values)
            survived.update(one.kind for one in found)
            survived.update(f"{title}: {one.kind}" for one in found)
    return planted, survived, refused


def main() -> int:
    """The table; 1 where a secret survives or nothing was published."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--secrets", type=int, default=200, help="planted in each format")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    planted, survived, refused = campaign(asked.secrets, asked.seed)
    print("| class | planted | survived |")
    print("| --- | ---: | ---: |")
    for kind in KINDS:
        if kind in planted:
            where = [title for title in FORMATS if survived[f"{title}: {kind}"]]
            print(f"| {kind} | {planted[kind]} | {survived[kind]}{' in ' * bool(where)}{', '.join(where)} |")
    left = sum(survived[kind] for kind in KINDS)
    print(f"| all, in {len(FORMATS)} jobs | {planted.total()} | {left} |")
    for why in refused:
        print(why, file=sys.stderr)
    return 1 if left or refused else 0


if __name__ == "__main__":
    sys.exit(main())
