"""Addresses: the file system behind one, and whether something is there, where fsspec's do not agree on how to say no.

``hf://`` raises for what is above a repository (``hf://datasets``), though repositories below it can be read.
"""

from __future__ import annotations

import hashlib
from typing import Any

import fsspec

from gptcore.base.errors import InputError, refuse_password

_NO_SUCH_ADDRESS = (ValueError, NotImplementedError)


def file_system(url: str) -> tuple[Any, str]:
    """The file system of any fsspec URL, and the path on it.

    :raises InputError: a kind of address that nobody knows, or whose package is not installed; one with a password.
    """
    refuse_password(url)
    try:
        fs, path = fsspec.url_to_fs(url)
    except ImportError as error:
        raise InputError(f"{url}: needs a package that is not installed ({error})") from None
    except ValueError as error:
        raise InputError(
            f"{url}: {error}; expected a folder, or an address that fsspec knows (s3://..., hf://...)"
        ) from None
    return fs, str(path)


def exists(fs: Any, path: str) -> bool:
    """Whether a file or folder is there."""
    try:
        return bool(fs.exists(path))
    except _NO_SUCH_ADDRESS:
        return False


def is_folder(fs: Any, path: str) -> bool:
    """Whether a folder is there."""
    try:
        return bool(fs.isdir(path))
    except _NO_SUCH_ADDRESS:
        return False


def names_in(fs: Any, folder: str) -> list[str]:
    """Names in a folder, sorted; none where there is no folder."""
    try:
        paths = fs.ls(folder, detail=False)
    except (FileNotFoundError, NotADirectoryError, *_NO_SUCH_ADDRESS):
        return []
    return sorted(path.rstrip("/").rsplit("/", 1)[-1] for path in paths)


def file_fingerprint(url: str) -> dict[str, Any]:
    """What tells a file from what it was: a local one by its bytes, an object of a store that keeps one by its ETag.

    With the ETag goes the size, and nothing is downloaded.

    :raises OSError: there is no such file, or it cannot be read.
    """
    fs, path = fsspec.url_to_fs(url)
    info = fs.info(path)
    if "ETag" in info:
        return {"etag": info["ETag"], "size": info["size"]}
    digest = hashlib.sha256()
    with fs.open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return {"sha256": digest.hexdigest()}
