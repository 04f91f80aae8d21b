# SPDX-License-Identifier: Apache-2.0
"""Forms of secrets: tokens and keys by their prefix, by the name beside them, in URLs; and buckets.

Sources: RFC 7468 (private keys), RFC 7519 (web tokens), RFC 6750 and 7617 (authorization), RFC 3986 (what
stands before a URL's host); `tokens` names those of each issuer's prefix.
"""

from __future__ import annotations

from typing import Final

from cclbench.contribute.redaction import kinds
from cclbench.contribute.redaction.pattern import BEGINS, ENDS, NOT_CALLED, NOTHING, QUOTE, Pattern
from cclbench.contribute.redaction.tokens import CLOUD_KEYS, TOKENS

_SET: Final = rf"(?:\\?[\"']\]?)?[ \t]{{0,3}}[=:][ \t]{{0,3}}{QUOTE}"
_VALUE: Final = (
    r"(?:(?<=\")(?P<quoted>[^\"\n$`<\[\\][^\"\n]{2,})|(?<=')(?P<single>[^'\n$`<\[\\][^'\n]{2,})"
    r"|(?P<hide>[^\s\x00\"'$`;|&<>(){}\[\],\\%][^\s\x00\"';|&<>,\\]{2,}))"
)

SECRETS: Final = (
    Pattern(
        "private key",
        kinds.PRIVATE_KEY,
        r"-----BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----(?:(?!-----END )[\s\S]){0,65536}"
        r"(?:-----END (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----)?",
        marks=("-----BEGIN ",),
    ),
    Pattern(
        "token by its prefix",
        kinds.TOKEN,
        "|".join(form.core for form in TOKENS),
        marks=tuple(begin for form in TOKENS for begin in form.begins),
        before=BEGINS,
    ),
    Pattern(
        "web token", kinds.TOKEN, r"eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*){0,3}", marks=("eyJ",), before=BEGINS
    ),
    Pattern(
        "authorization",
        kinds.TOKEN,
        r"(?:[Bb]earer|BEARER|[Aa]uthorization: ?(?:[Bb]asic|[Tt]oken))[ \t]+(?P<hide>[\w.~+/=-]{8,})",
        marks=("earer", "BEARER", "uthorization"),
        unless=r"[A-Za-z]+|\.+|-+",
    ),
    Pattern(
        "web hook",
        kinds.TOKEN,
        r"https://(?:hooks\.slack\.com/(?:services|workflows)|discord(?:app)?\.com/api/webhooks)/"
        r"(?P<hide>[\w/-]+)",
        marks=("hooks.slack.com", "/api/webhooks"),
    ),
    Pattern(
        "key of Weights & Biases",
        kinds.TOKEN,
        r"(?:[Ww]andb|WANDB|W&B)[^\n]{0,60}?(?P<hide>(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f]))",
        marks=("wandb", "Wandb", "WANDB", "W&B"),
    ),
    Pattern(
        "cloud key by its prefix",
        kinds.CLOUD_KEY,
        "|".join(form.core for form in CLOUD_KEYS),
        marks=tuple(begin for form in CLOUD_KEYS for begin in form.begins),
        before=BEGINS,
        after=ENDS,
    ),
    Pattern(
        "cloud key by its name",
        kinds.CLOUD_KEY,
        r"(?:[Aa]ws_?(?:[Ss]ecret_?[Aa]ccess_?[Kk]ey|[Aa]ccess_?[Kk]ey_?[Ii]d|[Ss]ession_?[Tt]oken)"
        r"|AWS_(?:SECRET_ACCESS_KEY|ACCESS_KEY_ID|SESSION_TOKEN)|AccountKey|SharedAccessKey)"
        rf"{_SET}(?P<hide>[\w/+=.-]{{8,}})",
        marks=("aws", "Aws", "AWS_", "AccountKey", "SharedAccessKey"),
    ),
    Pattern(
        "password in a URL",
        kinds.PASSWORD,
        r"[A-Za-z][A-Za-z0-9+.-]{1,20}://(?P<hide>[^\s\x00/:@\"'<>${}]{0,80}:[^\s\x00/@\"'<>${}]{1,200})(?=@)",
        marks=("://",),
    ),
    Pattern(
        "token in a URL",
        kinds.PASSWORD,
        r"https?://(?P<hide>[\w.~%+-]{1,200})(?=@)",
        marks=("://",),
        unless="git",
    ),
    Pattern(
        "secret in a variable",
        kinds.SECRET,
        r"(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|_KEY|APIKEY|_PAT|_PWD|_COOKIE)(?:_ID)?"
        rf"{_SET}{NOT_CALLED}{_VALUE}",
        marks=(
            *("TOKEN", "SECRET", "PASSW", "PASSPHRASE", "CREDENTIAL", "_KEY", "APIKEY", "_PAT", "_PWD"),
            "_COOKIE",
        ),
        unless=NOTHING,
    ),
    Pattern(
        "password in a configuration",
        kinds.SECRET,
        rf"(?:[Pp]assword|[Pp]asswd|[Pp]assphrase){_SET}{NOT_CALLED}{_VALUE}",
        marks=("assword", "asswd", "assphrase"),
        unless=NOTHING + r"|(?i:str|password|passwd|passphrase|self)(?:\W.*)?",
    ),
    Pattern(
        "secret in a configuration",
        kinds.SECRET,
        r"(?:[Ss]ecret|[Tt]oken|[Aa]pi[_-]?[Kk]ey|[Aa]ccess[_-]?[Kk]ey|[Ss]ecret[_-]?[Kk]ey|[Pp]rivate[_-]?[Kk]ey"
        r"|[Aa]ccount[_-]?[Kk]ey|[Aa]uth[_-]?[Kk]ey|[Cc]redentials?)(?:_id)?"
        rf"{_SET}(?P<hide>(?=[\w+/=.~-]{{0,200}}\d)[A-Za-z0-9_+/=.~-]{{8,}})(?![(\[])",
        marks=("ecret", "oken", "ey", "redential"),
        unless=NOTHING + r"|[\w./-]*\.(?:txt|json|yaml|pem|key)",
    ),
    Pattern(
        "secret in an option",
        kinds.SECRET,
        r"--?(?:[\w-]+[_-])?(?:password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|secret[_-]?key)"
        rf"[= ][ \t]{{0,3}}{QUOTE}(?P<hide>[^\s\x00\"'$`;|&<>(){{}}\[\]\\-][^\s\x00\"';|&<>]{{3,}})",
        marks=("password", "passwd", "passphrase", "secret", "token", "key"),
        before=r"(?<![\w-])",
        unless=NOTHING,
    ),
    Pattern(
        "bucket",
        kinds.BUCKET,
        r"(?:s3[an]?|gs|gcs|abfss?|wasbs?|hdfs|r2|oci|oss|cos|swift|az)://(?P<hide>[^\s\x00\"'`,;)\]}>${\\]+)",
        marks=("://",),
        before=BEGINS,
    ),
    Pattern(
        "bucket behind https",
        kinds.BUCKET,
        r"https?://(?P<hide>[\w.-]{1,120}\.s3[\w.-]{0,40}\.amazonaws\.com[^\s\x00\"'<>]*"
        r"|s3[\w.-]{0,40}\.amazonaws\.com/[^\s\x00\"'<>]+|storage\.(?:googleapis|cloud\.google)\.com/[^\s\x00\"'<>]+"
        r"|[\w-]{1,63}\.blob\.core\.windows\.net[^\s\x00\"'<>]*)",
        marks=("amazonaws.com", "storage.googleapis", "storage.cloud", "blob.core"),
    ),
)
