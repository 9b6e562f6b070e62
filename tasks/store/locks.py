"""Locks between processes, of one host and of several that share a file system, and the signs of life behind them.

On one host `flock` decides, which the kernel drops with the process that held it. Whether another host sees such a lock
is up to the file system and how it is mounted, so its processes are known by a record and its heartbeat: other hosts
cannot ask the kernel whether a process lives, but they do see that a file changes. Whoever has one renews it as long as
its process lives (:class:`Renewal`).
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Self

from gptcore.base.files import sha256_json, try_lock

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
        """Call ``beat`` every ``seconds`` from now on; ``what`` says in the log what goes on."""
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
    if is_locked_here(path):
        return True
    last, text = _last(path)
    return last is not None and _lives(path, last, text)


class LostLock(RuntimeError):
    """This process was silent for so long that another host has taken over what it held."""


class Holder:
    """A lock that this process holds, for other hosts too."""

    def __init__(self, lock: Path, what: str, record: Path) -> None:
        self._lock, self._what, self._record = lock, what, record
        self._process = os.getpid()
        self._renewal = Renewal(self._beat, BEAT_SECONDS, what)

    def _beat(self) -> None:
        """Give a sign of life; end this process, politely, if another host did not wait for it.

        Whatever it still did would be done twice, and in the same workspace.
        """
        if self._holds():
            os.utime(self._record)
            return
        if not self._lock.parent.is_dir():  # somebody has deleted all of it
            return
        log.error("%s: another host has taken it over from this process, which was silent and ends now", self._what)
        os.kill(os.getpid(), signal.SIGTERM)

    def check(self) -> None:
        """Raise :class:`LostLock` where another host has taken over."""
        if not self._holds():
            raise LostLock(f"{self._what}: another host has taken it over; the same call goes on with its result")

    def release(self) -> None:
        """Give the lock up, with every record of it."""
        if os.getpid() != self._process:
            return  # a forked child holds nothing
        self._renewal.end()
        records = list(_chain(self._lock))
        if records and records[-1][0] == self._record:
            for path, _ in records:
                path.unlink(missing_ok=True)

    def _holds(self) -> bool:
        return _last(self._lock)[0] == self._record


def claim(lock: Path, what: str, watch: Watch | None = None) -> Holder | None:
    """Write down that this process holds a lock file, which it has locked; None while another host holds it.

    :param what: the work that needs it, in words.
    :param watch: of who asks again and again, the same each time: it makes sure that a silent host is dead.
    """
    last, text = _last(lock)
    if last is not None and _lives(lock, last, text, watch):
        return None
    record = lock.with_name(f"{lock.name}.holder") if last is None else _successor(lock, last, text)
    try:
        with open(record, "x", encoding="utf-8") as file:
            file.write(f"{host_of(lock)} {os.getpid()} {uuid.uuid4().hex}")
    except FileExistsError:  # another host was faster
        return None
    if _last(lock)[0] != record:  # another host has succeeded that record, and let go of all, since it was looked at
        record.unlink(missing_ok=True)
        return None
    return Holder(lock, what, record)


def _chain(lock: Path) -> Iterator[tuple[Path, str]]:
    """The records of a lock, and what stands in each."""
    record = lock.with_name(f"{lock.name}.holder")
    while True:
        try:
            text = record.read_text(encoding="utf-8")
        except FileNotFoundError:
            return
        yield record, text
        record = _successor(lock, record, text)


def _last(lock: Path) -> tuple[Path | None, str]:
    last: tuple[Path | None, str] = None, ""
    for record in _chain(lock):
        last = record
    return last


def _successor(lock: Path, record: Path, text: str) -> Path:
    """The only name that a record may have which succeeds this one."""
    return lock.with_name(f"{lock.name}.holder-{hashlib.sha256(f'{record.name} {text}'.encode()).hexdigest()[:16]}")


def _lives(lock: Path, record: Path, text: str, watch: Watch | None = None) -> bool:
    """Whether a record's holder lives; of this host it does not, as its lock would not be free."""
    try:
        if text.partition(" ")[0] == host_of(lock):
            return False
        watched = watch is None or watch.is_still(record)
        return not (watched and is_silent(record, server_time(lock)))
    except FileNotFoundError:  # it has just let go
        return False
