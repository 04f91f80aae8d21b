# SPDX-License-Identifier: Apache-2.0
"""Trace kinds of JAX's work one by one, each a program of its own inside a mark `zoo:NAME`.

    python scripts/workloads/jax_operators.py FILE.xplane.pb.gz [NAME...]

Needs JAX, for most kinds with CUDA, and cclbench.  Each kind runs twice before the profiler starts, then
once; the file has no more than a reader needs.  tests/golden/h100/jax_operators.xplane.pb.gz was made so on
an H100 with JAX 0.11.2, tests/golden/jax_linear_algebra_cpu.xplane.pb.gz of lu, qr, qr_complete, solve,
solve_from_right, eigh and svd on a CPU with JAX 0.10.2.
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from cclbench.formats.xplane import proto
from cclbench.formats.xplane.space import XSpace

BF16, F32, FP8 = jnp.bfloat16, jnp.float32, jnp.float8_e4m3fn
Work = tuple[Callable[..., Any], list[Any]]
OPERATORS: dict[str, Callable[[], Work]] = {}
"""By name, a function that makes the call and its operands."""


def operator(make: Callable[[], Work]) -> Callable[[], Work]:
    """Register a kind of work under the function's name."""
    OPERATORS[make.__name__] = make
    return make


def random(*shape: int, dtype: Any = BF16) -> jax.Array:
    """Normally distributed numbers on the GPU."""
    return jax.random.normal(jax.random.PRNGKey(0), shape, F32).astype(dtype)


def gradients(function: Callable[..., jax.Array], count: int) -> Callable[..., Any]:
    """Gradients of the sum of the function's result, of its first operands."""
    return jax.grad(lambda *x: function(*x).astype(F32).sum(), argnums=tuple(range(count)))


def convolution(
    layout: str, strides: tuple[int, ...], padding: Any, **options: Any
) -> Callable[..., jax.Array]:
    """A convolution of operands in this layout: `NHWC HWIO`."""
    x, kernel = layout.split()
    return partial(
        lax.conv_general_dilated,
        window_strides=strides,
        padding=padding,
        dimension_numbers=(x, kernel, x),
        **options,
    )


@operator
def conv2d_nhwc() -> Work:
    return convolution("NHWC HWIO", (1, 1), "SAME"), [random(16, 56, 56, 128), random(3, 3, 128, 256)]


@operator
def conv2d_nchw_stride2() -> Work:
    call = convolution("NCHW OIHW", (2, 2), ((1, 1), (1, 1)))
    return call, [random(16, 64, 112, 112), random(128, 64, 3, 3)]


@operator
def conv2d_f32() -> Work:
    operands = [random(8, 28, 28, 256, dtype=F32), random(1, 1, 256, 512, dtype=F32)]
    return convolution("NHWC HWIO", (1, 1), "VALID"), operands


@operator
def conv2d_dilated() -> Work:
    call = convolution("NHWC HWIO", (1, 1), "SAME", rhs_dilation=(2, 2))
    return call, [random(8, 64, 64, 64), random(3, 3, 64, 64)]


@operator
def conv2d_grouped() -> Work:
    call = convolution("NHWC HWIO", (1, 1), "SAME", feature_group_count=4)
    return call, [random(8, 56, 56, 128), random(3, 3, 32, 256)]


@operator
def conv2d_depthwise() -> Work:
    call = convolution("NHWC HWIO", (1, 1), "SAME", feature_group_count=128)
    return call, [random(8, 56, 56, 128), random(3, 3, 1, 128)]


@operator
def conv1d() -> Work:
    return convolution("NWC WIO", (1,), ((3, 0),)), [random(16, 2048, 256), random(4, 256, 256)]


@operator
def conv3d() -> Work:
    call = convolution("NCDHW OIDHW", (1, 2, 2), ((0, 0), (1, 1), (1, 1)))
    return call, [random(2, 16, 32, 60, 104), random(512, 16, 1, 2, 2)]


@operator
def conv_transposed() -> Work:
    call = convolution("NHWC HWIO", (1, 1), ((1, 2), (1, 2)), lhs_dilation=(2, 2))
    return call, [random(8, 28, 28, 128), random(3, 3, 128, 128)]


@operator
def conv2d_grad() -> Work:
    call, operands = conv2d_nhwc()
    return gradients(call, 2), operands


