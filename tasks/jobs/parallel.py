"""Where partitions of a corpus are worked on: processes of this machine, or a Dask cluster.

Either way results come in the items' order, and only so many items are under way at a time: memory here, and in a
cluster's scheduler, does not grow with the corpus. A cluster is somebody else's: whether it is there, has workers, and
sees the files that the work is about is asked first.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import signal
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, Protocol

import gptcore
from gptcore.base.errors import InputError, require
from gptcore.machine.process import die_with_parent

PartitionMap = Callable[..., Iterator[Any]]
"""Called as the built-in map: ``(function, *iterables)`` gives results in the items' order, whoever finishes first."""

_AHEAD = 2  # items under way for each worker: one it works on, and one it need not wait for
_SECONDS = 3.0  # a scheduler that is there answers within milliseconds


class _Future(Protocol):
    """What an executor and a cluster have in common."""

    def result(self) -> Any: ...
    def cancel(self) -> Any: ...


@contextmanager
def partition_map(
    dask_address: str | None = None,
    processes: int | None = None,
    shared: Path | None = None,
    reads: Path | None = None,
    small: bool = False,
) -> Iterator[PartitionMap]:
    """Give a parallel ``map`` for picklable functions.

    :param dask_address: scheduler of a running Dask cluster, e.g. ``tcp://10.0.0.5:8786``; its workers need this
        package. None: processes of this machine.
    :param processes: how many; None: one a core.
    :param shared: a local folder that the work writes: a cluster's workers have to see it.
    :param reads: a local file that the work reads: on a cluster's workers one has to be there under this name.
    :param small: the whole work takes no longer than processes take to start: without a cluster this process does it.
    :raises InputError: no cluster at the address, one without a worker, or a worker that does not see either of these.
    """
    if dask_address:
        with connect(dask_address) as client:
            if reads is not None:
                require_seen(client, dask_address, reads)
            if shared is not None:
                require_shared(client, dask_address, shared)
            ahead = _AHEAD * sum(client.nthreads().values())

            def dask_map(function: Callable[..., Any], *iterables: Iterable[Any]) -> Iterator[Any]:
                # not pure: the work is in the files it leaves, so a result that was seen before is no reason to skip it
                return _in_order(partial(client.submit, function, pure=False), iterables, ahead, cancels=True)

            yield dask_map
        return
    if small:
        yield map
        return

    # spawn, not fork: s3fs and threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    workers = processes or os.cpu_count() or 1
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(os.getpid(),)) as pool:

        def submit(function: Callable[..., Any], *items: Any) -> _Future:
            with _signals_blocked():  # a worker may be started here
                return pool.submit(function, *items)

        def local_map(function: Callable[..., Any], *iterables: Iterable[Any]) -> Iterator[Any]:
            return _in_order(partial(submit, function), iterables, _AHEAD * workers)

        try:
            yield local_map
        except BaseException:
            for worker in set(multiprocessing.active_children()) - others:
                worker.kill()  # nobody wants the rest any more: its end is not waited for
            raise


def _begin(parent: int) -> None:
    """In a worker: it ends with its parent, and without a last look for garbage, which would take half a second."""
    die_with_parent(signal.SIGKILL, parent)
    Finalize(None, gc.freeze, exitpriority=0)


def _in_order(
    submit: Callable[..., _Future], iterables: tuple[Iterable[Any], ...], ahead: int, cancels: bool = False
) -> Iterator[Any]:
    """Results in the items' order; at most ``ahead`` items have been submitted and not been given out.

    :param cancels: whether to cancel what nobody asks for any more. Not in a pool of this machine: its workers are
        killed, and the executor's own thread then fails on a future that was cancelled just before.
    """
    waiting: deque[_Future] = deque()
    try:
        for items in zip(*iterables, strict=True):
            if len(waiting) == ahead:
                yield waiting.popleft().result()
            waiting.append(submit(*items))
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting if cancels else ():  # an error, or nobody asks for the rest
            future.cancel()


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


@contextmanager
def connect(address: str) -> Iterator[Any]:
    """A client of the cluster at ``address``.

    :raises InputError: no such package, no address, nobody there, no worker, or a worker without this package.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise InputError(f"--dask {address}: needs `pip install gptmill[dask]` ({error})") from None
    require(asyncio.run(_workers(address)), f"--dask {address}: the scheduler has no workers, expected one or more")
    with Client(address, timeout=_SECONDS, set_as_default=False) as client:  # type: ignore[no-untyped-call]
        for worker, version in client.run(_version, on_error="return").items():
            if version != gptcore.__version__:
                odd = f"{type(version).__name__}: {version}" if isinstance(version, Exception) else version
                expected = f"expected gptmill {gptcore.__version__} there"
                raise InputError(f"--dask {address}: found {odd} on the worker {worker}; {expected}")
        yield client


async def _workers(address: str) -> list[str]:
    """Addresses of a cluster's workers. Asked before a client is made: one that fails needs ten seconds to end."""
    from distributed.core import rpc

    try:
        async with asyncio.timeout(_SECONDS), rpc(address, timeout=_SECONDS) as scheduler:  # type: ignore[no-untyped-call]
            return list((await scheduler.identity())["workers"])
    except Exception as error:  # whatever another kind of server's answer is taken for
        reason = str(error).partition("\n")[0] or f"waited {_SECONDS:g} s"
        raise InputError(
            f"--dask {address}: no scheduler answers ({reason}); expected an address such as tcp://10.0.0.5:8786"
        ) from None


def require_shared(client: Any, address: str, folder: Path) -> None:
    """Check that every worker has the file system that ``folder`` is on.

    :raises InputError: naming the first that does not.
    """
    mark = folder / f".shared-{uuid.uuid4().hex}"  # a worker of another host may have a folder of the same name
    mark.touch()
    try:
        require_seen(client, address, mark, folder)
    finally:
        mark.unlink()


def require_seen(client: Any, address: str, path: Path, name: Path | None = None) -> None:
    """Check that every worker has a file ``path``: this machine's, or its own copy.

    :param name: what messages call it, if not by its path.
    :raises InputError: naming the first that does not.
    """
    for worker, sees in client.run(os.path.exists, str(path)).items():
        if not sees:
            raise InputError(
                f"--dask {address}: the worker {worker} does not see {name or path} of this machine; expected a file "
                "system that both share (with --tokenizer, books and store may be addresses such as s3://... instead)"
            )


def _version() -> str:
    return gptcore.__version__
