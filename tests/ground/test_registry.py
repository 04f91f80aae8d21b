# SPDX-License-Identifier: Apache-2.0
"""The registry of plug-ins: names, origins, near matches, broken strangers."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata

import pytest

from cclbench.ground import registry
from cclbench.ground.errors import UsageError
from cclbench.ground.registry import Registry

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
