# SPDX-License-Identifier: Apache-2.0
"""Plant generated secrets and identities in every format that redaction rewrites; count what is published.

`planted_secrets.py --rounds 5 --seed 1` generates a job of each format, with every secret in a context that
identifies it, and again, bare and encoded, in other places; runs `cclbench contribute`; and searches the
output byte by byte.  It prints a line for each class, and exits with 1 if a secret survives, a job is refused
or a document no longer parses.
"""

from __future__ import annotations

import argparse
import base64
import configparser
import contextlib
import csv
import gzip
import importlib
import io
import json
import os
import pickle
import random
import sqlite3
import struct
import sys
import tempfile
import tomllib
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import yaml
from secret_classes import HALVES, PlantedSecret, SecretClass, classes

# This folder's files are called like modules that Python has; builders of small files are the tests'.
sys.path.remove(str(Path(__file__).resolve().parent))
sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))

from cclbench.cli import main as cclbench
from cclbench.contribute import redaction
from cclbench.formats.xplane import proto

VERBOSE = "PLANTED_SECRETS_VERBOSE"
"""Of the environment: with it, what survived is printed."""
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


def encoded_forms(secret: PlantedSecret) -> Iterator[str]:
    """The value as other programs write it."""
    if secret.secret_class.alone:
        return
    raw = secret.value.encode()
    yield f"seen {secret.value} again"
    yield f"seen {secret.value.swapcase()} again"
    yield f"query?q={quote(secret.value, safe='')}"
    yield f"blob {base64.b64encode(raw).decode()} end"
    yield f"blob {base64.b64encode(b'x:' + raw + b'!').decode()} end"
    yield f"hex {raw.hex()} end"
    yield f"said {json.dumps(json.dumps(secret.value))[1:-1]} end"


def values_in(values: list[PlantedSecret], data: bytes) -> Iterator[PlantedSecret]:
    """Values found in the bytes in any encoding; independent of the search in cclbench."""
    folded = data.lower()
    for secret in values:
        if secret.traces:
            if any(trace.encode() in data for trace in secret.traces):
                yield secret
            continue
        raw = secret.value.encode()
        shifted = [base64.b64encode(bytes(by) + raw)[skip:-4] for by, skip in ((0, 0), (1, 4), (2, 4))]
        escaped = "".join(f"\\u{ord(letter):04x}" for letter in secret.value).encode()
        forms = [raw, raw.hex().encode(), quote(secret.value, safe="").encode(), raw[::-1], escaped]
        forms += [secret.value.encode(encoding) for encoding in ("utf-16-le", "utf-16-be")]
        forms.append(json.dumps(secret.value)[1:-1].encode())
        if any(form.lower() in folded for form in forms) or any(len(s) > 5 and s in data for s in shifted):
            yield secret


def environment(values: list[PlantedSecret]) -> dict[str, str]:
    """A process's environment with the values that occur in one."""
    variables = (secret.value for secret in values if secret.secret_class.name == "captured environment")
    return {"RANK": "0", "LANG": "C.UTF-8", "SHLVL": "1", **{f"PLAN_{i}": v for i, v in enumerate(variables)}}


def planted_texts(values: list[PlantedSecret]) -> list[str]:
    """All planted texts."""
    return [text for secret in values for text in (secret.text, *encoded_forms(secret)) if text]


def unread_bytes(values: list[PlantedSecret]) -> bytes:
    """Bytes that no reader sees: for free pages, unknown fields and headers."""
    return b"\n".join(secret.value.encode() for secret in values)


def gzip_with_metadata(data: bytes, metadata: bytes) -> bytes:
    """A gzip file with an extra field, a name and a comment (RFC 1952)."""
    deflate = zlib.compressobj(wbits=-15)
    body = deflate.compress(data) + deflate.flush()
    line = metadata.replace(b"\n", b" ")[:2000]
    fields = struct.pack("<H", len(line)) + line + line + b"\0" + line + b"\0"
    return b"\x1f\x8b\x08\x1c" + bytes(6) + fields + body + struct.pack("<II", zlib.crc32(data), len(data))


