# SPDX-License-Identifier: Apache-2.0
"""One text, scrubbed: what is counted where, what a field keeps, what bytes may hold; at the bounds."""

from __future__ import annotations

from collections import Counter

import pytest

from cclbench.contribute.redaction import by_kind, kinds
from cclbench.contribute.redaction.documents import LANGUAGES
from cclbench.contribute.redaction.names import Identities, Learner
from cclbench.contribute.redaction.needles import encoded_forms
from cclbench.contribute.redaction.plain_text import rewrite_text
from cclbench.contribute.redaction.redactions import Redaction
from cclbench.contribute.redaction.scrub import Scrubber


def learnt(reveal: tuple[str, ...] = (), **values: str) -> Scrubber:
    """Who knows users, hosts and secrets by these names."""
    learner = Learner(reveal)
    for kind, name in values.items():
        if kind == "secret":
            learner.stand_in_for_value(kinds.SECRET, name)
        else:
            learner.pseudonym_of({"user": kinds.USER, "host": kinds.HOST}[kind], name, learn=True)
    return Scrubber(learner.learnt_identities(frozenset()))


def test_redactions_are_counted_by_kind() -> None:
    found = [
        Redaction("b", "x", kinds.USER, 2, "r"),
        Redaction("a", "y", kinds.HOST, 1, "r"),
        Redaction("a", "z", kinds.USER, 3, "s"),
    ]
    assert list(by_kind(found).items()) == [(kinds.HOST, 1), (kinds.USER, 5)]
    assert sorted(found)[0].place == "y"


def test_places_are_counted_and_long_ones_cut() -> None:
    scrubber, other = Scrubber(Identities()), Scrubber(Identities())
    scrubber.count("k" * 60, {kinds.USER: 1, kinds.HOST: 0})
    scrubber.count("k" * 60, {kinds.USER: 2})
    other.count("l" * 61, {kinds.ELSEWHERE.format(kinds.SECRET): 1})
    scrubber.count_all(other)
    assert scrubber.list_redactions("a\x1b") == [
        Redaction(scrubber.list_redactions("a\x1b")[0].file, "k" * 60, kinds.USER, 3, "user name"),
        Redaction(
            scrubber.list_redactions("a\x1b")[0].file,
            "l" * 60 + "…",
            kinds.SECRET,
            1,
            "secret known from elsewhere",
        ),
    ]
    assert scrubber.list_redactions("a\x1b")[0].file.isprintable()


def test_the_name_of_a_variable_that_is_a_secret_is_none_in_its_rule() -> None:
    scrubber = learnt(user="bobby")
    scrubber.count("env", {"environment variable (BOBBY)": 1})
    assert [one.rule for one in scrubber.list_redactions("x")] == ["environment variable (user-1)"]


def test_a_field_called_a_version_keeps_what_looks_like_an_address() -> None:
    """But nothing else that is found beside it."""
    scrubber = learnt(user="bobby")
    assert scrubber.text("12.8.3.14", "driverVersion") == ("12.8.3.14", Counter())
    assert scrubber.text("12.8.3.14", "driver")[0] == "address-unknown"
    assert scrubber.text("12.8.3.14 by bobby", "driverVersion")[0] == "address-unknown by user-1"


def test_a_revealed_field_keeps_its_text() -> None:
    scrubber = learnt(("notes",), user="bobby")
    assert scrubber.text("by bobby", "Notes") == ("by bobby", Counter())
    assert scrubber.text("by bobby", "note")[0] == "by user-1"
    assert scrubber.kind_of_field("notes") == kinds.REVEALED
    assert scrubber.kind_of_field("hostname") == kinds.HOST
    assert scrubber.field(kinds.REVEALED, "bobby") == ("bobby", Counter())


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("0123456789abcdef" * 2, "redacted-secret"),
        ("0123456789abcdef" * 4, "redacted-secret"),
        ("0123456789abcde", "0123456789abcde"),
        ("0123456789abcdef" * 4 + "0", "0123456789abcdef" * 4 + "0"),
        ("Ab1Ab1Ab1Ab1", "redacted-secret"),
        ("Ab1Ab1Ab1Ab", "Ab1Ab1Ab1Ab"),
        ("AbcAbcAbcAbc", "AbcAbcAbcAbc"),
        ("layer.0.weight", "layer.0.weight"),
    ],
)
def test_a_field_called_key_holds_a_key_where_it_looks_like_one(text: str, new: str) -> None:
    assert Scrubber(Learner()).field(kinds.BARE_KEY, text)[0] == new