@operator
def conv_bias_relu() -> Work:
    call = convolution("NHWC HWIO", (1, 1), "SAME")
    operands = [random(16, 28, 28, 256), random(3, 3, 256, 256), random(256)]
    return lambda x, kernel, bias: jax.nn.relu(call(x, kernel) + bias), operands


@operator
def matmul_bf16() -> Work:
    return jnp.matmul, [random(4096, 4096), random(4096, 2048)]


@operator
def matmul_f32() -> Work:
    return jnp.matmul, [random(2048, 2048, dtype=F32), random(2048, 1024, dtype=F32)]


@operator
def matmul_f32_highest() -> Work:
    return partial(jnp.matmul, precision="highest"), matmul_f32()[1]


@operator
def matmul_batched() -> Work:
    return partial(jnp.einsum, "bik,bkj->bij"), [random(32, 512, 256), random(32, 256, 512)]


@operator
def matmul_int8() -> Work:
    call = partial(
        lax.dot_general, dimension_numbers=(((1,), (0,)), ((), ())), preferred_element_type=jnp.int32
    )
    return call, [jnp.ones((4096, 4096), jnp.int8)] * 2


@operator
def matmul_fp8() -> Work:
    product = partial(lax.dot_general, dimension_numbers=(((1,), (1,)), ((), ())), preferred_element_type=F32)
    operands = [random(4096, 4096, dtype=FP8), random(2048, 4096, dtype=FP8)]
    return lambda a, b: (product(a, b) * 0.5).astype(BF16), operands


@operator
def matmul_bias_gelu() -> Work:
    operands = [random(4096, 1024), random(1024, 4096), random(4096)]
    return lambda a, b, bias: jax.nn.gelu(a @ b + bias), operands


@operator
def gemv() -> Work:
    return jnp.matmul, [random(1, 4096), random(4096, 4096)]


def causal_attention(implementation: str) -> Callable[..., jax.Array]:
    """Attention by XLA's own kernels or by cuDNN."""
    return partial(jax.nn.dot_product_attention, is_causal=True, implementation=implementation)


@operator
def attention_xla() -> Work:
    return (lambda q, k, v: causal_attention("xla")(q, k, v)), [random(4, 2048, 16, 64)] * 3


@operator
def attention_cudnn() -> Work:
    return (lambda q, k, v: causal_attention("cudnn")(q, k, v)), [random(4, 2048, 16, 64)] * 3


@operator
def attention_cudnn_grad() -> Work:
    call, operands = attention_cudnn()
    return gradients(call, 3), operands


@operator
def layer_norm() -> Work:
    def normalise(x: jax.Array) -> jax.Array:
        return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)

    return normalise, [random(8192, 4096)]


@operator
def softmax() -> Work:
    return jax.nn.softmax, [random(4096, 8192)]


@operator
def sort() -> Work:
    return jnp.sort, [random(1024, 8192, dtype=F32)]


@operator
def top_k() -> Work:
    return partial(lax.top_k, k=8), [random(1024, 8192, dtype=F32)]


@operator
def fft() -> Work:
    return jnp.fft.fft, [random(1024, 4096, dtype=F32)]


@operator
def cumsum() -> Work:
    return partial(jnp.cumsum, axis=-1), [random(1024, 8192, dtype=F32)]


@operator
def scatter_add() -> Work:
    rows = jax.random.randint(jax.random.PRNGKey(0), (8192,), 0, 50_000)
    operands = [random(50_000, 256, dtype=F32), rows, random(8192, 256, dtype=F32)]
    return lambda x, i, updates: x.at[i].add(updates), operands


@operator
def gather() -> Work:
    rows = jax.random.randint(jax.random.PRNGKey(0), (65_536,), 0, 50_000)
    return lambda x, i: x[i], [random(50_000, 256), rows]


@operator
def reduce_window() -> Work:
    def maximum(x: jax.Array) -> jax.Array:
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")

    return maximum, [random(16, 112, 112, 64)]


@operator
def cholesky() -> Work:
    return lambda x: jnp.linalg.cholesky(x @ x.T + 100 * jnp.eye(1024)), [random(1024, 1024, dtype=F32)]


@operator
def triangular_solve() -> Work:
    def solve(a: jax.Array, b: jax.Array) -> jax.Array:
        return jax.scipy.linalg.solve_triangular(a + 100 * jnp.eye(1024), b)

    return solve, [random(1024, 1024, dtype=F32), random(1024, 512, dtype=F32)]


