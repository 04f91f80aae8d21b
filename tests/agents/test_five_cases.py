# SPDX-License-Identifier: Apache-2.0
"""Five cases, each solved by a scripted client in 5 calls and 12 kB: by `--brief`, and by the protocol.

The client reads only what is in an answer: it takes the first finding as the culprit, and asks the command or
tool that confirms it.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from formats.test_memory_snapshot import block, event, segment, snapshot
from helpers.command_line import Answer, call  # noqa: F401 - a fixture
from helpers.mcp_session import Server, session, text_of
from mcp.client import Client

from cclbench.present.brief import BRIEF_BYTES
from cclbench.selftest.exam import CAUSES
from cclbench.selftest.job import JobShape
from cclbench.selftest.jobs import build_program, hide_transfers
from cclbench.selftest.planting import HealthyJob
from cclbench.selftest.traces import write_traces
from cclbench.selftest.truth import simulate_truth

Ask = Callable[..., Awaitable[dict[str, Any]]]
MOST_CALLS, MOST_BYTES = 5, 12_000
JOB: Final = hide_transfers(JobShape(layout="ddp", seed=11, outer=4, layers=2, hidden=2560))
PLANTED: Final = {
    "host": ("slow_python", 2.0),
    "straggler": ("slow_device", 0.3),
    "overlap": ("no_overlap", 0.5),
}
LEAKING: Final = {"name": "remember", "filename": "/job/train.py", "line": 9}
MIB: Final = 1 << 20


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of simulated jobs: healthy, and with a slow host, a slow rank, no overlap and slower products;
    and of a memory snapshot in which 2 MiB remain from each step."""
    folder = tmp_path_factory.mktemp("five")
    program = build_program(JOB)
    healthy = simulate_truth(program)
    write_traces(program, healthy.histories, folder / "healthy")
    for name, (cause, strength) in {**PLANTED, "regression": ("slow_products", 0.4)}.items():
        subject = HealthyJob(JOB, program, healthy.step_s * 1e9, strength, JOB.seed)
        planted = CAUSES[cause].plant(subject).with_cause
        write_traces(planted, simulate_truth(planted).histories, folder / name)
    (folder / "memory").mkdir()
    (folder / "memory" / "rank0.pickle").write_bytes(pickle.dumps(leak(steps=12)))
    return folder


def leak(steps: int) -> dict[str, Any]:
    """Each step allocates and frees 64 MiB of activations, and keeps 2 MiB that nothing frees."""
    events, marks, kept = [], [], []
    for step in range(steps):
        at = 1_000_000 + 1000 * step
        address = (1 << 32) + step * 2 * MIB
        marks.append({"device": 0, "name": f"ProfilerStep#{step}", "stage": "START", "time_us": at})
        events += [
            event("alloc", 1 << 40, 64 * MIB, at + 10),
            event("alloc", address, 2 * MIB, at + 20, frames=[LEAKING]),
            event("free_requested", 1 << 40, 64 * MIB, at + 30),
            event("free_completed", 1 << 40, 64 * MIB, at + 30),
        ]
        kept.append(block(address, 2 * MIB, frames=[LEAKING]))
        marks.append({"device": 0, "name": f"ProfilerStep#{step}", "stage": "END", "time_us": at + 900})
    held = segment(*kept, address=1 << 32)
    free = segment(block(1 << 40, 64 * MIB, "inactive", frames=[]), address=1 << 40)
    return snapshot([held, free], events, external_annotations=marks)


async def slow_host(ask: Ask, folder: Path) -> None:
    """The host is named before anything else, and what removing it would gain."""
    run = await ask("run", folder / "host")
    first = run["findings"][0]
    assert first["name"] == "host_bound"
    assert "% of the step" in first["gain"]
    without = await ask("whatif", run["run"], settings=first["whatif"])
    assert "speedup" in without["predicted"][0]


async def straggler(ask: Ask, folder: Path) -> None:
    """One rank is named, and that it is late in all steps because its device is slow."""
    run = await ask("run", folder / "straggler")
    (rank,) = run["findings"][0]["ranks"]
    late = await ask("stragglers", run["run"])
    assert late["runs"][0]["rank"] == rank
    assert (late["runs"][0]["pattern"], late["runs"][0]["cause"]) == ("always", "device")


async def not_overlapped(ask: Ask, folder: Path) -> None:
    """Transfers while nothing computes, and the share that is hidden."""
    run = await ask("run", folder / "overlap")
    assert run["findings"][0]["name"] == "exposed_communication"
    shares = await ask("metrics", run["run"], pattern="overlap.ratio")
    assert float(shares["figures"]["overlap.ratio"].partition(" ")[0]) < 60


async def leaking(ask: Ask, folder: Path) -> None:
    """The call site that keeps memory from step to step."""
    run = await ask("run", folder / "memory")
    told = await ask("memory", run["run"])
    growing = told["devices"][0]["growing"][0]
    assert "train.py:9" in growing["call_site"]
    assert (growing["per_step"], growing["leaks"]) == ("2.10 MB", True)


async def regressed(ask: Ask, folder: Path) -> None:
    """Which part and which operator became slower."""
    runs = [(await ask("run", folder / name))["run"] for name in ("healthy", "regression")]
    told = await ask("compare", *runs)
    assert told["verdicts"][0]["outcome"] == "slower"
    assert told["verdicts"][0]["parts"][0].startswith("compute: ")
    assert "aten::mm" in told["operators"][0]


CASES: Final = (slow_host, straggler, not_overlapped, leaking, regressed)


class Budget:
    """Counts the calls and bytes of a case, and parses its answers."""

    def __init__(self) -> None:
        self.calls = self.bytes = 0

    def read(self, text: str) -> dict[str, Any]:
        """The answer, within the budget of each and of all."""
        self.calls, self.bytes = self.calls + 1, self.bytes + len(text.encode())
        assert len(text.encode()) <= BRIEF_BYTES
        assert self.calls <= MOST_CALLS
        assert self.bytes <= MOST_BYTES
        told: dict[str, Any] = json.loads(text)
        return told


@pytest.mark.parametrize("case", CASES)
def test_a_case_by_brief_answers(
    case: Callable[[Ask, Path], Awaitable[None]],
    evidence: Path,
    call: Callable[..., Answer],  # noqa: F811
) -> None:
    budget = Budget()

    async def ask(
        command: str, *sources: object, settings: list[str] | None = None, pattern: str | None = None
    ) -> dict[str, Any]:
        words = [word for setting in settings or () for word in ("--set", setting)]
        words += ["--metric", pattern] if pattern else []
        answer = call(command, *sources, *words, "--json", "--brief")
        assert answer.code == 0, answer.err
        return budget.read(answer.out.removesuffix("\n"))

    anyio.run(case, ask, evidence)


def test_all_cases_by_the_protocol(evidence: Path, tmp_path: Path) -> None:
    server = Server(tmp_path / "store", "--root", str(evidence))

    async def asks(client: Client) -> None:
        for case in CASES:
            budget = Budget()

            async def ask(
                tool: str, *sources: object, _budget: Budget = budget, **values: Any
            ) -> dict[str, Any]:
                named = {"run": "source"}.get(tool, "run")
                several = tool in ("stragglers", "compare")
                of = {"runs": [*map(str, sources)]} if several else {named: str(sources[0])}
                return _budget.read(await text_of(client, tool, {**of, **values}))

            await case(ask, evidence)

    session(server, asks)