def test_a_hidden_field_counts_once_and_only_where_it_changes() -> None:
    scrubber = Scrubber(Learner())
    assert scrubber.field(kinds.SECRET, "hunter2") == ("redacted-secret", {kinds.SECRET: 1})
    assert scrubber.field(kinds.USER, "ada") == ("user-1", {kinds.USER: 1})
    assert scrubber.field(kinds.USER, "user-1") == ("user-1", {})
    assert scrubber.field(kinds.SECRET, "none") == ("none", {})


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("A=1 B=2", "", "redacted-environment"),
        ("A=1", "", "A=redacted-environment"),
        ("RANK=1 B=2", "", "RANK=1 redacted-environment"),
        ("RANK=1 WORLD_SIZE=2", "", "RANK=1 WORLD_SIZE=2"),
        ("x", "PLAN", "redacted-environment"),
        ("3", "RANK", "3"),
        ("", "PLAN", ""),
        ("  ", "PLAN", "  "),
        ("redacted-environment", "PLAN", "redacted-environment"),
        ("PLAN='x y'", "", "PLAN=redacted-environment"),
        ("PLAN=''", "", "PLAN=''"),
        ("/home/zoe4/x", "DATA", "redacted-environment"),
    ],
)
def test_variables_of_an_environment(text: str, name: str, expected: str) -> None:
    """Two assignments are one in a field of that name; what tells of the run's shape stays."""
    new, counts = Scrubber(Learner()).field(kinds.ENVIRONMENT, text, name=name)
    assert new == expected
    assert bool(counts) is (new != text)


def test_rules_name_the_variable() -> None:
    scrubber = Scrubber(Learner())
    assert scrubber.field(kinds.ENVIRONMENT, "x", name="P" * 61)[1] == {
        f"environment variable ({'P' * 60})": 1
    }
    assert scrubber.field(kinds.ENVIRONMENT, "moonshot")[1] == {"environment variable": 1}


def test_an_owner_s_variable_stays_with_or_without_its_name() -> None:
    for text, name in (("PLAN='x'", ""), ("x", "PLAN")):
        learner = Learner(["plan"])
        assert Scrubber(learner).field(kinds.ENVIRONMENT, text, name=name) == (text, {})
    mixed = Scrubber(Learner(["A"])).text("A=1 USER=y HOME=z B=2 C=3")[0]
    assert mixed == "A=1 redacted-environment"


def test_four_assignments_are_no_environment() -> None:
    four = "HOME=/x SHELL=/bin/z PWD=/w LANG=C"
    assert Scrubber(Learner()).text(four)[0] == four
    assert Scrubber(Learner()).text(f"{four} A=1")[0] == "redacted-environment"
    assert Scrubber(Learner()).text(f"{four} A=1\n")[0] == "redacted-environment\n"


def test_where_a_rule_first_replaced_something() -> None:
    """By its line, counted from 0."""
    scrubber = learnt(user="bobby")
    text = "one\nby bobby\nHOME=/x SHELL=/bin/z PWD=/w LANG=C A=1\nbobby\n"
    _, counts = scrubber.text(text, by_line=True)
    assert counts["user name known from elsewhere"] == 2
    assert scrubber.first["user name known from elsewhere"] == 1
    assert scrubber.first["environment variable (A)"] == 2
    scrubber.text("nothing")
    assert scrubber.first == {}


def test_lines_of_a_file_are_numbered() -> None:
    """Across blocks; of what is replaced more than once the first line, thousands apart."""
    scrubber, out = learnt(user="bobby", host="gpu-17"), list[bytes]()
    blocks = [b"\n" * 1200 + b"by bobby\non gp", b"u-17\nbobby on gpu-17"]
    rewrite_text(blocks, scrubber, out.append)
    assert b"".join(out) == b"\n" * 1200 + b"by user-1\non host-1\nuser-1 on host-1"
    assert [(one.place, one.kind) for one in scrubber.list_redactions("x")] == [
        ("line 1,201", kinds.USER),
        ("lines from 1,202", kinds.HOST),
        ("line 1,203", kinds.USER),
    ]


def test_lines_are_those_of_the_file_however_long_the_stand_ins_are() -> None:
    """Each of 40 names before it is replaced by a longer one."""
    scrubber = learnt(user="bob", host="gpu-17")
    rewrite_text([b"bob\n" * 40 + b"gpu-17\n" + b"\n" * 40], scrubber, list[bytes]().append)
    assert [one.place for one in scrubber.list_redactions("x")] == ["lines from 1", "line 41"]
    other = Scrubber(Identities())
    rewrite_text([b"/home/b/x\n" * 40 + b"z a@b.org\n" + b"\n" * 90], other, list[bytes]().append)
    assert {(one.place, one.kind) for one in other.list_redactions("x")} == {
        ("lines from 1", kinds.HOME),
        ("line 41", kinds.EMAIL),
    }


