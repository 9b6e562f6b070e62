"""All that lies in a store: finished artifacts, unfinished work, this host's copies, and what crashes left.

Read straight from the file system, one listing a folder, so that nothing hides behind what a reader would skip. Only
names of the store's own forms are seen; whatever else somebody keeps in the same folder is not ours to touch, nor
walked through: below a folder that is no known stage only what has a manifest of ours counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from gptcore.base.errors import InputError
from gptcore.base.files import parse_json
from gptcore.base.filesystems import file_system, names_in, require_s3
from tasks.store.artifact import check_name
from tasks.store.locks import is_locked, lock_file
from tasks.store.manifest import MANIFEST, problem_of
from tasks.store.store import Store

Kind = Literal["artifact", "remains", "unfinished", "mirror", "copy", "arriving"]
"""Artifact: has a manifest. Remains: files of an attempt that no manifest names. Unfinished: a workspace. Mirror: a
workspace's, in an object store. Copy: this host's, of a remote artifact. Arriving: a download that was cut off."""
_TIMES = ("mtime", "LastModified", "last_modified", "created", "updated")  # as fsspec's file systems call it
_DISCARDED = ".discarded"  # what a publisher that was killed between two renames left beside a workspace
_PARTIAL = "partial-"  # of the stage: a mirror's download


@dataclass(frozen=True)
class Item:
    """One thing that can be kept or deleted as a whole."""

    kind: Kind
    stage: str
    digest: str
    root: str
    """Address of the file system that it lies on: the store's, or the local folder of what this host keeps of it."""
    path: str
    """The item's folder in the store."""
    size: int
    """Bytes."""
    changed: datetime | None
    """When it was finished, or its newest file written; None: nobody knows."""
    manifest: Mapping[str, Any] = field(default_factory=dict)
    """Of an artifact whose manifest can be believed."""
    problem: str = ""
    """Why its manifest cannot be, in words."""
    reads: tuple[str, ...] = ()
    """What it was made from, or is being made from: `<stage>/<digest>`."""
    busy: bool = False
    """Whether a process works on it now, of this host or of one that shares its locks."""

    @property
    def name(self) -> str:
        """`<stage>/<digest>`."""
        return f"{self.stage}/{self.digest}"


@dataclass
class _Folder:
    """What one listing says of a folder `<stage>/<digest>`."""

    path: str
    files: dict[str, tuple[int, datetime | None]] = field(default_factory=dict)
    """Relative path -> bytes, time of change."""

    def below(self, name: str) -> _Folder:
        """The sub-folder ``name``."""
        start = f"{name}/"
        files = {path.removeprefix(start): found for path, found in self.files.items() if path.startswith(start)}
        return _Folder(f"{self.path}/{name}", files)

    @property
    def size(self) -> int:
        return sum(size for size, _ in self.files.values())

    @property
    def changed(self) -> datetime | None:
        times = [time for _, time in self.files.values()]
        known = [time for time in times if time is not None]
        return max(known) if known and len(known) == len(times) else None


def inventory(store: Store, known: Collection[str]) -> list[Item]:
    """Everything of ``store``, and of what this host keeps of it, under a name of the store's own forms.

    :param known: stages whose folders are ours, with all that lies in them.
    :raises InputError: there is no such store, or it cannot be listed.
    """
    require_s3(store.url, "--store")
    fs, base = file_system(store.url)
    try:
        fs.invalidate_cache()
        if not names_in(fs, base):
            raise InputError(f"--store {store.url}: found nothing there, expected a store")
        items = []
        for stage in _stages(fs, base):
            ours = stage in known
            folders = _folders(fs, f"{base}/{stage}") if ours else _finished_folders(fs, f"{base}/{stage}")
            found = _finished(store, fs, stage, folders)
            items += [item for item in found if ours or (item.manifest and item.kind == "artifact")]
        scratch = str(store.scratch)
        items += _workspaces(store, "unfinished", ".work")
        if scratch != store.url:
            items += _mirrors(store, fs, base)
            items += _workspaces(store, "arriving", ".arriving")
            here, _ = file_system(scratch)
            items += [item for stage in _stages(here, scratch) for item in _copies(store, here, stage)]
    except OSError as error:  # no route, no permission: each client has its own words
        raise InputError(f"--store {store.url}: cannot be listed ({error})") from None
    return items


def _finished(store: Store, fs: Any, stage: str, folders: Mapping[str, _Folder]) -> Iterator[Item]:
    """Artifacts of a stage, and files that no manifest names."""
    paths = [f"{folder.path}/{MANIFEST}" for folder in folders.values() if MANIFEST in folder.files]
    manifests = fs.cat(paths, on_error="return") if paths else {}
    for digest, folder in folders.items():
        busy = is_locked(lock_file(store.scratch, stage, digest))
        if MANIFEST not in folder.files:
            yield Item("remains", stage, digest, store.url, folder.path, folder.size, folder.changed, busy=busy)
            continue
        manifest, problem = _manifest(manifests[f"{folder.path}/{MANIFEST}"], stage, digest)
        root = manifest.get("root")
        for name in sorted({path.partition("/")[0] for path in folder.files if "/" in path} if root else ()):
            if name.startswith("files-") and name != root:  # of a host that was second, or was killed
                lost = folder.below(name)
                yield Item("remains", stage, digest, store.url, lost.path, lost.size, lost.changed, busy=busy)
        size = (folder.below(root).size + folder.files[MANIFEST][0]) if root else folder.size
        inputs = [item for item in manifest.get("inputs", {}).values() if "stage" in item]
        reads = tuple(f"{item['stage']}/{item['digest']}" for item in inputs)
        changed = _time(manifest.get("created")) or folder.changed
        yield Item(
            "artifact", stage, digest, store.url, folder.path, size, changed, manifest, problem, reads, busy=busy
        )


