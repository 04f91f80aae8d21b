# SPDX-License-Identifier: Apache-2.0
"""Reading cards: fields, bandwidths, and hostile ones."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cclbench.card import card_schema, load_card, upgrade_card, validate_card
from cclbench.card.bandwidth import believable_bandwidths
from cclbench.card.read import parse_card, read_card, scalar
from cclbench.ground.errors import CclbenchError, InputError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"), ("No", "No"), ("on", "on"), ("OFF", "OFF"), ("true", True), ("TRUE", True),
        ("False", False), ("tRUE", "tRUE"), ("", None), ("~", None), ("null", None), ("nULL", "nULL"),
        ("12", 12), ("-12", -12), ("012", 12), ("0o17", 15), ("0x1F", 31), ("0b11", "0b11"),
        ("1_000", "1_000"), ("190:20:30", "190:20:30"), ("2024-01-31", "2024-01-31"), ("1e9", 1e9),
        ("1.5", 1.5), (".5", 0.5), ("5.", 5.0), ("6.02E+23", 6.02e23), ("-.inf", -math.inf),
        ("2.27.3", "2.27.3"), ("9223372036854775807", 2**63 - 1), ("=", "="), ("<<", "<<"),
    ],
)  # fmt: skip
def test_plain_scalars_follow_the_core_schema_of_yaml_1_2(text: str, value: object) -> None:
    result = scalar(text)
    assert result == value
    assert type(result) is type(value)


def test_quotes_make_text_and_nan_is_a_float() -> None:
    document = parse_card('a: \'true\'\nb: "12"\nc: |\n  7\n"?": 1\n', "x.yaml")
    assert document.value == {"a": "true", "b": "12", "c": "7\n", "?": 1}
    assert document.line(("?",)) == 5
    assert math.isnan(float(str(scalar(".nan"))))


def test_lines_and_texts_are_remembered() -> None:
    document = parse_card("# card\na:\n  b: 2.10\n  c:\n    - x\n    - y: 0x10\n", "x.yaml")
    assert document.value == {"a": {"b": 2.1, "c": ["x", {"y": 16}]}}
    assert document.line(("a", "b")) == 3
    assert document.line(("a", "c", 1, "y")) == 6
    assert document.line(("a", "missing", "deeper")) == 2
    assert document.texts["a", "b"] == "2.10"
    assert document.texts["a", "c", 1, "y"] == "0x10"


def test_a_repeated_key_is_a_problem_and_the_rest_is_still_read() -> None:
    document = parse_card("a: 1\nb:\n  c: 1\n  c: 2\na: 3\nd: 4\n", "x.yaml")
    assert [str(problem) for problem in document.problems] == [
        "x.yaml:4: b.c: is there twice, first in line 3",
        "x.yaml:5: a: is there twice, first in line 1",
    ]
    assert document.value == {"a": 1, "b": {"c": 1}, "d": 4}


@pytest.mark.parametrize("key", ["1", "true", "~", "[a, b]", "{a: b}", "1.5"])
def test_a_key_that_is_no_text_is_a_problem(key: str) -> None:
    (problem,) = parse_card(f"a: 0\n? {key}\n: 1\n", "x.yaml").problems
    assert problem.line == 2
    assert "not text" in problem.message


@pytest.mark.parametrize("escape", [r"\e[31m", r"\a", r"\x9b", r"\uD800", r"\r", r"\0"])
def test_control_characters_in_a_value_are_a_problem(escape: str) -> None:
    (problem,) = parse_card(f'a: "x{escape}y"\n', "x.yaml").problems
    assert (problem.line, problem.path) == (1, "a")
    assert str(problem).isprintable()


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", None, "is empty"),
        ("# only a comment\n", None, "is empty"),
        ("---\n", None, "is empty"),
        ("- a\n- b\n", None, "is a list"),
        ("just text\n", None, "is a single value"),
        ("42\n", None, "is a single value"),
        ("a: 1\n---\nb: 2\n", 2, "two YAML documents"),
        ("a: 1\n...\n---\nb: 2\n", 3, "two YAML documents"),
        ("a: &x 1\nb: *x\n", 1, "anchor or alias"),
        ("a: 1\nb: *x\n", 2, "anchor or alias"),
        ("a: &x [*x]\n", 1, "anchor or alias"),
        ("a: !!python/object/apply:os.system ['true']\n", 1, "tag"),
        ("a: ! b\n", 1, "tag"),
        ("a: !!int '3'\n", 1, "tag"),
        ("a: 1\n\tb: 2\n", 2, "indent with spaces"),
        ("a: 1\nb: c: d\n", 2, "mapping values are not allowed here"),
        ("a: 1\nb\nc: 2\n", 3, "a simple key that starts in line 2"),
        ("a: [1, 2\nb: 3\n", 2, "flow sequence that starts in line 1"),
        ('a: "unclosed\n', 2, "quoted scalar that starts in line 1"),
        ("a: 1\nb: \x00\n", 2, "control character U+0000"),
        ("a: 1\nb: \x1b\n", 2, "control character U+001B"),
        ("a: 18446744073709551616\n", 1, "beyond 64 bits"),
        ("a: " + "9" * 5000 + "\n", 1, "beyond 64 bits"),
        ("a: 0x" + "f" * 5000 + "\n", 1, "beyond 64 bits"),
        ('a: "\\U00110000"\n', None, "not valid YAML"),
        ("a: " + "[" * 100_000 + "\n", 1, "nested more than"),
        ("".join(" " * i + "a:\n" for i in range(40)), 17, "nested more than"),
        ("%YAML 9" + "9" * 5000 + ".1\n---\na: 1\n", None, "not valid YAML"),
    ],
)
def test_what_is_no_card_is_refused_with_line_and_reason(text: str, line: int | None, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_card(text, "x.yaml")
    message = str(caught.value)
    assert reason in message
    assert message.startswith("x.yaml:" if line is None else f"x.yaml:{line}:")
    assert len(message) < 300


def test_a_file_is_utf_8_of_at_most_a_megabyte(tmp_path: Path) -> None:
    """A byte-order mark is no part of the first key."""
    card = tmp_path / "card.yaml"
    card.write_bytes(b"a: 1\nb: caf\xe9\n")
    with pytest.raises(InputError, match=r"card\.yaml:2: is not UTF-8 at byte 11"):
        read_card(card)
    card.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read_card(card).value == {"a": 1}
    card.write_text("a: " + "x" * 1_000_000)
    with pytest.raises(InputError, match="over 1 MB"):
        read_card(card)


@pytest.mark.parametrize("name", ["missing.yaml", ".", "missing/card.yaml", "nul\0.yaml", "n" * 300])
def test_what_is_no_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError):
        read_card(tmp_path / name)


BOTH = {"scale_out": "200 Gb/s", "scale_up": "2400 Gb/s"}


@pytest.mark.parametrize(
    ("values", "accelerator", "topology", "believed", "doubt"),
    [
        ([200, 2400], "nvidia_a100", "slingshot", BOTH, None),
        ([200, 2400], "nvidia_a100_40gb", "Slingshot-11", BOTH, None),
        ([2400, 200], "nvidia_a100", "slingshot", {}, "scale-out above scale-up: swapped"),
        ([200, 2000], "nvidia_a100", "slingshot", {"scale_out": "200 Gb/s"},
         "2000 for scale-up, but nvidia_a100 has 2400"),
        ([200, 600], "nvidia_a100", "slingshot", {"scale_out": "200 Gb/s"},
         "it is that rate in GB/s with both directions counted"),
        ([200, 300], "nvidia_a100", "slingshot", {"scale_out": "200 Gb/s"}, "(it is that rate in GB/s)"),
        ([25, 300], "nvidia_a100", "slingshot", {}, "25 for scale-out, but slingshot has 200 Gb/s"),
        ([200, 6400], "tpu_v6e", "2d torus", {}, "it is that rate with both directions counted"),
        (["N/A", 800], "tpu_v6e", "torus", {}, "it is that rate in GB/s with both directions counted"),
        (["N/A", 3200], "tpu_v6e", "torus", {"scale_up": "3200 Gb/s"}, "no number for scale-out"),
        (["TBD", "TBD"], "nvidia_a100", "", {}, "no number for scale-up"),
        ([600], "nvidia_a100_40gb", "slingshot-11", {}, "has 1 of the two values"),
        ([200, 2400, 1], "nvidia_a100", "slingshot", {}, "has 3 of the two values"),
        ([400, 3600], "nvidia_h100", "fat-tree", {"scale_out": "400 Gb/s", "scale_up": "3600 Gb/s"}, None),
        ([-200, 0], "nvidia_h100", "fat-tree", {}, "has 0 for scale-up"),
        ([True, 2400], "nvidia_a100", "slingshot", {"scale_up": "2400 Gb/s"}, "no number for scale-out"),
    ],
)  # fmt: skip
def test_a_pair_is_believed_or_doubted_side_by_side(
    values: list[object], accelerator: str, topology: str, believed: dict[str, str], doubt: str | None
) -> None:
    found, doubts = believable_bandwidths(values, accelerator, topology)
    assert found == believed
    assert {side for side, _ in doubts} == {"scale_out", "scale_up"} - set(believed)
    assert doubt is None or any(doubt in reason for _, reason in doubts)


def survives(card: Path) -> None:
    """All three readers answer, in messages that no terminal obeys."""
    for reader in (load_card, validate_card, upgrade_card):
        try:
            result: Any = reader(card)
        except CclbenchError as error:
            said = str(error).splitlines()
        else:
            said = [str(problem) for problem in result] if isinstance(result, list) else []
        assert all(line.isprintable() for line in said)


@given(content=st.binary(max_size=300))
def test_any_bytes(tmp_path: Path, content: bytes) -> None:
    card = tmp_path / "card.yaml"
    card.write_bytes(content)
    survives(card)


@given(text=st.text(alphabet="ab:-[]{}#&*!|>'\"%@`,?~ \n\t\\x0.\u2028\ufeff", max_size=80))
def test_any_yaml_like_text(tmp_path: Path, text: str) -> None:
    card = tmp_path / "card.yaml"
    card.write_text("version: 1\n" + text, encoding="utf-8")
    survives(card)


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)


def names(part: Any) -> set[str]:
    found = set(part.get("properties", {}))
    return found.union(*(names(below) for below in part.get("properties", {}).values())) if found else found


V2_NAMES = sorted(names(card_schema()))
V1_NAMES = [
    *("Model-executor", "model", "data", "model_arch", "batch_size", "network_topo", "bandwidth_gbps"),
    *("topology", "xpu_spec", "total_count", "count_per_node", "communication_library", "env"),
    *("model_plan_parallelization", "pp_mb", "iteration", "epochs", "protocol_selection", "trace_url"),
    "driver_version",
]


@given(data=st.data(), version=st.sampled_from([1, 2]))
def test_the_right_keys_with_any_values(tmp_path: Path, data: st.DataObject, version: int) -> None:
    known = st.sampled_from(V2_NAMES + V1_NAMES)
    tree = st.recursive(values, lambda inner: st.dictionaries(known, inner, max_size=6), max_leaves=12)
    mapping = data.draw(st.dictionaries(known, tree, max_size=6))
    card = tmp_path / "card.yaml"
    card.write_text(
        yaml.safe_dump({"version": version, **mapping}, allow_unicode=True), "utf-8", "surrogatepass"
    )
    survives(card)


@pytest.mark.parametrize("seed", range(3))
def test_real_cards_with_bytes_changed(tmp_path: Path, test_data: Path, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 -- chooses bytes to break, no secret
    card = tmp_path / "card.yaml"
    for path in sorted((test_data / "ccl_bench" / "cards").glob("*.yaml")):
        content = bytearray(path.read_bytes())
        for _ in range(rng.randint(1, 4)):
            content[rng.randrange(len(content))] = rng.choice(b":-[]{}\"'\n\t#&*!\x00\xff0")
        card.write_bytes(content[: rng.randint(len(content) // 2, len(content))])
        survives(card)
