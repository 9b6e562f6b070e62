"""Locks between processes: `flock`, which the kernel drops with the process that held it, so none can go stale."""

from __future__ import annotations

import fcntl
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger(__name__)
_POLL = 0.1  # seconds


@contextmanager
def exclusive(path: Path, what: str) -> Iterator[None]:
    """Hold the lock file ``path`` alone; threads of one process exclude each other too.

    The file is never deleted: a lock on a name that someone else has re-created locks nothing.

    :param what: the work that is waited for, in words, for the log.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        waiting = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waiting:
                    log.info("waiting for another process: %s", what)
                waiting = True
                time.sleep(_POLL)  # instead of a blocking flock: a cancelled thread must be able to leave
        yield


def lock_file(scratch: Path, stage: str, digest: str) -> Path:
    """The file that whoever builds an artifact holds locked; it lists what that build reads, `<stage>/<digest>` a line.

    :param scratch: the local folder of the store's locks.
    """
    return scratch / ".locks" / f"{stage}-{digest}"


@contextmanager
def exclusive_now(path: Path) -> Iterator[bool]:
    """Hold the lock file ``path`` if nobody else does; whether that is so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def is_locked(path: Path) -> bool:
    """Whether somebody holds the lock file ``path`` now; an absent one is free."""
    try:
        with open(path) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
