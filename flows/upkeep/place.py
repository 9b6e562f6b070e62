"""Where backups lie: a folder or any fsspec URL, in which each home has a folder of its own.

    URL/HOME/backups/NUMBER-TIME.json   what a backup holds, with sizes and SHA-256; written last: else there is none
    URL/HOME/blobs/AA/SHA-256           its files, each once for however many backups have it
    URL/HOME/store/                     a store with the artifacts of all backups, unless they are kept by reference

Nobody writes into another home's folder, so that none can count or delete what another one is just saving. Backups are
in the order of their numbers, as clocks go wrong. What is made here is its owner's alone to read.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

from fsspec.implementations.local import LocalFileSystem
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from gptcore.base.errors import InputError, require, unwritable
from gptcore.base.files import canonical_json, checked_object, parse_json, sha256_file, sha256_json, write_bytes_atomic
from gptcore.base.filesystems import file_system, names_in, require_address
from tasks.store.manifest import is_safe
from tasks.store.state import FileDigests
from tasks.store.store import Store

FORMAT = 2
"""The format of backups; raised when an older gptmill could not read one. Those of format 1 lie in the place itself."""
_HOME = re.compile(r"[0-9a-f]{12}")
_NAME = re.compile(r"(\d{6,}-)?\d{8}T[\d.]+Z")
_TIME = "%Y%m%dT%H%M%S.%fZ"
_STAGE, _SHA256 = "[a-z][a-z0-9_-]{0,63}", "[0-9a-f]{64}"


def _inside(name: str) -> str:
    if not is_safe(name):
        raise ValueError("expected a path inside its folder")
    return name


# A list may come from anybody: of the names in it those are taken that `gptmill backup` writes, and no others.
Stage = Annotated[str, Field(pattern=f"^{_STAGE}$")]
Line = Annotated[str, Field(pattern=r"^\P{C}*$")]  # without what would steer a terminal
Sha256 = Annotated[str, Field(pattern=f"^{_SHA256}$")]
DatabaseName = Annotated[str, Field(pattern=r"^(mlflow\.db|prefect/prefect\.db|(mlflow|mlflow_auth|prefect)\.dump)$")]
HomeFile = Annotated[str, Field(pattern=r"^((mlflow-artifacts|owners)/.+|deploy\.toml)$"), AfterValidator(_inside)]
WorkFile = Annotated[str, Field(pattern=f"^{_STAGE}/{_SHA256}/.+$"), AfterValidator(_inside)]


class _Checked(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class Entry(_Checked):
    """A file of a backup."""

    sha256: Sha256
    size: Annotated[int, Field(ge=0)]


class Kept(_Checked):
    """The store of a backup: where it was, whether its artifacts were copied, and their digests by stage."""

    url: Line
    whole: bool
    artifacts: dict[Stage, list[Sha256]]


class Listing(_Checked):
    """What a backup holds, by the names that its files have in the state folder and in the store's work."""

    format: int
    created: Line
    versions: dict[str, Line]
    home: Line = "a home of before"
    """The state folder and its host, for people."""
    full: bool
    databases: dict[DatabaseName, Entry]
    files: dict[HomeFile, Entry]
    work: dict[WorkFile, Entry]
    store: Kept

    @property
    def entries(self) -> dict[str, Entry]:
        """All of its files, by their names in a folder that has one for each part."""
        parts = {"files": self.files, "databases": self.databases, "work": self.work}
        return {f"{part}/{name}": entry for part, files in parts.items() for name, entry in files.items()}


