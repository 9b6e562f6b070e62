"""Where partitions of a corpus are worked on: processes of this machine, or a Dask cluster."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import Any

from gptcore.training.process import die_with_parent

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
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(
        processes or os.cpu_count(),
        mp_context=context,
        initializer=die_with_parent,
        initargs=(signal.SIGKILL, os.getpid()),
    ) as pool:

        def local_map(function: Callable[..., Any], *iterables: Iterable[Any]) -> Iterator[Any]:
            with _signals_blocked():
                return pool.map(function, *iterables)

        try:
            yield local_map
        except BaseException:
            for worker in set(multiprocessing.active_children()) - others:
                worker.kill()  # nobody wants the rest any more: its end is not waited for
            raise


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """What is started inside the ``with`` block gets no Ctrl-C and no SIGTERM, which go to a whole process group.

    The workers belong to this process, which ends them when it is told to end; by themselves they would leave
    tracebacks on the terminal and a broken pool here.
    """
    resource_tracker.ensure_running()  # it unblocks both signals when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
