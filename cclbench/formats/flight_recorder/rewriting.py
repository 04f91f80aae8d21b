# SPDX-License-Identifier: Apache-2.0
"""Rewriting of pickled dumps: read as the plain data they are, and pickled again with other texts."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from typing import Any

from cclbench.formats.files import output, shown
from cclbench.formats.flight_recorder.pickled import NotPlainError, plain
from cclbench.formats.rewriting import ENVIRONMENT, JOB, Redactor
from cclbench.formats.texts import damaged, whole

MOST_BYTES = 1 << 28
"""Of a dump; a ring buffer of 2,000 collectives with their stack frames takes about 20 MB."""
_PROTOCOL = 2  # the recorder's own


def rewrite_pickle(path: Path, target: Path | None, redactor: Redactor) -> None:
    """Rewrite a pickle as `Format.rewrite` does; `InputError` where it is damaged or holds more than data."""
    try:
        new = _rewritten(plain(whole(path, MOST_BYTES)), "", redactor)
    except NotPlainError as error:
        raise damaged(Path(shown(path)), str(error)) from None
    except RecursionError:
        raise damaged(Path(shown(path)), "is nested too deeply") from None
    with output(path, target) as write:
        write(pickle.dumps(new, protocol=_PROTOCOL))


def _rewritten(value: Any, place: str, redactor: Redactor, kind: str | None = None, name: str = "") -> Any:
    """The same data with other texts; `place` is the key whose value it is in, `kind` what that key says.

    `name` is a variable's, within an environment.
    """
    new: str | None
    match value:
        case str() if kind is not None:
            new, counts = redactor.field(kind, value, name=name)
        case str():
            new, counts = redactor.text(value, place)
        case int() if kind == JOB:
            new, counts = None, Counter({JOB: 1})
        case list() | tuple():
            return type(value)(_rewritten(each, place, redactor, kind, name) for each in value)
        case dict():
            return {
                _rewritten(key, "", redactor): _of_key(str(key), held, redactor, kind)
                for key, held in value.items()
            }
        case _:
            return value
    redactor.count(place or "a key", counts)
    return new


def _of_key(key: str, value: Any, redactor: Redactor, within: str | None) -> Any:
    """The value of a key; `within` is what a key around all of it says."""
    if within is None:
        return _rewritten(value, key, redactor, redactor.kind_of_field(key))
    return _rewritten(value, key, redactor, within, key if within == ENVIRONMENT else "")
