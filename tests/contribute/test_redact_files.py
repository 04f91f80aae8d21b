# SPDX-License-Identifier: Apache-2.0
"""Files on their way: byte for byte where nothing is hidden, whole or absent, and refused where unsafe."""

from __future__ import annotations

import gzip
import json
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from helpers.redact_files import gz, sqlite_with

from cclbench.contribute.redaction import (
    Identities,
    collect_identities,
    find_leftovers,
    has_token,
    kinds,
    redact_file,
    redacted_name,
)
from cclbench.contribute.redaction.names import Learner
from cclbench.contribute.redaction.rewriting import is_card
from cclbench.contribute.redaction.scrub import Scrubber
from cclbench.formats.json_text import JsonRewriter
from cclbench.ground.errors import InputError

NONE = Identities()


def known(**names: str) -> Identities:
    """Names by kind: user, host, job."""
    learner = Learner()
    for kind, name in names.items():
        learner.pseudonym_of(
            {"user": kinds.USER, "host": kinds.HOST, "job": kinds.JOB}[kind], name, learn=True
        )
    return learner.learnt_identities(frozenset())


def copy_of(source: Path, identities: Identities = NONE, **options: Any) -> bytes:
    """What a file becomes."""
    target = source.with_name("copy-" + source.name)
    redact_file(source, target, identities=identities, **options)
    assert find_leftovers(target, identities) == []
    return target.read_bytes()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        (
            "a.json",
            b'{"traceEvents": [\n {"name":"aten::mm" , "ts":1.50,"args":{"x":"\\u00e9\xc3\xa9"}} ]}\n',
        ),
        ("a.jsonl", b'{"a": 1}\n{"b": "c"}\n'),
        ("a.csv", b"time,gpu\r\n1,2\r\n"),
        ("a.log", b"bytes \xff\xfe and no end of line"),
        ("a.yaml", b"version: 2\nworkload: {phase: training}\n"),
        ("empty", b""),
        ("a.log", b"[12:30:01] a log that begins like JSON\n"),
        ("a.json", b'\xef\xbb\xbf{"a": [1, -2.5e-3, NaN, -Infinity, true, null]}'),
    ],
)
def test_what_holds_nothing_stays_byte_for_byte(name: str, data: bytes, tmp_path: Path) -> None:
    source = tmp_path / name
    source.write_bytes(data)
    assert redact_file(source, tmp_path / "copy", identities=NONE) == []
    assert (tmp_path / "copy").read_bytes() == data


def test_json_changes_in_its_texts_alone(tmp_path: Path) -> None:
    source = tmp_path / "a.json"
    source.write_bytes(
        b'{ "x" :1.50,\n"p": "C:\\\\Users\\\\zoe\\\\\\u00e9", "q":"/home/zoe/\xc3\xa9" ,"n":1e3}'
    )
    assert copy_of(source, known(user="zoe4")) == (
        b'{ "x" :1.50,\n"p": "C:\\\\Users\\\\user-unknown\\\\\\u00e9",'
        b' "q":"/home/user-unknown/\xc3\xa9" ,"n":1e3}'
    )


DOCUMENT: dict[str, Any] = {
    "hostname": "gpunode-1",
    "argv": ["python", ["x"], {"a": "b"}],
    "env": {"RANK": "3", "PLAN": "x", "MORE": {"A": "b", "NCCL_ALGO": "Ring"}},
    "job_id": 4711,
    "user": None,
    "INFO": ["at gpunode-1 {[", 'quoted \\" text'],
    "traceEvents": [
        {"ph": "X", "cat": "user_annotation", "name": "my trick", "args": {"k": "v"}},
        {"ph": "X", "name": "my trick", "cat": "cpu_op"},
    ],
    "last": "gpunode-1",
}
REDACTED = {
    "hostname": "host-1",
    "argv": ["redacted-command-line", ["redacted-command-line"], {"a": "redacted-command-line"}],
    "env": {
        "RANK": "3",
        "PLAN": "redacted-environment",
        "MORE": {"A": "redacted-environment", "NCCL_ALGO": "Ring"},
    },
    "job_id": None,
    "user": None,
    "INFO": ["at host-1 {[", 'quoted \\" text'],
    "traceEvents": DOCUMENT["traceEvents"],
    "last": "host-1",
}


