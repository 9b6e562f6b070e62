"""What living processes of this machine work with, so that nobody deletes it under their hands.

Each process that builds holds a file of the store locked as long as it lives, and lists there what it looks up, reads
and makes. Between two stages no build is under way and yet the first one's artifact is wanted: only its process knows.
"""

from __future__ import annotations

import atexit
import fcntl
import logging
import os
import socket
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tasks.store.locks import exclusive, is_locked

log = logging.getLogger(__name__)
_WHAT = "what processes work with"
_noting = threading.Lock()
_held: dict[Path, tuple[IO[str], set[str]]] = {}


def note(scratch: Path, names: Iterable[str]) -> None:
    """This process works with ``names`` (`<stage>/<digest>`) from now on, until it ends.

    :param scratch: the local folder of the store's locks (`Shelf.scratch`).
    """
    folder = _folder(scratch)
    with _noting:
        known = _held[folder][1] if folder in _held else set()
        added = sorted(set(names) - known)
        if not added:
            return
        try:
            with exclusive(folder / ".lock", _WHAT):
                if folder not in _held:
                    path = folder / f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
                    file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - open for as long as the process lives
                    fcntl.flock(file, fcntl.LOCK_EX)
                    _held[folder] = file, known
                    atexit.register(path.unlink, missing_ok=True)
                held = _held[folder][0]
                held.writelines(f"{name}\n" for name in added)
                held.flush()
        except OSError as error:  # a store that this user may only read: who may delete there is on another machine
            log.debug("%s: cannot be written (%s)", folder, error)
            return
        known |= set(added)


@contextmanager
def noted(scratch: Path) -> Iterator[set[str]]:
    """What living processes have noted; inside the ``with`` block nobody notes anything more."""
    folder = _folder(scratch)
    with exclusive(folder / ".lock", _WHAT):
        names: set[str] = set()
        for path in sorted(folder.glob("[!.]*")):
            if is_locked(path):
                names |= set(path.read_text(encoding="utf-8").split())
            else:
                path.unlink()
        yield names


def _folder(scratch: Path) -> Path:
    return scratch / ".locks" / "processes"
