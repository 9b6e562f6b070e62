"""Where partitions of a corpus are worked on: processes of this machine, or a Dask cluster."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

PartitionMap = Callable[..., Iterator[Any]]
"""Called as the built-in map: ``(function, *iterables)`` gives results in the items' order, whoever finishes first."""


@contextmanager
def partition_map(dask_address: str | None = None, processes: int | None = None) -> Iterator[PartitionMap]:
    """Give a parallel ``map`` for picklable functions.

    :param dask_address: scheduler of a running Dask cluster, e.g. ``tcp://10.0.0.5:8786``; its workers need this
        package and a file system shared with this process. None: processes of this machine.
    :param processes: how many; None: one a core.
    """
    if dask_address:
        from prefect_dask.client import PrefectDaskClient

        with PrefectDaskClient(address=dask_address) as client:  # type: ignore[no-untyped-call]  # as shipped

            def dask_map(function: Callable[..., Any], *iterables: Iterable[Any]) -> Iterator[Any]:
                futures = client.map(function, *[list(items) for items in iterables], pure=False)
                return (future.result() for future in futures)

            yield dask_map
        return

    # spawn, not fork: s3fs and threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes or os.cpu_count(), mp_context=context) as pool:
        yield pool.map
