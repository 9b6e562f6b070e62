"""Small file helpers that every layer shares: canonical JSON, digests, atomic writes, locks."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import uuid
import weakref
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any

from gptcore.base.errors import InputError

_LITTLE = 1 << 20  # bytes of a disk: with less than this nothing can be written that is worth it
ROOM = 32_000_000
"""Bytes that a disk must have free where work begins: a new state folder takes 8 MB, a run adds less than 1 MB."""
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # NFS without its lock service, Lustre without `flock`, FUSE
_locked: weakref.WeakSet[IO[Any]] = weakref.WeakSet()


def canonical_json(value: Any) -> str:
    """Serialise ``value`` so that equal values give equal text: sorted keys, no spaces, no NaN.

    :raises ValueError: if ``value`` holds NaN or infinity, which JSON cannot name.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def sha256_json(value: Any) -> str:
    """SHA-256 (64 hex digits) of the canonical JSON of ``value``."""
    return hashlib.sha256(canonical_json(value).encode("utf-8")).hexdigest()


def sha256_file(path: str | os.PathLike[str]) -> str:
    """SHA-256 (64 hex digits) of a local file's bytes, read in bounded memory."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: str | os.PathLike[str]) -> Any:
    """Parse a local UTF-8 JSON file.

    :raises ValueError: the file is no JSON.
    """
    return parse_json(Path(path).read_bytes())


def parse_json(data: bytes | str) -> Any:
    """Parse JSON; bytes are UTF-8.

    :raises ValueError: the text is no JSON, or is nested deeper than anything that we write.
    """
    try:
        return json.loads(data.decode("utf-8") if isinstance(data, bytes) else data)
    except RecursionError:
        raise ValueError("brackets thousands deep") from None


def read_object(
    path: str | os.PathLike[str], expected: str, fields: Mapping[str, type] | None = None
) -> dict[str, Any]:
    """A JSON object of a local file that somebody else may have written, or have lost half of.

    :param expected: what the file should be, in words.
    :param fields: what must be in it, and of which type.
    :raises InputError: the file is missing or something else.
    """
    try:
        value = read_json(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; expected {expected}") from None
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error}); expected {expected}") from None
    return checked_object(value, str(path), expected, fields)


def checked_object(value: Any, where: str, expected: str, fields: Mapping[str, type] | None = None) -> dict[str, Any]:
    """``value`` where it is a JSON object that has ``fields`` of their types.

    :raises InputError: the value is something else; names ``where``.
    """
    if not isinstance(value, dict):
        raise InputError(f"{where}: found a {type(value).__name__}, expected {expected}")
    for name, kind in (fields or {}).items():
        entry = value.get(name)
        if not isinstance(entry, kind) or (isinstance(entry, bool) and kind is not bool):
            shown = f"{entry!r:.60}" if name in value else "nothing"
            raise InputError(f"{where}: {name}: found {shown}, expected {kind.__name__}")
    return value


def is_full(place: Path) -> bool:
    """Whether the disk of a folder, or of where it would be made, has no room for anything that is worth it."""
    return free_bytes(place) < _LITTLE


def free_bytes(place: Path) -> int:
    """Bytes that are free on the disk of a file or folder, or of where it would be made."""
    return shutil.disk_usage(_there(place)).free


def require_room(place: Path) -> None:
    """Refuse to begin what could not be written down.

    :raises OSError: the disk of a folder, or of where it would be made, is read-only, or has no :data:`ROOM`.
    """
    if os.statvfs(_there(place)).f_flag & os.ST_RDONLY:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(place))
    if free_bytes(place) < ROOM:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(place))


def _there(place: Path) -> Path:
    return next(path for path in (place, *place.absolute().parents) if path.exists())


def write_bytes_atomic(path: str | os.PathLike[str], data: bytes, mode: int = 0o666) -> None:
    """Write a local file so that a reader, or a crash at any moment, sees the old bytes or the new ones.

    Temporary name in the same folder, fsync, rename, fsync of the folder.

    :param mode: who may do what with the file from its first moment on, less the umask; 0o600: its owner alone.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with open(temporary, "wb", opener=partial(os.open, mode=mode)) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    fsync_folder(path.parent)


def write_json_atomic(path: str | os.PathLike[str], value: Any) -> None:
    """Write ``value`` as indented JSON with :func:`write_bytes_atomic`."""
    text = json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_bytes_atomic(path, text.encode("utf-8"))


def fsync_file(path: Path) -> None:
    """Make the bytes of a file that was written survive a crash of the machine."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def fsync_folder(folder: str | os.PathLike[str]) -> None:
    """Make renames inside a local folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def try_lock(file: IO[Any], *, shared: bool = False) -> bool:
    """Take an open file's `flock` if it is free, without waiting; whether it was. It goes when the file is closed.

    A forked child closes it, or it would hold the lock after its parent's end.

    On NFS, which makes byte-range locks of it, the file has to be open for writing, for a shared lock for reading.

    :raises InputError: the file system keeps no locks.
    """
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        folder = Path(file.name).parent
        raise InputError(
            f"{folder}: found a file system without locks ({error.strerror}), expected one that keeps them (flock); "
            "choose another folder (--store, GPTMILL_HOME) or have this one mounted with locks"
        ) from None
    _locked.add(file)
    return True


def _let_go() -> None:
    for file in list(_locked):
        file.close()


os.register_at_fork(after_in_child=_let_go)