def _manifest(data: bytes | Exception, stage: str, digest: str) -> tuple[dict[str, Any], str]:
    """A manifest that can be believed, or none and why."""
    if isinstance(data, Exception):
        return {}, f"unreadable: {data}"
    try:
        manifest = parse_json(data)
    except ValueError as error:
        return {}, f"unreadable: {error}"
    problem = problem_of(manifest, stage, digest)
    return ({}, problem) if problem else (manifest, "")


def _workspaces(store: Store, kind: Kind, section: str) -> Iterator[Item]:
    """What lies below `.work` or `.arriving`, on this host."""
    fs, scratch = file_system(str(store.scratch))
    for stage in _stages(fs, f"{scratch}/{section}"):
        for name, folder in _folders(fs, f"{scratch}/{section}/{stage}", _DISCARDED).items():
            digest, of = name.removesuffix(_DISCARDED), stage.removeprefix(_PARTIAL)
            lock = lock_file(store.scratch, of, digest)
            arriving = lock_file(store.scratch, f"download-{of}", digest)
            busy = is_locked(lock) or is_locked(arriving)
            reads = tuple(lock.read_text(encoding="utf-8").split()) if lock.is_file() else ()
            yield Item(kind, of, digest, scratch, folder.path, folder.size, folder.changed, reads=reads, busy=busy)


def _mirrors(store: Store, fs: Any, base: str) -> Iterator[Item]:
    """Unfinished work that some host has mirrored."""
    for stage in _stages(fs, f"{base}/.partial"):
        for digest, folder in _folders(fs, f"{base}/.partial/{stage}").items():
            started = f"{folder.path}/started"
            reads = fs.cat_file(started).decode(errors="replace").split() if "started" in folder.files else ()
            busy = is_locked(lock_file(store.scratch, stage, digest))
            size, changed = folder.size, folder.changed
            yield Item("mirror", stage, digest, store.url, folder.path, size, changed, reads=tuple(reads), busy=busy)


def _copies(store: Store, fs: Any, stage: str) -> Iterator[Item]:
    """This host's copies of artifacts of a remote store."""
    scratch = str(store.scratch)
    for digest, folder in _folders(fs, f"{scratch}/{stage}").items():
        busy = is_locked(lock_file(store.scratch, f"download-{stage}", digest))
        yield Item("copy", stage, digest, scratch, folder.path, folder.size, folder.changed, busy=busy)


def _stages(fs: Any, base: str) -> list[str]:
    return [name for name in names_in(fs, base) if _is_name(name, "0" * 64)]


def _folders(fs: Any, path: str, suffix: str = "", only: str = "") -> dict[str, _Folder]:
    """Digest (with ``suffix``, where it has that) -> what lies in its folder; by one listing.

    :param only: the end of the path of one folder.
    """
    folders: dict[str, _Folder] = {}
    for file, info in fs.find(f"{path}{only}", detail=True, withdirs=False).items():
        digest, _, name = file.removeprefix(f"{path}/").partition("/")
        if name and _is_name("x", digest.removesuffix(suffix) if suffix else digest):
            folder = folders.setdefault(digest, _Folder(f"{path}/{digest}"))
            times = filter(None, (_time(info.get(key)) for key in _TIMES))
            folder.files[name] = int(info.get("size") or 0), next(times, None)
    return folders


def _finished_folders(fs: Any, path: str) -> dict[str, _Folder]:
    """The items of a folder that may be anybody's: only what has a manifest, found without a walk through the rest."""
    try:
        digests = [name for name in names_in(fs, path) if _is_name("x", name)]
    except PermissionError:
        return {}  # somebody else's, closed to us
    there = [digest for digest in digests if fs.exists(f"{path}/{digest}/{MANIFEST}")]
    return {digest: _folders(fs, path, only=f"/{digest}")[digest] for digest in there}


def _is_name(stage: str, digest: str) -> bool:
    try:
        check_name(stage, digest)
    except InputError:
        return False
    return True


def _time(value: Any) -> datetime | None:
    """A moment, however a file system or a manifest writes it; None where it is none."""
    try:
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value, UTC)
        found = datetime.fromisoformat(value) if isinstance(value, str) else value
        return (found if found.tzinfo else found.replace(tzinfo=UTC)) if isinstance(found, datetime) else None
    except (ValueError, OverflowError, OSError):
        return None
