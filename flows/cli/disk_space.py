"""Whether it was the disk: no space is an error of its own in every library, and often none at all."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterable
from pathlib import Path

_LITTLE = 1 << 20  # bytes: with less than this nothing can be written that is worth it
_ERRORS = (errno.ENOSPC, errno.EDQUOT)
_WORDS = ("No space left on device", "disk is full", "Disk quota exceeded")  # of Rust's files, SQLite, a job's log


def lack_of_space(error: BaseException, places: Iterable[Path]) -> str | None:
    """One line where ``error`` comes from a full disk; None where it does not.

    :param places: folders that are written to: a server's database that could not grow is only an error 500 here.
    """
    for place in places:
        there = next((folder for folder in (place, *place.parents) if folder.is_dir()), None)
        if there and shutil.disk_usage(there).free < _LITTLE:
            return _said(str(there))
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, OSError) and found.errno in _ERRORS:
            return _said(str(found.filename or ""))
        if any(words in str(found) for words in _WORDS):
            return _said("")
        found = found.__cause__ or found.__context__
    return None


def _said(where: str) -> str:
    return (
        f"no space left on the disk{f' of {where}' if where else ''}; free some, and the same command goes on from here"
    )
