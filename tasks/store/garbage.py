"""What of a store may go: marking from what is referred to, through lineage, and deleting the rest.

Everything in doubt stays: what is young, what a process works with, what stands behind a manifest that nobody can
read or that is missing, and what the tracker has never heard of, which may be in somebody else's. What a record names
stays in whatever state it is: only a person can tell what is to become of it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from gptcore.base.filesystems import file_system
from tasks.store.counts import Generated
from tasks.store.inventory import Item
from tasks.store.locks import exclusive_now, lock_file
from tasks.store.manifest import MANIFEST
from tasks.store.presence import noted
from tasks.store.records import unmark
from tasks.store.store import Store

log = logging.getLogger(__name__)


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
                    _remove(fs, f"{item.path}/{MANIFEST}")
            _remove(fs, item.path)
            if item.kind == "artifact" and "root" in item.manifest:
                unmark(fs, base, item.manifest)
        yield item


def _remove(fs: Any, path: str) -> None:
    try:
        fs.rm(path, recursive=True)
    except FileNotFoundError:
        log.debug("%s was gone already", path)


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
        plain = [found["digest"] for found in item.manifest["inputs"].values()]
        stays = all(name in marks.why for name in item.reads) if item.reads else any(d in referred.named for d in plain)
        if stays:
            marks.keep([item.name], "measures these")


def _age(item: Item) -> float:
    return item.changed.timestamp() if item.changed is not None else float("inf")
