"""Signs of life for other hosts: files whose time of change is renewed as long as a process lives.

Other hosts cannot ask the kernel whether a process lives, and whether they see its locks depends on how a file system
is mounted. What they do see is that a file changes: whoever has one renews it (:class:`Renewal`).
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Self

from gptcore.base.files import sha256_json

log = logging.getLogger(__name__)
BEAT_SECONDS = 30.0
"""The seconds between two signs of life."""
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


class Renewal:
    """Calls a function every so many seconds, first after that time, until its end.

    In a daemon thread of its own: a server that does not answer silences nothing but what is said to it. A forked child
    has none. A call that fails is a warning: what it tells of is worth more, and the next one may get through.
    """

    def __init__(self, beat: Callable[[], None], seconds: float, what: str) -> None:
        """
        :param what: what goes on, in words, for the log.
        """
        self._beat, self._seconds, self._what = beat, seconds, what
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"renewal of {what}", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop calling the function; a call that is under way is waited for."""
        self._ended.set()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _run(self) -> None:
        while not self._ended.wait(self._seconds):
            try:
                self._beat()
            except Exception as error:  # whatever the client library of an object store raises
                log.warning("%s: others get no sign that it goes on (%s: %s)", self._what, type(error).__name__, error)


_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@cache
def kernel() -> str:
    """The running kernel's name: one for all containers of a machine, another one after each start."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except FileNotFoundError:  # no Linux
        return socket.gethostname()


def host_of(path: str | os.PathLike[str]) -> str:
    """The host of this process as a user of the file system that ``path`` lies on.

    Where two processes have the same they see each other's locks on it, however it is mounted. Host names would not
    tell: a container that is started again has another one, and two that mount one place each for itself may have the
    same.
    """
    return sha256_json([kernel(), os.stat(path).st_dev])[:16]
