"""All that lies in a store, and what of it may go.

Finished artifacts, unfinished work, this host's copies, and what crashes left are read straight from the file system,
one listing a folder, so that nothing hides behind what a reader would skip. Only names of the store's own forms are
seen; whatever else somebody keeps in the same folder is not ours to touch, nor walked through: below a folder that is
no known stage only what has a manifest of ours counts.

What may go is told by marking from what is referred to, through lineage; the rest is deleted. Everything in doubt
stays: what is young, what a process works with, what stands behind a manifest that nobody can read or that is missing,
and what the tracker has never heard of, which may be in somebody else's. What a record names stays in whatever state it
is: only a person can tell what is to become of it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from gptcore.base.errors import InputError, require
from gptcore.base.filesystems import file_system, names_in, require_address
from tasks.store.artifact import is_digest, is_stage
from tasks.store.counts import Generated
from tasks.store.locks import exclusive_now, is_locked, lock_file
from tasks.store.manifest import MANIFEST
from tasks.store.presence import noted
from tasks.store.records import parsed, remove, unmark
from tasks.store.store import Store

log = logging.getLogger(__name__)
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
    """The manifest of an artifact, where it can be believed."""
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
        start = f"{name}/"
        files = {path.removeprefix(start): facts for path, facts in self.files.items() if path.startswith(start)}
        return _Folder(f"{self.path}/{name}", files)

    @property
    def size(self) -> int:
        return sum(size for size, _ in self.files.values())

    def item(self, kind: Kind, stage: str, digest: str, root: str, busy: bool, reads: tuple[str, ...] = ()) -> Item:
        """What the folder is, as young as its newest file."""
        times = [time for _, time in self.files.values()]
        known = [time for time in times if time is not None]
        changed = max(known) if known and len(known) == len(times) else None
        return Item(kind, stage, digest, root, self.path, self.size, changed, reads=reads, busy=busy)


def inventory(store: Store, known: Collection[str]) -> list[Item]:
    """Everything of ``store``, and of what this host keeps of it, under a name of the store's own forms.

    :param known: stages whose folders are ours, with all that lies in them.
    :raises InputError: there is no such store, or it cannot be listed.
    """
    require_address(store.url, "--store")
    fs, base = file_system(store.url)
    try:
        fs.invalidate_cache()
        require(names_in(fs, base), f"--store {store.url}: found nothing there, expected a store")
        items = []
        for stage in _stages(fs, base):
            ours = stage in known
            folders = _folders(fs, f"{base}/{stage}") if ours else _finished_folders(fs, f"{base}/{stage}")
            finished = _finished(store, fs, stage, folders)
            items += [item for item in finished if ours or (item.manifest and item.kind == "artifact")]
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
            yield folder.item("remains", stage, digest, store.url, busy)
            continue
        data = manifests[f"{folder.path}/{MANIFEST}"]
        read = f"unreadable: {data}" if isinstance(data, Exception) else parsed(data, stage, digest)
        manifest, problem = ({}, read) if isinstance(read, str) else (read, "")
        root = manifest.get("root")
        for name in sorted({path.partition("/")[0] for path in folder.files if "/" in path} if root else ()):
            if name.startswith("files-") and name != root:  # of a host that was second, or was killed
                yield folder.below(name).item("remains", stage, digest, store.url, busy)
        size = (folder.below(root).size + folder.files[MANIFEST][0]) if root else folder.size
        inputs = [item for item in manifest.get("inputs", {}).values() if "stage" in item]
        reads = tuple(f"{item['stage']}/{item['digest']}" for item in inputs)
        whole = folder.item("artifact", stage, digest, store.url, busy, reads)
        changed = _time(manifest.get("created")) or whole.changed
        yield replace(whole, size=size, changed=changed, manifest=manifest, problem=problem)


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
            yield folder.item(kind, of, digest, scratch, busy, reads)


def _mirrors(store: Store, fs: Any, base: str) -> Iterator[Item]:
    for stage in _stages(fs, f"{base}/.partial"):
        for digest, folder in _folders(fs, f"{base}/.partial/{stage}").items():
            started = f"{folder.path}/started"
            reads = fs.cat_file(started).decode(errors="replace").split() if "started" in folder.files else ()
            busy = is_locked(lock_file(store.scratch, stage, digest))
            yield folder.item("mirror", stage, digest, store.url, busy, tuple(reads))


def _copies(store: Store, fs: Any, stage: str) -> Iterator[Item]:
    scratch = str(store.scratch)
    for digest, folder in _folders(fs, f"{scratch}/{stage}").items():
        busy = is_locked(lock_file(store.scratch, f"download-{stage}", digest))
        yield folder.item("copy", stage, digest, scratch, busy)


def _stages(fs: Any, base: str) -> list[str]:
    return list(filter(is_stage, names_in(fs, base)))


def _folders(fs: Any, path: str, suffix: str = "", only: str = "") -> dict[str, _Folder]:
    """Digest (with ``suffix``, where it has that) -> what lies in its folder; by one listing.

    :param only: the end of the path of one folder.
    """
    folders: dict[str, _Folder] = {}
    for file, info in fs.find(f"{path}{only}", detail=True, withdirs=False).items():
        digest, _, name = file.removeprefix(f"{path}/").partition("/")
        if name and is_digest(digest.removesuffix(suffix) if suffix else digest):
            folder = folders.setdefault(digest, _Folder(f"{path}/{digest}"))
            times = filter(None, (_time(info.get(key)) for key in _TIMES))
            folder.files[name] = int(info.get("size") or 0), next(times, None)
    return folders


def _finished_folders(fs: Any, path: str) -> dict[str, _Folder]:
    """The items of a folder that may be anybody's: only what has a manifest, found without a walk through the rest."""
    try:
        digests = list(filter(is_digest, names_in(fs, path)))
    except PermissionError:
        return {}  # somebody else's, closed to us
    there = [digest for digest in digests if fs.exists(f"{path}/{digest}/{MANIFEST}")]
    return {digest: _folders(fs, path, only=f"/{digest}")[digest] for digest in there}


