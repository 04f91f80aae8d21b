# SPDX-License-Identifier: Apache-2.0
"""Event files of TensorBoard: the scalars that a trainer writes at each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.files import open_output
from cclbench.formats.job_log.scalars import TAGS, TaggedScalars, published_tag
from cclbench.formats.rewriting import CAPTURED, Redactor
from cclbench.formats.tensorboard.events import event_class, scalars_of
from cclbench.formats.tensorboard.records import EventRecords, framed_records
from cclbench.formats.texts import damaged_error

_VERSION: Final = b"brain.Event:"
_WALL_TIME: Final = b"\x09"
"""The host that wrote a file, in its name."""


class TensorBoardEvents(EvidenceReader):
    """Reader of event files, by the scalars of each step."""

    name = "tensorboard"
    description = "TensorBoard event files: scalars of a trainer's steps"
    extensions: tuple[str, ...] = (".tfevents",)
    capture = "the trainer's TensorBoard folder, such as `--tensorboard-dir` of Megatron-LM"
    versions = "brain.Event:2"
    tested = (
        "real: torchtitan on 8 GPUs; HF Trainer 5.24, Lightning 2.6, torch 2.14, tensorboardX and"
        " TensorBoard's own writer on a CPU"
    )
    withheld: Mapping[str, str] = {"events that are not scalars of steps, and tags of people's own": CAPTURED}

    def sniff(self, head: bytes) -> float:
        """Sure if the first record is an event that states the version."""
        return float(head[12:13] == _WALL_TIME and _VERSION in head[:64])

    def read(self, path: Path) -> Evidence:
        """Rows of `log_steps`, a row for each step of the most frequent tag that trainers write."""
        scalars, records = TaggedScalars(), EventRecords(path)
        for event in _events(records):
            for scalar in scalars_of(event):
                if not scalars.add(scalar):
                    raise damaged_error(path, "has too many scalars or tags")
        return scalars.evidence(path, long=records.long, incomplete=records.incomplete)

    def rewrite(self, path: Path, target: Path | None, redactor: Redactor) -> bool:
        """Scalars of steps; a tag that is no trainer's is numbered, and its values are left out."""
        numbers: dict[str, int] = {}
        with open_output(path, target) as write:
            for batch in EventRecords(path).batches():
                kept = list[bytes]()
                for event in _parsed(path, batch):
                    published = event_class()(wall_time=event.wall_time, step=event.step)
                    if event.file_version:
                        published.file_version = "brain.Event:2"
                    for scalar in scalars_of(event):
                        if scalar.value is None:
                            redactor.count("events", Counter({CAPTURED: 1}))
                            continue
                        tag, value = scalar.tag, scalar.value
                        if tag not in TAGS:
                            redactor.count("tags", Counter({CAPTURED: 1}))
                            value = 0.0
                        published.summary.value.add(tag=published_tag(tag, numbers), simple_value=value)
                    kept.append(published.SerializeToString(deterministic=True))
                write(framed_records(kept))
        return True


def _events(records: EventRecords) -> Iterator[Any]:
    for batch in records.batches():
        yield from _parsed(records.path, batch)


def _parsed(path: Path, batch: list[bytes]) -> Iterator[Any]:
    from google.protobuf.message import DecodeError

    for content in batch:
        try:
            yield event_class().FromString(content)
        except DecodeError:
            raise damaged_error(path, "has a record that is no event") from None


READERS.add(TensorBoardEvents.name, TensorBoardEvents(), origin=__name__)
