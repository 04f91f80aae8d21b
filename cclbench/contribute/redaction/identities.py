# SPDX-License-Identifier: Apache-2.0
"""Forms of identities: users, hosts and jobs by what calls them so, home folders, mail and network addresses.

What looks alike and is none: versions (`/opt/papi/7.0.0.1`), scopes of C++ (`c10::fp`), types in programs
(`hostname: str`).  IPv6 as RFC 4291 writes it.
"""

from __future__ import annotations

from typing import Final

from cclbench.contribute.redaction import kinds
from cclbench.contribute.redaction.pattern import BEGINS, ENDS, LOCAL, NOT_CALLED, NOTHING, QUOTE, Pattern

_WORD: Final = r"[^\s\x00\"'$`;|&<>(){}\\%][^\s\x00\"'$`;|&<>\\]*"
_NAME: Final = r"[^\s\x00/\"'`:;,()<>|\\$*{}\[\]=@]+"
_NO_NAME: Final = r"(?i:none|null|true|false|\W*)"
_TYPE: Final = r"(?i:str|int|float|bool|bytes|list|dict|tuple|any|object|path|string|self|args)[,)]*"
_SHARED: Final = (
    r"(?i:public|shared|default|all users|\.+|[^.]*\.(?:py|pyx|so|json|txt|md|cc|cpp|cu|h|hpp|c))"
)
_OCTET: Final = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_HEX: Final = r"[0-9a-fA-F]"
_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_BY_LETTER: Final = rf"(?:[A-Za-z]/(?={_NAME}))?"
"""Ahead of a user's own folder: the letter that some file systems sort users by."""
_PATH_BEGINS: Final = r"(?:(?<![\w.~/-])|(?<=file://)|(?<=\s-[A-Za-z]))"


def _variables(kind: str) -> Pattern:
    """`NAME=value` of a variable that holds a name."""
    names = kinds.VARIABLES[kind].split()
    return Pattern(
        f"variable of a {kind}",
        kind,
        rf"(?:{'|'.join(names)})={QUOTE}(?P<hide>{_WORD})",
        marks=tuple(f"{name}=" for name in names),
        before=r"(?<![A-Za-z0-9_])",
        role=kind,
        learn=True,
        unless=_NO_NAME if kind == kinds.JOB else f"{NOTHING}|{LOCAL}",
    )


def _named(kind: str, names: str, marks: str) -> Pattern:
    """`hostname: x`, `"hostname": "x"`, `hostname=x-1`, but no `hostname: str` or `hostname=name`."""
    return Pattern(
        f"field of a {kind}",
        kind,
        rf"(?:{names})(?:\\?[\"'])?(?:[ \t]{{0,3}}[:=][ \t]{{0,3}}\\?[\"'](?P<quoted>{_WORD})"
        rf"|:[ \t]{{0,3}}{NOT_CALLED}(?P<hide>{_WORD})"
        rf"|=(?=[^\s\x00,)]*[\d-])(?![A-Za-z_]\w*\.[A-Za-z_]){NOT_CALLED}(?P<single>{_WORD}))",
        marks=tuple(marks.split()),
        before=BEGINS,
        role=kind,
        learn=True,
        unless=f"{_NO_NAME}|{_TYPE}" if kind == kinds.JOB else f"{NOTHING}|{LOCAL}|{_TYPE}",
    )


