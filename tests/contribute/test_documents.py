# SPDX-License-Identifier: Apache-2.0
"""Documents that parse still parse after they are redacted, with the same shape, and hold no secret."""

from __future__ import annotations

import configparser
import csv
import io
import json
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cclbench.contribute.redaction.names import Learner
from cclbench.contribute.redaction.rewriting import rewrite_file
from cclbench.contribute.redaction.scrub import Scrubber

TOKEN, PASSWORD, HOST, USER = f"ghp_{'Ab1c' * 9}", "Zq7x9wkp!#", "gpunode-117.lab-x.ch", "qzbobby7"
SHOWN = (TOKEN, HOST)
"""What is found wherever it stands; the others by what stands beside them."""
TEXTS = (
    f"token {TOKEN}",
    f"docker login -u lab -p '{PASSWORD}' quay.io",
    f"curl -u robot:{PASSWORD} https://{HOST}/x",
    f"export PASSWORD={PASSWORD}",
    f"ssh {USER}@{HOST} ls",
    f"HOME=/home/{USER} USER={USER} SHELL=/bin/z PWD=/w LANG=C A=1",
    f"-----BEGIN PRIVATE KEY-----\n{TOKEN}\n-----END PRIVATE KEY-----",
    f"Cookie: sid={PASSWORD}; x=[y]",
    f"{USER}:x:1000:1000::/home/{USER}:/bin/sh",
    f'{{"user": "{USER}", "password": "{PASSWORD}"}}',
)
PLAIN = ("gemm", "a: b # c", "x, y", "{}", "[1, 2]", "'", '"', "é ü", "1", "", " ", "\\n", "true", "10.5")
texts = st.one_of(
    st.sampled_from(TEXTS),
    st.sampled_from(PLAIN),
    st.tuples(st.sampled_from(PLAIN), st.sampled_from(TEXTS), st.sampled_from(PLAIN)).map(" ".join),
)
keys = st.sampled_from(["a", "password", "host", "job", "user", "note", "key", *SHOWN, f"x {TOKEN}"])
trees = st.recursive(
    texts | st.integers(-5, 5) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)


def redacted(folder: Path, name: str, text: str) -> str:
    """The text of a file as it is published."""
    source, target = folder / name, folder / f"copy-{name}"
    source.write_text(text, encoding="utf-8", newline="")
    learner = Learner()
    rewrite_file(source, None, Scrubber(learner))
    known = learner.learnt_identities(frozenset())
    rewrite_file(source, target, Scrubber(known))
    new = target.read_text(encoding="utf-8")
    assert not any(secret in new for secret in SHOWN), new
    return new


def shape(value: Any) -> Any:
    """Lists and objects without what is in them; keys may have changed."""
    if isinstance(value, dict):
        return [shape(held) for held in value.values()]
    return [shape(item) for item in value] if isinstance(value, list) else None


@given(tree=st.dictionaries(keys, trees, max_size=4), style=st.sampled_from([None, "'", '"', "|", ">"]))
def test_yaml(tmp_path_factory: pytest.TempPathFactory, tree: dict[str, Any], style: str | None) -> None:
    text = yaml.safe_dump(tree, default_style=style, allow_unicode=True, width=40, sort_keys=False)
    before, folder = yaml.safe_load(text), tmp_path_factory.mktemp("x")
    assert shape(yaml.safe_load(redacted(folder, "a.yaml", text))) == shape(before)


@given(tree=st.dictionaries(keys, trees, min_size=1, max_size=4))
def test_json(tmp_path_factory: pytest.TempPathFactory, tree: dict[str, Any]) -> None:
    json.loads(redacted(tmp_path_factory.mktemp("x"), "a.json", json.dumps(tree)))


@given(rows=st.dictionaries(keys, texts | st.integers() | st.lists(texts, max_size=3), max_size=4))
def test_toml(tmp_path_factory: pytest.TempPathFactory, rows: dict[str, Any]) -> None:
    lines = [f"{json.dumps(key)} = {json.dumps(value, ensure_ascii=False)}" for key, value in rows.items()]
    text = "# by me\n[part]\n" + "\n".join([*lines, f"job_id = 12345678 # {TOKEN}"]) + "\n"
    before = tomllib.loads(text)
    assert shape(tomllib.loads(redacted(tmp_path_factory.mktemp("x"), "a.toml", text))) == shape(before)


@given(rows=st.dictionaries(st.sampled_from(["a", "password", "host", "user"]), texts, max_size=4))
def test_ini(tmp_path_factory: pytest.TempPathFactory, rows: dict[str, str]) -> None:
    text = "[part]\n" + "".join(f"{key} = {value.replace(chr(10), ' ')}\n" for key, value in rows.items())
    parser = configparser.RawConfigParser()
    parser.read_string(redacted(tmp_path_factory.mktemp("x"), "a.ini", text))
    assert parser.options("part") == list(rows)


@given(rows=st.lists(st.lists(texts, min_size=3, max_size=3), max_size=4))
def test_csv(tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]]) -> None:
    out = io.StringIO()
    csv.writer(out).writerows(
        [["name", "hostname", "serial"], *rows, ["a", "gpunode-117.lab-x.ch", "1650522012345"]]
    )
    new = redacted(tmp_path_factory.mktemp("x"), "a.csv", out.getvalue())
    parsed = list(csv.reader(io.StringIO(new, newline=""), strict=True))
    assert [len(row) for row in parsed] == [3] * (len(rows) + 2)
    assert parsed[-1] == ["a", "host-1", "device-1"] or rows


