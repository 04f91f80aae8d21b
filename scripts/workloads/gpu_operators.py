# SPDX-License-Identifier: Apache-2.0
"""Trace kinds of GPU work of PyTorch one by one, each inside a mark `zoo:NAME`.

    python scripts/workloads/gpu_operators.py FILE.json.gz [NAME...]

Needs PyTorch with CUDA; `moe` also transformers.  Each kind runs three times under the profiler; the file
has the last time, without what no reader needs.  tests/golden/h100/gpu_operators.json.gz was made so on an
H100 with PyTorch 2.11.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.profiler import ProfilerActivity, profile, record_function

BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn
RUNS = 3
OPERATORS: dict[str, Callable[[], Callable[[], Any]]] = {}
"""By name, a function that makes the operands and returns the call."""
_ARGUMENTS = (
    *("External id", "Sequence number", "Fwd thread id", "Concrete Inputs", "Input type", "Input Strides"),
    *("Input Dims", "device", "stream", "correlation", "grid", "block", "bytes"),
)
_DEVICE = ("kernel", "gpu_memset", "gpu_memcpy")
_LAUNCH = ("cuda_runtime", "cuda_driver")


def operator(make: Callable[[], Callable[[], Any]]) -> Callable[[], Callable[[], Any]]:
    """Register a kind of work under the function's name."""
    OPERATORS[make.__name__] = make
    return make


def random(*shape: int, dtype: torch.dtype = BF16, grad: bool = False) -> Tensor:
    """Normally distributed numbers on the GPU."""
    return torch.randn(*shape, device="cuda", dtype=dtype).requires_grad_(grad)


def integers(end: int, *shape: int, start: int = 0, dtype: torch.dtype = torch.int64) -> Tensor:
    """Random integers on the GPU."""
    return torch.randint(start, end, shape, device="cuda", dtype=dtype)


def with_gradient(function: Callable[..., Any], *operands: Tensor) -> Callable[[], None]:
    """A call and the gradient of the sum of its first result."""

    def run() -> None:
        result = function(*operands)
        (result[0] if isinstance(result, tuple) else result).sum().backward()

    return run


def module_with_gradient(module: nn.Module, *shape: int) -> Callable[[], None]:
    """The same of a module on a random input of this shape."""
    return with_gradient(module.to("cuda", BF16), random(*shape, grad=True))


@operator
def grouped_mm() -> Callable[[], Any]:
    a, b = random(8192, 1024), random(8, 1024, 2048)
    ends = torch.tensor([500, 1500, 2600, 4000, 4100, 6000, 7000, 8192], device="cuda", dtype=torch.int32)
    return lambda: torch._grouped_mm(a, b, offs=ends)


@operator
def scaled_grouped_mm() -> Callable[[], Any]:
    a, b = random(8192, 1024).to(FP8), random(8, 2048, 1024).to(FP8).transpose(-2, -1)
    ends = torch.arange(1, 9, device="cuda", dtype=torch.int32) * 1024
    scales = torch.ones(8192, device="cuda"), torch.ones(8, 2048, device="cuda")
    return lambda: torch._scaled_grouped_mm(a, b, *scales, offs=ends, out_dtype=BF16)


@operator
def scaled_mm_rowwise() -> Callable[[], Any]:
    a, b = random(4096, 2048).to(FP8), random(4096, 2048).to(FP8).t()
    scales = torch.ones(4096, 1, device="cuda"), torch.ones(1, 4096, device="cuda")
    return lambda: torch._scaled_mm(a, b, *scales, out_dtype=BF16)


@operator
def int_mm() -> Callable[[], Any]:
    a, b = (integers(9, 4096, 2048, start=-9, dtype=torch.int8) for _ in range(2))
    return lambda: torch._int_mm(a, b.t())


