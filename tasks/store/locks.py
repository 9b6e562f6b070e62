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