class Backups:
    """The backups of one home in a place."""

    def __init__(self, url: str, home: str, option: str) -> None:
        """
        :param home: the name of its folder; empty: the place itself is that, as it was in format 1.
        :param option: where the place was given, ``--to``.
        :raises InputError: an address with a password in it, or one that cannot be used.
        """
        require(url, f"{option}: found nothing, expected a folder or an address")
        require_address(url, option)
        self.home, self._given = home, f"{option} {url}"
        self.url = f"{url.rstrip('/')}/{home}".rstrip("/")
        self._fs, self.path = file_system(self.url)
        self.remote = not isinstance(self._fs, LocalFileSystem)
        self.store = f"{self.url}/store"
        self.digests = FileDigests()
        """The digests of files in a folder: what was read there is read again only where it has changed."""

    def open(self) -> None:
        """Make the folder, readable for its owner alone whatever was there.

        :raises InputError: it cannot be made.
        """
        try:
            for folder in () if self.remote else (Path(self.path), Path(self.path, "backups")):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                folder.chmod(0o700)
        except OSError as error:
            if unwritable(error):
                raise
            raise InputError(f"{self._given}: cannot be made ({error.strerror}), expected a folder") from None

    def begin(self) -> str:
        """Look what is there; the name of a backup that is made now: after all others, whatever the clock said then."""
        self._there = self._blobs()
        last, _, _ = (self.names() or ["0-"])[-1].rpartition("-")
        return f"{int(last or 0) + 1:06}-{datetime.now(UTC):{_TIME}}"

    def put(self, path: Path) -> Entry:
        """Keep a file that nobody writes to."""
        entry = Entry(sha256=sha256_file(path), size=path.stat().st_size)
        target = self._blob(entry.sha256)
        whole = self._there.get(entry.sha256) == entry.size  # not cut short by a kill
        if not (whole and (self.remote or self.digests.sha256(target) == entry.sha256)):
            if not self.remote:
                Path(target).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._fs.put_file(str(path), target)
            self._there[entry.sha256] = entry.size
        return entry

    def get(self, name: str, entry: Entry, target: Path) -> None:
        """:raises InputError: the file is missing, or has other bytes than it had."""
        target.parent.mkdir(parents=True, exist_ok=True)
        blob = self._blob(entry.sha256)
        try:
            self._fs.get_file(blob, str(target))
        except FileNotFoundError:
            raise InputError(f"{blob}: is missing; it is {name}") from None
        sha256 = sha256_file(target)
        require(sha256 == entry.sha256, f"{blob}: has the SHA-256 {sha256[:12]}; it is {name}")

    def names(self) -> list[str]:
        """The backups' names, in the order in which they were made."""
        parts = (name.partition(".json") for name in names_in(self._fs, f"{self.path}/backups"))
        names = (name for name, end, rest in parts if end and not rest and _NAME.fullmatch(name))
        return sorted(names, key=lambda name: int(name.rpartition("-")[0] or 0))  # format 1 has times alone

    def read(self, name: str) -> Listing:
        """:raises InputError: the list is damaged, is none of ours, or a newer gptmill has made it."""
        where = f"{self.url}/backups/{name}.json"
        try:
            value = parse_json(self._fs.cat_file(f"{self.path}/backups/{name}.json"))
        except ValueError as error:
            raise InputError(f"{where}: not JSON ({error})") from None
        about = checked_object(value, where, "the list of a backup", {"format": int, "versions": dict})
        made = f"made by gptmill {about['versions'].get('gptmill')!r:.20} (format {about['format']})"
        require(about["format"] <= FORMAT, f"{where}: {made}, this is {version('gptmill')} (format {FORMAT})")
        checksum = about.pop("checksum", None)
        whole = checksum == sha256_json(about) if about["format"] > 1 else checksum is None
        require(whole, f"{where}: is damaged: found other fields than its checksum is of")
        try:
            return Listing.model_validate(about)
        except ValidationError as error:
            first = error.errors()[0]
            place, words = ".".join(map(str, first["loc"])), first["msg"]
            raise InputError(f"{where}: {place}: found {first['input']!r:.80}; {words}") from None

    def seal(self, name: str, about: Listing) -> None:
        """Write down what a backup holds: with this it is one."""
        fields = about.model_dump()
        whole = canonical_json({**fields, "checksum": sha256_json(fields)}).encode()
        partial, target = (f"{self.path}/backups/{name}.{end}" for end in ("part", "json"))
        if self.remote:
            self._fs.pipe_file(partial, whole)
            self._fs.mv(partial, target)
        else:
            os.sync()  # the files first: a power cut leaves no list of what is not there
            write_bytes_atomic(target, whole)

    def prune(self, keep: int) -> None:
        """Delete all of this home's backups but the newest, and what only these have had; lists go first."""
        names = self.names()
        if len(names) <= keep:
            return
        rest = [self.read(name) for name in names[-keep:]]  # before anything goes for it
        for name in names[:-keep]:
            self._fs.rm_file(f"{self.path}/backups/{name}.json")
        used = {entry.sha256 for about in rest for entry in about.entries.values()}
        for sha256 in self._there.keys() - used:
            self._fs.rm_file(self._blob(sha256))
        store = Store(self.store)
        for stage in store.stages():
            kept = {digest for about in rest for digest in about.store.artifacts.get(stage, ())}
            for artifact in store.list(stage):
                if artifact.digest not in kept:
                    self._fs.rm(f"{self.path}/store/{stage}/{artifact.digest}", recursive=True)

    def lacking(self, about: Listing) -> list[str]:
        """What a backup holds and is not there any more: names of files, stages and digests of artifacts."""
        there, store = self._blobs(), Store(self.store)
        lost = [name for name, entry in about.entries.items() if there.get(entry.sha256) != entry.size]
        for stage, digests in about.store.artifacts.items() if about.store.whole else ():
            kept = {artifact.digest for artifact in store.list(stage)}
            lost += [f"{stage}/{digest}" for digest in digests if digest not in kept]
        return lost

    def _blobs(self) -> dict[str, int]:
        """SHA-256 -> size of the files that are there."""
        blobs = self._fs.find(f"{self.path}/blobs", detail=True)
        return {path.rpartition("/")[2]: info["size"] for path, info in blobs.items()}

    def _blob(self, sha256: str) -> str:
        return f"{self.path}/blobs/{sha256[:2]}/{sha256}"


