# SPDX-License-Identifier: Apache-2.0
"""Numbers that trainers log with TensorBoard and W&B: what is read, what is refused, what is published."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from helpers import redact_planted as planted
from helpers.changed_bytes import read_or_refused
from helpers.scalar_files import (
    crc32c,
    event,
    event_file,
    field,
    history,
    scalar,
    tensorflow_record,
    wandb_file,
    wandb_record,
)

from cclbench.contribute.redaction import PublicNames, redact_evidence
from cclbench.formats import Evidence, EvidenceReader, recognise_format
from cclbench.formats.job_log.scalars import PRODUCERS
from cclbench.formats.tensorboard import TensorBoardEvents
from cclbench.formats.tensorboard.records import checksums, framed_records
from cclbench.formats.wandb import WandbReader
from cclbench.ground.errors import InputError

Read = Callable[..., Evidence]
START = 1_700_000_000.0
STEPS = [(START + 2 * n, n, "lm loss", 10 - n / 8) for n in range(1, 4)]


@pytest.fixture
def read(written: Callable[..., Path]) -> Read:
    """Reads bytes as the format that they are recognised as."""
    return lambda content: recognise_format(path := written(content, "file"), content[: 1 << 16]).read(path)


def columns(found: Evidence, *names: str) -> list[tuple[Any, ...]]:
    """Rows as tuples of these columns."""
    return [tuple(row[name] for name in names) for row in found.log_steps.to_pylist()]


def test_the_checksum_is_that_of_its_definition() -> None:
    """CRC-32C of "123456789" is 0xE3069283 (RFC 3720); lengths of all kinds, in one array."""
    assert crc32c(b"123456789") == 0xE3069283
    chance = Random(34)  # noqa: S311
    texts = [chance.randbytes(size) for size in (0, 1, 9, 300, 5, 0, 64)]
    stated = [int.from_bytes(tensorflow_record(text)[-4:], "little") for text in texts]
    assert checksums(texts).tolist() == stated
    assert framed_records(texts) == b"".join(map(tensorflow_record, texts))


def test_events_of_a_step_are_a_row(read: Read) -> None:
    """Two seconds between steps; a time that is stated has precedence."""
    told = {"iteration-time": 1.5, "batch-size": 32, "mine": 7}
    rest = [(START + 5, 2, tag, value) for tag, value in told.items()]
    found = read(event_file([*STEPS[:2], *rest, STEPS[2]]))
    assert columns(found, "step", "dur_ns", "timed_by", "samples", "loss") == [
        *((1, None, None, None, 9.875), (2, 1_500_000_000, "stated", 32, 9.75)),
        (3, 2_000_000_000, "stamps", None, 9.625),
    ]
    assert found.facts == {"producer": "megatron", "clock": "utc"}


def test_rows_of_several_trainers(read: Read) -> None:
    """Steps 2 and 4 have seen 100 and 500 tokens: 200 a step; the first line's are unknown."""
    lines = []
    for wall, step, count in ((START, 2, 100.0), (START + 8, 4, 500.0)):
        lines += [(wall, step, "loss_metrics/global_avg_loss", 1.0), (wall, step, "n_tokens_seen", count)]
    assert columns(read(event_file(lines)), "step", "tokens") == [(2, None), (4, 200)]
    # `throughput` is TFLOP/s of Megatron-LM, and anything of others
    found = read(event_file([(START + n, n, "throughput", 50.0) for n in range(3)]))
    assert columns(found, "step", "flops_per_s") == [(0, None), (1, None), (2, None)]
    assert found.facts["producer"] == "scalars"


@pytest.mark.parametrize(("producer", "tags"), PRODUCERS)
def test_trainers_tags_fill_columns(producer: str, tags: dict[str, tuple[str, float]], read: Read) -> None:
    found = read(event_file([(START, 1, tag, 2.0) for tag in tags]))
    (row,) = found.log_steps.to_pylist()
    assert found.facts["producer"] == producer
    for name, factor in tags.values():
        if name == "step_s":
            assert row["dur_ns"] == pytest.approx(2e9 * factor)
        elif name != "consumed_tokens":
            assert row[name] == pytest.approx(2 * factor)


