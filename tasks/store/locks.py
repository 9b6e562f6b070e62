"""Locks between processes, of one host and of several that share a file system.

On one host `flock` decides, which the kernel drops with the process that held it. Whether another host sees such a lock
is up to the file system and how it is mounted, so its processes are known by a record and its heartbeat
(`tasks.store.holders`).
"""

from __future__ import annotations

import fcntl
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gptcore.base.files import try_lock
from tasks.store.heartbeat import Watch
from tasks.store.holders import Holder, claim, is_held_elsewhere

log = logging.getLogger(__name__)
_POLL = 0.1  # seconds, at first; it grows to
_LONGEST_POLL = 1.0


@contextmanager
def exclusive(path: Path, what: str) -> Iterator[Holder]:
    """Hold the lock file ``path`` alone; threads of one process exclude each other too.

    The file is never deleted: a lock on a name that someone else has re-created locks nothing.

    :param what: the work that is waited for, in words, for the log.
    :raises InputError: the file system keeps no locks.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        pause, watch = _POLL, Watch()
        while (holder := claim(path, what, watch) if try_lock(file) else None) is None:
            if pause == _POLL:
                log.info("waiting for another process: %s", what)
            fcntl.flock(file, fcntl.LOCK_UN)  # for whoever starts again on the host that another one waits for
            time.sleep(pause)  # instead of a blocking flock: a cancelled thread must be able to leave
            pause = min(1.5 * pause, _LONGEST_POLL)
        try:
            yield holder
        finally:
            holder.release()


def lock_file(scratch: Path, stage: str, digest: str) -> Path:
    """The file that whoever builds an artifact holds locked; it lists what that build reads, `<stage>/<digest>` a line.

    :param scratch: the local folder of the store's locks.
    """
    return scratch / ".locks" / f"{stage}-{digest}"


@contextmanager
def exclusive_now(path: Path) -> Iterator[bool]:
    """Hold the lock file ``path`` if nobody else does; whether that is so.

    :raises InputError: the file system keeps no locks.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        holder = claim(path, path.name) if try_lock(file) else None
        try:
            yield holder is not None
        finally:
            if holder is not None:
                holder.release()


def is_locked_here(path: Path) -> bool:
    """Whether a process has locked the file ``path`` now whose locks this host sees; an absent one is free.

    It asks for a shared lock: an exclusive one needs a file that was opened for writing (on NFS), which another user's
    may not be, and would for a moment be in the way of whoever asks for the same.

    :raises InputError: the file system keeps no locks.
    """
    try:
        with open(path, "rb") as file:
            return not try_lock(file, shared=True)
    except FileNotFoundError:
        return False


def is_locked(path: Path) -> bool:
    """Whether somebody holds the lock file ``path`` now, on this host or on another one; an absent one is free.

    :raises InputError: the file system keeps no locks.
    """
    return is_locked_here(path) or is_held_elsewhere(path)
