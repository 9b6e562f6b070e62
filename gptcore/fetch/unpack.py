"""Archives from outside, unpacked without trust in their names."""

from __future__ import annotations

import gzip
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from gptcore.fetch.download import FetchError

_BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, gzip.BadGzipFile, EOFError, FileExistsError)


_NOTICES = ("readme", "license", "licence")


class _Member(NamedTuple):
    name: str
    is_link: bool
    open: Callable[[], IO[bytes] | None] | None
    """None for what is no file."""


def is_archive(name: str) -> bool:
    """Whether a file of this name is one that :func:`unpack` opens."""
    return name.endswith((".zip", ".tar.gz"))


def unpack(archive: Path, pattern: str, out: Path) -> int:
    """Unpack the files whose names match into the new folder ``out``, without the first part of their names.

    What the authors say of the data, and on what terms (``README``, ``LICENSE``), comes along.

    :param pattern: as many parts as the names have, each with wildcards: ``RACE/*/*/*.txt``.
    :return: the number of files that match.
    :raises FetchError: no archive, no such file in it, or any name in it that leads out of it, or a link.
    """
    parts, count = PurePosixPath(pattern).parts, 0
    try:
        for member in _members(archive):
            name = PurePosixPath(member.name)
            if name.is_absolute() or ".." in name.parts or "\\" in member.name or ":" in "".join(name.parts[:1]):
                raise FetchError(f"{archive.name}: found the name {member.name!r}, expected none that leads out of it")
            if member.is_link:
                raise FetchError(f"{archive.name}: found the link {member.name!r}, expected files and folders only")
            wanted = len(name.parts) == len(parts) and name.match(pattern) and not name.name.startswith(".")
            notice = name.parts[:-1] == parts[:1] and name.name.lower().startswith(_NOTICES)
            if member.open is None or not (wanted or notice):
                continue
            target = out.joinpath(*name.parts[1:])
            target.parent.mkdir(parents=True, exist_ok=True)
            source = member.open()
            assert source is not None, "a file has content"
            with source, open(target, "xb") as file:
                shutil.copyfileobj(source, file)
            count += wanted
    except _BROKEN as error:
        raise FetchError(f"{archive.name}: found {type(error).__name__}: {error}, expected a whole archive") from error
    if not count:
        raise FetchError(f"{archive.name}: found no file {pattern}, expected some")
    return count


def _members(archive: Path) -> Iterator[_Member]:
    if archive.name.endswith(".zip"):
        with zipfile.ZipFile(archive) as opened:
            for info in opened.infolist():
                link = stat.S_ISLNK(info.external_attr >> 16)
                yield _Member(info.filename, link, None if info.is_dir() else partial(opened.open, info))
        return
    with tarfile.open(archive, "r:gz") as tar:
        for entry in tar:
            other = not (entry.isfile() or entry.isdir())  # links, devices
            yield _Member(entry.name, other, partial(tar.extractfile, entry) if entry.isfile() else None)