@operator
def int4_mm() -> Callable[[], Any]:
    packed = torch._convert_weight_to_int4pack(integers(255, 4096, 1024, dtype=torch.uint8), 8)
    x, scales = random(16, 2048), random(2048 // 128, 4096, 2)
    return lambda: torch._weight_int4pack_mm(x, packed, 128, scales)


@operator
def fp16_fp32_mm() -> Callable[[], Any]:
    fp16, fp32 = random(4096, 4096, dtype=torch.float16), random(2048, 2048, dtype=torch.float32)
    fp64 = random(1024, 1024, dtype=torch.float64)

    def run() -> None:
        fp16 @ fp16
        for allow in (False, True):
            torch.backends.cuda.matmul.allow_tf32 = allow
            fp32 @ fp32
        fp64 @ fp64

    return run


@operator
def einsum_bmm() -> Callable[[], Any]:
    a, b, c = random(64, 512, 256), random(64, 256, 512), random(64, 512, 512)
    return lambda: (
        torch.einsum("bik,bkj->bij", a, b),
        torch.baddbmm(c, a, b),
        torch.matmul(a, b[0]),
        torch.addmm(random(512), a[0], b[0]),
    )


OPERATORS |= {
    "group_norm": lambda: module_with_gradient(nn.GroupNorm(32, 256), 16, 256, 64, 64),
    "batch_norm": lambda: module_with_gradient(nn.BatchNorm2d(128), 32, 128, 56, 56),
    "layer_norm": lambda: module_with_gradient(nn.LayerNorm(1024), 8192, 1024),
    "conv2d_nchw": lambda: module_with_gradient(
        nn.Conv2d(128, 128, 3, padding=1, bias=False), 32, 128, 56, 56
    ),
    "conv2d_depthwise": lambda: module_with_gradient(
        nn.Conv2d(256, 256, 7, padding=3, groups=256), 16, 256, 56, 56
    ),
    "conv_transpose2d": lambda: module_with_gradient(
        nn.ConvTranspose2d(128, 64, 4, stride=2, padding=1), 16, 128, 32, 32
    ),
    "conv1d_dilated": lambda: module_with_gradient(
        nn.Conv1d(256, 256, 3, padding=4, dilation=4), 16, 256, 4096
    ),
    "conv3d": lambda: module_with_gradient(nn.Conv3d(32, 64, 3, padding=1), 4, 32, 16, 56, 56),
    "lstm": lambda: module_with_gradient(nn.LSTM(512, 512, 2, batch_first=True), 32, 128, 512),
}


@operator
def conv2d_nhwc() -> Callable[[], Any]:
    module = nn.Conv2d(128, 256, 3, padding=1, stride=2).to("cuda", BF16, memory_format=torch.channels_last)
    x = random(32, 128, 56, 56).to(memory_format=torch.channels_last).requires_grad_()
    return with_gradient(module, x)


def upsample(mode: str) -> Callable[[], Any]:
    """Twice as many rows and columns."""
    x = random(16, 128, 64, 64, grad=True)
    return with_gradient(lambda x: functional.interpolate(x, scale_factor=2.0, mode=mode), x)


OPERATORS |= {f"upsample_{mode}": lambda mode=mode: upsample(mode) for mode in ("nearest", "bilinear")}


def attention(
    queries: tuple[int, ...], key_heads: int, dtype: torch.dtype = BF16, **options: Any
) -> Callable[[], Any]:
    """Attention of queries (B, H, L, E) to keys and values of as many tokens."""
    batch, _, length, size = queries
    q = random(*queries, dtype=dtype, grad=True)
    k, v = (random(batch, key_heads, length, size, dtype=dtype, grad=True) for _ in range(2))
    return with_gradient(lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, **options), q, k, v)


OPERATORS |= {
    "sdpa_causal": lambda: attention((8, 16, 1024, 128), 16, is_causal=True),
    "sdpa_mask": lambda: attention(
        (8, 16, 1024, 64), 16, attn_mask=torch.zeros(8, 1, 1024, 1024, device="cuda", dtype=BF16)
    ),
    "sdpa_gqa": lambda: attention((8, 32, 1024, 128), 8, is_causal=True, enable_gqa=True),
    "sdpa_fp32": lambda: attention((4, 16, 512, 64), 16, torch.float32, is_causal=True),
}


@operator
def sdpa_math() -> Callable[[], Any]:
    run = attention((4, 16, 512, 64), 16, is_causal=True)

    def by_products() -> None:
        with sdpa_kernel(SDPBackend.MATH):
            run()

    return by_products


