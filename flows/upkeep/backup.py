"""`gptmill backup --to URL`: what a state folder and a store hold, copied while runs are going on.

    URL/backups/TIME.json    what a backup holds, with sizes and SHA-256; written last: without it there is none
    URL/blobs/AA/SHA-256     its files, each once for however many backups have it
    URL/store/               a store with the artifacts of all backups, unless they are kept by reference

Databases are copied first (SQLite's online backup, `pg_dump`), then the files and artifacts that they speak of: what is
added meanwhile is in the next backup. Passwords are left out: the full stack gets new ones where it is restored.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fsspec.implementations.local import LocalFileSystem
from tqdm import tqdm

from flows.forms.checks import check_addresses
from flows.servers.credentials import read_credentials
from flows.servers.environment import read_stack
from flows.servers.stack import postgres, s3
from gptcore.base.addresses import refuse_password
from gptcore.base.errors import InputError, require
from gptcore.base.files import checked_object, parse_json, sha256_file
from gptcore.base.filesystems import file_system, names_in, require_s3
from tasks.store.locks import exclusive
from tasks.store.manifest import CorruptArtifact, is_safe
from tasks.store.sqlite import copy_database, database_problem
from tasks.store.state import FileDigests, state_folder
from tasks.store.store import Store
from tasks.tracking.database import FILES

FORMAT = 1
"""Of backups; raised when an older gptmill could not read one."""
DATABASES = ("mlflow.db", "prefect/prefect.db")
"""The light stack's, in the state folder."""
_BESIDE = (FILES, "owners", "deploy.toml")  # of the state folder: the rest is made again, or is of this machine
_COPIES = ".backup-"  # beginning of the name of the folder with copies of databases
_UNFINISHED = ".artifact.uploading."  # MLflow's names of files that are being written
PARTS = ("files", "databases", "work")
"""Of a backup: name -> entry of the files in each."""
_PACKAGES = ("gptmill", "mlflow", "prefect", "torch")
Entry = Mapping[str, Any]
"""Of a file: its "sha256" and "size"."""


class Incomplete(Exception):
    """A backup was made, but something could not be read and is not in it."""