def clock_remark(name: str) -> str:
    """What is to be said of a backup whose time is still to come; empty for any other."""
    if name.rpartition("-")[2] <= f"{datetime.now(UTC):{_TIME}}":
        return ""
    return f"{name}: its time is still to come: a clock was ahead then, or is behind now; what counts is the number"


def all_in(url: str, option: str) -> list[Backups]:
    """The backups of each home that has some in a place; first those of format 1, which lie in the place itself.

    :raises InputError: see :class:`Backups`.
    """
    place = Backups(url, "", option)
    names = [name for name in names_in(*file_system(place.url)) if _HOME.fullmatch(name)]
    return [own for own in (place, *(Backups(url, name, option) for name in names)) if own.names()]


def chosen(url: str, at: str) -> tuple[Backups, str]:
    """The backup that a person means, of all that lie in a place.

    :param at: a backup's name, that of its home, or both (HOME/NAME); empty: the newest of the only home.
    :raises InputError: none fits, or those of several homes do.
    """
    there = [(own, name) for own in all_in(url, "FROM") for name in own.names()]
    require(there, f"{url}: found no backup, expected what `gptmill backup --to` has made")
    fitting = [(own, name) for own, name in there if at in ("", own.home, name, f"{own.home}/{name}")]
    some = ", ".join(f"{own.home}/{name}".lstrip("/") for own, name in there[-5:])
    require(fitting, f"--at {at}: found no such backup, expected one of {some}")
    if len(newest := dict(fitting)) > 1:
        homes = [f"{own.home or name} ({own.read(name).home}, {name})" for own, name in newest.items()]
        raise InputError(f"{url}: found backups of {len(homes)} homes, expected --at with one of {'; '.join(homes)}")
    return fitting[-1]
