"""What living processes work with, so that nobody deletes it under their hands.

Each process that builds has a file in the store that says that it lives (`tasks.store.presence`), and lists there what
it looks up, reads and makes. Between two stages no build is under way and yet the first one's artifact is wanted: only
its process knows.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.store.heartbeat import server_time
from tasks.store.locks import exclusive
from tasks.store.presence import is_alive, own, present

log = logging.getLogger(__name__)
_WHAT = "what processes work with"
_noting = threading.Lock()


def note(scratch: Path, names: Collection[str]) -> None:
    """This process works with ``names`` (`<stage>/<digest>`) from now on, until it ends.

    :param scratch: the local folder of the store's locks (`Shelf.scratch`).
    :raises InputError: the store's file system keeps no locks.
    """
    folder = _folder(scratch)
    with _noting:
        mine = own(folder)
        if mine is not None and mine.lines.keys() >= set(names):
            return
        try:
            with exclusive(folder / ".lock", _WHAT):
                if mine is None:
                    mine = present(folder)
                    atexit.register(mine.remove)
                mine.add(sorted(names))
        except OSError as error:  # a store that this user may only read: who may delete there is another one
            log.debug("%s: cannot be written (%s)", folder, error)


@contextmanager
def noted(scratch: Path) -> Iterator[set[str]]:
    """What living processes have noted; inside the ``with`` block nobody notes anything more.

    :raises InputError: the store's file system keeps no locks.
    """
    folder = _folder(scratch)
    lock = folder / ".lock"
    with exclusive(lock, _WHAT):
        names: set[str] = set()
        now = server_time(lock)
        for path in sorted(folder.glob("[!.]*")):
            if is_alive(path, now):
                names |= set(path.read_text(encoding="utf-8").split())
            else:
                path.unlink(missing_ok=True)
        yield names


def _folder(scratch: Path) -> Path:
    return scratch / ".locks" / "processes"
