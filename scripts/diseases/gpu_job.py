# SPDX-License-Identifier: Apache-2.0
"""Capture the training of a small Llama on one GPU, with and without one cause of slowness.

    python gpu_job.py --out FOLDER [--captures 3] [--disease NAME ...] [--seconds 300]

Captures every disease sick and healed, alternately, into FOLDER/DISEASE/FORM-NUMBER, as bank.py does on CPU
ranks; `bank.py --gpu --out FOLDER` scores them.  Each capture runs in its own process.  With `--seconds` no
capture begins after that time.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from multiprocessing.context import ForkProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import record_function
from torch.utils.data import DataLoader

import cclbench.torch

sys.path.append(str(Path(__file__).resolve().parents[1] / "workloads"))
from job import Disease, Samples
from one_gpu import replayed
from tiny_llama import VOCABULARY, Attention, FeedForward, TinyLlama, rotate

UNPROFILED: Final = 8
STEPS: Final = 8
"""Steps in the trace."""


@dataclass(frozen=True, kw_only=True)
class Switches:
    """Causes to switch on; `_s`: seconds in each step, `_mb`: size of a tensor copied in each step."""

    batch: int = 16
    sequence: int = 512
    micro_batches: int = 1
    item: bool = False
    load_s: float = 0.0
    workers: int = 0
    python_s: float = 0.0
    collect: bool = False
    copied_mb: int = 0
    pinned: bool = False
    logits_to_host: bool = False
    empty_cache: bool = False
    dtype: torch.dtype = torch.bfloat16
    tf32: bool = True
    vocabulary: int = VOCABULARY
    flash: bool = True
    layers: str = ""
    """What is written an operator at a time: norm, layer_norm, attention, gelu."""
    library_layers: str = ""
    """The same, as the library has it."""
    synchronize: bool = False
    norm_loop: bool = False
    contended: bool = False
    offload: bool = False
    host_embedding: bool = False
    checkpoint: bool = False
    optimizer: str = "fused"
    graph: bool = False
    cold: bool = False
    mask: bool = False
    """Each layer selects the tokens that a mask has."""
    samples_copied: bool = False
    """Each sample is copied to the device by itself."""
    formula_loss: bool = False
    formula_dropout: bool = False
    library_dropout: bool = False
    single_attention: bool = False
    """Attention in single precision."""
    save: bool = False
    """Every third step is written to a file."""
    gradients_to_host: bool = False
    anomaly: bool = False
    """PyTorch checks each gradient for NaN."""
    inner: int = 0
    """Width of the feed-forward layers."""
    row_loop: bool = False
    """Rows of the batch are normalised one by one."""
    host_noise: bool = False
    """Noise for the embeddings is drawn on the host."""
    load_fourth_s: float = 0.0
    """Each fourth batch takes as long to load."""
    hooks: bool = False
    """The mean of each layer's output is read by the host."""