@given(words=st.lists(texts, min_size=1, max_size=4))
def test_shell(tmp_path_factory: pytest.TempPathFactory, words: list[str]) -> None:
    lines = [f"run {shlex.quote(word)} && echo done" for word in words]
    text = "\n".join(["#!/bin/sh", "if true; then", *lines, "fi", "cat <<'END'", *words, "END", ""])
    new = redacted(tmp_path_factory.mktemp("x"), "a.sh", text)
    shell = shutil.which("sh") or "sh"
    for script in (text, new):
        ran = subprocess.run([shell, "-n"], input=script, text=True, capture_output=True, check=False)
        assert ran.returncode == 0, (script, ran.stderr)


def test_two_keys_that_are_hidden_stay_two(tmp_path: Path) -> None:
    text = '[mail]\n"ada@lab-x.ch" = 1\n"bob@lab-x.ch" = 2\n'
    new = tomllib.loads(redacted(tmp_path, "a.toml", text))
    assert list(new["mail"].values()) == [1, 2]


NESTED = {
    "a.yaml": (
        "{telling}: {{name: {value}, id: 7, more: [{{full: {value}}}]}}\nmodel:\n  name: llama\n",
        "{telling}:\n  - name: {value}\n    id: 7\nmodel: {{name: llama}}\n",
    ),
    "a.toml": (
        '{telling} = {{name = "{value}", id = 7}}\nmodel = {{name = "llama"}}\n',
        '[part.{telling}]\nname = "{value}"\nids = [7, {{full = "{value}"}}]\n[model]\nname = "llama"\n',
        'auth = {{id = 7, {telling} = "{value}"}}\nmodel = "llama"\n',
    ),
    "a.ini": ("[{telling}]\nname = {value}\nid = 7\n[model]\nname = llama\n",),
    "a.json": ('{{"{telling}": {{"name": "{value}", "id": 7}}, "model": {{"name": "llama"}}}}',),
}
"""What stands within the value of a telling key; the rest stays, names of keys too."""


@pytest.mark.parametrize(
    ("name", "document"), [(name, document) for name, several in NESTED.items() for document in several]
)
@pytest.mark.parametrize(
    ("telling", "value", "new"), [("user", "hugo77", "user-1"), ("password", "Quz7-x9 w", "redacted-secret")]
)
def test_all_that_a_telling_key_holds_is_hidden(
    tmp_path: Path, name: str, document: str, telling: str, value: str, new: str
) -> None:
    text = document.format(telling=telling, value=value)
    assert redacted(tmp_path, name, text) == text.replace(value, new)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "wandb:\n  project: {}\n  mode: online\n"),
        ("a.toml", '[wandb]\nproject = "{}"\nmode = "online"\n'),
        ("a.ini", "[wandb]\nproject = {}\nmode = online\n"),
    ],
)
def test_a_key_tells_by_what_holds_it(tmp_path: Path, name: str, text: str) -> None:
    assert redacted(tmp_path, name, text.format("moonshot-9")) == text.format("job-1")


def test_the_key_behind_a_secret_stays(tmp_path: Path) -> None:
    text = 'password: "{}"\nmodel: {{name: llama}}\n'
    assert redacted(tmp_path, "a.yaml", text.format("Quz7-x9")) == text.format("redacted-secret")


def test_a_folded_scalar_is_one_text(tmp_path: Path) -> None:
    text = f'a: "x {TOKEN[:20]}\\\n  {TOKEN[20:]} y"\nb: 1\n'
    assert yaml.safe_load(redacted(tmp_path, "a.yaml", text)) == {"a": "x redacted-token y", "b": 1}


def test_a_column_says_what_its_cells_are(tmp_path: Path) -> None:
    text = "timestamp, hostname, serial\n1, alphabox, 1650522012345\n"
    assert redacted(tmp_path, "a.csv", text) == "timestamp, hostname, serial\n1, host-1, device-1\n"


def test_a_table_has_comments_ahead_of_its_head_and_keeps_the_cells_beside_a_secret(tmp_path: Path) -> None:
    rows = (
        "# hosts: gpunode-117.lab-x.ch, b",
        "url,loss,hostname",
        "?Signature=Zq7&Key-Pair-Id=K3,0.5,alphabox",
    )
    text = "\n".join([*rows, ""])
    new = redacted(tmp_path, "a.csv", text)
    head, names, row = new.splitlines()
    assert head.startswith("# hosts: host-1")
    assert names == "url,loss,hostname"
    assert row.split(",")[1:] == ["0.5", "host-2"]


def test_a_line_that_would_not_keep_its_shape_does_not_keep_the_others(tmp_path: Path) -> None:
    """What looks like a cookie is also a command of the script."""
    text = f"#!/bin/sh\nexport TOKEN={TOKEN}\necho Cookie: a=Zq7x9wkpAA$(cat)\nssh ada@{HOST}\n"
    lines = redacted(tmp_path, "a.sh", text).splitlines()
    assert lines[1:] == [
        "export TOKEN=redacted-token",
        "echo Cookie: a=Zq7x9wkpAA$(cat)",
        "ssh user-1@host-1",
    ]


def test_a_script_whose_quote_is_open_is_a_text(tmp_path: Path) -> None:
    new = redacted(tmp_path, "a.sh", f'#!/bin/sh\necho "{TOKEN}\n')
    assert new == '#!/bin/sh\necho "redacted-token\n'


def test_a_pseudonym_behind_an_escape_is_no_new_name() -> None:
    text = r"USER PID %CPU COMMAND\nuser-4  4242 99.0 python train.py"
    assert Scrubber(Learner()).text(text) == (text, {})


def test_an_escaped_quote_around_a_secret_stays(tmp_path: Path) -> None:
    new = redacted(tmp_path, "a.sh", f'run "MASTER_PASSWORD=\\"{PASSWORD[:7]}\\""\n')
    assert new == 'run "MASTER_PASSWORD=\\"redacted-secret\\""\n'
