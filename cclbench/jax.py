# SPDX-License-Identifier: Apache-2.0
"""Capture a JAX job for cclbench: one folder per host, and the beginning of a card.

    import cclbench.jax

    with cclbench.jax.profile("traces/my-job", phase="training") as profiler:
        for batch in batches:
            state = train_step(state, batch)
            profiler.step()

JAX is imported when `profile` is called: this module can be imported without it.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from cclbench.capture.begun_card import begin_card, check_phase, environment_variables, on_device
from cclbench.capture.step_times import StepPhase, StepTimes, write_step_times
from cclbench.card import CardFacts
from cclbench.card.fields import drop_empty
from cclbench.ground.errors import UsageError

_SETTLE_S: Final = 0.2
"""Delay before the profiler stops: it records the end of an operation after its result is ready."""
_VARIABLES: Final = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "NCCL_")


def profile(
    folder: str | Path,
    *,
    wait: int = 5,
    active: int = 5,
    stacks: bool = False,
    parameters: Any = None,
    mesh: Any = None,
    global_batch: int | None = None,
    sequence_length: int | None = None,
    phase: str | None = None,
) -> JaxProfile:
    """A context manager that profiles `active` steps; call its `step()` at the end of each step of the job.

    The first `wait` steps run without the profiler, and all but the first of them, which compiles, are timed
    together, as are the profiled ones; the profiler's relative overhead is `overhead` afterwards, and times
    are in `rank{R}_step_times.json` of each process.  JAX dispatches asynchronously, so all arrays are waited
    for at the begin and end of these two phases, and nowhere else.

    Each process writes the xplane file of its host, with the compiled programs, below `host{P}` in the
    folder; `stacks` also traces Python calls.  Each profiled step is an annotation `train` with its number.

    Process 0 begins a card: `parameters` is the tree of the model's weights, whose sizes are summed, `mesh`
    the jax.sharding.Mesh, `global_batch` the samples per step over all devices, `sequence_length` the tokens
    per sample, `phase` training, inference or serving; without a phase no card is written.

    Raises `UsageError` without JAX.
    """
    if find_spec("jax") is None:
        raise UsageError("cclbench.jax needs JAX, which is not installed", hint="pip install jax")
    if wait < 0 or active < 1:
        raise UsageError("wait is 0 or more, active is 1 or more")
    check_phase(phase)
    batch = drop_empty(**{"global": global_batch, "sequence_length": sequence_length})
    facts = CardFacts((), phase=phase, batch=batch)
    return JaxProfile(Path(folder), wait, active, stacks, facts, parameters, mesh)


class JaxProfile:
    """Made by `cclbench.jax.profile`; `overhead` is known once the trace is written."""

    overhead: float | None = None
    """Relative increase of the step time by the profiler; None if not measured."""

    def __init__(
        self, folder: Path, wait: int, active: int, stacks: bool, facts: CardFacts, parameters: Any, mesh: Any
    ) -> None:
        self._folder, self._wait, self._active, self._stacks = folder, wait, active, stacks
        self._facts, self._parameters, self._mesh = facts, parameters, mesh
        self._step = 0
        self._began = 0.0
        self._unprofiled: StepPhase | None = None
        self._annotation: Any = None

    def __enter__(self) -> JaxProfile:
        if self._wait == 0:
            self._start_trace()
        return self

    def step(self) -> None:
        """Mark the end of a step of the job."""
        self._step += 1
        if self._annotation is not None:
            self._annotation.__exit__(None, None, None)
            if self._step < self._wait + self._active:
                self._annotate_step()
            else:
                self._stop_trace()
        elif self._step == self._wait:
            if self._wait > 1:
                self._unprofiled = self._timed_phase(self._wait - 1)
            self._start_trace()
        elif self._step == 1:
            self._begin_timing()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._annotation is not None:
            self._annotation.__exit__(kind, error, trace)
            self._stop_trace()
        elif kind is None and self._step < self._wait:
            warnings.warn(
                f"no trace in {self._folder}: the job took {self._step} steps, and the trace begins after"
                f" {self._wait}",
                stacklevel=2,
            )

    def _start_trace(self) -> None:
        import jax

        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = int(self._stacks)
        _wait_for_all()
        digits = len(str(jax.process_count() - 1))  # files in order are ranks in order
        place = self._folder / f"host{jax.process_index():0{digits}d}"
        jax.profiler.start_trace(place, profiler_options=options)
        self._annotate_step()
        self._begin_timing()

    def _annotate_step(self) -> None:
        import jax

        self._annotation = jax.profiler.StepTraceAnnotation("train", step_num=self._step)
        self._annotation.__enter__()

    def _stop_trace(self) -> None:
        """Write the trace, step times and card."""
        import jax

        self._annotation = None
        steps = self._step - self._wait
        profiled = self._timed_phase(steps) if steps else None
        time.sleep(_SETTLE_S)
        jax.profiler.stop_trace()
        if self._unprofiled is not None and profiled is not None:
            times = StepTimes(
                rank=jax.process_index(),
                profiler="jax.profiler",
                records=["stacks"] if self._stacks else [],
                unprofiled=self._unprofiled,
                profiled=profiled,
            )
            write_step_times(times, self._folder)
            self.overhead = times.relative_overhead
        if jax.process_index() == 0:
            begin_card(self._card_facts(), self._folder)

    def _begin_timing(self) -> None:
        _wait_for_all()
        self._began = time.perf_counter()

    def _timed_phase(self, steps: int) -> StepPhase:
        """Number and time of the steps since `_begin_timing`, including their work on the devices."""
        _wait_for_all()
        return StepPhase(steps, time.perf_counter() - self._began)

    def _card_facts(self) -> CardFacts:
        """Facts about the job for its card."""
        import jax

        sizes = {} if self._mesh is None else dict(self._mesh.shape)
        weights = jax.tree.leaves(self._parameters)
        facts = replace(
            self._facts,
            world_size=jax.device_count(),
            per_node=jax.local_device_count(),
            framework="jax",
            framework_version=jax.__version__,
            groups=tuple((f"mesh_{name}", tuple(range(size))) for name, size in sizes.items()),
            model=drop_empty(parameters=sum(weight.size for weight in weights) or None),
            environment=environment_variables(*_VARIABLES),
        )
        return on_device(facts, jax.local_devices()[0].device_kind)


def _wait_for_all() -> None:
    """Wait until the devices have finished all submitted work."""
    import jax

    jax.block_until_ready(jax.live_arrays())