def test_scalars_as_tensors(read: Read) -> None:
    """`float_val`, and `tensor_content` of a float; a vector is no scalar."""
    listed = field(1, b"loss") + field(8, b"\x08\x01" + field(5, b"\x00\x00\x00\x40"))
    packed = field(1, b"loss") + field(8, b"\x08\x01" + field(4, b"\x00\x00\x80\x3f"))
    vector = field(1, b"loss") + field(8, b"\x08\x01" + field(5, b"\x00\x00\x80\x3f" * 2))
    events = [event(START + n, n, value) for n, value in enumerate((listed, packed, vector))]
    found = read(event_file([]) + b"".join(map(tensorflow_record, events)))
    assert columns(found, "step", "loss") == [(0, 2.0), (1, 1.0)]
    assert found.left_out == {"values that are not scalars": 1}


def test_a_job_that_was_ended_while_it_wrote_and_long_records(read: Read) -> None:
    whole = event_file(STEPS)
    for cut in (3, 20):
        found = read(whole[:-cut])
        assert [step for (step,) in columns(found, "step")] == [1, 2]
        assert found.notes == ["the last record is cut: the job was ended while it wrote"]
    image = tensorflow_record(event(START, 1, field(1, b"image") + field(4, bytes(70_000))))
    found = read(event_file(STEPS[:1]) + image + event_file(STEPS[1:]))
    assert [step for (step,) in columns(found, "step")] == [1, 2, 3]
    assert found.left_out["records that are too long"] == 1


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (event_file([]), "has no scalar"),
        (event_file(STEPS).replace(b"lm loss", b"lm lass"), "byte 42: has a wrong checksum"),
        (event_file(STEPS)[:43] + b"\xff" + event_file(STEPS)[44:], "has a wrong checksum"),
        (event_file(STEPS) + tensorflow_record(b"\x0f"), "has a record that is no event"),
        *((wandb_file(), "has no scalar"), (wandb_file(wandb_record(2, b"\x0a\x05ab")), "no message of W&B")),
        (wandb_file(history({"loss": 1})).replace(b"loss", b"lass"), "checksum or length is wrong"),
        (b'{"_step": 1, "_runtime": 2, "_timestamp": 3', "is no JSON"),
        (b'{"_step": 1, "_runtime": 2, "_timestamp": 3}', "has no scalar"),
    ],
)
def test_damaged_files_are_refused(content: bytes, why: str, read: Read) -> None:
    with pytest.raises(InputError, match=why):
        read(content)


def test_a_log_of_wandb(read: Read) -> None:
    """The trainer's own step, not W&B's count of calls; records may span blocks; others are not read."""
    records = [
        history({"_step": n, "_timestamp": START + 3 * n, "train/global_step": 10 * n, "train/loss": 5 - n})
        for n in (1, 2, 3)
    ]
    found = read(wandb_file(wandb_record(13, bytes(40_000)), *records[:2], wandb_record(17, b""), records[2]))
    assert columns(found, "step", "steps", "dur_ns", "loss") == [
        *((10, 10, None, 4.0), (20, 10, 300_000_000, 3.0), (30, 10, 300_000_000, 2.0)),
    ]
    assert found.facts == {"producer": "hf trainer", "clock": "utc"}


def test_texts_and_impossible_numbers_of_wandb_are_no_values(read: Read) -> None:
    """A summary is its last step."""
    values = {"_step": 1, "_timestamp": START, "loss": 2.0, "note": "5", "flag": None}
    found = read(wandb_file(history(values | {"train_loss": float("nan")})))
    assert columns(found, "step", "loss") == [(1, 2.0)]
    values = {"_step": 7, "_timestamp": START, "_runtime": 9.5, "lm_loss": 2.5, "name": "x"}
    found = read(json.dumps(values | {"_wandb": {"a": 1}}).encode())
    assert columns(found, "step", "end_ns", "dur_ns", "loss") == [(7, round(START * 1e9), None, 2.5)]