def kineto(folder: Path, values: list[PlantedSecret]) -> str:
    """Two ranks, a dump of PyTorch's Flight Recorder and a memory snapshot."""
    job = importlib.import_module("contribute.conftest")
    recorder = importlib.import_module("formats.test_flight_recorder")
    for rank in (0, 1):
        trace = job.trace(rank) | {
            "owner": None,
            "environment": environment(values),
            "notes": planted_texts(values),
        }
        first = trace["traceEvents"][0]
        trace["traceEvents"] += [
            {
                **first,
                "cat": "python_function",
                "name": f"m.py({i}): {text}",
                "dur": 0,
                "args": {"note": text},
            }
            for i, text in enumerate(planted_texts(values))
        ]
        content = gzip_with_metadata(
            json.dumps(trace, ensure_ascii=bool(rank)).encode(), unread_bytes(values)
        )
        (folder / f"rank{rank}.json.gz").write_bytes(content)
    dump = recorder.dump(recorder.entry()) | {"env": environment(values), "notes": planted_texts(values)}
    (folder / "nccl_trace_rank_0").write_bytes(pickle.dumps(dump, protocol=2) + unread_bytes(values))
    snapshots = importlib.import_module("formats.test_memory_snapshot")
    frames = [{"name": text, "filename": text, "line": 1} for text in planted_texts(values)]
    event = snapshots.event("alloc", 4096, 8, frames=frames)
    snapshot = snapshots.snapshot([], [event]) | {"environment": environment(values)}
    (folder / "rank0_memory_snapshot.pickle").write_bytes(pickle.dumps(snapshot) + unread_bytes(values))
    return "pytorch"


def nsys(folder: Path, values: list[PlantedSecret]) -> str:
    """An export with texts in three tables, in bytes, and in unused pages."""
    files = importlib.import_module("helpers.nsys_files")
    path = folder / "capture.sqlite"
    steps = (0, 1000, 2000)
    marks = [files.nvtx(at, at + 900, f"step {at // 1000}") for at in steps]
    files.write(
        path,
        StringIds=files.strings("gemm", "cudaLaunchKernel", *planted_texts(values)),
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
        ProcessStreams=[
            {"globalPid": 1, "filenameId": i, "contentId": i} for i, _ in enumerate(planted_texts(values))
        ],
        NOTES=[{"note": text, "raw": b"\0\1" + text.encode() + b"\xff"} for text in planted_texts(values)],
        WIDE=[
            {"raw": b"\0" + secret.value.encode("utf-16-le") + b"\0"}
            for secret in values
            if list(encoded_forms(secret))
        ],
    )
    with closing(sqlite3.connect(path)) as base, base:
        base.execute("PRAGMA secure_delete = OFF")
        base.execute("CREATE TABLE GONE (note)")
        base.execute("INSERT INTO GONE VALUES (?)", [unread_bytes(values)])
        base.execute("DROP TABLE GONE")
    return "pytorch"


def xplane(folder: Path, values: list[PlantedSecret]) -> str:
    """A TPU profile with texts in stats, bytes, metadata, errors and unknown fields."""
    files = importlib.import_module("helpers.xplane_files")
    plane = files.tpu(0, [("loop", 0, 400, {}), ("dot", 500, 300, {}), ("psum", 1000, 200, {})])
    blob = "\n".join(planted_texts(values)).encode()
    notes = files.Plane(
        "/host:notes", program=b"\x0a" + files.varint(len(blob)) + blob, raw=b"\xff\xfe" + blob
    )
    for text in dict.fromkeys(planted_texts(values)):
        notes.described(text, note=text)
    variables = "\0".join(f"{key}={value}" for key, value in environment(values).items())
    notes._say(notes.message.stats, {"environment": variables})
    unknown = files.varint(100 << 3 | 2) + files.varint(len(unread_bytes(values))) + unread_bytes(values)
    message = proto.message_class().FromString(notes.message.SerializeToString() + unknown)
    notes.message = message
    data = files.space(plane, files.environment(), notes) + unknown
    data += b"\x12" + files.varint(len(blob)) + blob
    (folder / "host.xplane.pb").write_bytes(data)
    return "jax"


FORMATS = {"kineto and pickle": kineto, "nsys": nsys, "xplane": xplane}


