# SPDX-License-Identifier: Apache-2.0
"""Serve a small Llama-like model over HTTP under the PyTorch profiler, and send it requests.

    python tiny_serving.py serve --requests 16 --output traces &
    python tiny_serving.py send --requests 16 --output traces

The server has slots for `--slots` requests, each with its keys and values (a cache). As long as a slot is
free and a request waits, a step of its loop reads that prompt (prefill); else it computes the next token of
all requests in slots (decode). A step is a ProfilerStep, and an annotation of the form that vLLM writes,
`execute_context_1(57)_generation_0(0)`: requests and tokens of each phase. Tokens are sent as they are known,
one a line. Weights are random, a request ends with its `max_tokens`, and the server with `--requests`. The
trace has all steps of all requests: OUTPUT/rank0_trace.json.gz, cut as in tiny_llama.py.

The client keeps `--concurrency` requests open, of lengths drawn from a fixed seed, takes the time of every
token that arrives, and writes OUTPUT/client.json in the format of `vllm bench serve --save-detailed`.
"""

from __future__ import annotations

import argparse
import http.client
import json
import queue
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PORT = 8093
VOCABULARY = 2048
LONGEST = 128
"""Tokens of a request, prompt and answer together."""


@dataclass
class Request:
    """A request, and the tokens of its answer as they are known; None is the last."""

    prompt: list[int]
    max_tokens: int
    answer: queue.Queue[int | None] = field(default_factory=queue.Queue)
    tokens: int = 0
    last: int = 0


class Engine:
    """The model, its cache, and the requests in its slots."""

    def __init__(self, options: argparse.Namespace) -> None:
        import torch
        from tiny_llama import TinyLlama, rotation

        torch.manual_seed(0)
        self.model = TinyLlama(options.layers, options.heads, options.head_dim).eval()
        shape = (options.layers, 2, options.slots, LONGEST, options.heads, options.head_dim)
        self.cache = torch.zeros(shape)
        self.rotation = rotation(LONGEST, options.head_dim, torch.device("cpu"))
        self.waiting: queue.Queue[Request] = queue.Queue()
        self.slots: list[Any] = [None] * options.slots

    def next_tokens(self, tokens: Any, slots: Sequence[int], starts: Sequence[int]) -> list[int]:
        """The next token of each request, whose tokens [requests, t] follow `starts` cached ones."""
        import torch
        from tiny_llama import rotate
        from torch.nn import functional

        slot, position = torch.tensor(slots), torch.tensor(starts)[:, None] + torch.arange(tokens.shape[1])
        limit = int(position.max()) + 1
        by = tuple(table[position][:, None] for table in self.rotation)
        mask = (torch.arange(limit) <= position[..., None])[:, None]
        x = self.model.embedding(tokens)
        for layer, (keys, values) in zip(self.model.layers, self.cache, strict=True):
            projected = layer.attention.wqkv(layer.attention_norm(x))
            q, k, v = projected.unflatten(-1, (-1, 3, keys.shape[-1])).unbind(-2)
            keys[slot[:, None], position] = rotate(k.transpose(1, 2), by).transpose(1, 2)
            values[slot[:, None], position] = v
            k, v = (cached[slot, :limit].transpose(1, 2) for cached in (keys, values))
            y = functional.scaled_dot_product_attention(rotate(q.transpose(1, 2), by), k, v, attn_mask=mask)
            x = x + layer.attention.wo(y.transpose(1, 2).flatten(2))
            x = x + layer.feed_forward(layer.feed_forward_norm(x))
        logits = self.model.output(self.model.norm(x[:, -1]))
        return logits.argmax(-1).tolist()

    def await_request(self) -> None:
        """Wait until a request waits."""
        self.waiting.put(self.waiting.get())

    def step(self) -> int:
        """Prefill a waiting request, else decode; the number of requests that end."""
        import torch
        from torch.profiler import record_function

        taken = [slot for slot, request in enumerate(self.slots) if request is not None]
        if len(taken) < len(self.slots) and (not taken or not self.waiting.empty()):
            request = self.waiting.get()
            slot = self.slots.index(None)
            self.slots[slot] = request
            with record_function(f"execute_context_1({len(request.prompt)})_generation_0(0)"):
                found = self.next_tokens(torch.tensor([request.prompt]), [slot], [0])
            return self.answer([slot], found)
        running = [request for request in self.slots if request is not None]
        with record_function(f"execute_context_0(0)_generation_{len(taken)}({len(taken)})"):
            # the last token is not in the cache yet
            starts = [len(request.prompt) + request.tokens - 1 for request in running]
            found = self.next_tokens(torch.tensor([[request.last] for request in running]), taken, starts)
        return self.answer(taken, found)

    def answer(self, slots: Sequence[int], tokens: Sequence[int]) -> int:
        """Hand over new tokens, and free the slots of requests that end; their number."""
        ended = 0
        for slot, token in zip(slots, tokens, strict=True):
            request = self.slots[slot]
            request.last, request.tokens = token, request.tokens + 1
            request.answer.put(token)
            if request.tokens == request.max_tokens:
                request.answer.put(None)
                self.slots[slot] = None
                ended += 1
        return ended