@operator
def nested_attention() -> Callable[[], Any]:
    lengths = (512, 128, 900, 1024, 300, 77, 640, 1000)
    q, k, v = (
        torch.nested.nested_tensor(
            [random(length, 16, 64) for length in lengths], layout=torch.jagged
        ).transpose(1, 2)
        for _ in range(3)
    )
    return lambda: functional.scaled_dot_product_attention(q, k, v)


@operator
def flex_sliding() -> Callable[[], Any]:
    mask = create_block_mask(
        lambda _batch, _head, q, k: (q >= k) & (q - k < 256), None, None, 2048, 2048, device="cuda"
    )
    compiled = torch.compile(flex_attention)
    operands = (random(4, 16, 2048, 64, grad=True) for _ in range(3))
    return with_gradient(lambda q, k, v: compiled(q, k, v, block_mask=mask), *operands)


@operator
def embedding_bag() -> Callable[[], Any]:
    bags = nn.EmbeddingBag(100_000, 128, mode="sum").to("cuda")
    indices, starts = integers(100_000, 65536), torch.arange(0, 65536, 16, device="cuda")
    return with_gradient(lambda: bags(indices, starts))


@operator
def embedding() -> Callable[[], Any]:
    table, indices = nn.Embedding(32_000, 1024).to("cuda", BF16), integers(32_000, 16, 1024)
    return with_gradient(lambda: table(indices))


@operator
def cross_entropy() -> Callable[[], Any]:
    target = integers(32_000, 8192)
    return with_gradient(lambda x: functional.cross_entropy(x, target), random(8192, 32_000, grad=True))


@operator
def cat_stack() -> Callable[[], Any]:
    parts = [random(1024, 1024) for _ in range(8)]
    return lambda: (torch.cat(parts, 1), torch.stack(parts))


@operator
def indexing() -> Callable[[], Any]:
    indices = integers(65536, 131072)
    return with_gradient(lambda x: x[indices], random(65536, 256, grad=True))


@operator
def boolean_index() -> Callable[[], Any]:
    x, mask = random(65536, 256), torch.rand(65536, device="cuda") > 0.5
    return lambda: x[mask]


@operator
def scatter_gather() -> Callable[[], Any]:
    x, indices = random(8192, 1024, dtype=torch.float32), integers(8192, 8192, 1024)
    rows = indices[:, 0]
    return lambda: (
        torch.gather(x, 0, indices),
        torch.zeros_like(x).scatter_add_(0, indices, x),
        x.index_add(0, rows, x),
        x.index_select(0, rows),
    )


@operator
def sort_topk() -> Callable[[], Any]:
    x = random(4096, 32_000)
    return lambda: (
        torch.topk(x, 50),
        torch.sort(x[:512]),
        torch.cumsum(x, 1),
        torch.multinomial(torch.softmax(x[:64].float(), -1), 1),
        x.argmax(-1),
    )


@operator
def reductions() -> Callable[[], Any]:
    x = random(8192, 8192)
    return lambda: (x.sum(), x.sum(0), x.mean(-1), x.amax(0), x.var(1), x.norm(), x.std())


@operator
def elementwise() -> Callable[[], Any]:
    x, y, bias = random(8192, 4096), random(8192, 4096), random(4096)
    return lambda: (
        (x * y, x + bias, x.float(), x.t().contiguous(), torch.where(x > 0, x, y), x.clamp(0, 1)),
        (functional.gelu(x), functional.silu(x) * y, x.masked_fill(y > 0, 0), x.exp(), x.pow(2)),
        (x.roll(1, 0), functional.pad(x, (1, 1)), x.repeat(1, 2), torch.addcmul(x, x, y)),
        (functional.softmax(x, -1), x.tril(), x.flip(0)),
    )


@operator
def foreach_adam() -> Callable[[], Any]:
    parameters = [nn.Parameter(random(1024, 1024, dtype=torch.float32)) for _ in range(12)]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    steps = (
        torch.optim.AdamW(parameters, foreach=True),
        torch.optim.AdamW(parameters, fused=True),
        torch.optim.SGD(parameters, momentum=0.9, foreach=True),
    )
    return lambda: (*(one.step() for one in steps), nn.utils.clip_grad_norm_(parameters, 1.0))