class Place:
    """Where backups lie: a folder or any fsspec URL."""

    def __init__(self, url: str, option: str) -> None:
        """:raises InputError: an address with a password in it, or one that cannot be used."""
        require(url, f"{option}: found nothing, expected a folder or an address")
        refuse_password(url)
        require_s3(url, option)
        self.url = url.rstrip("/")
        self._fs, self._base = file_system(self.url)
        self.remote = not isinstance(self._fs, LocalFileSystem)
        self.store = f"{self.url}/store"
        self.digests = FileDigests()
        """Of files in a folder: what was read there is read again only where it has changed."""

    def open(self) -> None:
        """Make the folder, readable for its owner alone, and look what is in it.

        :raises InputError: it cannot be made.
        """
        try:
            for folder in () if self.remote else (self._base, f"{self._base}/backups"):
                Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"--to {self.url}: cannot be made ({error.strerror}), expected a folder") from None
        found = self._fs.find(f"{self._base}/blobs", detail=True)
        self._there = {path.rpartition("/")[2]: info["size"] for path, info in found.items()}

    def put(self, path: Path) -> Entry:
        """Keep a file that nobody writes to."""
        entry = {"sha256": sha256_file(path), "size": path.stat().st_size}
        target = self._blob(entry)
        whole = self._there.get(entry["sha256"]) == entry["size"]  # not cut short by a kill
        if not (whole and (self.remote or self.digests.sha256(target) == entry["sha256"])):
            if not self.remote:
                Path(target).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._fs.put_file(str(path), target)
            self._there[entry["sha256"]] = entry["size"]
        return entry

    def get(self, name: str, entry: Entry, target: Path) -> None:
        """:raises InputError: the file is missing, or has other bytes than it had."""
        require(is_safe(name), f"{self.url}: lists the path {name!r}, expected one inside the state folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._fs.get_file(self._blob(entry), str(target))
        except FileNotFoundError:
            raise InputError(f"{self._blob(entry)}: is missing; it is {name}") from None
        found = sha256_file(target)
        require(found == entry["sha256"], f"{self._blob(entry)}: has the SHA-256 {found[:12]}; it is {name}")

    def names(self) -> list[str]:
        """The backups' names, the oldest first."""
        found = names_in(self._fs, f"{self._base}/backups")
        return [name.removesuffix(".json") for name in found if name.endswith(".json")]

    def read(self, name: str) -> dict[str, Any]:
        """:raises InputError: no such backup, or one that a newer gptmill has made."""
        found = self.names()
        require(found, f"{self.url}: found no backup, expected what `gptmill backup --to` has made")
        name = name or found[-1]
        require(name in found, f"--at {name}: found no such backup, expected one of {', '.join(found[-5:])}")
        fields = {"format": int, "versions": dict, "full": bool, "store": dict, **dict.fromkeys(PARTS, dict)}
        try:
            value = parse_json(self._fs.cat_file(f"{self._base}/backups/{name}.json"))
        except ValueError as error:
            raise InputError(f"{self.url}/backups/{name}.json: not JSON ({error})") from None
        about = checked_object(value, f"{self.url}/backups/{name}.json", "a backup", fields)
        if about["format"] > FORMAT:
            made = f"made by gptmill {about['versions'].get('gptmill')} (format {about['format']})"
            raise InputError(f"{self.url}: backup {name}: {made}, this is {version('gptmill')} (format {FORMAT})")
        return about

    def seal(self, name: str, about: Mapping[str, Any]) -> None:
        """Write down what a backup holds: with this it is one."""
        partial, whole = (f"{self._base}/backups/{each}" for each in (f"{name}.part", f"{name}.json"))
        self._fs.pipe_file(partial, json.dumps(about, sort_keys=True, indent=1).encode())
        self._fs.mv(partial, whole)

    def prune(self, keep: int) -> None:
        """Delete all backups but the newest, and what only these have had; lists go first."""
        if not (old := self.names()[:-keep]):
            return
        for name in old:
            self._fs.rm_file(f"{self._base}/backups/{name}.json")
        rest = [self.read(name) for name in self.names()]
        used = {entry["sha256"] for about in rest for part in PARTS for entry in about[part].values()}
        for sha256 in self._there.keys() - used:
            self._fs.rm_file(self._blob({"sha256": sha256}))
        store, listed = Store(self.store), [about["store"]["artifacts"] for about in rest]
        for stage in store.stages():
            kept = {digest for artifacts in listed for digest in artifacts.get(stage, ())}
            for artifact in store.list(stage):
                if artifact.digest not in kept:
                    self._fs.rm(f"{self._base}/store/{stage}/{artifact.digest}", recursive=True)

    def _blob(self, entry: Entry) -> str:
        return f"{self._base}/blobs/{entry['sha256'][:2]}/{entry['sha256']}"


def backup(url: str, store_url: str, store_as: str, keep: int | None) -> None:
    """Make a backup, and print what is in it.

    :param store_as: "whole", "reference", or "": whole, unless the store lies behind an address of somebody else's.
    :param keep: how many backups stay; None: all.
    :raises InputError: an address cannot be used, there is no state folder or no store, a database is damaged, or the
        full stack, whose databases are wanted, does not run.
    :raises Incomplete: artifacts are damaged; the rest was saved.
    """
    require(keep is None or keep > 0, f"--keep: found {keep}, expected 1 or more")
    home = state_folder()
    full = postgres.data_folder().exists()
    known = full or "MLFLOW_TRACKING_URI" in os.environ or any((home / each).exists() for each in DATABASES)
    require(known, f"{home}: found no database in it, expected the state folder to save; GPTMILL_HOME names it")
    stack = read_stack() if full else None
    stopped = f"{postgres.data_folder()}: databases that are saved while they run; start: gptmill up --full"
    require(stack or not full, stopped)
    refuse_password(store_url)
    require_s3(store_url, "--store")
    require(names_in(*file_system(store_url)), f"--store {store_url}: found nothing there, expected a store")
    store, place = check_addresses({"store": store_url}), Place(url, "--to")
    whole = store_as == "whole" or (not store_as and ("://" not in store.url or (full and store.url == s3.STORE)))
    place.open()
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
    with (
        exclusive(home / ".locks" / "backup", "backup"),
        TemporaryDirectory(prefix=_COPIES, dir=home) as folder,
        place.digests,
    ):
        for left in home.glob(f"{_COPIES}*"):  # by one that was killed
            if left != Path(folder):
                shutil.rmtree(left, ignore_errors=True)
        databases = _databases(Path(folder), stack)
        about: dict[str, Any] = {
            "format": FORMAT,
            "created": name,
            "versions": {package: version(package) for package in _PACKAGES},
            "full": full,
            "databases": {each: place.put(path) for each, path in databases.items()},
        }
        about["files"] = _sent(place, _files(state_folder(), Path(folder), full), Path(folder), "files")
        artifacts, damaged = _all(store), list[str]()
        if whole:
            artifacts, damaged = copy_artifacts(store, artifacts, Store(place.store))
        about["store"] = {"url": store.url, "whole": whole, "artifacts": artifacts}
        unfinished = store.scratch / ".work"
        about["work"] = _sent(place, _below(unfinished), Path(folder), "unfinished work")
    place.seal(name, about)
    if keep:
        place.prune(keep)
    number = sum(map(len, artifacts.values()))
    size = sum(entry["size"] for part in PARTS for entry in about[part].values())
    print(f"{place.url}: backup {name}, {size:,} bytes of {state_folder()} and of unfinished work")
    print(f"store: {number:,} artifacts of {store.url}, {'whole' if whole else 'by reference'}")
    if damaged:
        raise Incomplete(f"{len(damaged)} damaged artifacts are not in the backup: {damaged[0]}; see gptmill verify")


def copy_artifacts(
    source: Store, wanted: Mapping[str, Iterable[str]], target: Store
) -> tuple[dict[str, list[str]], list[str]]:
    """Copy those artifacts that another store lacks: stage -> digests of what it has now; what is damaged or missing.

    This machine's copies of either, where it lies behind an address, are not kept.
    """
    listed = [(stage, digest) for stage, digests in wanted.items() for digest in digests]
    there = {(stage, artifact.digest) for stage in wanted for artifact in target.list(stage)}
    damaged = []
    for stage, digest in tqdm(listed, desc="artifacts", unit="", disable=None, leave=False):
        if (stage, digest) in there:
            continue
        if (artifact := source.find(stage, digest)) is None:
            damaged.append(f"{source.url}/{stage}/{digest}: is missing")
            continue
        try:
            target.adopt(artifact)
        except CorruptArtifact as error:
            damaged.append(str(error))
            continue
        for store in (source, target):
            if str(store.scratch) != store.url:
                shutil.rmtree(store.scratch / stage / digest, ignore_errors=True)
        there.add((stage, digest))
    found = {stage: [each for each in digests if (stage, each) in there] for stage, digests in wanted.items()}
    return found, damaged


def _all(store: Store) -> dict[str, list[str]]:
    """Stage -> the digests of its artifacts, the oldest first."""
    found = {stage: [artifact.digest for artifact in store.list(stage)[::-1]] for stage in store.stages()}
    return {stage: digests for stage, digests in found.items() if digests}


def _databases(folder: Path, stack: Mapping[str, Any] | None) -> dict[str, Path]:
    """Name -> a copy of each database, as it is now.

    :param stack: the record of the full stack, which runs; None: there is none.
    :raises InputError: one is damaged.
    """
    made = {name: folder / name for name in DATABASES if (state_folder() / name).exists()}
    for name, copy in made.items():
        copy_database(state_folder() / name, copy)
        if problem := database_problem(copy):
            raise InputError(f"{state_folder() / name}: is damaged ({problem}); it was not saved over former backups")
    if stack is None:
        return made
    port, credentials = stack["layout"]["postgres_port"], read_credentials()
    for name in postgres.DATABASES:
        made[f"{name}.dump"] = folder / f"{name}.dump"
        postgres.dump(name, port, credentials, made[f"{name}.dump"])
    return made


def _files(home: Path, folder: Path, full: bool) -> Iterator[tuple[str, Path]]:
    """Name -> path of the state folder's files that are no databases; of MLflow's on S3 copies, one at a time."""
    for top in _BESIDE:
        yield from ((f"{top}/{name}".removesuffix("/"), path) for name, path in _below(home / top))
    if full:
        fs, base = file_system(s3.MLFLOW_ARTIFACTS)
        for path in sorted(fs.find(base)):
            fs.get_file(path, str(folder / "fetched"))
            yield f"{FILES}{path.removeprefix(base)}", folder / "fetched"


def _below(top: Path) -> Iterator[tuple[str, Path]]:
    """Name -> path of every file below a folder, or of the file that it is."""
    paths = [top] if top.is_file() else sorted(path for path in top.rglob("*") if path.is_file())
    for path in paths:
        if not path.name.startswith(_UNFINISHED):
            yield "" if path == top else path.relative_to(top).as_posix(), path


def _sent(place: Place, files: Iterable[tuple[str, Path]], folder: Path, what: str) -> dict[str, Entry]:
    """Name -> entry of files that others may write to or delete: a copy of each is hashed and sent."""
    sent, copy = {}, folder / "copy"
    for name, path in tqdm(files, desc=what, unit="", disable=None, leave=False):
        with suppress(FileNotFoundError):  # a checkpoint that was pruned: the trainer skips those that are not whole
            shutil.copyfile(path, copy)
            sent[name] = place.put(copy)
    return sent
