"""Which process owns a run, MLflow's or Prefect's, in a way that a kill cannot falsify: a file that it holds locked.

A process number would be reused and a heartbeat would have to be kept up; the kernel drops a lock with its process.
Only processes of machines that share the state folder are judged, others' runs are left alone.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from gptcore.files import sha256_json
from tasks.store.locks import exclusive, is_locked
from tasks.store.state import state_folder

_WHAT = "owners of tracking runs"
_held: dict[Path, IO[str]] = {}


def _owners(uri: str) -> Path:
    """Folder with a locked file for each living process that owns runs at ``uri``."""
    return state_folder() / "owners" / sha256_json(uri)[:12]


def owner_name(uri: str) -> str:
    """This process' name as an owner of runs: a file that it holds locked as long as it lives."""
    folder = _owners(uri)
    with exclusive(folder / ".lock", _WHAT):
        if folder not in _held:
            path = folder / f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
            file = open(path, "w")  # noqa: SIM115 - open for as long as the process lives
            fcntl.flock(file, fcntl.LOCK_EX)
            _held[folder] = file
            atexit.register(_leave, path)
        return Path(_held[folder].name).name


def _leave(path: Path) -> None:
    """Nobody has to read an empty file. One with lines stays: whether all of it came to its end the next may ask."""
    if path.exists() and not path.stat().st_size:
        path.unlink()


def note(uri: str, line: str) -> None:
    """Leave a line that whoever finds this process ended gets to read."""
    owner_name(uri)
    file = _held[_owners(uri)]
    file.write(f"{line}\n")
    file.flush()


@contextmanager
def dead_owners(uri: str) -> Iterator[dict[str, list[str]]]:
    """The owners whose process is gone, and the lines that each has noted; forgotten when the block ends well."""
    folder = _owners(uri)
    with exclusive(folder / ".lock", _WHAT):
        dead = [path for path in sorted(folder.glob("[!.]*")) if not is_locked(path)]
        yield {path.name: path.read_text().splitlines() for path in dead}
        for path in dead:
            path.unlink()