def _time(value: Any) -> datetime | None:
    """A moment, however a file system or a manifest writes it; None where it is none."""
    try:
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value, UTC)
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) if isinstance(moment, datetime) else None
    except (ValueError, OverflowError, OSError):
        return None


@dataclass(frozen=True)
class Referred:
    """What a tracker says of artifacts."""

    named: Mapping[str, str]
    """Digest -> what refers to it, in a word: "rows", "aliases"."""
    heard: Collection[str]
    """Every digest that any record mentions, deleted records too."""


@dataclass(frozen=True)
class Rules:
    """What a store cannot know of its stages."""

    measures: Collection[str]
    """Stages whose artifacts say how good others are: they stay as long as those."""
    tracked: Collection[str]
    """Stages whose artifacts a tracker has heard of, if it is the right one."""
    worlds: str
    """The stage of generated data: the newest stays as long as anything made from generated data."""
    young: timedelta
    """What is younger stays: between two stages of another host's run nothing else says that it is wanted."""
    unknown: bool = False
    """Whether what the tracker has never heard of may go, too."""


@dataclass(frozen=True)
class Plan:
    """What stays, and what may go."""

    kept: list[tuple[Item, str]] = field(default_factory=list)
    """What stays, each with the reason."""
    dropped: list[Item] = field(default_factory=list)
    """Newest first: what was made from others goes before them."""


class _Marks:
    """Name -> why it stays; everything that it was made from stays for the same reason."""

    def __init__(self, items: Iterable[Item]) -> None:
        self.artifacts = {item.name: item for item in items if item.kind == "artifact"}
        self.why: dict[str, str] = {}

    def keep(self, names: Iterable[str], reason: str) -> None:
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name not in self.why:
                self.why[name] = reason
                waiting += self.artifacts[name].reads if name in self.artifacts else ()

    def lost(self) -> list[Item]:
        return [item for name, item in self.artifacts.items() if name not in self.why]


