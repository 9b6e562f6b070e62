"""`gptmill backup --to URL`: what a state folder and a store hold, copied while runs are going on.

Databases are copied first (SQLite's online backup, `pg_dump`), then the files and artifacts that they speak of: what is
added meanwhile is in the next backup. Passwords are left out: the full stack gets new ones where it is restored.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tqdm import tqdm

from flows.forms.checks import check_addresses
from flows.servers.credentials import read_credentials
from flows.servers.environment import read_stack
from flows.servers.stack import postgres, s3
from flows.upkeep.place import FORMAT, Backups, Entry, Kept, Listing, all_in, clock_remark
from gptcore.base.errors import InputError, require
from gptcore.base.files import read_json, sha256_json, write_json_atomic
from gptcore.base.filesystems import file_system, names_in
from tasks.store.locks import exclusive
from tasks.store.manifest import CorruptArtifact
from tasks.store.sqlite import copy_database, database_problem
from tasks.store.state import can_write, state_folder
from tasks.store.store import Store
from tasks.tracking.database import FILES

DATABASES = ("mlflow.db", "prefect/prefect.db")
"""The light stack's, in the state folder."""
_BESIDE = (FILES, "owners", "deploy.toml")  # of the state folder: the rest is made again, or is of this machine
_COPIES = ".backup-"  # beginning of the name of the folder with copies of databases
_UNFINISHED = ".artifact.uploading."  # MLflow's names of files that are being written
_PACKAGES = ("gptmill", "mlflow", "prefect", "torch")


class Incomplete(Exception):
    """A backup was made, but something could not be read and is not in it."""


def backup(url: str, store_url: str, store_as: str, keep: int | None) -> None:
    """Make a backup, and print what is in it.

    :param store_as: "whole", "reference", or "": whole, unless the store lies behind an address of somebody else's.
    :param keep: how many of this home's backups stay; None: all.
    :raises InputError: an address cannot be used, there is no state folder or no store, a database is damaged, or the
        full stack, whose databases are wanted, does not run.
    :raises Incomplete: artifacts are damaged, and the rest was saved; or what was saved has been deleted meanwhile.
    """
    require(keep is None or keep > 0, f"--keep: found {keep}, expected 1 or more")
    home = state_folder()
    full = postgres.data_folder().exists()
    known = full or "MLFLOW_TRACKING_URI" in os.environ or any((home / each).exists() for each in DATABASES)
    require(known, f"{home}: found no database in it, expected the state folder to save; GPTMILL_HOME names it")
    stack = read_stack() if full else None
    stopped = f"{postgres.data_folder()}: databases that are saved while they run; start: gptmill up --full"
    require(stack or not full, stopped)
    require(names_in(*file_system(store_url)), f"--store {store_url}: found nothing there, expected a store")
    store, ours = check_addresses({"store": store_url}), Backups(url, _home_name(home), "--to")
    whole = store_as == "whole" or (not store_as and ("://" not in store.url or (full and store.url == s3.STORE)))
    ours.open()
    with _workplace(home, ours) as folder, ours.digests:
        name = ours.begin()
        for remark in filter(None, map(clock_remark, ours.names()[-1:])):
            print(remark)
        databases = {each: ours.put(path) for each, path in _databases(folder, stack).items()}
        files = _sent(ours, _files(home, folder, full), folder, "files")
        # The oldest first: what is made from others comes after them.
        artifacts = {stage: [each.digest for each in store.list(stage)[::-1]] for stage in store.stages()}
        damaged = list[str]()
        if whole:
            artifacts, damaged = copy_artifacts(store, artifacts, Store(ours.store))
        about = Listing(
            format=FORMAT,
            created=name,
            versions={package: version(package) for package in _PACKAGES},
            home=f"{home} on {socket.gethostname()}",
            full=full,
            databases=databases,
            files=files,
            work=_sent(ours, _below(store.scratch / ".work"), folder, "unfinished work"),
            store=Kept(url=store.url, whole=whole, artifacts=artifacts),
        )
        ours.seal(name, about)
        if keep:
            try:
                ours.prune(keep)
            except InputError as error:
                raise Incomplete(f"backup {name} is made, and no other was deleted: {error}; delete that") from None
            if lost := ours.lacking(about):
                raise Incomplete(f"{ours.url}: backup {name} has lost {lost[0]} while it was made; repeat it")
            if others := sum(len(each.names()) for each in all_in(url, "--to") if each.home != ours.home):
                print(f"{url}: {others} backups of other homes, or of none that is named, stay: --keep counts its own")
    number = sum(map(len, artifacts.values()))
    size = sum(entry.size for entry in about.entries.values())
    print(f"{ours.url}: backup {name}, {size:,} bytes of {home} and of unfinished work")
    print(f"store: {number:,} artifacts of {store.url}, {'whole' if whole else 'by reference'}")
    if damaged:
        raise Incomplete(f"{len(damaged)} damaged artifacts are not in the backup: {damaged[0]}; see gptmill verify")


def _home_name(home: Path) -> str:
    """The name of a state folder in a place of backups: its own where it is renamed, and another one for a copy.

    It is the same folder of the same file system, which a copy is not; and under its path, or on its host: a container
    that is started again has another host name.
    """
    folder = f"{home.stat().st_ino} of {os.statvfs(home).f_fsid}"
    mine = {"folder": folder, "path": str(home), "host": socket.gethostname()}
    noted = home / "backup-name.json"
    try:
        known = read_json(noted)
        if known["folder"] == folder and (known["path"] == mine["path"] or known["host"] == mine["host"]):
            return str(known["name"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        pass  # none yet, or none of ours: it gets one
    if not can_write(home):
        return sha256_json([mine["host"], mine["path"]])[:12]  # what cannot be noted has to be found again
    write_json_atomic(noted, {"name": (name := secrets.token_hex(6)), **mine})
    return name


@contextmanager
def _workplace(home: Path, ours: Backups) -> Iterator[Path]:
    """A folder for copies of what others write to, of the one backup of this home that is made at a time.

    What is made meanwhile is for its owner's eyes alone, like the state folder that it is of.
    """
    with ExitStack() as stack:
        stack.callback(os.umask, os.umask(0o077))
        for folder in [home] * can_write(home) + [Path(ours.path)] * (not ours.remote):  # a home may have a twin
            stack.enter_context(exclusive(folder / ".locks" / "backup", "backup"))
        made = stack.enter_context(TemporaryDirectory(prefix=_COPIES, dir=home if can_write(home) else None))
        for left in home.glob(f"{_COPIES}*"):  # by one that was killed
            if left != Path(made):
                shutil.rmtree(left, ignore_errors=True)
        yield Path(made)


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
    kept = {stage: [each for each in digests if (stage, each) in there] for stage, digests in wanted.items()}
    return kept, damaged


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


def _sent(ours: Backups, files: Iterable[tuple[str, Path]], folder: Path, what: str) -> dict[str, Entry]:
    """Name -> entry of files that others may write to or delete: a copy of each is hashed and sent."""
    sent, copy = {}, folder / "copy"
    for name, path in tqdm(files, desc=what, unit="", disable=None, leave=False):
        with suppress(FileNotFoundError):  # a checkpoint that was pruned: the trainer skips those that are not whole
            shutil.copyfile(path, copy)
            sent[name] = ours.put(copy)
    return sent