@pytest.mark.parametrize("size", [97, 150, 211, 1 << 20])
@pytest.mark.parametrize("indent", [None, 2])
def test_json_does_not_depend_on_where_blocks_end(size: int, indent: int | None) -> None:
    learner = Learner()
    learner.pseudonym_of(kinds.HOST, "gpunode-1", learn=True)
    identities = learner.learnt_identities(frozenset())
    data, scrubber = json.dumps(DOCUMENT, indent=indent).encode(), Scrubber(identities)
    rewriter = JsonRewriter(scrubber, "x")
    out = b"".join(
        [*(rewriter.feed_block(data[at : at + size]) for at in range(0, len(data), size)), rewriter.finish()]
    )
    assert json.loads(out) == REDACTED
    assert out == json.dumps(REDACTED, indent=indent).encode()
    counts = {(one.place, one.rule): one.count for one in scrubber.list_redactions("x")}
    assert counts["argv", kinds.COMMAND] == 3
    assert [rule for place, rule in counts if place == "env"] == [
        "environment variable (PLAN)",
        "environment variable (A)",
    ]


def test_a_log_that_begins_like_json_is_scrubbed_as_text(tmp_path: Path) -> None:
    source = tmp_path / "a.log"
    source.write_text('["a list"]\nand prose in /home/zoe4/x\n')
    assert copy_of(source, known(user="zoe4")) == b'["a list"]\nand prose in /home/user-1/x\n'


def test_a_gzip_file_stays_one_without_the_name_in_its_header(tmp_path: Path) -> None:
    source = tmp_path / "rank0.json.gz"
    source.write_bytes(gz(b'{"traceEvents": []}', name="gpunode-1_12.json"))
    found = redact_file(source, tmp_path / "copy.gz", identities=known(host="gpunode-1"))
    assert [(one.place, one.kind) for one in found] == [("gzip header", kinds.FILE_NAME)]
    data = (tmp_path / "copy.gz").read_bytes()
    assert b"gpunode" not in data
    assert gzip.decompress(data) == b'{"traceEvents": []}'
    assert (
        data
        == (redact_file(source, tmp_path / "again.gz", identities=known(host="gpunode-1")), tmp_path)[1]
        .joinpath("again.gz")
        .read_bytes()
    )


def test_addresses_are_not_looked_for_in_versions(tmp_path: Path) -> None:
    source = tmp_path / "a.json"
    source.write_text('{"driver_version": "12.8.3.14", "ip": "12.8.3.14"}')
    assert (
        copy_of(source, collect_identities([source])) == b'{"driver_version": "12.8.3.14", "ip": "address-1"}'
    )


def test_a_name_learnt_in_one_file_is_replaced_in_all(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"hostname": "gpunode-1.lab.example", "username": "zoe4"}')
    (tmp_path / "b.log").write_text("GPUNODE-1 and gpunode-1.lab.example, gpunode-12, zoe4_run by zoe45\n")
    identities = collect_identities([tmp_path / "a.json", tmp_path / "b.log"])
    assert copy_of(tmp_path / "b.log", identities) == b"host-1 and host-1, gpunode-12, user-1_run by zoe45\n"


def test_how_names_stand_in_other_words(tmp_path: Path) -> None:
    text = "bob bobby amax max_pool llm-plan_rank0 my-llm-plan.log run 7654321 of 7654321x, 7654321 17654321"
    source = tmp_path / "a.json"
    source.write_text(
        json.dumps(
            {"user": "bob", "owner": "max", "job_name": "llm-plan", "SLURM_JOB_ID": "7654321", "t": text}
        )
    )
    assert json.loads(copy_of(source, collect_identities([source])))["t"] == (
        "user-1 bobby amax max_pool job-1_rank0 my-job-1.log run job-2 of 7654321x, 7654321 17654321"
    )