def plan(items: list[Item], referred: Referred, leased: Collection[str], rules: Rules, now: datetime) -> Plan:
    """Tell what stays from what may go.

    :param leased: names that living processes work with, of all hosts that share the locks.
    """
    marks = _Marks(items)
    oldest = now - rules.young

    def young(item: Item) -> bool:
        return item.changed is None or item.changed > oldest

    for reason in dict.fromkeys(referred.named.values()):
        marks.keep((item.name for item in items if referred.named.get(item.digest) == reason), reason)
    busy = [item for item in items if item.busy]
    marks.keep([*leased, *(item.name for item in busy), *(name for item in busy for name in item.reads)], "in use now")
    work = [item for item in items if item.kind in ("unfinished", "mirror")]
    wanted = [item for item in work if young(item) or item.digest in referred.named]
    marks.keep((name for item in wanted for name in item.reads), "unfinished work")
    marks.keep((item.name for item in marks.artifacts.values() if young(item)), "young")
    if not rules.unknown:
        tracked = (item for item in marks.artifacts.values() if item.stage in rules.tracked)
        marks.keep((item.name for item in tracked if item.digest not in referred.heard), "no run here")
    bare = {item.path for item in items if _lost_manifest(item, marks) and item.name not in leased}
    _keep_unreadable(marks, [item for item in items if item.problem or item.path in bare])
    _keep_world(marks, rules)
    _keep_measures(marks, referred, rules)

    result = Plan()
    for item in sorted(items, key=_age, reverse=True):
        reason = marks.why.get(item.name, "")
        if item.kind != "artifact":
            if item.busy or item.name in leased:
                reason = "in use now"
            elif item.kind != "copy" and (item.name in marks.artifacts or not reason):  # of no use once it is finished
                reason = "young" if young(item) else ""
        if item.path in bare:
            item = replace(item, problem=f"found no {MANIFEST}, expected one: needed by {reason}")
        if reason:
            result.kept.append((item, reason))
        else:
            result.dropped.append(item)
    return result


def sweep(store: Store, chosen: Collection[Item], items: list[Item]) -> Iterator[Item]:
    """Delete what was chosen, and yield each thing that is gone: its manifest first, so that no half is ever trusted.

    What a process has begun to work with in the meantime stays, and so does what that was made from.
    """
    for item in chosen:
        fs, base = file_system(item.root)
        work = f"download-{item.stage}" if item.kind == "copy" else item.stage
        with exclusive_now(lock_file(store.scratch, work, item.digest)) as free:
            with noted(store.scratch) as leased:  # nobody starts to work with it until its manifest is gone
                marks = _Marks(items)
                marks.keep(leased, "in use now")
                if not free or item.name in marks.why:
                    log.warning("%s is in use by now and stays", item.path)
                    continue
                if item.kind in ("artifact", "copy"):
                    remove(fs, f"{item.path}/{MANIFEST}")
            remove(fs, item.path)
            if item.kind == "artifact" and "root" in item.manifest:
                unmark(fs, base, item.manifest)
        yield item


def _lost_manifest(item: Item, marks: _Marks) -> bool:
    """Whether these are all the files of something that is needed, without its manifest."""
    return item.kind == "remains" and not item.busy and item.name in marks.why and item.name not in marks.artifacts


def _keep_unreadable(marks: _Marks, broken: list[Item]) -> None:
    """What nobody can read stays, and so does all that it may have been made from: whatever is not newer."""
    marks.keep((item.name for item in broken), "unreadable")
    older = [item for item in marks.lost() if any(_age(item) <= _age(other) for other in broken)]
    marks.keep((item.name for item in older), "behind unreadable")


def _keep_world(marks: _Marks, rules: Rules) -> None:
    kept = (item for name, item in marks.artifacts.items() if name in marks.why)
    worlds = [item for item in marks.artifacts.values() if item.stage == rules.worlds]
    if worlds and any(Generated.parse(item.manifest.get("counts", {})).synthetic for item in kept):
        marks.keep([max(worlds, key=_age).name], "generated data")


def _keep_measures(marks: _Marks, referred: Referred, rules: Rules) -> None:
    """A measurement stays with what it measured: an artifact that stays, or data that a record names."""
    for item in [item for item in marks.lost() if item.stage in rules.measures]:
        plain = [source["digest"] for source in item.manifest["inputs"].values()]
        stays = all(name in marks.why for name in item.reads) if item.reads else any(d in referred.named for d in plain)
        if stays:
            marks.keep([item.name], "measures these")


def _age(item: Item) -> float:
    return item.changed.timestamp() if item.changed is not None else float("inf")
