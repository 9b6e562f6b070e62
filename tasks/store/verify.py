"""`gptmill verify`: every byte of a store's artifacts is read and compared with their manifests.

What a run finds in the store it compares once, for as long as a file's inode, size and times stay. A disk that forgets
changes none of them, and an object store is asked for sizes alone: this is who notices.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any

from gptcore.base.filesystems import file_system
from tasks.store.garbage import Item, inventory
from tasks.store.locks import exclusive_now, lock_file
from tasks.store.manifest import MANIFEST, sha256_problem
from tasks.store.records import published, unmark
from tasks.store.store import Store

_ASIDE = ".damaged"
_NAMED = 3  # artifacts


def verified(store: Store, known: Collection[str]) -> Iterator[tuple[Item, str]]:
    """Each artifact, and what is wrong with it in words, empty where it is whole; then what should be one and is none.

    That is a folder without its manifest, and what others were made from that is gone: an item without a path. An input
    that this store never had is another store's.

    :param known: stages whose folders are ours, with all that lies in them.
    :raises InputError: there is no such store, or it cannot be listed.
    """
    everything = inventory(store, known)
    items = [item for item in everything if item.kind == "artifact"]
    fs, base = file_system(store.url)
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # hashing leaves the interpreter to others
        yield from zip(items, pool.map(partial(_damage, fs), items), strict=True)
    local = str(store.scratch) == store.url
    marks = {stage: published(fs, base, stage) for stage in {item.stage for item in everything}}
    bare = [item for item in everything if item.kind == "remains" and item.path.endswith(item.digest) and not item.busy]
    for item in bare:
        if local or item.digest in marks[item.stage]:  # else an upload that goes on, or was cut off
            yield item, f"found no {MANIFEST}, expected one"
    there = {item.name for item in (*items, *bare)}
    for name in sorted({name for item in items for name in item.reads} - there):
        stage, digest = name.split("/")
        made = [item.name[: -len(item.digest) + 12] for item in items if name in item.reads]
        if lock_file(store.scratch, stage, digest).exists() or digest in published(fs, base, stage):
            gone = Item("remains", stage, digest, store.url, "", 0, None)
            yield gone, f"gone, but {', '.join(made[:_NAMED])}{' ...' * (len(made) > _NAMED)} was made from it"


def _damage(fs: Any, item: Item) -> str:
    if item.problem:
        return item.problem
    folder = "/".join(filter(None, (item.path, item.manifest.get("root"))))
    for file in item.manifest["files"]:
        try:
            with fs.open(f"{folder}/{file['path']}", "rb") as there:
                sha256 = hashlib.file_digest(there, "sha256").hexdigest()
        except FileNotFoundError:
            return f"{file['path']} is missing"
        except OSError as error:
            return f"{file['path']} cannot be read ({error.strerror or error})"
        if problem := sha256_problem(file, sha256):
            return problem
    return ""


def set_aside(store: Store, item: Item) -> str:
    """Move a damaged artifact out of the way of whoever makes it again; where to.

    Empty: it is being made right now, or nothing is there.
    """
    if not item.path:
        return ""
    fs, base = file_system(store.url)
    aside = f"{_ASIDE}/{item.stage}/{item.digest}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    with exclusive_now(lock_file(store.scratch, item.stage, item.digest)) as free:
        if not free:
            return ""
        if str(store.scratch) == store.url:  # an object store has no folders that would have to be made
            fs.makedirs(f"{base}/{_ASIDE}/{item.stage}", exist_ok=True)
        fs.mv(item.path, f"{base}/{aside}", recursive=True)
        if "root" in item.manifest:
            unmark(fs, base, item.manifest)
    return f"{store.url}/{aside}"
