# SPDX-License-Identifier: Apache-2.0
"""A self-contained page: template, style and script inlined; nothing is loaded, no other script may run."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup

from cclbench import __version__
from cclbench.ground.destination import check_folder, write_whole
from cclbench.ground.errors import InputError, UsageError
from cclbench.present.charts.palette import css_classes, css_variables
from cclbench.present.words import bound_text

if TYPE_CHECKING:
    from jinja2 import Environment

SUFFIXES: Final = (".html", ".htm")


def check_page(path: Path) -> None:
    """`UsageError` if the file's suffix is not that of a page, or its folder does not exist."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{path}: a report is an HTML page", hint=f"use {' or '.join(SUFFIXES)}")
    check_folder(path)


def render_page(template: str, context: Mapping[str, Any]) -> str:
    """The page; every text is escaped and bounded, whatever the template does."""
    style, script = page_style(), _template_file("page.js")
    policy = (
        f"default-src 'none'; img-src data:; style-src {_csp_hash(style)}; script-src {_csp_hash(script)};"
        " base-uri 'none'; form-action 'none'"
    )
    inlined = {"style": Markup(style), "script": Markup(script), "policy": policy, "version": __version__}  # noqa: S704 - our own files
    return render_template(template, inlined | dict(context))


def render_template(template: str, context: Mapping[str, Any]) -> str:
    """Render a template; every text value is escaped and bounded."""
    return _template_environment().get_template(template).render(dict(context))


def write_page(text: str, path: Path) -> None:
    """Write the page atomically; `InputError` if it cannot be written."""
    check_page(path)
    try:
        write_whole(text, path)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", where=str(path)) from None


@cache
def _template_environment() -> Environment:
    """The templates, each compiled once: that takes longer than to render one."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("cclbench.present"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_safe_value,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _safe_value(value: object) -> object:
    """A template's value: markup unchanged, any other text shortened and without control characters."""
    return bound_text(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def page_style() -> str:
    """The style of all pages: colours of both themes, then the rules."""
    dark = f"@media screen and (prefers-color-scheme:dark){{:root{{{css_variables(1)}}}}}"
    return f":root{{{css_variables(0)}}}{dark}{css_classes()}\n{_template_file('page.css')}"


def _template_file(name: str) -> str:
    return (resources.files("cclbench.present") / "templates" / name).read_text(encoding="utf-8")


def _csp_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"
