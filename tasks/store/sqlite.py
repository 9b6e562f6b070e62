"""SQLite files of libraries that migrate them with Alembic: copied while they are in use, never misread."""

from __future__ import annotations

import errno
import importlib.util
import logging
import re
import shutil
import sqlite3
from contextlib import closing, suppress
from importlib.metadata import version
from pathlib import Path

from gptcore.base.errors import InputError, unwritable
from gptcore.base.files import write_bytes_atomic
from tasks.store.state import can_write

log = logging.getLogger(__name__)
_MAGIC = b"SQLite format 3\0"
_HEADER = 100  # bytes
_OWN, _BEFORE = (re.compile(rf"^{name}\b.*= *[\"'](\w+)", re.MULTILINE) for name in ("revision", "down_revision"))
_RESTORE = "`gptmill restore` into another GPTMILL_HOME brings back a whole one"


def copy_database(source: Path, target: Path) -> None:
    """Copy a database that others may be writing to, as it is at one moment (SQLite's online backup).

    In a folder that takes nothing SQLite opens none that has a log (WAL): there its files are copied first.

    :raises InputError: it cannot be read.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if not can_write(source.parent):
        for end in ("", "-wal"):
            with suppress(FileNotFoundError):
                shutil.copyfile(f"{source}{end}", f"{target}.read{end}")
        source = target.with_name(f"{target.name}.read")
    try:
        with closing(sqlite3.connect(source, timeout=60)) as there, closing(sqlite3.connect(target)) as here:
            there.backup(here)
            here.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
    except sqlite3.DatabaseError as error:
        if unwritable(error):
            raise OSError(errno.EROFS if "readonly" in str(error) else errno.ENOSPC, str(error), str(target)) from error
        raise InputError(f"{source}: cannot be read ({error}); {_RESTORE}") from None


def database_problem(file: Path) -> str:
    """What SQLite finds wrong in a database, in words; empty where it is whole."""
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=60)) as database:
            (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        return str(error)
    return "" if verdict == "ok" else " ".join(str(verdict).split())


def check_database(file: Path, package: str, scripts: str) -> str:
    """Check that the installed library can open its database, and note its version; keep a copy where it migrates it.

    Costs next to nothing while the library stays what it was.

    :param package: the library, as it is installed.
    :param scripts: the folder in it that holds its migrations.
    :return: where the copy is; empty where the library knows the database as it is.
    :raises InputError: the file is cut short, is no SQLite database, or was written by a newer library.
    """
    if not file.exists() or not file.stat().st_size:
        return ""
    _check_whole(file)
    noted, installed = file.with_name(f"{file.name}.version"), version(package)
    wrote = noted.read_text(encoding="utf-8").strip() if noted.exists() else ""
    if wrote == installed:
        return ""
    revision, known = _revision(file), _revisions(package, scripts)
    if revision not in known:
        raise InputError(
            f"{file}: written by {package} {wrote or 'of a newer version'} (schema {revision}), which"
            f" {package} {installed} cannot read; update gptmill, or restore a backup into another GPTMILL_HOME"
        )
    copy = ""
    if revision and known[revision]:  # others come after it
        copy = str(file.parent / "before-upgrade" / f"{file.stem}-{revision}.db")
        copy_database(file, Path(copy))
        log.warning("%s: was written by an older %s, and is migrated; a copy is kept: %s", file, package, copy)
    write_bytes_atomic(noted, f"{installed}\n".encode())
    return copy


def _check_whole(file: Path) -> None:
    """:raises InputError: the file is cut short, or is no SQLite database."""
    with file.open("rb") as opened:
        header = opened.read(_HEADER)
    if not header.startswith(_MAGIC) or len(header) < _HEADER:
        raise InputError(f"{file}: found {header[:16]!r}, expected an SQLite database; {_RESTORE}")
    page = int.from_bytes(header[16:18], "big")
    whole = int.from_bytes(header[28:32], "big") * (65_536 if page == 1 else page)
    if header[24:28] == header[92:96] and (size := file.stat().st_size) < whole:  # else nobody has written that number
        raise InputError(f"{file}: cut short: found {size:,} bytes, expected {whole:,}; {_RESTORE}")


def _revision(file: Path) -> str:
    """The Alembic revision of a database; empty where its tables have not been made.

    :raises InputError: it cannot be read.
    """
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=60)) as database:
            (revision,) = database.execute("SELECT version_num FROM alembic_version").fetchone() or ("",)
    except sqlite3.DatabaseError as error:
        if "no such table" in str(error):
            return ""
        raise InputError(f"{file}: cannot be read ({error}); {_RESTORE}") from None
    return str(revision)


def _revisions(package: str, scripts: str) -> dict[str, bool]:
    """Revision -> whether another one follows it, of a library's migrations; "" stands for a database without one."""
    library = importlib.util.find_spec(package)
    assert library is not None
    folder = Path(str(library.origin)).parent / scripts
    texts = [path.read_text(encoding="utf-8") for path in folder.glob("*.py")]
    own, before = ([named[1] for text in texts if (named := line.search(text))] for line in (_OWN, _BEFORE))
    return {"": False} | {revision: revision in before for revision in own}
