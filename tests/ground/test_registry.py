# SPDX-License-Identifier: Apache-2.0
"""The registry of plug-ins; names that files may have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cclbench.ground import registry
from cclbench.ground.errors import InputError, UsageError
from cclbench.ground.file_names import path_of, stored_name, utf8_text
from cclbench.ground.registry import Registry
from cclbench.ground.text import printable, printable_json, printable_lines

HOME, GROUP = "json", "cclbench.no_such_group"  # any importable package serves as an empty home


def a_registry() -> Registry[int]:
    return Registry("number", home=HOME, group=GROUP)


def test_names_are_sorted_unique_and_answered_with_the_nearest() -> None:
    numbers = a_registry()
    numbers.add("two", 2, origin="there")
    numbers.add("one", 1, origin="here")
    assert list(numbers) == ["one", "two"]
    assert numbers.get("two") == 2
    assert numbers.origin("one") == "here"
    with pytest.raises(UsageError, match=r"number 'one' is defined twice, in here and in there"):
        numbers.add("one", 11, origin="there")
    assert numbers.get("one") == 1
    numbers.add("seventeen", 17, origin="here")
    with pytest.raises(UsageError, match=r"unknown number 'sevnteen'; did you mean seventeen\?"):
        numbers.get("sevnteen")


def test_a_broken_plugin_is_a_warning_and_the_others_work(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = metadata.EntryPoint(name="stranger", value="cclbench_no_such_module", group=GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry] if group == GROUP else [])
    numbers = a_registry()
    numbers.add("one", 1, origin="here")
    said = r"number plug-in 'stranger' \(cclbench_no_such_module\) did not load"
    with pytest.warns(UserWarning, match=said):
        assert list(numbers) == ["one"]
    assert numbers.broken == {"stranger": "ModuleNotFoundError: No module named 'cclbench_no_such_module'"}


def test_metrics_register_themselves_on_first_use() -> None:
    # A fresh interpreter: here other tests have long imported the modules.
    code = "from cclbench.analyzers.metric import METRICS; print(METRICS.get('time.step').unit)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "s"


def test_a_thread_that_comes_while_plugins_load_sees_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB calls a function of SQL from several threads at once, the first of which loads the plug-ins."""
    numbers = a_registry()
    loading, others_came = threading.Event(), threading.Event()

    def load(group: str) -> list[metadata.EntryPoint]:
        assert group == GROUP
        loading.set()
        others_came.wait(timeout=5)
        numbers.add("one", 1, origin="here")
        return []

    monkeypatch.setattr(registry, "entry_points", load)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(list, numbers)
        assert loading.wait(timeout=5)
        second = pool.submit(list, numbers)
        with pytest.raises(TimeoutError):
            second.result(timeout=0.05)
        others_came.set()
        assert (first.result(timeout=5), second.result(timeout=5)) == (["one"], ["one"])


PIECES = st.sampled_from([b"\\", b"x", b"\\xe9", b"\\x5c", b"5c", b"e9", b"\xe9", b"\xc3", b"\xa9", b"\n"])
NAMES = st.lists(st.one_of(PIECES, st.binary(max_size=2).filter(lambda raw: b"\0" not in raw)), max_size=8)


@given(NAMES, NAMES)
def test_a_stored_name_is_utf8_and_of_one_file(pieces: list[bytes], others: list[bytes]) -> None:
    path, other = (os.fsdecode(b"".join(of)) for of in (pieces, others))
    name = stored_name(path)
    assert name.encode().decode() == name
    assert path_of(name) == path
    assert (stored_name(other) == name) == (other == path)


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        *((b"r\xe9sultats.txt", r"r\xe9sultats.txt"), ("résultats.txt".encode(), "résultats.txt")),
        *((rb"r\xe9sultats.txt", r"r\x5cxe9sultats.txt"), (rb"back\slash", r"back\slash")),
        (b"\xed\xb3\xa9", r"\xed\xb3\xa9"),
    ],
)
def test_what_a_name_is_stored_as(raw: bytes, name: str) -> None:
    assert stored_name(os.fsdecode(raw)) == name


def test_what_is_no_byte_of_a_name_is_its_code_and_no_escape_leads_out_of_a_folder() -> None:
    """A card's path is checked as it is written; of what its escapes stand for none is a dot or a slash."""
    assert path_of(r"\x2e\x2e\x2f\x00\x0a") == r"\x2e\x2e\x2f\x00\x0a"
    assert utf8_text("a\ud800b\udce9") == r"a\ud800b\xe9"
    assert printable("r\udce9s\u202e\x1b") == r"r\xe9s\u202e\x1b"


@given(st.text(st.characters()))
def test_json_stays_the_same_value(text: str) -> None:
    document = printable_json(json.dumps({text: [text]}, ensure_ascii=False, indent=1))
    assert printable_lines(document) == document
    assert json.loads(document) == {utf8_text(text): [utf8_text(text)]}


def test_the_lines_of_an_error_are_those_that_were_meant() -> None:
    error = InputError(["two of", "  a\nb"], where="new\nline\x1b[31m\udce9", hint="a\u2028b")
    assert str(error).split("\n") == [r"new\nline\x1b[31m\xe9: two of", r"  a\nb; a\u2028b"]
    assert error.__reduce__()[0](*error.__reduce__()[1]).__dict__ == error.__dict__
