# SPDX-License-Identifier: Apache-2.0
"""Synthetic truth: simulated ranks whose every metric is known, and traces of them with chosen distortions.

`program` says what ranks do, `simulation` runs it, `truth` holds and `measure` computes what is true of
it, `kineto` writes traces, `cases` draws random layouts.
"""
# ruff: noqa: F401 - names that tests import from here

from __future__ import annotations

from helpers.synthetic.cases import Case, in_layouts, layouts
from helpers.synthetic.kineto import Distortion, Written, write
from helpers.synthetic.program import (
    Await,
    Collective,
    Compute,
    Copy,
    Layout,
    Link,
    Network,
    Pause,
    Program,
    Straggler,
    Transfer,
)
from helpers.synthetic.simulation import simulate
from helpers.synthetic.truth import Instance, Key, Phase, RankTruth, Row, StepTruth, Truth