def http_server(engine: Engine) -> ThreadingHTTPServer:
    """A server that hands requests to the engine, and sends tokens as they are known."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            request = Request(asked["prompt"], asked["max_tokens"])
            engine.waiting.put(request)
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            while (token := request.answer.get()) is not None:
                self.wfile.write(f"data: {token}\n".encode())
                self.wfile.flush()

        def log_message(self, *_: object) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", PORT), Handler)


def serve(options: argparse.Namespace) -> None:
    """Answer the requests, after steps that wait and warm up, of no client."""
    import torch
    from tiny_llama import WARMUP, cut

    import cclbench.torch

    engine, before = Engine(options), options.wait + WARMUP
    with (
        torch.inference_mode(),
        cclbench.torch.profile(
            options.output, wait=options.wait, warmup=WARMUP, active=100_000, phase="serving"
        ) as profiler,
    ):
        for step in range(before):
            engine.waiting.put(Request([1] * 32, 1))
            engine.step()
            if step == before - 1:
                server = http_server(engine)
                threading.Thread(target=server.serve_forever, daemon=True).start()
                engine.await_request()
            profiler.step()
        ended = 0
        while ended < options.requests:
            ended += engine.step()
            if ended < options.requests:
                profiler.step()
    server.shutdown()
    server.server_close()  # waits for the last answers
    cut(options.output / "rank0_trace.json.gz")


@dataclass
class Measured:
    """What the client measures of one request, s."""

    input_len: int
    sent: float
    arrivals: list[float] = field(default_factory=list)


def measured_request(prompt: list[int], max_tokens: int) -> Measured:
    """Send a request, and take the time of each token."""
    body = json.dumps({"prompt": prompt, "max_tokens": max_tokens})
    connection = http.client.HTTPConnection("127.0.0.1", PORT)
    measured = Measured(len(prompt), time.perf_counter())
    connection.request("POST", "/v1/completions", body)
    for line in connection.getresponse():
        if line.startswith(b"data:"):
            measured.arrivals.append(time.perf_counter())
    return measured


def await_server() -> None:
    """Wait for up to two minutes until the server listens."""
    for _ in range(1200):
        connection = http.client.HTTPConnection("127.0.0.1", PORT)
        try:
            connection.connect()
        except ConnectionRefusedError:
            time.sleep(0.1)
        else:
            connection.close()
            return
    raise SystemExit("no server")


def send(options: argparse.Namespace) -> None:
    """Send the requests, and write what they took."""
    chance = random.Random(0)  # noqa: S311 (lengths, no secret)
    asked: queue.Queue[tuple[list[int], int]] = queue.Queue()
    for _ in range(options.requests):
        prompt = [chance.randrange(VOCABULARY) for _ in range(chance.randint(24, 96))]
        asked.put((prompt, chance.randint(4, 10)))
    done: list[Measured] = []

    def work() -> None:
        while True:
            try:
                prompt, max_tokens = asked.get_nowait()
            except queue.Empty:
                return
            done.append(measured_request(prompt, max_tokens))

    await_server()
    begin = time.perf_counter()
    threads = [threading.Thread(target=work) for _ in range(options.concurrency)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    duration = time.perf_counter() - begin
    tokens = sum(len(one.arrivals) for one in done)
    written = {
        "backend": "http",
        "model_id": "tiny-llama-5M",
        "num_prompts": options.requests,
        "request_rate": "inf",
        "max_concurrency": options.concurrency,
        "duration": duration,
        "completed": len(done),
        "total_input_tokens": sum(one.input_len for one in done),
        "total_output_tokens": tokens,
        "request_throughput": len(done) / duration,
        "output_throughput": tokens / duration,
        "input_lens": [one.input_len for one in done],
        "output_lens": [len(one.arrivals) for one in done],
        "ttfts": [one.arrivals[0] - one.sent for one in done],
        "itls": [[b - a for a, b in zip(one.arrivals, one.arrivals[1:], strict=False)] for one in done],
    }
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "client.json").write_text(json.dumps(written))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("role", choices=("serve", "send"))
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--concurrency", type=int, default=6, help="requests that the client keeps open")
    parser.add_argument("--slots", type=int, default=4, help="requests in a step of the server")
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--wait", type=int, default=1, help="steps without the profiler")
    parser.add_argument("--output", type=Path, required=True, help="folder for the files, made if missing")
    options = parser.parse_args()
    serve(options) if options.role == "serve" else send(options)


if __name__ == "__main__":
    main()
