"""Signs of life for other hosts: files whose time of change is renewed as long as a process lives.

Other hosts cannot ask the kernel whether a process lives, and whether they see its locks depends on how a file system
is mounted. What they do see is that a file changes: whoever has one renews it (:mod:`tasks.store.renewal`).
"""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

BEAT_SECONDS = 30.0
"""Between two signs of life."""
SILENT_SECONDS = 300.0
"""After so much silence a process of another host counts as dead.

Nine signs may be missing: a file server that starts again holds its clients up for some 90 s, and clients keep what
they know of a file for 60 s. Prefect's heartbeats take 540 s, so whoever starts a lost run again finds its locks free.
"""


def server_time(path: Path) -> float:
    """What time it is on the file server of ``path``, a file that gets it as its time of change.

    This host's clock where the file may not be written.
    """
    try:
        os.utime(path)  # without a time: the server puts in its own (NFS)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        return time.time()
    return os.stat(path).st_mtime


def last_sign(path: Path) -> float:
    """When a file was renewed, by its server's clock.

    :raises FileNotFoundError: there is no such file.
    """
    with open(path, "rb") as file:  # an NFS client asks its server about a file when it opens it
        return os.fstat(file.fileno()).st_mtime


def is_silent(path: Path, now: float, limit: float | None = None) -> bool:
    """Whether a file has not been renewed for ``limit`` seconds (:data:`SILENT_SECONDS`) at the server's time ``now``.

    :raises FileNotFoundError: there is no such file.
    """
    return now - last_sign(path) > (SILENT_SECONDS if limit is None else limit)


class Watch:
    """What a process that waits has seen of a file: whether it has changed before its eyes.

    After a server was away, or its clock was set, all files look old until the next sign of life.
    """

    def __init__(self) -> None:
        self._seen: tuple[Path, float] | None = None
        self._since = 0.0

    def is_still(self, path: Path) -> bool:
        """Whether the file has been the same for two beats of this process' own clock.

        :raises FileNotFoundError: there is no such file.
        """
        seen, now = (path, last_sign(path)), time.monotonic()
        if seen != self._seen:
            self._seen, self._since = seen, now
        return now - self._since >= 2 * BEAT_SECONDS
