# SPDX-License-Identifier: Apache-2.0
"""A figure as an SVG element for a page: theme colours, text as text, hover texts, no inline style.

A page whose policy lacks `unsafe-inline` ignores `style` attributes, so each property becomes an attribute.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET

from markupsafe import Markup

from cclbench.present.charts.chart import Titles
from cclbench.present.charts.palette import COLOURS, light_colour
from cclbench.present.words import bound_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_THEME: Final = {values[0]: f"var(--{name})" for name, values in COLOURS.items()}
_FONT: Final = re.compile(r"(?P<weight>bold|[6-9]00)?[^0-9]*(?P<size>[0-9.]+)px")
_LINK: Final = re.compile(r"^(url\(|)#(?![0-9a-f]{6}$)")
_LINKS: Final = ("href", "clip-path", "fill")
_LENGTHS: Final = ("x", "y", "transform")
_FRACTION: Final = re.compile(r"-?\d+\.\d{3,}")
_COLOURED: Final = ("fill", "stroke")
_DEFAULTS: Final = {("stroke-linejoin", "round"), ("stroke-linecap", "butt")}
"""Properties that the page's style sheet sets for all charts."""
_STYLE: Final[Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "cclbench",
    "text.parse_math": False,  # a name with two dollar signs is not a formula
    "font.size": 11,
    "axes.edgecolor": light_colour("line"),
    "axes.labelcolor": light_colour("muted"),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": light_colour("line"),
    "grid.linewidth": 0.7,
    "xtick.color": light_colour("line"),
    "ytick.color": light_colour("line"),
    "xtick.labelcolor": light_colour("muted"),
    "ytick.labelcolor": light_colour("muted"),
    "text.color": light_colour("ink"),
    "patch.linewidth": 0,
    "hatch.linewidth": 0.8,
    "legend.frameon": False,
}


@contextmanager
def house_style() -> Iterator[None]:
    """Context with the style of all charts, for drawing and writing."""
    import matplotlib as mpl

    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        # The browser draws text with its own fonts, so a glyph missing here does not matter.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def drawn_svg(draw: Callable[[], tuple[Figure, Titles]], *, name: str, label: str) -> Markup:
    """The figure and hover texts that `draw` returns, as one `<svg>` element.

    `name` is unique in the page and prefixes every id; `label` is the description for screen readers.
    """
    out = StringIO()
    with house_style():
        figure, titles = draw()
        metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(out, format="svg", transparent=True, metadata=metadata)
    root = ET.fromstring(out.getvalue())  # noqa: S314 - our own drawing
    _adapt_to_page(root, f"{name}-", titles)
    _, _, width, _ = root.attrib["viewBox"].split()
    root.attrib = {
        "viewBox": root.attrib["viewBox"],
        "class": "chart half" if float(width) < 700 else "chart wide",
        "role": "img",
        "tabindex": "0",
        "aria-label": bound_text(label),
    }
    return Markup(ET.tostring(root, encoding="unicode", short_empty_elements=True))  # noqa: S704 - escaped by ElementTree


def _adapt_to_page(root: ET.Element, prefix: str, titles: Titles) -> None:
    for parent in list(root.iter()):
        parent.tag = parent.tag.rpartition("}")[2]
        for child in list(parent):
            if child.tag.rpartition("}")[2] in ("metadata", "style"):
                parent.remove(child)
        name = parent.get("id", "")
        _plain_attributes(parent, prefix)
        if parent.tag == "g" and name in titles:
            _add_hover_text(parent, titles[name])


def _plain_attributes(element: ET.Element, prefix: str) -> None:
    """Convert attributes for a page: no style, no namespaces, prefixed ids, theme colours."""
    attributes = {key.rpartition("}")[2]: value for key, value in element.attrib.items()}
    for declaration in attributes.pop("style", "").split(";"):
        key, _, value = (part.strip() for part in declaration.partition(":"))
        if key == "font" and (font := _FONT.match(value)):
            attributes |= {"font-size": font["size"]} | ({"font-weight": "700"} if font["weight"] else {})
        elif key and key not in ("font", "font-family") and (key, value) not in _DEFAULTS:
            attributes[key] = value.removesuffix("px") if key == "font-size" else value
    if "id" in attributes:
        attributes["id"] = prefix + attributes["id"]
    for key in _LINKS:
        attributes |= {key: _LINK.sub(rf"\1#{prefix}", attributes[key])} if key in attributes else {}
    for key in _COLOURED:
        attributes |= {key: _THEME.get(attributes[key], attributes[key])} if key in attributes else {}
    for key in _LENGTHS:
        attributes |= {key: _rounded(attributes[key])} if key in attributes else {}
    if "d" in attributes:
        attributes["d"] = _short_path(attributes["d"])
    element.attrib = attributes


def _rounded(numbers: str) -> str:
    """Lengths in pixels to a hundredth."""
    return _FRACTION.sub(lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), numbers)


def _short_path(path: str) -> str:
    """A path in hundredths of a pixel, without lines of length 0 or points within level and upright lines."""
    points = [point.strip() for point in re.split(r"(?=[A-Za-z])", _rounded(path))]
    kept = list[str]()
    for before, point in pairwise(points):
        if point == before and point[0] == "L":
            continue
        if len(kept) > 1 and _is_on_line(kept[-2], kept[-1], point):
            kept.pop()
        kept.append(point)
    return " ".join(kept)


def _is_on_line(first: str, middle: str, last: str) -> bool:
    """Whether a point of a path lies on the level or upright line between those around it."""
    if (middle[0], last[0]) != ("L", "L") or first[0] not in "LM":
        return False
    (x, y), (at, height), (end, last_y) = (map(float, point[1:].split()) for point in (first, middle, last))
    level = y == height == last_y and (at - x) * (end - at) >= 0
    return level or (x == at == end and (height - y) * (last_y - height) >= 0)


def _add_hover_text(group: ET.Element, text: str | Sequence[str]) -> None:
    """Hover text of a group of marks, or of each of its marks in turn."""
    if isinstance(text, str):
        marks, texts = [group], [text]
    else:
        marks, texts = [mark for mark in group.iter() if mark.tag.rpartition("}")[2] == "use"], [*text]
    for mark, hover_text in zip(marks, texts, strict=True):
        title = ET.Element("title")
        title.text = "\n".join(map(bound_text, hover_text.split("\n")))
        mark.insert(0, title)
