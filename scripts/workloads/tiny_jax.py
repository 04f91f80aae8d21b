# SPDX-License-Identifier: Apache-2.0
"""Train a small transformer on random tokens with JAX under its profiler, data and tensor parallel.

    XLA_FLAGS=--xla_force_host_platform_device_count=8 python tiny_jax.py --dp 2 --tp 4 --output traces

The devices form a mesh (dp, tp). Each tp group shares every layer's heads and feed-forward columns, and
between layers the sequence (Korthikanti et al. 2022): activations are gathered along the sequence before a
projection and reduce-scattered after it. Gradients are summed over dp, those of the embedding and the
output over all devices. `--warm-up` steps come first; the `--steps` that follow are in
OUTPUT/tiny_jax.xplane.pb, each in a `train` annotation. Steps are dispatched one after another without
waiting for the one before, as a training loop does.

The trace is made to hold no name of the machine and no path: JAX is told to leave folders out of source
locations, Python's own frames are not traced, and the host's name, which the profiler writes into the
file, is cut out of it. What is left is as the profiler wrote it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import cclbench.jax

LEARNING_RATE = 0.1
HOSTNAMES = 4
"""Field of XSpace that lists the machines' names (xplane.proto)."""

Weights = dict[str, Array]


def layout(layers: int) -> dict[str, P]:
    """How each weight is split over the mesh: columns of the first matrices, rows of the second, over tp."""
    specs = {"embedding": P(), "output": P()}
    for i in range(layers):
        specs |= {f"{i}.{w}": P(None, "tp") for w in ("qkv", "up")}
        specs |= {f"{i}.{w}": P("tp", None) for w in ("project", "down")}
    return specs


def shapes(options: argparse.Namespace) -> dict[str, tuple[int, ...]]:
    """The shape of each weight, whole."""
    hidden, vocabulary = options.heads * options.head_dim, options.vocabulary
    found = {"embedding": (vocabulary, hidden), "output": (hidden, vocabulary)}
    for i in range(options.layers):
        found |= {f"{i}.qkv": (hidden, 3 * hidden), f"{i}.project": (hidden, hidden)}
        found |= {f"{i}.up": (hidden, 4 * hidden), f"{i}.down": (4 * hidden, hidden)}
    return found


def initial(options: argparse.Namespace, mesh: Mesh) -> Weights:
    """The weights on their devices, drawn from a normal distribution of deviation 0.02."""
    specs, random = layout(options.layers), np.random.default_rng(options.seed)
    weights = {}
    for name, shape in shapes(options).items():
        whole = random.normal(0, 0.02, shape).astype(np.float32)
        weights[name] = jax.device_put(whole, NamedSharding(mesh, specs[name]))
    return weights


def normalise(x: Array) -> Array:
    """RMS norm over the last axis, without weights."""
    return x * lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def attention(x: Array, w: Weights, head_dim: int) -> Array:
    """Causal self-attention of this device's heads over x [batch, sequence, hidden]."""
    query, key, value = jnp.moveaxis((x @ w["qkv"]).reshape(*x.shape[:2], -1, 3, head_dim), 3, 0)
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / head_dim**0.5
    past = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(past, scores, -1e9)), value)
    return mixed.reshape(*x.shape[:2], -1) @ w["project"]


def local_loss(weights: Weights, tokens: Array, targets: Array, *, layers: int, head_dim: int) -> Array:
    """Mean cross-entropy over all devices; tokens and targets [batch / dp, sequence / tp] on each."""
    gather = partial(lax.all_gather, axis_name="tp", axis=1, tiled=True)
    scatter = partial(lax.psum_scatter, axis_name="tp", scatter_dimension=1, tiled=True)
    x = weights["embedding"][tokens]
    for i in range(layers):
        w = {name.partition(".")[2]: value for name, value in weights.items() if name.startswith(f"{i}.")}
        x = x + scatter(attention(gather(normalise(x)), w, head_dim))
        x = x + scatter(jax.nn.gelu(gather(normalise(x)) @ w["up"]) @ w["down"])
    logits = normalise(x) @ weights["output"]
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], axis=-1)
    return lax.pmean(-chosen.mean(), ("dp", "tp"))


def batches(options: argparse.Namespace, mesh: Mesh) -> Iterator[tuple[Array, Array]]:
    """Random tokens and the ones that follow them, split over dp by sequences and over tp by positions."""
    random = np.random.default_rng(options.seed + 1)
    split = NamedSharding(mesh, P("dp", "tp"))
    while True:
        text = random.integers(options.vocabulary, size=(options.global_batch, options.sequence_length + 1))
        yield tuple(jax.device_put(part.astype(np.int32), split) for part in (text[:, :-1], text[:, 1:]))


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A protobuf varint and where it ends."""
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at


def without_hostnames(space: bytes) -> bytes:
    """An XSpace less its `hostnames`; all its fields are length-delimited."""
    kept, at = [], 0
    while at < len(space):
        begin = at
        key, at = varint(space, at)
        length, at = varint(space, at)
        at += length
        if key >> 3 != HOSTNAMES:
            kept.append(space[begin:at])
    return b"".join(kept)


def train(options: argparse.Namespace) -> None:
    """Warm up, train `--steps` steps under the profiler, write the trace, print the loss of each step."""
    mesh = jax.make_mesh((options.dp, options.tp), ("dp", "tp"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    loss_of = jax.shard_map(
        partial(local_loss, layers=options.layers, head_dim=options.head_dim),
        mesh=mesh,
        in_specs=(layout(options.layers), P("dp", "tp"), P("dp", "tp")),
        out_specs=P(),
    )

    @partial(jax.jit, donate_argnums=0)
    def train_step(weights: Weights, tokens: Array, targets: Array) -> tuple[Weights, Array]:
        loss, gradients = jax.value_and_grad(loss_of)(weights, tokens, targets)
        return jax.tree.map(lambda w, g: w - LEARNING_RATE * g, weights, gradients), loss

    weights, supply, losses = initial(options, mesh), batches(options, mesh), []
    print(sum(w.size for w in weights.values()), "parameters on", mesh.size, mesh.devices.flat[0].platform)
    ready = [next(supply) for _ in range(options.warm_up + options.steps)]
    with TemporaryDirectory() as folder:
        capture = cclbench.jax.profile(folder, wait=options.warm_up, active=options.steps, phase="training")
        with capture as profiler:
            for tokens, targets in ready:
                weights, loss = train_step(weights, tokens, targets)
                losses.append(loss)
                profiler.step()
        (space,) = Path(folder).rglob("*.xplane.pb")
        (options.output / "tiny_jax.xplane.pb").write_bytes(without_hostnames(space.read_bytes()))
    print("loss by step:", *(f"{float(loss):.5f}" for loss in losses))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dp", type=int, default=2, help="data-parallel degree")
    parser.add_argument("--tp", type=int, default=4, help="tensor-parallel degree")
    parser.add_argument("--global-batch", type=int, default=4, help="sequences a step")
    parser.add_argument("--sequence-length", type=int, default=128, help="tokens")
    parser.add_argument("--vocabulary", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=32)
    parser.add_argument("--warm-up", type=int, default=2, help="steps before the trace")
    parser.add_argument("--steps", type=int, default=3, help="steps in the trace")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, required=True, help="folder for the trace, made if missing")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    train(options)


if __name__ == "__main__":
    main()
