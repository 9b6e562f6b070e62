"""Remote token shards, copied once to a local folder: training never reads its hot path over a network."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path
from typing import Any

import fsspec

from gptcore.data.encode import META_FILE, SPLITS
from gptcore.data.shards import INDEX_FILE, checked_index
from gptcore.errors import InputError
from gptcore.files import parse_json, sha256_file, sha256_json, write_json_atomic


def cache_shards(url: str, cache: Path) -> Path:
    """The local folder of a shards artifact (``train/``, ``validation/``, ``meta.json``), fetched where needed.

    The copy is keyed by the content of its indices, every file is checked against its SHA-256 there, and files that
    are there already, undamaged, are not fetched again. Processes that fetch at once do not disturb each other.
    A local ``url`` is checked the same way and returned as it is.

    :param url: any fsspec URL.
    :param cache: local folder that holds one folder an artifact.
    :raises InputError: no such artifact, or a file whose checksum is not the index's.
    """
    filesystem, root = fsspec.core.url_to_fs(str(url).rstrip("/"))
    meta = _read_json(filesystem, f"{root}/{META_FILE}", url)
    indices = {split: _index(filesystem, f"{root}/{split}/{INDEX_FILE}", url) for split in SPLITS}
    is_local = "file" in (filesystem.protocol if isinstance(filesystem.protocol, tuple) else (filesystem.protocol,))
    folder = Path(root) if is_local else cache / sha256_json([meta, indices])
    for split, index in indices.items():
        for entry in index["files"]:
            target = folder / split / entry["name"]
            if target.is_file() and sha256_file(target) == entry["sha256"]:
                continue
            if is_local:
                raise InputError(
                    f"{target}: missing or damaged, expected SHA-256 {entry['sha256']} as {INDEX_FILE} says"
                )
            _fetch(filesystem, f"{root}/{split}/{entry['name']}", target, entry["sha256"])
        if not is_local:
            (folder / split).mkdir(parents=True, exist_ok=True)
            write_json_atomic(folder / split / INDEX_FILE, index)
    if not is_local:
        write_json_atomic(folder / META_FILE, meta)
    return folder


def _index(filesystem: Any, path: str, url: str) -> dict[str, Any]:
    index = checked_index(_read_json(filesystem, path, url), path)
    if odd := [entry["name"] for entry in index["files"] if "/" in entry["name"]]:
        raise InputError(f"{path}: found the name {odd[0]!r:.60}, expected that of a file beside it")
    return index


def _read_json(filesystem: Any, path: str, url: str) -> Any:
    try:
        return parse_json(filesystem.cat_file(path))
    except (OSError, ValueError) as error:
        raise InputError(f"{url}: not a folder of token shards: {path}: {type(error).__name__}: {error}") from error


def _fetch(filesystem: Any, path: str, target: Path, sha256: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    try:
        try:
            with filesystem.open(path, "rb") as source, open(temporary, "wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
        except FileNotFoundError as error:
            raise InputError(f"{path}: {INDEX_FILE} lists this file, but it is not there") from error
        found = sha256_file(temporary)
        if found != sha256:
            raise InputError(f"{path}: SHA-256 is {found}, expected {sha256} as {INDEX_FILE} says")
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