SECRETS = [*planted.SECRETS, "Zebra", "Müller"]


def test_nothing_but_trainers_numbers_is_published(tmp_path: Path) -> None:
    """Secrets as tags, keys, texts and in records of other kinds, of kinds that no rule knows as well."""
    tags = [(START, 1, secret, 42.5) for secret in SECRETS]
    texts = [event(START, 1, field(1, s.encode()) + field(8, field(8, s.encode()))) for s in SECRETS]
    keys = {"_step": 1, "_timestamp": START, "_runtime": 1.0, "lm_loss": 3.0} | dict.fromkeys(SECRETS, 42.5)
    words = {"lm_loss": 2.0, "_step": 2, "_timestamp": START + 1}
    words |= {f"k{n}": s for n, s in enumerate(SECRETS)}
    others = [wandb_record(n, s.encode()) for n in (4, 5, 13, 17) for s in SECRETS]
    kept = [event_file([*STEPS, *tags]) + b"".join(map(tensorflow_record, texts))]
    kept += [wandb_file(*others, history(keys), history(words)), json.dumps(keys | words).encode()]
    for number, content in enumerate(kept):
        for is_packed in (False, True)[: 2 - (number == 2)]:
            source, target = tmp_path / f"source{number}", tmp_path / f"published{number}"
            source.write_bytes(gzip.compress(content) if is_packed else content)
            redact_evidence(source, target)
            text = gzip.decompress(target.read_bytes()) if is_packed else target.read_bytes()
            assert [secret for secret in SECRETS if secret.encode() in text] == []
            reader = recognise_format(target, text[: 1 << 16])
            before, after = reader.read(source), reader.read(target)
            assert before.log_steps == after.log_steps
            assert len(before.log_steps) > 0


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("events.out.tfevents.1777776562.b008e969124e.1233744.0", "b008e969124e"),
        ("events.out.tfevents.1777776562.gpu-7.lab.example.org.4711.0.v2", "gpu-7.lab.example.org"),
        ("events.out.tfevents.1777776562.quorum7", "quorum7"),
    ],
)
def test_the_host_in_a_files_name_is_a_host(name: str, host: str, tmp_path: Path) -> None:
    source = tmp_path / name
    source.write_bytes(event_file(STEPS))
    published = PublicNames().publish_file_name(name)
    assert host not in published
    assert published.startswith("events.")


AT_START = {"_timestamp": START}


@pytest.mark.parametrize(
    ("reader", "content"),
    [
        (TensorBoardEvents(), event_file([*STEPS, (START, 3, "mine", 1.0)])),
        (WandbReader(), wandb_file(*(history({"_step": n, **AT_START, "loss": n}) for n in range(4)))),
        (WandbReader(), json.dumps({"_step": 7, "_timestamp": START, "_runtime": 9.5, "loss": 2.5}).encode()),
    ],
)
def test_changed_bytes_are_read_or_refused(reader: EvidenceReader, content: bytes, tmp_path: Path) -> None:
    read_or_refused(reader.read, tmp_path / "file", content)


def test_messages_of_any_bytes_are_read_or_refused(tmp_path: Path) -> None:
    """Whole checksums around damaged messages."""
    path, chance = tmp_path / "file", Random(7)  # noqa: S311
    message = event(START, 3, scalar("loss", 2.0))
    record = history({"_step": 1, "_timestamp": START, "loss": 1})
    for _ in range(300):
        for reader, whole, framed in (
            (TensorBoardEvents(), message, lambda data: event_file(STEPS) + tensorflow_record(data)),
            (WandbReader(), record, wandb_file),
        ):
            data = bytearray(whole)
            data[chance.randrange(len(data))] = chance.randrange(256)
            path.write_bytes(framed(bytes(data)))
            with suppress(InputError):
                reader.read(path)
