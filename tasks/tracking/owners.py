"""Which process owns a run, MLflow's or Prefect's, in a way that a kill cannot falsify: a file that says that it lives.

Only processes that share the state folder are judged, others' runs are left alone. A process of the same host is dead
once its file is not locked any more, one of another host when it has given no sign of life for some minutes
(`tasks.store.presence`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gptcore.base.files import sha256_json
from tasks.store.presence import Presence, presences, present
from tasks.store.state import can_write, state_folder

_WHAT = "owners of tracking runs"


def _owners(uri: str) -> Path:
    """Folder with a file for each living process that owns runs at ``uri``, which may lie in this state folder."""
    return state_folder() / "owners" / sha256_json(uri.replace(str(state_folder()), ""))[:12]


def owner_name(uri: str) -> str:
    """This process' name as an owner of runs, of a file that lives as long as it does.

    :raises InputError: the state folder's file system keeps no locks.
    """
    return _owner(uri).path.name


def note(uri: str, line: str) -> None:
    """Leave a line that whoever finds this process ended gets to read.

    :raises InputError: the state folder's file system keeps no locks.
    """
    _owner(uri).add([line])


@contextmanager
def dead_owners(uri: str) -> Iterator[dict[str, list[str]]]:
    """The owners whose process is gone, and the lines that each has noted; forgotten when the block ends well.

    None where the state folder takes nothing: who only reads there leaves them to others.

    :raises InputError: the state folder's file system keeps no locks.
    """
    if not can_write(state_folder()):
        yield {}
        return
    with presences(_owners(uri), _WHAT) as (_, dead):
        yield {path.name: path.read_text(encoding="utf-8").splitlines() for path in dead}


def _owner(uri: str) -> Presence:
    return present(_owners(uri), _WHAT, _leave)


def _leave(owner: Presence) -> None:
    """Nobody has to read an empty file. One with lines stays: whether all of it came to its end the next may ask."""
    if not owner.lines:
        owner.remove()