def test_whether_two_ranks_share_a_host_survives(tmp_path: Path) -> None:
    for rank, host in enumerate(("nodeA-01", "nodeA-01", "nodeA-02")):
        (tmp_path / f"rank{rank}.json").write_text(json.dumps({"hostname": host}))
    files = sorted(tmp_path.iterdir())
    identities = collect_identities(files)
    assert [json.loads(copy_of(path, identities))["hostname"] for path in files] == [
        "host-1",
        "host-1",
        "host-2",
    ]


def test_common_words_stay_but_where_something_calls_them_names(tmp_path: Path) -> None:
    source = tmp_path / "a.json"
    source.write_text('{"username": "train", "step": "train", "path": "/home/train/x"}')
    assert copy_of(source, collect_identities([source])) == (
        b'{"username": "user-1", "step": "train", "path": "/home/user-1/x"}'
    )


def test_what_a_card_publishes_is_no_secret(tmp_path: Path) -> None:
    card, log = tmp_path / "card.yaml", tmp_path / "a.log"
    card.write_text(
        "version: 2\nid: tiny-llama-x\nworkload:\n  model: {name: megamodel-7b}\ndescription: by zoe4\n"
    )
    log.write_text("SLURM_JOB_NAME=megamodel-7b USER=zoe4\nran megamodel-7b\n")
    identities = collect_identities([card, log])
    assert copy_of(log, identities) == b"SLURM_JOB_NAME=job-1 USER=user-1\nran megamodel-7b\n"
    assert copy_of(card, identities) == card.read_bytes().replace(b"zoe4", b"user-1")


def test_a_card_keeps_its_comments_its_contributor_and_its_addresses(tmp_path: Path) -> None:
    card = tmp_path / "card.yaml"
    card.write_text(
        "version: 2  # two\nworkload: {phase: training}\ncontributor:\n  name: Zoe Quill\n"
        "  contact: zoe@example.org\n\ndescription: mail zoe@example.org\nevidence:\n  traces:\n"
        "    - url: https://lab.s3.amazonaws.com/rank0.json\n      path: a.json\n"
        "      note: s3://lab/x\n"
    )
    expected = (
        card.read_text()
        .replace("mail zoe@example.org", "mail redacted-email")
        .replace("s3://lab/x", "s3://redacted-bucket")
    )
    assert copy_of(card, collect_identities([card])).decode() == expected


def test_credentials_are_published_nowhere(tmp_path: Path) -> None:
    card = tmp_path / "card.yaml"
    card.write_text("workload: {}\nevidence:\n  source_url: https://zoe4:pw@example.org/x\n")
    assert b"https://redacted-password@example.org/x" in copy_of(card, collect_identities([card]))


def test_a_line_says_where(tmp_path: Path) -> None:
    source = tmp_path / "a.log"
    source.write_text("one\ntwo /home/zoe4/x\nthree\nfour /home/zoe4 and a@b.org\n")
    found = redact_file(source, tmp_path / "copy", identities=collect_identities([source]))
    assert [(one.file, one.place, one.kind, one.count) for one in found] == [
        ("a.log", "line 4", kinds.EMAIL, 1),
        ("a.log", "lines from 2", kinds.HOME, 2),
    ]


def test_a_private_key_is_found_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cclbench.formats.files.BLOCK", 64)
    source = tmp_path / "a.log"
    key = "-----BEGIN PRIVATE KEY-----\n" + "QUJD\n" * 60 + "-----END PRIVATE KEY-----\n"
    source.write_text("before\n" * 20 + key + "after\n")
    assert copy_of(source) == b"before\n" * 20 + b"redacted-private-key\nafter\n"


