# SPDX-License-Identifier: Apache-2.0
"""Sizes of the tensors of fused optimizers, of which traces record none: those of the gradients before.

PyTorch's profiler leaves out the sizes of lists of tensors that an operator changes.  The nodes of autograd
that accumulate gradients record each gradient's, and an optimizer's kernels have a block for every 65,536
elements of a tensor.  Gradients whose blocks are not those of the kernels are not the optimizer's: there are
several backward passes a step, groups of parameters, shards, or the trace begins within a step.

Source: PyTorch, aten/src/ATen/native/cuda/MultiTensorApply.cuh: `kChunkSize`, a block for each chunk
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from cclbench.ground.intervals import Int64
from cclbench.ingestion.host_rows import Texts
from cclbench.ingestion.operators import Operators
from cclbench.ingestion.part import ROW_GROUP
from cclbench.ingestion.pending import Pending
from cclbench.record.files import parquet_file

_OPTIMIZER: Final = re.compile(r"aten::_fused_(?:adamw?|sgd|adagrad)_")
_KERNEL: Final = "multi_tensor_apply_kernel"
_CHUNK: Final = 65_536
"""Most elements of a block."""


def argument_shapes(calls: Operators, operator: Int64, files: Sequence[Path], pending: Pending) -> Texts:
    """Sizes of each call's inputs; of a fused optimizer those of its gradients if its kernels confirm them.

    `operator` is the id of each pending row's call, −1 for none; `files` hold the rows.
    """
    rows = calls.host.calls
    shapes = rows.texts_of("shapes")
    start = rows.columns["start_ns"]
    optimizers = np.flatnonzero(rows.named_ranges.name_is(_is_optimizer))
    optimizers = optimizers[np.argsort(start[optimizers], kind="stable")]
    if not len(optimizers):
        return shapes
    blocks = _kernel_blocks(calls.id[optimizers], operator, files, pending)
    order = np.argsort(rows.gradients["start_ns"], kind="stable")
    ends = np.searchsorted(rows.gradients["start_ns"][order], start[optimizers]).tolist()
    sizes = [_gradient_size(word) for word in shapes.words]
    codes, words = shapes.codes.copy(), list(shapes.words)
    for call, first, end, count in zip(optimizers.tolist(), [0, *ends], ends, blocks.tolist(), strict=False):
        gradients = rows.gradients["shapes"][order[first:end]].tolist()
        gradient_sizes = [size for code in gradients if code >= 0 and (size := sizes[code]) is not None]
        recorded = _entries(words[codes[call]]) if codes[call] >= 0 else []
        chunks = sum(-(-math.prod(size) // _CHUNK) for size in gradient_sizes)
        if not any(recorded) and len(gradient_sizes) == len(gradients) and 0 < chunks == count:
            codes[call] = len(words)
            words.append(msgspec.json.encode([[], gradient_sizes, *recorded[2:]]).decode())
    return Texts(codes, words)


def _is_optimizer(name: str) -> bool:
    return bool(_OPTIMIZER.fullmatch(name))


def _kernel_blocks(calls: Int64, operator: Int64, files: Sequence[Path], pending: Pending) -> Int64:
    """Number of blocks of the optimizer's kernels of each call; 0 where a grid is not recorded."""
    order = np.argsort(calls)
    blocks, unknown = np.zeros(len(calls), np.int64), np.zeros(len(calls), np.bool_)
    read = kept_before = 0
    for path in files:
        with parquet_file(path) as file:
            for batch in file.iter_batches(ROW_GROUP, columns=["name", "grid_x"]):
                kept = pending.kept[read : read + len(batch)]
                read += len(batch)
                of_row = operator[kept_before : kept_before + int(kept.sum())]
                kept_before += len(of_row)
                names = batch["name"].dictionary.to_pylist()
                applies = np.array([_KERNEL in name for name in names], np.bool_)
                is_optimizer = applies[batch["name"].indices.to_numpy()][kept] & np.isin(of_row, calls)
                call = order[np.searchsorted(calls, of_row[is_optimizer], sorter=order)]
                grid = batch["grid_x"].fill_null(0).to_numpy()[kept][is_optimizer]
                np.add.at(blocks, call, grid)
                unknown[call[grid <= 0]] = True
    return np.where(unknown, 0, blocks)


def _gradient_size(shapes: str) -> list[int] | None:
    """Sizes of the only input; None where they are no list of sizes."""
    entries = _entries(shapes)
    size = entries[0] if len(entries) == 1 else None
    is_size = isinstance(size, list) and all(type(length) is int and length >= 0 for length in size)
    return size if is_size else None


def _entries(shapes: str) -> list[Any]:
    try:
        decoded = msgspec.json.decode(shapes)
    except msgspec.DecodeError:
        return []
    return decoded if isinstance(decoded, list) else []
