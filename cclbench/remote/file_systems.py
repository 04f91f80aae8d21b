# SPDX-License-Identifier: Apache-2.0
"""File systems of fsspec, provided by a library per kind of store."""

from __future__ import annotations

from typing import Any, Final

from cclbench.ground.errors import UsageError, install_hint
from cclbench.remote.url import Url

S3: Final = ("s3", "s3a")
SECONDS: Final = 30.0
"""Timeout of a connection and of a read."""
_LIBRARIES: Final = {"gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs", "abfss": "adlfs"}


def open_file_system(url: Url) -> tuple[Any, str]:
    """The fsspec file system of a URL and the path in it; `UsageError` if its library is missing."""
    options: dict[str, Any] = {"use_listings_cache": False}
    if url.scheme in S3:
        # One attempt per request: `Objects` retries, alike for all kinds of stores.
        retries = {"total_max_attempts": 1}
        options["config_kwargs"] = {"connect_timeout": SECONDS, "read_timeout": SECONDS, "retries": retries}
    if url.scheme in ("file", "local"):
        options["auto_mkdir"] = True
    try:
        from fsspec.core import url_to_fs

        fs, path = url_to_fs(url.full, **options)
    except ImportError:
        library = _LIBRARIES.get(url.scheme)
        needs = "s3fs" if url.scheme in S3 else library or "fsspec and a library for it"
        hint = install_hint("remote", *filter(None, (library,)))
        raise UsageError(f"{url.scheme}:// needs {needs}", hint=hint) from None
    except ValueError:
        raise UsageError(f"fsspec does not support {url.scheme}:// URLs", hint="such as s3://") from None
    if url.scheme in S3:
        fs.retries = 1
    return fs, str(path).rstrip("/")