@operator
def lu() -> Work:
    return lax.linalg.lu, [random(3, 96, 64, dtype=F32)]


@operator
def qr() -> Work:
    return jnp.linalg.qr, [random(160, 48, dtype=F32)]


@operator
def qr_complete() -> Work:
    return partial(jnp.linalg.qr, mode="complete"), [random(2, 48, 80, dtype=F32)]


@operator
def solve() -> Work:
    return jnp.linalg.solve, [random(64, 64, dtype=F32), random(64, 8, dtype=F32)]


@operator
def solve_from_right() -> Work:
    return partial(lax.linalg.triangular_solve, lower=True), [
        random(64, 64, dtype=F32),
        random(24, 64, dtype=F32),
    ]


@operator
def eigh() -> Work:
    return jnp.linalg.eigh, [random(64, 64, dtype=F32)]


@operator
def svd() -> Work:
    return jnp.linalg.svd, [random(40, 30, dtype=F32)]


@operator
def ragged_dot() -> Work:
    return lax.ragged_dot, [random(4096, 1024), random(8, 1024, 1024), jnp.full((8,), 512, jnp.int32)]


@operator
def scan_matmul() -> Work:
    def repeat(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.scan(lambda carry, _: (jnp.tanh(carry @ w), None), x, None, length=16)[0]

    return repeat, [random(1024, 1024), random(1024, 1024)]


def compiled_work(name: str) -> Callable[[], Any]:
    """The kind of work as a compiled program of its name."""
    function, operands = OPERATORS[name]()

    def named(*arguments: Any) -> Any:
        return function(*arguments)

    named.__name__ = name
    program = jax.jit(named).lower(*operands).compile()
    return lambda: jax.block_until_ready(program(*operands))


def stated_of(names: Any, event: Any) -> set[str]:
    """Names of an event's stats."""
    return set(proto.decode_stats(names, event.stats))


def needed_planes(path: Path) -> bytes:
    """The profile with its device, the programs that ran, and on the host ops, launches and marks alone."""
    space = XSpace(path)
    messages = {name: space.plane_message(name) for name in space.planes}
    ran = set[int]()
    for name, message in messages.items():
        names = proto.stat_names(message)
        for line in message.lines if name.startswith(("/device:", proto.HOST)) else ():
            for event in line.events:
                program = proto.decode_stats(names, event.stats).get("program_id")
                ran |= {program} if isinstance(program, int) else set()
    kept = b""
    for name, message in messages.items():
        names, titles = proto.stat_names(message), proto.event_metadata(message)
        if name == proto.PROGRAMS:
            stats = {key: proto.decode_stats(names, title.stats) for key, title in titles.items()}
            used = {key for key, stated in stats.items() if stated.get("program_id", key) in ran}
        elif name == proto.HOST:
            used = set()
            for line in message.lines:
                events = [
                    event
                    for event in line.events
                    if titles[event.metadata_id].name.startswith(("zoo:", "end: "))
                    or stated_of(names, event) & {"correlation_id", "hlo_op"}
                ]
                used |= {event.metadata_id for event in events}
                del line.events[:]
                line.events.extend(events)
        elif name.startswith("/device:") or name == proto.ENVIRONMENT:
            used = set(titles)
        else:
            continue
        entries = [entry for entry in message.event_metadata if entry.key in used]
        del message.event_metadata[:]
        message.event_metadata.extend(entries)
        body = message.SerializeToString()
        kept += b"\x0a" + encoded_length(len(body)) + body
    return kept


def encoded_length(length: int) -> bytes:
    """Protobuf's encoding of a length."""
    digits = bytearray()
    while length > 0x7F:
        digits.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*digits, length])


def main() -> None:
    """Trace the chosen kinds of work."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=" ".join(OPERATORS))
    options = parser.parse_args()
    calls = {name: compiled_work(name) for name in options.names or OPERATORS}
    for call in calls.values():
        call()
        call()
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for name, call in calls.items():
                with jax.profiler.TraceAnnotation(f"zoo:{name}"):
                    call()
        (profile,) = Path(folder).rglob("*.xplane.pb")
        options.output.write_bytes(gzip.compress(needed_planes(profile), mtime=0))


if __name__ == "__main__":
    main()
