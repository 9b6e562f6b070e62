"""Files that say which processes live: each process holds its own locked, and renews it, until it ends.

Of a process of the same host the lock tells, at once and whatever ended it. Of another host a lock that is seen is
proof too; if none is seen, that host may only keep its locks to itself, and the heartbeat tells.

A process that builds lists in its file of the store what it looks up, reads and makes (:func:`note`), so that nobody
deletes it under its hands: between two stages no build is under way and yet the first one's artifact is wanted.
"""

from __future__ import annotations

import atexit
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from gptcore.base.files import try_lock
from tasks.store import locks
from tasks.store.locks import Renewal, exclusive, host_of, is_locked_here, is_silent, server_time

log = logging.getLogger(__name__)
_WHAT = "what processes work with"
_noting = threading.Lock()
_WEEK = 7 * 24 * 3600.0
"""Seconds of silence after which a process of another host and of a version without heartbeats counts as dead."""
_POLL = 0.01  # seconds
_held: dict[Path, Presence] = {}


class Presence:
    """This process' file in a folder, with lines for whoever finds the process ended."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}@{host_of(folder)}"
        self.lines: dict[str, None] = {}
        self._process = os.getpid()
        self._writing = threading.Lock()
        self._file = self._opened()
        self._renewal = Renewal(self._beat, locks.BEAT_SECONDS, str(self.path))

    def add(self, lines: Iterable[str]) -> None:
        """Write those lines to the file that it does not have yet."""
        with self._writing:
            added = [line for line in dict.fromkeys(lines) if line not in self.lines]
            self._file.write(_text(added))
            self.lines |= dict.fromkeys(added)

    def remove(self) -> None:
        """Delete the file and hold it no longer."""
        if os.getpid() != self._process:
            return  # a forked child, which ends before its parent
        self.close()
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Hold the file no longer; it stays where it is."""
        self._renewal.end()
        self._file.close()

    def _opened(self) -> FileIO:
        file = open(self.path, "ab", buffering=0)  # noqa: SIM115 - open for as long as the process lives
        while not try_lock(file):  # somebody has a look at it
            time.sleep(_POLL)
        return file

    def _beat(self) -> None:
        with self._writing:
            if not self.path.parent.is_dir():  # deleted, with all that it is for
                return
            try:
                os.utime(self.path)
            except FileNotFoundError:  # another host took this process for dead, which was silent for too long
                self._file.close()
                self._file = self._opened()
                self._file.write(_text(self.lines))


def present(folder: Path, what: str, leave: Callable[[Presence], None]) -> Presence:
    """This process' file in ``folder``, made on first use, under the folder's lock.

    :param what: the files' purpose, in words, for the log.
    :param leave: called with it when the process ends.
    """
    if folder not in _held:
        with exclusive(folder / ".lock", what):  # of several threads the first makes it
            if folder not in _held:
                _held[folder] = Presence(folder)
                atexit.register(leave, _held[folder])
    return _held[folder]


@contextmanager
def presences(folder: Path, what: str) -> Iterator[tuple[list[Path], list[Path]]]:
    """The files of living processes and of dead ones; the latter are forgotten when the block ends well.

    :param what: as in :func:`present`.
    :raises InputError: the folder's file system keeps no locks.
    """
    lock = folder / ".lock"
    with exclusive(lock, what):
        now, paths = server_time(lock), sorted(folder.glob("[!.]*"))
        living = [path for path in paths if _is_alive(path, now)]
        dead = [path for path in paths if path not in living]
        yield living, dead
        for path in dead:
            path.unlink(missing_ok=True)


def _is_alive(path: Path, now: float) -> bool:
    """Whether the process of a presence file lives, at the file server's time ``now``."""
    if is_locked_here(path):
        return True
    name, _, host = path.name.partition("@")
    try:
        if host:
            return host != host_of(path) and not is_silent(path, now)
        # of a version without heartbeats, whose names say no more than the host's name
        return name.rsplit("-", 2)[0] != socket.gethostname() and not is_silent(path, now, _WEEK)
    except FileNotFoundError:  # it has just ended
        return False


def _text(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def note(scratch: Path, names: Collection[str]) -> None:
    """This process works with ``names`` (`<stage>/<digest>`) from now on, until it ends.

    :param scratch: the local folder of the store's locks (`Shelf.scratch`).
    :raises InputError: the store's file system keeps no locks.
    """
    folder = _folder(scratch)
    with _noting:
        try:
            mine = present(folder, _WHAT, Presence.remove)
            if not mine.lines.keys() >= set(names):
                with exclusive(folder / ".lock", _WHAT):  # while nobody asks who has noted what
                    mine.add(sorted(names))
        except OSError as error:  # a store that this user may only read: who may delete there is another one
            log.debug("%s: cannot be written (%s)", folder, error)


@contextmanager
def noted(scratch: Path) -> Iterator[set[str]]:
    """What living processes have noted; inside the ``with`` block nobody notes anything more.

    :raises InputError: the store's file system keeps no locks.
    """
    with presences(_folder(scratch), _WHAT) as (living, _):
        yield {name for path in living for name in path.read_text(encoding="utf-8").split()}


def _folder(scratch: Path) -> Path:
    return scratch / ".locks" / "processes"


os.register_at_fork(after_in_child=_held.clear)  # whose files it closes: gptcore.base.files.try_lock
