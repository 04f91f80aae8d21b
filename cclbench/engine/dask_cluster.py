# SPDX-License-Identifier: Apache-2.0
"""A Dask cluster of this machine that only its own processes can talk to.

A scheduler or worker runs the pickled functions that a peer sends.  All of them require a certificate that
exists in the memory of these processes alone, and none serves HTTP, which would answer anybody.
"""

from __future__ import annotations

import logging
from typing import Any

import dask
from distributed import Nanny, Scheduler, Security, SpecCluster, Worker

_HOST = "127.0.0.1"


class LocalScheduler(Scheduler):  # type: ignore[misc]  # distributed ships no types
    """A scheduler without dashboard."""

    def start_http_server(self, *_: Any, **__: Any) -> None:
        """Serve nothing: neither the dashboard nor health, metrics and JSON, which are always served."""


class LocalWorker(Worker):  # type: ignore[misc]  # distributed ships no types
    """A worker without dashboard."""

    def start_http_server(self, *_: Any, **__: Any) -> None:
        """As the scheduler's."""


def local_cluster(workers: int) -> SpecCluster:
    """So many workers of one thread and a scheduler, on 127.0.0.1, with TLS by temporary credentials.

    `ImportError` where `cryptography` is not installed, which makes these.
    """
    shared = {"host": _HOST, "protocol": "tls://", "security": Security.temporary()}
    scheduler = {**shared, "port": 0, "dashboard": False}
    worker = {
        **shared,
        "worker_class": LocalWorker,
        "nthreads": 1,
        "memory_limit": 0,
        "silence_logs": logging.CRITICAL,
    }
    # Its statistical profiler, 100 times a second, takes a tenth of the workers' time.
    with dask.config.set({"distributed.worker.profile.enabled": False}):
        return SpecCluster(
            workers={number: {"cls": Nanny, "options": worker} for number in range(workers)},
            scheduler={"cls": LocalScheduler, "options": scheduler},
            security=shared["security"],
            silence_logs=logging.CRITICAL,
        )
