# SPDX-License-Identifier: Apache-2.0
"""A Dask cluster on this machine that only its own processes can connect to.

A scheduler or worker runs the pickled functions that a peer sends.  All of them require a certificate that
exists only in the memory of these processes, and none serves HTTP, which has no authentication.
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
        """As in `LocalScheduler`."""


def local_cluster(workers: int) -> SpecCluster:
    """A scheduler and `workers` single-threaded workers on 127.0.0.1, with TLS and temporary credentials.

    `ImportError` without `cryptography`, which makes these.
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
    # The workers' statistical profiler (100 Hz) takes a tenth of their time.
    with dask.config.set({"distributed.worker.profile.enabled": False}):
        return SpecCluster(
            workers={number: {"cls": Nanny, "options": worker} for number in range(workers)},
            scheduler={"cls": LocalScheduler, "options": scheduler},
            security=shared["security"],
            silence_logs=logging.CRITICAL,
        )
