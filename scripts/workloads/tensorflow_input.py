# SPDX-License-Identifier: Apache-2.0
"""Trace steps of TensorFlow on a CPU, compiled by XLA, whose tf.data input is slower than they are.

    python scripts/workloads/tensorflow_input.py FILE.xplane.pb.gz

Needs TensorFlow alone.  A batch takes at least 10 ms to load, one is prefetched; steps 0 to 7 are traced.
tests/golden/cpu_input/tensorflow_input.xplane.pb.gz was made so with TensorFlow 2.21.0.
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
import time
from pathlib import Path

import tensorflow as tf

LOADING_S = 0.01
BATCH, WIDTH, HIDDEN = 256, 512, 1024


def load(index: tf.Tensor) -> tf.Tensor:
    """A batch, as a slow reader delivers it."""

    def wait(number: tf.Tensor) -> int:
        time.sleep(LOADING_S)
        return int(number.numpy())

    tf.py_function(wait, [index], tf.int64)
    return tf.random.normal([BATCH, WIDTH])


@tf.function(jit_compile=True)
def step(weights: tf.Tensor, batch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Two products, and new weights."""
    with tf.name_scope("mlp"):
        result = tf.nn.gelu(batch @ weights) @ tf.transpose(weights)
    with tf.name_scope("loss"):
        return tf.reduce_mean(result * result), weights - 0.01 * tf.reduce_mean(result) * weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    target: Path = parser.parse_args().file
    batches = iter(tf.data.Dataset.range(100).map(load).prefetch(1))
    weights = tf.random.normal([WIDTH, HIDDEN])
    for _ in range(3):
        _, weights = step(weights, next(batches))
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        for number in range(8):
            with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
                loss, weights = step(weights, next(batches))
                loss.numpy()
        tf.profiler.experimental.stop()
        (profile,) = Path(folder).rglob("*.xplane.pb")
        target.write_bytes(gzip.compress(profile.read_bytes(), mtime=0))


if __name__ == "__main__":
    main()