def documents(folder: Path, lines: list[str]) -> None:
    """Write every text as a value of a document in each language, and as a line of a log."""
    (folder / "notes.json").write_text(json.dumps({"notes": lines}) + "\n" + "\0" * 512)
    (folder / "config.yaml").write_text(yaml.safe_dump({"notes": lines}, allow_unicode=True), "utf-8")
    values = "\n".join(f"n{i} = {json.dumps(line, ensure_ascii=False)}" for i, line in enumerate(lines))
    (folder / "config.toml").write_text(f"[notes]\n{values}\n", "utf-8")
    values = "\n".join(f"n{i} = {line}" for i, line in enumerate(lines) if line.isprintable())
    (folder / "config.ini").write_text(f"[notes]\n{values}\n", "utf-8")
    with (folder / "notes.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([i, line, 0.5] for i, line in enumerate(lines))
    (folder / "job.log").write_text("\n".join(lines), "utf-8")


def write_job(
    folder: Path, make: Callable[[Path, list[PlantedSecret]], str], values: list[PlantedSecret]
) -> list[str]:
    """Write a contributor's files to the folder; returns the command that contributes them."""
    for part in ("capture", "launch", "collection"):
        (folder / part).mkdir(parents=True)
    framework = make(folder / "capture", values)
    script = "#!/bin/sh\n" + "\n".join(planted_texts(values)) + "\n"
    (folder / "launch" / "run.sh").write_text(script, encoding="utf-8")
    documents(folder / "launch", planted_texts(values))
    description = "; ".join(secret.text for secret in values[:5] if "\n" not in secret.text)
    card = CARD.format(description=json.dumps(description), framework=framework)
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


def run_cclbench(words: list[str]) -> tuple[int, str]:
    """Run a command of cclbench; returns its exit code and messages."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = cclbench(words)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
    return int(code or 0), err.getvalue()


def values_below(folder: Path, values: list[PlantedSecret]) -> set[PlantedSecret]:
    """Values in files below the folder: in names, in bytes, and decompressed."""
    found = set[PlantedSecret]()
    for path in sorted(folder.rglob("*")):
        found.update(values_in(values, str(path.relative_to(folder)).encode()))
        if path.is_file():
            data = path.read_bytes()
            found.update(values_in(values, data))
            if data[:2] == b"\x1f\x8b":
                found.update(values_in(values, gzip.decompress(data)))
    return found


def unparsable(folder: Path) -> list[str]:
    """Documents below the folder that no longer parse."""
    parsers: dict[str, Callable[[str], object]] = {
        ".yaml": yaml.safe_load,
        ".json": json.loads,
        ".toml": tomllib.loads,
        ".ini": lambda text: configparser.RawConfigParser().read_string(text),
        ".csv": lambda text: list(csv.reader(io.StringIO(text), strict=True)),
    }
    broken = []
    for path in sorted(path for path in folder.rglob("*") if path.suffix in parsers):
        try:
            parsers[path.suffix](path.read_text(encoding="utf-8"))
        except (ValueError, yaml.YAMLError, configparser.Error, csv.Error) as error:
            broken.append(f"{path.name} no longer parses: {error}")
    return broken


def campaign(
    chosen: list[SecretClass], rounds: int, seed: int
) -> tuple[Counter[str], Counter[str], Counter[str], list[str]]:
    """Planted and surviving secrets by class, survivors by format and class, and faults.

    Faults are refused jobs and documents that no longer parse.
    """
    planted, survived, where, faults = Counter[str](), Counter[str](), Counter[str](), list[str]()
    rng = random.Random(seed)  # noqa: S311 - no real secrets
    for title, make in FORMATS.items():
        values = [secret_class.planted(number, rng) for number in range(rounds) for secret_class in chosen]
        with tempfile.TemporaryDirectory() as folder:
            words = write_job(Path(folder), make, values)
            planted.update(secret.secret_class.name for secret in values_below(Path(folder), values))
            code, messages = run_cclbench(words)
            if code:
                faults.append(f"{title}: exit code {code}: {messages.strip()}")
            collection = Path(folder) / "collection"
            found = values_below(collection, values)
            survived.update(secret.secret_class.name for secret in found)
            where.update(f"{title}: {secret.secret_class.name}" for secret in found)
            faults += [f"{title}: {why}" for why in unparsable(collection)]
            if VERBOSE in os.environ:
                for secret in sorted(found, key=lambda secret: secret.secret_class.name):
                    print(
                        f"{title}: {secret.secret_class.name}: {secret.text!r} {secret.value!r}",
                        file=sys.stderr,
                    )
    return planted, survived, where, faults


def one_by_one(chosen: list[SecretClass], seed: int) -> tuple[Counter[str], Counter[str], list[str]]:
    """As `campaign`, with each text of each class alone in a log, in JSON and in YAML.

    No other text identifies the secret; its encoded forms are in a second file.
    """
    planted, survived, faults = Counter[str](), Counter[str](), list[str]()
    rng = random.Random(seed)  # noqa: S311 - no real secrets
    for secret_class in chosen:
        for number in range(max(len(secret_class.texts), 2) if secret_class.texts[0] else 0):
            secret = secret_class.planted(number, rng)
            for name, text in (
                ("job.log", secret.text + "\n"),
                ("notes.json", json.dumps({"notes": [secret.text]})),
                ("config.yaml", yaml.safe_dump({"notes": [secret.text]}, allow_unicode=True)),
            ):
                with tempfile.TemporaryDirectory() as folder:
                    files = [Path(folder, name), Path(folder, "echoes.txt")]
                    files[0].write_text(text, encoding="utf-8")
                    files[1].write_text("\n".join(encoded_forms(secret)) + "\n", encoding="utf-8")
                    known, target = redaction.collect_identities(files), Path(folder, "redacted")
                    target.mkdir()
                    for path in files:
                        redaction.redact_file(path, target / path.name, identities=known)
                    planted[secret_class.name] += 1
                    faults += [f"{secret_class.name}: {why}" for why in unparsable(target)]
                    if values_below(target, [secret]):
                        survived[secret_class.name] += 1
                        if VERBOSE in os.environ:
                            print(f"{name}: {secret_class.name}: {secret.text!r}", file=sys.stderr)
    return planted, survived, faults


def replacements(paths: list[Path]) -> Counter[str]:
    """Replacements in texts without a secret, by file and rule."""
    known = redaction.collect_identities(paths)
    with tempfile.TemporaryDirectory() as folder:
        changes = (
            change
            for path in paths
            for change in redaction.redact_file(path, Path(folder, path.name), identities=known)
        )
        return Counter(f"{change.file}: {change.place}: {change.rule}" for change in changes)


def main() -> int:
    """Print the table; returns 1 if a secret survives, nothing was published or a document does not parse."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="secrets of each class in each format")
    parser.add_argument("--every", type=int, default=1, help="use only every so many classes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--half", choices=HALVES, help="half of the classes, drawn by a seed (default: all)")
    parser.add_argument(
        "--one-by-one", action="store_true", help="each secret alone in a log, in JSON and in YAML"
    )
    parser.add_argument("--clean", type=Path, nargs="+", help="only print the replacements in these files")
    asked = parser.parse_args()
    if asked.clean:
        for what, count in sorted(replacements(asked.clean).items()):
            print(f"{what} ({count})")
        return 0
    chosen = classes(asked.half)[:: asked.every]
    where = Counter[str]()
    if asked.one_by_one:
        planted, survived, faults = one_by_one(chosen, asked.seed)
    else:
        planted, survived, where, faults = campaign(chosen, asked.rounds, asked.seed)
    print("| class | planted | survived |")
    print("| --- | ---: | ---: |")
    for secret_class in chosen:
        formats = [title for title in FORMATS if where[f"{title}: {secret_class.name}"]]
        places = f" in {', '.join(formats)}" if formats else ""
        print(
            f"| {secret_class.name} | {planted[secret_class.name]} | {survived[secret_class.name]}{places} |"
        )
    mode = "one by one" if asked.one_by_one else f"in {len(FORMATS)} jobs"
    print(f"| all, {mode} | {planted.total()} | {survived.total()} |")
    for why in faults:
        print(why, file=sys.stderr)
    return 1 if survived or faults else 0


if __name__ == "__main__":
    sys.exit(main())
