# SPDX-License-Identifier: Apache-2.0
"""The module tree as an icicle chart: each module as wide as its time, above the modules it calls."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cclbench.analyzers.view.work_keys import DEEPEST, NO_MODULE
from cclbench.ground.text import printable, shorten_middle
from cclbench.ground.units import humanise
from cclbench.operator_table import OperatorTable
from cclbench.present.charts.chart import FULL_PX, Chart, Titles, blank_canvas
from cclbench.present.charts.palette import light_colour
from cclbench.present.charts.svg import drawn_svg
from cclbench.present.words import LONGEST

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_MODULES: Final = 800
_ROW_PX: Final = 22
_MARGIN_PX: Final = 8
_LEAST_PX: Final = 1.0
_LETTER_PX: Final = 6.4
_LEAST_LETTERS: Final = 9


@dataclass(slots=True)
class ModuleNode:
    """A module: its own time and that with its children, ns, and its gap to the roofline."""

    path: str
    depth: int
    own_ns: int = 0
    time_ns: int = 0
    gap_s: float | None = None
    children: dict[str, ModuleNode] = field(default_factory=dict)

    @property
    def last_part(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]


def module_chart(table: OperatorTable) -> Chart:
    """The modules of a table by module, including time launched by no module."""
    heading = "Modules"
    caption = (
        "Device time by the nn.Module whose forward, or the backward of that forward, launched it. A module's"
        " width is its time including the modules below it; the uncovered rest is its own time."
    )
    if not any(row.key != NO_MODULE for row in table.rows):
        why = "the trace names no modules: with_stack records them in PyTorch, jax.named_scope in JAX"
        return Chart("modules", heading, caption, None, (why,), wide=True)
    root = module_tree(table)
    scale = (FULL_PX - 2 * _MARGIN_PX) / root.time_ns
    placed = [
        (module, left) for module, left in _placed_modules(root, 0) if module.time_ns * scale >= _LEAST_PX
    ]
    placed = sorted(placed, key=lambda pair: (pair[0].depth, -pair[0].time_ns))[:MOST_MODULES]
    count = sum(1 for _ in _placed_modules(root, 0))
    more = count - len(placed)
    hidden = f"{more:,} are too narrow to draw: cclbench ops --by module lists all"
    longest = max(root.children.values(), key=lambda module: module.time_ns)
    label = f"{heading}: {count - 1} in {humanise(root.time_ns / 1e9, 's')}, most in {longest.last_part}"
    svg = drawn_svg(lambda: _draw_icicle(root, placed, scale), name="modules", label=label)
    return Chart("modules", heading, caption, svg, (hidden,) if more else (), wide=True)


def module_tree(table: OperatorTable) -> ModuleNode:
    """The modules of a table by module, below a root for all device time."""
    root = ModuleNode("device time", 0)
    for row in table.rows:
        node, steps = root, row.key.split("/", DEEPEST - 1)
        lineage = [root]
        for depth, step in enumerate(steps, start=1):
            path = "/".join(steps[:depth])
            node = node.children.setdefault(step, ModuleNode(path, depth))
            lineage.append(node)
        node.own_ns += row.time_ns
        for module in lineage:
            module.time_ns += row.time_ns
            if row.gap_s is not None:
                module.gap_s = (module.gap_s or 0.0) + row.gap_s
    return root


def _placed_modules(module: ModuleNode, left: int) -> Iterator[tuple[ModuleNode, int]]:
    """A module and its descendants, each with its left edge in ns, in the order of their names."""
    yield module, left
    for name in sorted(module.children, key=_natural_key):
        yield from _placed_modules(module.children[name], left)
        left += module.children[name].time_ns


def _natural_key(name: str) -> tuple[bool, list[tuple[int, str]]]:
    """Sort key: Layer_2 before Layer_10; `NO_MODULE` last."""
    parts = re.split(r"(\d{1,9})", name)
    return name == NO_MODULE, [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _draw_icicle(
    root: ModuleNode, placed: list[tuple[ModuleNode, int]], scale: float
) -> tuple[Figure, Titles]:
    from matplotlib.patches import Rectangle

    levels = 1 + max(module.depth for module, _ in placed)
    figure, axes = blank_canvas(
        FULL_PX, _ROW_PX * levels + 4, left=_MARGIN_PX, right=_MARGIN_PX, top=2, bottom=2
    )
    titles: dict[str, str] = {}
    for n, (module, left) in enumerate(placed):
        none = module.path == NO_MODULE
        box = Rectangle(
            (left, module.depth),
            module.time_ns,
            1,
            facecolor=light_colour("idle" if none else "compute"),
            alpha=None if none else max(0.16, 0.5 - 0.07 * module.depth),
            edgecolor=light_colour("bg"),
            linewidth=0.8,
        )
        box.set_gid(f"module-{n}")
        axes.add_patch(box)
        titles[f"module-{n}"] = _hover_text(module, root)
        text = _fitting_name(
            "no module" if none else module.last_part, int((module.time_ns * scale - 6) / _LETTER_PX)
        )
        axes.text(left + 3 / scale, module.depth + 0.5, text, va="center", fontsize=10.5)
    axes.set_xlim(0, root.time_ns)
    axes.set_ylim(levels, 0)
    axes.set_axis_off()
    return figure, titles


def _fitting_name(name: str, letters: int) -> str:
    """The name, shortened to fit; else its number; else nothing."""
    if letters >= _LEAST_LETTERS or len(name) <= letters:
        return shorten_middle(printable(name[:LONGEST]), letters)
    _, _, number = name.rpartition("_")
    return number if number.isdecimal() and len(number) <= letters else ""


def _hover_text(module: ModuleNode, root: ModuleNode) -> str:
    share = module.time_ns / root.time_ns
    lines = [
        "launched by no module" if module.path == NO_MODULE else module.path,
        f"{humanise(module.time_ns / 1e9, 's')}, {humanise(share, '1')} of the device time",
    ]
    if module.children and module.own_ns:
        lines.append(f"{humanise(module.own_ns / 1e9, 's')} outside of the modules within it")
    if module.gap_s is not None:
        lines.append(f"{humanise(module.gap_s, 's')} above the roofline")
    return "\n".join(lines)