NAMES: Final = (
    *map(_variables, kinds.VARIABLES),
    _named(
        kinds.HOST,
        r"[Hh]ost_?[Nn]ame|HOSTNAME|[Nn]ode_?[Nn]ame|[Nn]odelist|[Mm]aster_addr|[Mm]achine_name",
        "ostname ostName ost_name ost_Name odename odeName ode_name ode_Name HOSTNAME odelist aster_addr"
        " achine_name",
    ),
    _named(
        kinds.USER,
        r"[Uu]ser_?[Nn]ame|USERNAME|[Ll]ogname",
        "sername serName ser_name ser_Name USERNAME ogname",
    ),
    _named(
        kinds.JOB,
        r"[Jj]ob_?[Nn]ame|[Jj]ob_?[Ii][Dd]",
        "obname obName ob_name ob_Name obid obId obID ob_id ob_Id ob_ID",
    ),
    Pattern(
        "job in an option",
        kinds.JOB,
        r"(?:--(?:job-name|account|wckey|reservation)(?:=|[ \t]+)|#SBATCH[ \t]+-[JA][ \t]*"
        rf"|#PBS[ \t]+-[NA][ \t]+){QUOTE}(?P<hide>{_WORD})",
        marks=("--job-name", "--account", "--wckey", "--reservation", "#SBATCH", "#PBS"),
        role=kinds.JOB,
        learn=True,
    ),
    Pattern(
        "job in prose",
        kinds.JOB,
        r"[Jj][Oo][Bb](?: id| ID)?[ #=:]{0,2}(?P<hide>\d{4,12})|slurm-(?P<single>\d{4,12})"
        r"|(?P<quoted>\d{4,12})(?=\.(?:pbs|sdb|batch)\b)",
        marks=("ob", "OB", "slurm-", ".pbs", ".sdb", ".batch"),
        before=BEGINS,
        after=ENDS,
        role=kinds.JOB,
        learn=True,
    ),
    Pattern(
        "host in an option",
        kinds.HOST,
        r"--(?:nodelist|exclude|host|hosts|master[_-]addr|rdzv[_-]endpoint|dist[_-]init[_-]addr|head[_-]node)"
        rf"(?:=|[ \t]+){QUOTE}(?P<hide>{_WORD})|#SBATCH[ \t]+-w[ \t]*(?P<quoted>{_WORD})",
        marks=("--nodelist", "--exclude", "--host", "--master", "--rdzv", "--dist", "--head", "#SBATCH"),
        role=kinds.HOST,
        learn=True,
        unless=LOCAL,
    ),
    Pattern(
        "user in an option",
        kinds.USER,
        rf"--(?:mail-user|uid|user)={QUOTE}(?P<hide>{_WORD})|sshd: (?P<quoted>[\w.-]+)",
        marks=("--mail-user", "--uid", "--user", "sshd: "),
        role=kinds.USER,
        learn=True,
        unless=r".*@.*|root",
    ),
    Pattern(
        "e-mail address",
        kinds.EMAIL,
        rf"[\w.+%-]{{1,64}}@(?:{_LABEL}\.){{1,6}}[A-Za-z]{{2,24}}",
        marks=("@",),
        before=r"(?<![\w.+%@-])",
        after=r"(?![\w@])",
        unless=r"git@.*|redacted-.*|.*@[\w.]*\.(?:so|part|constprop|isra|cold|py|json)",
    ),
    Pattern(
        "home folder",
        kinds.HOME,
        r"(?:/[\w.-]+){0,3}?/(?:home|homes|Users|users|jusers|u\d{0,2}|sd)/"
        rf"{_BY_LETTER}(?P<hide>{_NAME})",
        marks=("/home", "/Users/", "/users/", "/jusers/", "/u", "/sd/"),
        before=_PATH_BEGINS,
        role=kinds.USER,
        learn=True,
        unless=_SHARED,
    ),
    Pattern(
        "folder of a user",
        kinds.HOME,
        r"(?:home|homes|Users|users|scratch\d*|pscratch)/(?:users/|cscs/|sd/)?"
        rf"{_BY_LETTER}(?P<hide>{_NAME})(?=/)"
        rf"|(?<=/)p?scratch\d*/(?:users/|cscs/|sd/)?{_BY_LETTER}(?P<quoted>{_NAME})",
        marks=("home/", "homes/", "Users/", "users/", "scratch"),
        before=r"(?:^|(?<=[/\s\"'=:(]))",
        role=kinds.USER,
        unless=rf"{_SHARED}|(?i:tmp|temp|data|users|cscs|sd|local)",
    ),
    Pattern(
        "home folder of Windows",
        kinds.HOME,
        r"[A-Za-z]:(?:\\{1,4}|/)Users(?:\\{1,4}|/)(?P<hide>[^\\/\s\"':;,<>|]+)",
        marks=(":\\", ":/"),
        role=kinds.USER,
        learn=True,
        unless=_SHARED,
    ),
    Pattern(
        "home folder of root",
        kinds.HOME,
        r"/root",
        marks=("/root",),
        before=_PATH_BEGINS,
        after=r"(?![\w.-])",
    ),
    Pattern(
        "host before a line of NCCL",
        kinds.HOST,
        r"(?P<hide>[A-Za-z0-9][\w.-]{0,200})(?=:\d+:\d+ \[\w+\] )",
        marks=("] ",),
        before=r"(?<![\w.-])",
        role=kinds.HOST,
        learn=True,
    ),
    Pattern(
        "host of a cloud or cluster",
        kinds.HOST,
        rf"(?:ip-\d{{1,3}}(?:-\d{{1,3}}){{3}}|ec2-\d{{1,3}}(?:-\d{{1,3}}){{3}})(?:\.{_LABEL}){{0,6}}"
        r"|i-[0-9a-f]{17}|t1v-n-[0-9a-f]{8}-w-\d+|gke-[a-z0-9-]{8,60}|nid\d{4,8}",
        marks=("ip-", "ec2-", "i-", "t1v-n-", "gke-", "nid"),
        before=BEGINS,
        after=ENDS,
        role=kinds.HOST,
        learn=True,
    ),
    Pattern(
        "host by its domain",
        kinds.HOST,
        rf"(?=[A-Za-z0-9.]{{0,60}}[-\d])(?:{_LABEL}\.){{1,6}}"
        r"(?:internal|local|lan|corp|intra|edu|gov|mil|ac\.[a-z]{2})",
        marks=(".internal", ".local", ".lan", ".corp", ".intra", ".edu", ".gov", ".mil", ".ac."),
        before=r"(?:(?<![\w.@/-])|(?<=://)|(?<=@))",
        after=r"(?![\w(-]|\.\w)",
        role=kinds.HOST,
        learn=True,
    ),
    Pattern(
        "IPv4 address",
        kinds.ADDRESS,
        rf"(?!127\.|0\.|255\.)(?:{_OCTET}\.){{3}}{_OCTET}",
        marks=(".",),
        times=3,
        before=r"(?<![\w.+-])(?<!(?<!/)/)",
        after=r"(?!\w|\.\w|-\d)",
        role=kinds.ADDRESS,
        not_behind=r"[=<>~!]=|(?i:version|release|schema|build|toolkit|cuda|cudnn|rocm|nccl|\bver|\bv)[\s\"':=(.]{0,4}",
    ),
    Pattern(
        "IPv6 address",
        kinds.ADDRESS,
        rf"(?:{_HEX}{{1,4}}:){{7}}{_HEX}{{1,4}}"
        rf"|(?:fe80|f[cd]{_HEX}{{2}}|[23]{_HEX}{{3}})(?::{_HEX}{{1,4}}){{0,6}}::"
        rf"(?:{_HEX}{{1,4}}(?::{_HEX}{{1,4}}){{0,6}})?",
        marks=(":",),
        times=2,
        before=r"(?<![\w:.])",
        after=r"(?![\w:])",
        role=kinds.ADDRESS,
    ),
    Pattern(
        "hardware address",
        kinds.ADDRESS,
        rf"{_HEX}{{2}}(?P<by>[:-]){_HEX}{{2}}(?:(?P=by){_HEX}{{2}}){{4}}|(?:{_HEX}{{4}}:){{3}}{_HEX}{{4}}",
        marks=(":", "-"),
        times=3,
        before=r"(?<![\w:.-])",
        after=r"(?![\w:-]|\.\w)",
        role=kinds.ADDRESS,
        unless=r"(?i:(?:ff[:-]){5}ff|(?:00[:-]){5}00)",
    ),
)
