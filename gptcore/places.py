"""Whether something is at an address, where fsspec's file systems do not agree on what to say when it cannot be.

``hf://`` raises for what is above a repository (``hf://datasets``), though repositories below it can be read.
"""

from __future__ import annotations

from typing import Any

_NO_SUCH_PLACE = (ValueError, NotImplementedError)


def exists(fs: Any, path: str) -> bool:
    """Whether a file or folder is there."""
    try:
        return bool(fs.exists(path))
    except _NO_SUCH_PLACE:
        return False


def is_folder(fs: Any, path: str) -> bool:
    """Whether a folder is there."""
    try:
        return bool(fs.isdir(path))
    except _NO_SUCH_PLACE:
        return False


def names_in(fs: Any, folder: str) -> list[str]:
    """Names in a folder, sorted; none where there is no folder."""
    try:
        paths = fs.ls(folder, detail=False)
    except (FileNotFoundError, NotADirectoryError, *_NO_SUCH_PLACE):
        return []
    return sorted(path.rstrip("/").rsplit("/", 1)[-1] for path in paths)