def test_lines_of_a_card_are_numbered_past_what_it_publishes() -> None:
    card = (
        b"workload: {}\ncontributor:\n  name: bobby\n\n# by bobby\n"
        b"url: https://bobby:hunter2@example.org/y\nnotes: bobby\n"
    )
    scrubber, out = learnt(user="bobby"), list[bytes]()
    rewrite_text([card[:20], card[20:]], scrubber, out.append, language=LANGUAGES[".yaml"], card=True)
    assert b"".join(out) == (
        b"workload: {}\ncontributor:\n  name: bobby\n\n# by user-1\n"
        b"url: https://redacted-password@example.org/y\nnotes: user-1\n"
    )
    assert sorted((one.place, one.kind) for one in scrubber.list_redactions("x")) == [
        ("line 5", kinds.USER),
        ("line 6", kinds.PASSWORD),
        ("line 7", kinds.USER),
    ]


def test_a_line_or_a_key_without_an_end_is_written_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the most bytes on that are held, where no line ends; a key that never ends is text."""
    monkeypatch.setattr("cclbench.contribute.redaction.plain_text._MOST", 8)
    for blocks, written in (
        ([b"abcdefg", b"h", b"ij\n"], [b"abcdefgh", b"ij\n"]),
        ([b"abcdef", b"g\nhi"], [b"abcdefg\nhi"]),
        ([b"x\\\n", b"y\n", b"z"], [b"x\\\ny\n", b"z"]),
        ([b"a\n-----BEGIN X\n", b"b\n"], [b"a\n-----BEGIN X\n", b"b\n"]),
    ):
        out = list[bytes]()
        rewrite_text(blocks, Scrubber(Identities()), out.append)
        assert out == written


def test_a_key_is_held_until_it_ends() -> None:
    out = list[bytes]()
    begun, end = b"-----BEGIN PRIVATE KEY-----\nQUJD\n", b"-----END PRIVATE KEY-----\nz\n"
    rewrite_text([b"a\nb\n" + begun, b"QUJE\n", end], Scrubber(Identities()), out.append)
    assert out == [b"a\nb\n", b"redacted-private-key\nz\n"]


def test_encoded_forms_are_named_by_their_line() -> None:
    encoded = [form for form in encoded_forms("hunter2-x", kinds.SECRET) if form.encoding == "hex"]
    scrubber, digits = Scrubber(Identities(), encoded), b"hunter2-x".hex().upper().encode()
    assert scrubber.text("a\n" + digits.decode()) == ("a\nredacted-secret", {"encoded secret": 1})
    assert scrubber.first == {"encoded secret": 1}


def test_a_host_s_name_alone_is_a_text_too() -> None:
    """Short words without a digit have no form of a secret; learnt names they may be."""
    for name in ("nid0012", "nid00123456", "nid001234."):
        assert Scrubber(Identities()).text(name)[0].startswith("host-unknown")
    assert Scrubber(Identities()).text("all_reduce") == ("all_reduce", {})
    assert learnt(user="bobby").text("bobby")[0] == "user-1"


def test_a_rule_names_the_whole_variable() -> None:
    """Of 61 letters; in quotes and with blanks too."""
    name = "A" * 55 + "_TOKEN"
    for between in ("=", '": "', " = '"):
        _, counts = Scrubber(Learner()).text(f"{name}{between}abcdefgh1")
        assert [rule.partition(" (")[2] for rule in counts] == [f"{name})"]


def test_an_environment_of_a_file_stands_on_a_line() -> None:
    """Four assignments and one on the next line are none."""
    four = "HOME=/x SHELL=/bin/z PWD=/w LANG=C"
    assert Scrubber(Learner()).text(f"{four}\nA=1\n", by_line=True)[0] == f"{four}\nA=1\n"
    new, _ = Scrubber(Learner()).text(f"a\n{four} A=1\nb\n", by_line=True)
    assert new == "a\nredacted-environment\nb\n"


def test_all_arguments_of_a_tracker_are_hidden() -> None:
    """Not the first alone; and an entity also behind a project that is a common word."""
    text = 'wandb.init(project="moonshot-9", entity="moonlab", name="zoe-42x", mode="online")'
    new, _ = Scrubber(Learner()).text(f'{text}\nwandb.init(project="llama", entity="sunlab7")')
    assert new.splitlines() == [
        'wandb.init(project="job-3", entity="job-1", name="job-4", mode="online")',
        'wandb.init(project="llama", entity="job-2")',
    ]