@operator
def linalg() -> Callable[[], Any]:
    a = random(1024, 1024, dtype=torch.float32)
    positive = a @ a.t() + 1024 * torch.eye(1024, device="cuda")
    return lambda: (
        torch.linalg.cholesky(positive),
        torch.linalg.solve(positive, a),
        torch.linalg.qr(a),
        torch.fft.rfft2(a),
        torch.linalg.inv(positive),
    )


@operator
def pooling() -> Callable[[], Any]:
    return with_gradient(
        lambda x: (
            functional.max_pool2d(x, 3, 2, 1)
            + functional.avg_pool2d(x, 3, 2, 1)
            + 0 * functional.adaptive_avg_pool2d(x, (28, 28))
        ),
        random(32, 128, 56, 56, grad=True),
    )


@operator
def moe_eager() -> Callable[[], Any]:
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        vocab_size=4096,
        hidden_size=1024,
        intermediate_size=1792,
        num_hidden_layers=2,
        num_attention_heads=16,
        num_key_value_heads=4,
        num_local_experts=8,
        num_experts_per_tok=2,
    )
    model, tokens = MixtralForCausalLM(config).to("cuda", BF16), integers(4096, 4, 512)
    return lambda: model(input_ids=tokens, labels=tokens).loss.backward()


class Mlp(nn.Module):
    """A residual block of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(1024, 4096), nn.Linear(4096, 1024), nn.LayerNorm(1024)

    def forward(self, x: Tensor) -> Tensor:
        hidden = functional.gelu(self.up(self.norm(x)))
        return x + functional.dropout(self.down(hidden), 0.1)


@operator
def compiled_mlp() -> Callable[[], Any]:
    return with_gradient(torch.compile(Mlp().to("cuda", BF16)), random(8192, 1024, grad=True))


@operator
def cuda_graph_mlp() -> Callable[[], Any]:
    model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).to("cuda", BF16)
    x, graph = random(64, 1024), torch.cuda.CUDAGraph()
    with torch.no_grad():
        with torch.cuda.stream(torch.cuda.Stream()):
            model(x)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            model(x)
    return graph.replay


def last_run(events: list[dict[str, Any]], first: str) -> Iterator[dict[str, Any]]:
    """Rows of the last run, which begins with the mark `first`, with the fields that a reader needs."""
    marks = (one for one in events if one.get("name") == first and one["cat"] == "user_annotation")
    begin = max(one["ts"] for one in marks)
    chosen = [one for one in events if one.get("ph") == "X" and one["ts"] >= begin]
    on_device = {one["args"].get("correlation") for one in events if one.get("cat") in _DEVICE}
    launched = {one["args"].get("correlation") for one in chosen if one["cat"] in _LAUNCH}
    for one in chosen:
        arguments = one.get("args", {})
        is_kept = (
            one["cat"] == "cpu_op"
            or (one["cat"] == "user_annotation" and one["name"].startswith("zoo:"))
            or (one["cat"] in _LAUNCH and arguments.get("correlation") in on_device)
            or (one["cat"] in _DEVICE and arguments.get("correlation") in launched)
        )
        if is_kept:
            fields = {name: one[name] for name in ("ph", "cat", "name", "pid", "tid", "ts", "dur")}
            yield fields | {"args": {name: arguments[name] for name in _ARGUMENTS if name in arguments}}


def main() -> None:
    """Trace the chosen kinds of work."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=" ".join(OPERATORS))
    options = parser.parse_args()
    torch.manual_seed(0)
    calls = {name: OPERATORS[name]() for name in options.names or OPERATORS}
    for call in calls.values():
        call()
        call()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as profiler:
        for _ in range(RUNS):
            for name, call in calls.items():
                with record_function(f"zoo:{name}"):
                    call()
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(whole))
        trace = json.loads(whole.read_text())
    events = list(last_run(trace.pop("traceEvents"), f"zoo:{next(iter(calls))}"))
    trace |= {"traceName": options.output.name, "traceEvents": events}
    text = json.dumps(trace, separators=(",", ":"))
    options.output.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
