# SPDX-License-Identifier: Apache-2.0
"""Runs of Weights & Biases: the log of an offline run, and the summary of its last values.

Fields of records: wandb/proto/wandb_internal.proto.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.files import open_output
from cclbench.formats.job_log.scalars import Scalar, TaggedScalars, published_tag
from cclbench.formats.rewriting import CAPTURED, Redactor
from cclbench.formats.texts import damaged_error, read_whole, reason_of
from cclbench.formats.wandb.records import HEADER, OfflineRecords, framed_records
from cclbench.ground.protobuf_schema import described_class

_MESSAGES: Final = {
    "Item": "key=1:string nested_key=2:string* integer=5:int64? number=6:double? value_json=16:string?",
    "Step": "num=1:int64",
    "History": "item=1:Item* step=2:Step",
    "Record": "num=1:int64 history=2:History?",
}
_TIME: Final = "_timestamp"
_STEPS: Final = ("trainer/global_step", "train/global_step", "iteration_step", "_step")
"""Keys of the step, W&B's own count of calls last."""
_OWN: Final = (_TIME, "_runtime", *_STEPS)
"""Keys of W&B itself."""
_SUMMARY_KEYS: Final = (b'"_runtime"', b'"_step"', b'"_timestamp"')
_LARGEST_SUMMARY: Final = 64 << 20
_LONGEST_NUMBER: Final = 40


class WandbReader(EvidenceReader):
    """Reader of a run's log or summary, by the numbers that the trainer logged at each step."""

    name = "wandb"
    description = "Weights & Biases: logs of offline runs, and `wandb-summary.json`"
    extensions: tuple[str, ...] = (".wandb", "wandb-summary.json")
    capture = "`WANDB_MODE=offline`; the file is `wandb/offline-run-*/run-*.wandb`"
    versions = "logs of version 0, of wandb 0.18 to 0.31"
    tested = "real: HF Trainer 5.24, wandb 0.18 and 0.31 on a CPU; documentation: wandb-summary.json"
    withheld: Mapping[str, str] = {"configuration, output, environment, and keys of people's own": CAPTURED}

    def sniff(self, head: bytes) -> float:
        """Sure of a log's header, and of a summary's own keys."""
        is_summary = head.lstrip()[:1] == b"{" and all(key in head for key in _SUMMARY_KEYS)
        return 1.0 if head.startswith(HEADER) or is_summary else 0.0

    def read(self, path: Path) -> Evidence:
        """Rows of `log_steps`: of a log for each step, of a summary for the last one."""
        scalars, records = TaggedScalars(), OfflineRecords(path)
        for entry in [_summary(path)] if _is_summary(path) else _histories(records):
            for scalar in _scalars_of(entry):
                if not scalars.add(scalar):
                    raise damaged_error(path, "has too many numbers or keys")
        return scalars.evidence(path, long=records.long, incomplete=records.incomplete)

    def rewrite(self, path: Path, target: Path | None, redactor: Redactor) -> bool:
        """Numbers of steps; a key that is no trainer's is numbered, and its values are left out."""
        numbers: dict[str, int] = {}
        is_summary = _is_summary(path)
        with open_output(path, target) as write:
            if is_summary:
                write(msgspec.json.encode(_published(_summary(path), numbers, redactor)))
                return True
            histories = (_published(entry, numbers, redactor) for entry in _histories(OfflineRecords(path)))
            for piece in framed_records(map(_record_of, histories)):
                write(piece)
        return True


def _is_summary(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(1) not in (HEADER[:1], b"\x1f")


def _summary(path: Path) -> dict[str, float]:
    try:
        summary = msgspec.json.decode(read_whole(path, _LARGEST_SUMMARY))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise damaged_error(path, f"is no JSON: {reason_of(error)}") from None
    if not isinstance(summary, dict):
        raise damaged_error(path, "is no summary of a run")
    return {
        key: float(value)
        for key, value in summary.items()
        if isinstance(value, int | float) and abs(value) < 1e300
    }


@cache
def _record_class() -> Any:
    return described_class("wandb", _MESSAGES, "Record")


def _histories(records: OfflineRecords) -> Iterator[dict[str, float]]:
    """The numbers of each call that logged some, by key."""
    from google.protobuf.message import DecodeError

    for content in records.contents():
        try:
            record = _record_class().FromString(content)
        except DecodeError:
            raise damaged_error(records.path, "has a record that is no message of W&B") from None
        if record.HasField("history"):
            entry = {"_step": float(record.history.step.num)}
            for item in record.history.item:
                value = _number_of(item)
                if value is not None:
                    entry[item.key or ".".join(item.nested_key)] = value
            yield entry


def _number_of(item: Any) -> float | None:
    which = item.WhichOneof("value")
    try:
        value = float(
            getattr(item, which)[:_LONGEST_NUMBER] if which == "value_json" else getattr(item, which)
        )
    except (ValueError, TypeError):
        return None
    return value if math.isfinite(value) else None


def _scalars_of(entry: Mapping[str, float]) -> Iterator[Scalar]:
    step = next((entry[key] for key in _STEPS if key in entry), -1.0)
    if step.is_integer() and 0 <= step < 1 << 53:
        for key, value in entry.items():
            if key not in _OWN:
                yield Scalar(entry.get(_TIME, math.nan), int(step), key, value)


def _published(entry: Mapping[str, float], numbers: dict[str, int], redactor: Redactor) -> dict[str, float]:
    kept = dict[str, float]()
    for key, value in entry.items():
        tag = key if key in _OWN else published_tag(key, numbers)
        if tag != key:
            redactor.count("keys", Counter({CAPTURED: 1}))
        kept[tag] = value if tag == key else 0.0
    return kept


def _record_of(entry: Mapping[str, float]) -> bytes:
    record = _record_class()()
    for key, value in entry.items():
        record.history.item.add(nested_key=[key], value_json=repr(value))
    content: bytes = record.SerializeToString(deterministic=True)
    return content


READERS.add(WandbReader.name, WandbReader(), origin=__name__)
