# SPDX-License-Identifier: Apache-2.0
"""Classify errors that the libraries of object stores and web servers raise.

Messages hold nothing of the request: error texts of libraries may contain a signature or a key.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from typing import Final, Literal

from cclbench.remote.web import BadAnswerError

Kind = Literal["missing", "forbidden", "expired", "changed", "local", "again", "for good"]
NO_BUCKET: Final = "NoSuchBucket"
_CODE: Final = re.compile(r"[A-Za-z0-9.]{1,60}")
_REFUSED: Final = {
    *("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "RequestTimeTooSkewed"),
    *("InvalidToken", "AuthorizationHeaderMalformed"),
}
_EXPIRED: Final = {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"}
_BUSY: Final = {"RequestTimeout", "SlowDown", "InternalError", "ServiceUnavailable", "Throttling"}
_WRONG_SETTINGS: Final = {"ParamValidationError", "ProfileNotFound", "NoRegionError", "InvalidRegionError"}
_LOCAL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE)


class ShortError(Exception):
    """Fewer bytes arrived than the object has."""


def _error_chain(error: BaseException) -> Iterator[BaseException]:
    """An error and its causes, at most 8."""
    cause: BaseException | None = error
    for _ in range(8):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ or cause.__context__


def status_of(error: BaseException) -> int | None:
    """The HTTP status of the response, as any of the libraries states it."""
    for cause in _error_chain(error):
        response = getattr(cause, "response", None)
        if isinstance(response, dict):
            return int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)) or None
        if type(cause).__module__ == "aiohttp.http_exceptions":
            continue  # a truncated response: its code is not the server's
        for name in ("status", "status_code", "code"):
            if isinstance(status := getattr(cause, name, None), int):
                return status
    return None


def code_of(error: BaseException) -> str | None:
    """The service's error code."""
    for cause in _error_chain(error):
        response = getattr(cause, "response", None)
        if isinstance(response, dict):
            code = str(response.get("Error", {}).get("Code", ""))
            return code if _CODE.fullmatch(code) else None
    return None


def kind_of(error: BaseException) -> Kind:
    """The kind of a failure: `again` is worth a retry, `local` is of this machine."""
    status, code = status_of(error), code_of(error)
    names = {type(cause).__name__ for cause in _error_chain(error)}
    if isinstance(error, OSError) and error.errno in _LOCAL:
        return "local"
    if code in _EXPIRED or names & {"TokenRetrievalError", "UnauthorizedSSOTokenError", "SSOTokenLoadError"}:
        return "expired"
    if code in _REFUSED or status in (401, 403) or names & {"NoCredentialsError", "PartialCredentialsError"}:
        return "forbidden"
    if status in (412, 416):
        return "changed"
    if code in _BUSY or status in (408, 425, 429) or (status is not None and 500 <= status < 600):
        return "again"
    if status == 404 or (status is None and isinstance(error, FileNotFoundError)):
        return "missing"
    if status is not None and status >= 300:
        return "for good"
    if isinstance(error, PermissionError):
        return "forbidden"
    if isinstance(error, BadAnswerError | TypeError | ValueError | NotImplementedError | AttributeError):
        return "for good"
    if names & _WRONG_SETTINGS:
        return "for good"
    # Connections refused, reset or timed out, truncated bodies.
    return "again"


def failure_words(error: BaseException) -> str:
    """A failure in words, without anything of the request."""
    status, code = status_of(error), code_of(error)
    if status is not None or code is not None:
        return " ".join(filter(None, (str(status or ""), code)))
    if isinstance(error, BadAnswerError):
        return str(error)
    if isinstance(error, ShortError):
        return "the response is truncated"
    if isinstance(error, TimeoutError):
        return "timeout"
    number = getattr(error, "errno", None)
    return os.strerror(number) if isinstance(number, int) and number > 0 else type(error).__name__
