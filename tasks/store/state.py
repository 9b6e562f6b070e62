"""Where this machine keeps what belongs to no store: the tracking database, copies and workspaces of remote stores.

Also SHA-256 digests of local files that were read once. A digest is of the content, always. What is remembered is only
that a file of this name, inode, size and times had it; a changed file has another time of change (`ctime`, which no
program can set), and is read again.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from gptcore.base.errors import InputError, unwritable
from gptcore.base.files import is_full, read_json, sha256_file, sha256_json, write_json_atomic

SERVED = "GPTMILL_MLFLOW_FILE"
"""The variable with the address of the light stack's MLflow and, behind a blank, the SQLite file that it serves."""


def state_folder() -> Path:
    """The state folder, absolute: `GPTMILL_HOME`, by default `.gptmill` in the current folder. Not created here."""
    return Path(os.environ.get("GPTMILL_HOME") or ".gptmill").expanduser().absolute()


def can_write(folder: Path) -> bool:
    """Whether a folder that is there takes something: who reads does without locks and memories where it does not."""
    return not folder.exists() or (os.access(folder, os.W_OK) and not is_full(folder))


_MOST_STORES = 20


def known_stores() -> list[str]:
    """The stores that this state folder has been used with, the newest first."""
    home = state_folder()
    try:
        noted = read_json(home / "stores.json")
    except (OSError, ValueError):
        return []  # a memory that is lost is none
    return [each if "://" in each else os.path.normpath(home / each) for each in noted]


def note_store(url: str) -> None:
    """Remember a store; a folder by its way from here, so that both may be moved together."""
    known = known_stores()
    if known[:1] != [url]:
        home = state_folder()
        stores = list(dict.fromkeys([url, *known]))[:_MOST_STORES]
        ways = [each if "://" in each else os.path.relpath(each, home) for each in stores]
        if can_write(home):
            home.mkdir(parents=True, exist_ok=True)
            write_json_atomic(home / "stores.json", ways)


def make_private() -> None:
    """Make the state folder, and see that none but its owner reads it, nor its databases and logs by themselves.

    :raises InputError: it cannot be made there; OSError: its disk takes nothing.
    """
    home = state_folder()
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        if unwritable(error):
            raise
        raise InputError(f"{home}: cannot be made ({error.strerror}); set GPTMILL_HOME to a folder") from None
    parts = ("prefect", "logs", "*.db*", "prefect/*.db*", "logs/*")
    for path in (home, *(path for part in parts for path in home.glob(part))):
        with suppress(OSError):  # gone by now, not ours, or on a file system that has no modes
            if (mode := path.stat().st_mode) & 0o077:
                path.chmod(mode & 0o700)


_SETTLED = 2.0  # seconds: a file younger than this may change once more within the clock's grain


class FileDigests:
    """What is remembered of files, one JSON file a folder; new entries are kept when the ``with`` block ends."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, list[int | str]]] = {}
        self._changed: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for folder in sorted(self._changed):
            memo = _memo(folder)
            with suppress(OSError):  # what cannot be remembered is read again
                memo.parent.mkdir(parents=True, exist_ok=True)
                write_json_atomic(memo, self._known[folder])

    def sha256(self, path: str | os.PathLike[str]) -> str:
        """The SHA-256 of a file's bytes, read unless it is known to be the file that was read before."""
        folder, name = os.path.split(os.path.abspath(path))
        known = self._folder(folder)
        before = _identity(path)
        if (entry := known.get(name)) and entry[:-1] == before:
            return str(entry[-1])
        digest = sha256_file(path)
        if _identity(path) == before and time.time() - max(before[2:]) / 1e9 > _SETTLED:
            known[name] = [*before, digest]
            self._changed.add(folder)
        return digest

    def _folder(self, folder: str) -> dict[str, list[int | str]]:
        if folder not in self._known:
            try:
                known = read_json(_memo(folder))
            except (FileNotFoundError, ValueError):
                known = {}  # a memory that is broken is none
            self._known[folder] = known if isinstance(known, dict) else {}
        return self._known[folder]


def _memo(folder: str) -> Path:
    return state_folder() / "digests" / f"{sha256_json(folder)[:24]}.json"


def _identity(path: str | os.PathLike[str]) -> list[int]:
    stat = os.stat(path)
    return [stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