def test_a_database_keeps_rows_types_and_order(tmp_path: Path) -> None:
    source = sqlite_with(
        tmp_path / "a.sqlite",
        "CREATE TABLE GPU_METRICS (name, value, n REAL)",
        "INSERT INTO GPU_METRICS VALUES ('USER_NAME', 'zoe4', 0.1), ('x', 'zoe4', NULL), ('JOB_ID', 4711, 1),"
        " (NULL, NULL, 2), ('b', x'002f686f6d652f7a6f65342f61ff', 3), ('HOSTNAME', '', 4)",
    )
    target = tmp_path / "b.sqlite"
    redact_file(source, target, identities=collect_identities([source]))
    with closing(sqlite3.connect(target)) as base:
        assert base.execute("SELECT name, value, n FROM GPU_METRICS").fetchall() == [
            ("USER_NAME", "user-1", 0.1),
            ("x", "user-1", None),
            ("JOB_ID", 4711, 1.0),
            (None, None, 2.0),
            ("b", b"", 3.0),
            ("HOSTNAME", "", 4.0),
        ]
        (path,), *texts = base.execute("SELECT value FROM StringIds ORDER BY id").fetchall()
        assert has_token(path)
        assert texts[0] == ("gemm",)
    assert not list(tmp_path.glob("b.sqlite-*"))


def test_pages_that_a_database_no_longer_uses_hold_nothing(tmp_path: Path) -> None:
    source = sqlite_with(
        tmp_path / "a.sqlite", "CREATE TABLE T (x)", "INSERT INTO T VALUES ('USER=zoe4 secret')"
    )
    with closing(sqlite3.connect(source)) as base, base:
        base.execute("PRAGMA secure_delete = OFF")
        base.execute("DROP TABLE T")
    assert b"zoe4 secret" in source.read_bytes()
    identities = collect_identities([source])
    assert {one.place for one in find_leftovers(source, identities)} == {"StringIds.value"}
    redact_file(source, tmp_path / "b.sqlite", identities=identities)
    assert b"zoe4" not in (tmp_path / "b.sqlite").read_bytes()


def test_freed_pages_are_looked_at_where_all_texts_are_clean(tmp_path: Path) -> None:
    source = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(source)) as base, base:
        base.execute("PRAGMA secure_delete = OFF")
        base.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        base.execute("CREATE TABLE T (x)")
        base.execute("INSERT INTO T VALUES ('by zoe4.')")
        base.execute("DROP TABLE T")
    assert [(one.place, one.kind) for one in find_leftovers(source, known(user="zoe4"))] == [
        ("its bytes", kinds.USER)
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "gpunode-1_4242.1700000000000000000.pt.trace.json.gz",
            "host-1_4242.1700000000000000000.pt.trace.json.gz",
        ),
        ("box_4242.1700000000000.pt.trace.json", "host-2_4242.1700000000000.pt.trace.json"),
        ("worker0_step_12.1694128201545.pt.trace.json.gz", "worker0_step_12.1694128201545.pt.trace.json.gz"),
        ("rank3_trace.json.gz", "rank3_trace.json.gz"),
        ("zoe4-exp.rank0.json", "user-1-exp.rank0.json"),
        ("slurm-1234567.out", "slurm-job-unknown.out"),
    ],
)
def test_names_of_files(name: str, expected: str, tmp_path: Path) -> None:
    for file, text in (
        ("gpunode-1_1.1700000000000000000.pt.trace.json", "{}"),
        ("box_1.1700000000000.pt.trace.json", "{}"),
        ("a.json", '{"username": "zoe4"}'),
    ):
        (tmp_path / file).write_text(text)
    paths = [
        tmp_path / f
        for f in ("gpunode-1_1.1700000000000000000.pt.trace.json", "box_1.1700000000000.pt.trace.json")
    ]
    assert redacted_name(name, collect_identities([*paths, tmp_path / "a.json"])) == expected