_BUSY: Final = Switches(batch=64)
"""The device takes much longer than the host."""
_NEAR: Final = Switches(batch=40)
"""The device takes somewhat longer than the host, also under the profiler."""
_SMALL: Final = Switches(batch=1, sequence=128)
"""The host takes longer."""
_SINGLE: Final = replace(_BUSY, dtype=torch.float32)
DISEASES: Final = {
    "item_each_micro_batch": Disease(
        ("synchronization",),
        None,
        replace(_NEAR, batch=32, micro_batches=4, item=True),
        replace(_NEAR, batch=32, micro_batches=4),
    ),
    "pageable_copies": Disease(
        ("exposed_copies", "synchronization"),
        None,
        replace(_NEAR, copied_mb=256),
        replace(_NEAR, copied_mb=256, pinned=True),
    ),
    "logits_to_host": Disease(
        ("exposed_copies", "synchronization"), None, replace(_NEAR, logits_to_host=True), _NEAR
    ),
    "slow_loader": Disease(("data_loading",), None, replace(_NEAR, load_s=0.03), _NEAR),
    "no_workers": Disease(
        ("data_loading",), None, replace(_NEAR, load_s=0.03), replace(_NEAR, load_s=0.03, workers=6)
    ),
    "python": Disease(("host_bound",), None, replace(_NEAR, python_s=0.02), _NEAR),
    "gc_pauses": Disease(("host_pauses", "host_bound"), None, replace(_NEAR, collect=True), _NEAR),
    "empty_cache": Disease(("device_allocation",), None, replace(_NEAR, empty_cache=True), _NEAR),
    "no_tf32": Disease(("tensor_cores",), None, replace(_SINGLE, tf32=False), _SINGLE),
    "no_flash": Disease(("unfused_attention",), None, replace(_BUSY, flash=False), _BUSY),
    "handwritten_norm": Disease(("unfused_norm",), None, replace(_BUSY, layers="norm"), _BUSY),
    "odd_vocabulary": Disease(
        ("misaligned_products", "low_gemm_efficiency"),
        None,
        replace(_NEAR, vocabulary=32_001),
        replace(_NEAR, vocabulary=32_064),
    ),
    "loop_optimizer": Disease(
        ("unfused_optimizer", "short_kernels", "memory_bound"), None, replace(_NEAR, optimizer="loop"), _NEAR
    ),
    "small_batch": Disease(("short_kernels", "host_bound"), None, _SMALL, replace(_SMALL, graph=True)),
    "cold_start": Disease(("cold_start", "warm_up"), None, replace(_NEAR, cold=True), _NEAR),
    "sync_each_layer": Disease(("synchronization",), None, replace(_NEAR, synchronize=True), _NEAR),
    "norm_loop": Disease(("synchronization",), None, replace(_NEAR, norm_loop=True), _NEAR),
    "handwritten_attention": Disease(("unfused_attention",), None, replace(_BUSY, layers="attention"), _BUSY),
    "handwritten_layer_norm": Disease(
        ("unfused_norm",),
        None,
        replace(_BUSY, layers="layer_norm"),
        replace(_BUSY, library_layers="layer_norm"),
    ),
    "handwritten_gelu": Disease(
        ("unfused_activation", "memory_bound"),
        None,
        replace(_BUSY, layers="gelu"),
        replace(_BUSY, library_layers="gelu"),
    ),
    "contended_interpreter": Disease(
        ("host_bound", "short_kernels", "host_pauses"), None, replace(_NEAR, contended=True), _NEAR
    ),
    "offloaded_gradients": Disease(("exposed_copies",), None, replace(_NEAR, offload=True), _NEAR),
    "embedding_on_host": Disease(
        ("exposed_copies", "host_bound", "synchronization", "data_loading"),
        None,
        replace(_NEAR, host_embedding=True),
        _NEAR,
    ),
    "fp64": Disease(
        ("double_precision", "low_gemm_efficiency", "tensor_cores"),
        None,
        replace(_NEAR, dtype=torch.float64),
        replace(_NEAR, dtype=torch.float32),
    ),
    "recompute": Disease(("recompute",), None, replace(_BUSY, checkpoint=True), _BUSY),
    "small_micro_batches": Disease(
        ("short_kernels", "host_bound"), None, replace(_NEAR, micro_batches=16), _NEAR
    ),
    "one_worker": Disease(
        ("data_loading",),
        None,
        replace(_NEAR, load_s=0.03, workers=1),
        replace(_NEAR, load_s=0.03, workers=6),
    ),
    "boolean_mask": Disease(("synchronization", "host_bound"), None, replace(_NEAR, mask=True), _NEAR),
    "samples_copied": Disease(
        ("host_bound", "short_kernels", "exposed_copies"),
        None,
        replace(_NEAR, batch=256, sequence=32, samples_copied=True),
        replace(_NEAR, batch=256, sequence=32),
    ),
    "formula_loss": Disease(
        ("memory_bound", "short_kernels"),
        None,
        replace(_BUSY, vocabulary=32_064, formula_loss=True),
        replace(_BUSY, vocabulary=32_064),
    ),
    "formula_dropout": Disease(
        ("memory_bound",), None, replace(_BUSY, formula_dropout=True), replace(_BUSY, library_dropout=True)
    ),
    "single_attention": Disease(
        ("low_attention_efficiency", "unfused_attention", "tensor_cores"),
        None,
        replace(_BUSY, single_attention=True),
        _BUSY,
    ),
    "save": Disease(
        ("host_pauses", "exposed_copies", "synchronization", "host_bound"),
        None,
        replace(_NEAR, save=True),
        _NEAR,
    ),
    "gradients_to_host": Disease(
        ("exposed_copies", "synchronization"), None, replace(_NEAR, gradients_to_host=True), _NEAR
    ),
    "anomaly": Disease(
        ("synchronization", "host_bound", "short_kernels"), None, replace(_NEAR, anomaly=True), _NEAR
    ),
    "odd_inner": Disease(
        ("misaligned_products", "low_gemm_efficiency"),
        None,
        replace(_BUSY, inner=2_731),
        replace(_BUSY, inner=2_736),
    ),
    "row_loop": Disease(
        ("short_kernels", "host_bound"),
        None,
        replace(_NEAR, batch=64, row_loop=True),
        replace(_NEAR, batch=64),
    ),
    "host_noise": Disease(
        ("host_bound", "exposed_copies", "synchronization"), None, replace(_NEAR, host_noise=True), _NEAR
    ),
    "uneven_loader": Disease(
        ("data_loading", "host_pauses"),
        None,
        replace(_NEAR, load_fourth_s=0.2, workers=1),
        replace(_NEAR, workers=1),
    ),
    "hooks": Disease(("synchronization", "host_bound"), None, replace(_NEAR, hooks=True), _NEAR),
}
EXAM: Final = tuple(DISEASES)[-13:]
"""Written down after findings were last corrected."""


