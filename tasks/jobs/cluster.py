"""A Dask cluster that somebody runs: whether it is there, has workers, and sees the files that the work is about."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gptcore
from gptcore.base.errors import InputError

_SECONDS = 3.0  # a scheduler that is there answers within milliseconds


def check_cluster(address: str) -> None:
    """See that a cluster answers and has workers with this package.

    :raises InputError: one line that says what is missing.
    """
    with connect(address):
        pass


@contextmanager
def connect(address: str) -> Iterator[Any]:
    """A client of the cluster at ``address``.

    :raises InputError: no such package, no address, nobody there, no worker, or a worker without this package.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise InputError(f"--dask {address}: needs `pip install gptmill[dask]` ({error})") from None
    if not asyncio.run(_workers(address)):
        raise InputError(f"--dask {address}: the scheduler has no workers, expected one or more")
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
    """See that every worker has the file system that ``folder`` is on.

    :raises InputError: naming the first that does not.
    """
    mark = folder / f".shared-{uuid.uuid4().hex}"  # a worker of another host may have a folder of the same name
    mark.touch()
    try:
        _require(client, address, mark, folder)
    finally:
        mark.unlink()


def require_file(client: Any, address: str, path: Path) -> None:
    """See that every worker has a file ``path``: this machine's, or its own copy.

    :raises InputError: naming the first that does not.
    """
    _require(client, address, path, path)


def _require(client: Any, address: str, path: Path, name: Path) -> None:
    for worker, sees in client.run(os.path.exists, str(path)).items():
        if not sees:
            raise InputError(
                f"--dask {address}: the worker {worker} does not see {name} of this machine; expected a file system "
                "that both share (with --tokenizer, books and store may be addresses such as s3://... instead)"
            )


def _version() -> str:
    return gptcore.__version__