def test_what_a_card_publishes_is_in_lists_too_but_not_under_its_description(tmp_path: Path) -> None:
    """Texts of any depth; a card that is none publishes nothing, and the log is scrubbed all the same."""
    card, log = tmp_path / "card.yaml", tmp_path / "a.log"
    log.write_text("SLURM_JOB_NAME=mega-plan\nran mega-plan\n")
    for text, plan in (
        ("workload:\n  names: [{a: [b, the mega-plan]}]\n", "mega-plan"),
        ("workload: {}\nenvironment: {a: mega-plan}\n", "job-1"),
        ("workload: {}\ndescription: mega-plan\n", "job-1"),
        ("workload: {a: mega-plan\n", "job-1"),
    ):
        card.write_text(text)
        assert copy_of(log, collect_identities([card, log])) == f"SLURM_JOB_NAME=job-1\nran {plan}\n".encode()


def test_short_names_within_compressed_bytes_are_there_by_chance(tmp_path: Path) -> None:
    """Of eight bytes they are not: here a word's second half begins a block that is stored as it is."""
    for user, left in (("zqk7wxy", []), ("zqk7wxyv", [("its bytes", kinds.USER)])):
        packed, stored = tmp_path / "a.json.gz", zlib.compressobj(0, wbits=31)
        parts = [b'{"k": "x', f'{user}."}}'.encode()]
        packed.write_bytes(
            b"".join(stored.compress(part) + stored.flush(zlib.Z_FULL_FLUSH) for part in parts)
            + stored.flush()
        )
        assert [(one.place, one.kind) for one in find_leftovers(packed, known(user=user))] == left


def test_a_card_s_own_addresses_hold_no_credentials(tmp_path: Path) -> None:
    """A name may stand in what a card publishes on purpose, a password may not."""
    card = tmp_path / "card.yaml"
    card.write_text("workload: {}\ncontributor: zoe4\nurl: https://example.org/hunter2-xyz\n")
    learner = Learner()
    learner.pseudonym_of(kinds.USER, "zoe4", learn=True)
    assert find_leftovers(card, learner.learnt_identities(frozenset())) == []
    learner.stand_in_for_value(kinds.SECRET, "hunter2-xyz")
    assert {one.kind for one in find_leftovers(card, learner.learnt_identities(frozenset()))} == {
        kinds.SECRET
    }


@pytest.mark.parametrize(
    ("name", "text", "card"),
    [
        ("a.yaml", "workload: {}\n", True),
        ("a.YML", 'version: 2\n"workload" : {}\n', True),
        ("a.json", "workload: {}\n", False),
        ("a.yaml", "a:\n  workload: {}\n", False),
        ("a.yaml", "my workload: {}\n", False),
    ],
)
def test_which_files_are_cards(name: str, text: str, card: bool, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert is_card(tmp_path / name) is card


@pytest.mark.parametrize(
    ("byte", "text"),
    [
        *((byte, False) for byte in (0x00, 0x08, 0x0E, 0x1A, 0x1C, 0x1F)),
        *((byte, True) for byte in (0x09, 0x0D, 0x1B, 0x20, 0x7F, 0xFF)),
    ],
)
def test_what_no_text_holds(byte: int, text: bool, tmp_path: Path) -> None:
    source = tmp_path / "a.log"
    source.write_bytes(b"a" + bytes([byte]) + b"b and so on\n")
    if text:
        assert copy_of(source) == source.read_bytes()
    else:
        with pytest.raises(InputError, match="has no format that can be redacted; leave it out, or export"):
            copy_of(source)


def test_a_worker_s_name_is_no_host(tmp_path: Path) -> None:
    """What a profiler puts before its process is a host's, but where it tells a rank."""
    for host, new in (
        ("box", "host-1"),
        ("rank", "rank"),
        ("myworker3", "myworker3"),
        ("tp1", "tp1"),
        ("pp-0", "pp-0"),
        ("xp-0", "host-1"),
    ):
        path = tmp_path / f"{host}_4242.1700000000000.pt.trace.json"
        path.write_text("{}")
        assert redacted_name(path.name, collect_identities([path])) == path.name.replace(host, new, 1)
