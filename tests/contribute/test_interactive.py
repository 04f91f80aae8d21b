# SPDX-License-Identifier: Apache-2.0
"""One sitting on a terminal: from a folder of traces to a data point that `cclbench verify` accepts."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from cclbench.card import load_card
from cclbench.contribute.evidence import evidence_elsewhere
from cclbench.contribute.place import place_of
from cclbench.contribute.verify import verify_data_point

LLAMA = {
    "model_type": "llama",
    "vocab_size": 2048,
    "hidden_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "intermediate_size": 1536,
    "tie_word_embeddings": False,
}
ANSWERS = {
    "id": ["My job", "my-job"],
    "evidence.traces.licence": ["Apache-2.0"],
    "description": ["Two ranks of a made-up job."],
    "workload.phase": ["", "train", "training"],
    "workload.standard": ["ccl-bench-llama", ""],
    "workload.model.name": ["", "tiny-llama"],
    "workload.batch.global": ["", "many", "16"],
    "workload.batch.sequence_length": ["", "none"],
    "hardware.per_node": ["2"],
    "hardware.system": ["dgx-a10", "dgx-a100"],
    "hardware.price_per_device_hour": [""],
    "parallelism": ["tp=3", "dp_replicate=2"],
}
"""What a contributor types, line by line, at the prompt of each field."""
REFUSALS = (
    "did you mean ccl-bench-llama-3.1-8b-inference",
    *('is "many"', 'is "train"', "an answer is needed; Ctrl-C ends"),
    *("an answer is needed, or none; Ctrl-C ends", "hardware.count is 2", "did you mean dgx-a100"),
)
_MOST_QUESTIONS = 40
_PROMPT = re.compile(r"\n  ([a-z_.]+) \(([^\n]*)\): $")


def sitting(arguments: list[str], folder: Path) -> tuple[str, list[str], int]:
    """What the terminal shows, the fields that were asked for, and the exit code."""
    answers = {path: iter(lines) for path, lines in ANSWERS.items()}
    controller, terminal = pty.openpty()
    environment = {**os.environ, "COLUMNS": "400", "TERM": "dumb"}
    words = [sys.executable, "-m", "cclbench", "contribute", *arguments]
    screen, seen, asked = "", 0, list[str]()
    with subprocess.Popen(
        words, cwd=folder, env=environment, stdin=terminal, stdout=terminal, stderr=terminal, close_fds=True
    ) as process:
        os.close(terminal)
        while len(asked) < _MOST_QUESTIONS:
            try:
                piece = os.read(controller, 1 << 16)
            except OSError:  # the other end is closed
                piece = b""
            if not piece:
                break
            screen += piece.decode().replace("\r\n", "\n")
            if prompt := _PROMPT.search(screen, seen):
                seen = len(screen)
                asked.append(prompt[1])
                os.write(controller, f"{next(answers.get(prompt[1], iter(())), '')}\n".encode())
        os.close(controller)  # a process that still asks ends
        code = process.wait(timeout=60)
    return screen, asked, code


def test_a_folder_of_traces_becomes_a_data_point(job: Any) -> None:
    (job.traces / "config.json").write_text(json.dumps(LLAMA))
    arguments = ["--traces", str(job.traces), "--collection", str(job.collection), "--jobs", "1"]
    screen, asked, code = sitting(arguments, job.folder)
    assert code == 0, screen
    # Neither what the traces tell (accelerator, count, precision, library) nor what the configuration does.
    assert {path: asked.count(path) for path in asked} == {
        path: len(lines) for path, lines in ANSWERS.items()
    }
    for words in (*REFUSALS, "git push -u origin my-job", "without it nobody can record such traces again"):
        assert words in screen
    assert re.search(r"are [\d.]+ [kM]B as a run's Parquet: [\d.]+ times less", screen)
    place = place_of(job.collection, "my-job")
    card = load_card(place.card_path)
    assert (card.workload.model.parameters, card.workload.precision) == (8_915_456, "fp32")
    assert (card.hardware.accelerator, card.parallelism.dp_replicate) == ("nvidia-a100-sxm-80gb", 2)
    assert not (place.traces_folder / "config.json").exists()
    assert card.workload.batch.sequence_length is None
    assert "workload.batch.sequence_length: tokens per sample" in screen.partition("Missing in the card")[2]
    with evidence_elsewhere([]) as nowhere:
        assert verify_data_point(place, nowhere).status == "verified"
