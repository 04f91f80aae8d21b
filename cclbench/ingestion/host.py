# SPDX-License-Identifier: Apache-2.0
"""Host rows of a rank: operator calls, annotations and Python rows around launches."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from cclbench.classify.python_rows import is_informative, is_site
from cclbench.classify.serving_steps import is_vllm_step, serving_phase
from cclbench.ground.intervals import Index, Int64, Mask
from cclbench.ingestion.host_rows import EventTables, read_calls, read_named
from cclbench.ingestion.launched import Launched
from cclbench.normalize.phases import HostActivity, Named, Phases, runs_node


class Host:
    """Host rows of one rank that enclose a launch; all host rows of a rank without a device."""

    def __init__(self, events: EventTables, launched: Launched | None) -> None:
        """`events` are the rank's; `launched` is None if the host is the device."""
        at = None if launched is None else launched.by_thread()
        stated = np.empty(0, np.int64) if launched is None else launched.stated_calls()
        self.calls = read_calls(events, at, stated)
        self.annotations = read_named(events, "annotation", at, lambda _: True)
        self.python = read_named(events, "python", at, is_informative)
        calls, python = self.calls.named_ranges, self.python.named_ranges
        self.backward_node: Mask = self.calls.columns["in_backward"] | runs_node(calls)
        """Which calls run a node of the backward graph."""
        marks = [self.annotations.named_ranges, python.select_ranges(~python.name_is(is_site))]
        activity = HostActivity(calls, self.calls.columns["sequence"], self.backward_node, marks)
        self.phases = Phases(activity)

    @cached_property
    def _serving_steps(self) -> Callable[[str], bool]:
        """Predicate of annotations that are steps of a serving engine.

        An engine that names its steps in both ways nests them: vLLM's have more detail.
        """
        return is_vllm_step if self.annotations.named_ranges.name_is(is_vllm_step).any() else _is_step

    def step_at(self, track: Int64, at: Int64) -> Index:
        """Name code of the serving engine's step annotation around each instant, −1 for none."""
        return innermost_names(self.annotations.named_ranges, self._serving_steps, track, at)


def innermost_names(rows: Named, chosen: Callable[[str], bool], track: Int64, at: Int64) -> Index:
    """Name code of the innermost range with a `chosen` name around each instant, −1 for none."""
    named_ranges = rows.select_ranges(rows.name_is(chosen))
    return np.append(named_ranges.name, np.int32(-1))[named_ranges.ranges.innermost_at(track, at)]


def _is_step(name: str) -> bool:
    return serving_phase(name) is not None