class HandwrittenNorm(nn.Module):
    """RMS normalisation of separate operators."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


class HandwrittenLayerNorm(HandwrittenNorm):
    """Layer normalisation of separate operators."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.pow(2).mean(-1, keepdim=True)
        return centred / torch.sqrt(variance + 1e-6) * self.weight


class HandwrittenAttention(Attention):
    """Attention of products, scale, mask and softmax."""

    def forward(self, x: torch.Tensor, by: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        by_head = self.wqkv(x).unflatten(-1, (-1, 3, self.head_dim))
        q, k, v = (y.transpose(1, 2) for y in by_head.unbind(-2))
        scores = rotate(q, by) @ rotate(k, by).transpose(-2, -1) / self.head_dim**0.5
        length = x.shape[1]
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        y = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
        return self.wo(y.transpose(1, 2).flatten(2))


class Gelu(nn.Module):
    """A feed-forward layer without a gate."""

    def __init__(self, hidden: int, *, by_hand: bool) -> None:
        super().__init__()
        self.up, self.down = (
            nn.Linear(hidden, 4 * hidden, bias=False),
            nn.Linear(4 * hidden, hidden, bias=False),
        )
        self.by_hand = by_hand

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.up(x)
        if self.by_hand:
            y = 0.5 * y * (1.0 + torch.tanh(0.7978845608 * (y + 0.044715 * torch.pow(y, 3.0))))
        else:
            y = functional.gelu(y, approximate="tanh")
        return self.down(y)


class SingleAttention(Attention):
    """Attention in single precision, for a model in another."""

    def forward(self, x: torch.Tensor, by: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        by_head = self.wqkv(x).float().unflatten(-1, (-1, 3, self.head_dim))
        q, k, v = (y.transpose(1, 2) for y in by_head.unbind(-2))
        y = functional.scaled_dot_product_attention(rotate(q, by), rotate(k, by), v, is_causal=True)
        return self.wo(y.transpose(1, 2).flatten(2).to(x.dtype))


class Wrapped(nn.Module):
    """A layer with something after it."""

    def __init__(self, layer: nn.Module, after: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.layer, self.after = layer, after

    def forward(self, x: torch.Tensor, by: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return self.after(self.layer(x, by))


def masked(x: torch.Tensor) -> torch.Tensor:
    """The tokens that a mask selects, twice the others: all of them."""
    selected = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    rows = x[selected]
    return torch.zeros_like(x).masked_scatter(selected.unsqueeze(-1), rows)


def dropout_by_formula(x: torch.Tensor) -> torch.Tensor:
    """Dropout of a tenth of the values, by its formula."""
    kept = (torch.rand(x.shape, device=x.device) > 0.1).to(x.dtype)
    return x * kept / 0.9


def normalised_rows(x: torch.Tensor) -> torch.Tensor:
    """Each sample of the batch normalised by itself."""
    return torch.stack([functional.rms_norm(row, row.shape[-1:]) for row in x])


def synchronized(x: torch.Tensor) -> torch.Tensor:
    """The same, after the host has synchronised."""
    torch.cuda.synchronize()
    return x


def mean_read(x: torch.Tensor) -> torch.Tensor:
    """The same, after the host has read its mean."""
    x.detach().mean().item()
    return x


class FormulaLoss(nn.Module):
    """Cross entropy by its formula, in single precision."""

    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits = logits.float()
        shifted = logits - logits.amax(-1, keepdim=True)
        log_probability = torch.log(torch.exp(shifted) / torch.exp(shifted).sum(-1, keepdim=True))
        return -(log_probability * functional.one_hot(targets, logits.shape[-1]).float()).sum(-1).mean()


class OnHost(nn.Embedding):
    """An embedding whose table is in host memory."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return super().forward(tokens.cpu()).to("cuda")


def model(switches: Switches) -> TinyLlama:
    """The model, on the default device."""
    recomputed = 4 if switches.checkpoint else 0
    llama = TinyLlama(layers=4, heads=16, head_dim=64, recomputed_layers=recomputed)
    hidden = llama.output.in_features
    llama.embedding = nn.Embedding(switches.vocabulary, hidden)
    llama.output = nn.Linear(hidden, switches.vocabulary, bias=False)
    norm = {"norm": HandwrittenNorm, "layer_norm": HandwrittenLayerNorm}.get(switches.layers)
    if switches.library_layers == "layer_norm":
        norm = nn.LayerNorm
    if norm is not None:
        llama.norm = norm(hidden)
        for layer in llama.layers:
            layer.attention_norm, layer.feed_forward_norm = norm(hidden), norm(hidden)
    for layer in llama.layers:
        if switches.layers == "attention":
            layer.attention = HandwrittenAttention(hidden, 64)
        if "gelu" in (switches.layers, switches.library_layers):
            layer.feed_forward = Gelu(hidden, by_hand=switches.layers == "gelu")
        if switches.single_attention:
            layer.attention = SingleAttention(hidden, 64)
        if switches.inner:
            layer.feed_forward = FeedForward(hidden, switches.inner)
    after = {
        masked: switches.mask,
        dropout_by_formula: switches.formula_dropout,
        partial(functional.dropout, p=0.1): switches.library_dropout,
        normalised_rows: switches.row_loop,
        mean_read: switches.hooks,
        synchronized: switches.synchronize,
    }
    for change in (change for change, is_on in after.items() if is_on):
        llama.layers = nn.ModuleList(Wrapped(layer, change) for layer in llama.layers)
    return llama


def build(switches: Switches) -> TinyLlama:
    """The model, on the GPU."""
    torch.manual_seed(0)
    with torch.device("cuda"):
        llama = model(switches).to(switches.dtype)
    if switches.host_embedding:
        llama.embedding = OnHost(switches.vocabulary, llama.output.in_features).to(switches.dtype)
    return llama


class UnevenSamples(Samples):
    """Samples each fourth of which takes some time to load."""

    def __getitem__(self, index: int) -> torch.Tensor:
        if index % 4 == 3:
            time.sleep(self.seconds)
        generator = torch.Generator().manual_seed(index)
        return torch.randint(VOCABULARY, (self.shape[0], self.shape[1] + 1), generator=generator)


def train_step(
    llama: TinyLlama, optimizer: torch.optim.Optimizer, switches: Switches
) -> Callable[[torch.Tensor], None]:
    """Function that trains a step with a batch on the GPU."""

    loss_of = FormulaLoss() if switches.formula_loss else functional.cross_entropy

    def step(tokens: torch.Tensor) -> None:
        if switches.host_noise:
            noise = torch.randn(*tokens.shape, llama.output.in_features).to("cuda")
            noise.mean()
        for part in tokens.chunk(switches.micro_batches):
            with (
                record_function("forward"),
                nullcontext() if switches.flash else sdpa_kernel(SDPBackend.MATH),
            ):
                logits = llama(part[:, :-1])
                loss = loss_of(logits.flatten(0, 1), part[:, 1:].flatten())
            with record_function("backward"):
                (loss / switches.micro_batches).backward()
            if switches.item:
                loss.item()
            if switches.logits_to_host:
                logits.detach().cpu()
        if switches.norm_loop:
            sum(parameter.grad.norm().item() for parameter in llama.parameters())
        if switches.gradients_to_host:
            [parameter.grad.float().cpu().norm() for parameter in llama.parameters()]
        if switches.offload:
            for parameter in llama.parameters():
                on_host = torch.empty(parameter.shape, dtype=parameter.dtype, pin_memory=True)
                on_host.copy_(parameter.grad, non_blocking=True)
                parameter.grad.copy_(on_host, non_blocking=True)
        with record_function("optimizer"):
            optimizer.step()
            optimizer.zero_grad(set_to_none=not switches.graph)

    return step


def as_graph(step: Callable[[torch.Tensor], None], tokens: torch.Tensor) -> Callable[[torch.Tensor], None]:
    """A step captured as a CUDA graph and replayed."""
    replay = replayed(lambda: step(tokens))

    def copy_and_replay(batch: torch.Tensor) -> None:
        tokens.copy_(batch)
        replay()

    return copy_and_replay


def on_device(batch: torch.Tensor, switches: Switches) -> torch.Tensor:
    """A batch on the GPU."""
    if switches.samples_copied:
        return torch.stack([sample.to("cuda") for sample in batch])
    return batch.pin_memory().to("cuda", non_blocking=True)


def train(switches: Switches, out: Path, finish: Callable[[], None]) -> Iterator[float]:
    """Train under the profiler; returns the seconds of the steps after the first, and of the warm-up.

    Calls `finish` when the last step is over, before the trace is written.
    """
    torch.backends.cuda.matmul.allow_tf32 = switches.tf32
    llama = build(switches)
    fused = switches.optimizer == "fused" and not switches.host_embedding
    how = {"fused": True} if fused else {"foreach": switches.optimizer == "fused"}
    optimizer = torch.optim.AdamW(llama.parameters(), lr=1e-4, capturable=switches.graph, **how)
    step = train_step(llama, optimizer, switches)
    if switches.graph:
        shape = (switches.batch, switches.sequence + 1)
        step = as_graph(step, torch.randint(switches.vocabulary, shape, device="cuda"))
    wait, warmup = (0, 0) if switches.cold else (UNPROFILED + 1, 2)
    total = wait + warmup + STEPS
    samples = Samples(total, (switches.batch, switches.sequence), switches.load_s)
    if switches.load_fourth_s:
        samples = UnevenSamples(total, (switches.batch, switches.sequence), switches.load_fourth_s)
    torch.autograd.set_detect_anomaly(switches.anomaly)
    loader: DataLoader[Any] = DataLoader(samples, batch_size=None, num_workers=switches.workers)
    copied = torch.ones(switches.copied_mb << 18, pin_memory=switches.pinned)
    profile = cclbench.torch.profile(
        out / "traces", wait=wait, warmup=warmup, active=STEPS, model=llama, sequence_length=switches.sequence
    )
    with profile as profiler:
        began = time.perf_counter()
        for number, batch in enumerate(loader):
            while time.perf_counter() - began < switches.python_s:
                str(number).encode().hex()
            if switches.collect and number % 3 == 2:
                gc.collect()
            if switches.copied_mb:
                copied.to("cuda", non_blocking=switches.pinned)
            step(on_device(batch, switches))
            if switches.save and number % 3 == 2:
                torch.save([llama.state_dict(), optimizer.state_dict()], out / "state.pt")
            if switches.empty_cache:
                torch.cuda.empty_cache()
            if number + 1 in (wait, wait + warmup, total) or number == 0:
                torch.cuda.synchronize()  # what is timed begins and ends with an idle device
            ended = time.perf_counter()
            if number >= wait + warmup or 0 < number < wait:
                yield ended - began
            if number + 1 == total:
                finish()
            profiler.step()
            began = time.perf_counter()


def chatter() -> None:
    """A thread that holds the interpreter for one of three milliseconds, like one that writes logs."""
    while True:
        deque(map(str, range(10_000)), 0)
        time.sleep(0.002)


def work(switches: Switches, out: Path, is_over: Event) -> None:
    """The process of one capture."""
    heap = [[number] for number in range(1_000_000)] if switches.collect else []
    if switches.contended:
        threading.Thread(target=chatter, daemon=True).start()
    gc.disable()
    seconds = list(train(switches, out, is_over.set))
    document = {"unprofiled": seconds[:-STEPS], "profiled": seconds[-STEPS:]}
    (out / "seconds.json").write_text(json.dumps(document))
    del heap


def capture(switches: Switches, out: Path) -> ForkProcess:
    """Run the job in a process of its own, which shares the import of torch, until its last step is over."""
    out.mkdir(parents=True, exist_ok=True)
    fork = get_context("fork")
    is_over = fork.Event()
    process = fork.Process(target=work, args=(switches, out, is_over))
    process.start()
    while process.is_alive() and not is_over.wait(0.05):
        pass
    return process


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the captures, made if missing")
    parser.add_argument("--captures", type=int, default=3, help="captures of each form")
    parser.add_argument("--disease", choices=DISEASES, action="append", help="only this one; repeatable")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="no capture begins after that time"
    )
    asked = parser.parse_args()
    until = time.monotonic() + asked.seconds
    writing: list[ForkProcess] = []
    for number in range(asked.captures):
        for name in asked.disease or DISEASES:
            for form in ("sick", "healed"):
                folder = asked.out / name / f"{form}-{number}"
                if time.monotonic() > until or (folder / "seconds.json").exists():
                    continue
                began = time.monotonic()
                writing = [process for process in writing if process.is_alive()]
                writing.append(capture(getattr(DISEASES[name], form), folder))
                print(f"{folder}: {time.monotonic() - began:.1f} s", flush=True)
    for process in writing:
        process.join()


if __name__ == "__main__":
    main()
