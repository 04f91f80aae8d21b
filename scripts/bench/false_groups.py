# SPDX-License-Identifier: Apache-2.0
"""Count how often collectives of subgroups are inferred to be collectives of all ranks, over random layouts.

`false_groups.py --layouts 2000` prints for how many layouts with and without subgroups the group of all ranks
is inferred; with all conditions, and without the condition that ranks must be observed to wait.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections import Counter
from pathlib import Path

from cclbench.normalize.inferred_groups import infer_group

WITHOUT_WAITING = "wait for the last one"
"""In the reason where only the last condition does not hold."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layouts", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
    layout = importlib.import_module("lockstep").layout
    found: Counter[tuple[bool, str]] = Counter()
    for number in range(asked.layouts):
        drawn = layout(asked.seed, number)
        told = infer_group(drawn.calls, range(drawn.ranks), drawn.ranks)
        found[drawn.whole, "drawn"] += 1
        found[drawn.whole, "in step"] += told.rule is not None or WITHOUT_WAITING in told.reason
        found[drawn.whole, "inferred"] += told.rule is not None
    print("| layouts | drawn | all ranks in step | and seen to wait: inferred |")
    print("| --- | ---: | ---: | ---: |")
    for whole, what in ((False, "with subgroups"), (True, "of all ranks")):
        counts = (found[whole, column] for column in ("drawn", "in step", "inferred"))
        print(f"| {what} | {' | '.join(f'{count:,}' for count in counts)} |")


if __name__ == "__main__":
    main()
