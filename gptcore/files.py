"""Small file helpers that every layer shares: canonical JSON, digests, atomic writes."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from pathlib import Path
from typing import Any

_CHUNK = 1 << 20  # bytes read at a time when hashing: bounded memory for files of any size


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
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def read_json(path: str | os.PathLike[str]) -> Any:
    """Parse a local UTF-8 JSON file."""
    return json.loads(Path(path).read_text(encoding="utf-8"))


def write_bytes_atomic(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a local file so that a reader, or a crash at any moment, sees the old bytes or the new ones.

    Temporary name in the same folder, fsync, rename, fsync of the folder.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with open(temporary, "wb") as file:
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


def fsync_folder(folder: str | os.PathLike[str]) -> None:
    """Make renames inside a local folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
