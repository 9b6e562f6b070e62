"""SQLite files of libraries that migrate them with Alembic: copied while they are in use, never misread."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

from gptcore.base.errors import InputError

_MAGIC = b"SQLite format 3\0"
_HEADER = 100  # bytes


def copy_database(source: Path, target: Path) -> None:
    """Copy a database that others may be writing to, as it is at one moment (SQLite's online backup)."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(source, timeout=60)) as there, closing(sqlite3.connect(target)) as here:
        there.backup(here)
        here.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it


def revision(file: Path, known: Collection[str], whose: str) -> str:
    """The Alembic revision of a database; empty where there is no file, or nothing in it.

    :param known: the revisions of the installed library.
    :param whose: the library and its version, in words.
    :raises InputError: the file is cut short, is no SQLite database, or was written by a newer library.
    """
    if not file.exists() or not file.stat().st_size:
        return ""
    with file.open("rb") as opened:
        header = opened.read(_HEADER)
    if not header.startswith(_MAGIC) or len(header) < _HEADER:
        raise InputError(f"{file}: found {header[:16]!r}, expected an SQLite database; gptmill restore brings one back")
    page = int.from_bytes(header[16:18], "big")
    whole = int.from_bytes(header[28:32], "big") * (65_536 if page == 1 else page)
    if header[24:28] == header[92:96] and (size := file.stat().st_size) < whole:  # else nobody has written that number
        raise InputError(f"{file}: found {size:,} bytes, expected {whole:,}; gptmill restore brings a whole one back")
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=60)) as database:
            (found,) = database.execute("SELECT version_num FROM alembic_version").fetchone() or ("",)
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return ""
        raise InputError(f"{file}: cannot be read ({error})") from None
    except sqlite3.DatabaseError as error:
        raise InputError(f"{file}: damaged ({error}); gptmill restore brings back one that is not") from None
    if found not in known:
        raise InputError(f"{file}: found the schema {found}, expected one that {whose} knows; update it")
    return str(found)
