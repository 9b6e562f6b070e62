"""`gptmill restore FROM`: a state folder and a store as a backup has them, on any machine and under any path."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from flows.servers.environment import LIGHT_STORE
from flows.servers.stack import postgres, s3
from flows.servers.stack.control import storage
from flows.upkeep.backup import DATABASES, Incomplete, copy_artifacts
from flows.upkeep.place import Backups, Kept, Listing, chosen, clock_remark
from gptcore.base.errors import require
from gptcore.base.files import sha256_file
from gptcore.base.filesystems import file_system
from tasks.store.state import note_store, state_folder
from tasks.store.store import Store
from tasks.tracking.database import FILES


def restore(url: str, store_url: str, at: str, postgres_port: int, s3_port: int) -> None:
    """Put a backup into the state folder, whose databases must not be there yet, and its artifacts into a store.

    Files are compared with their SHA-256 before any is put in its place, artifacts each by itself; databases go last.
    What ended half-way is done again: a database that is as the backup has it is one that a restore has put there.

    :param store_url: of the store; empty: where it was, if by reference; else the default one.
    :param at: which backup; see :func:`flows.upkeep.place.chosen`.
    :param postgres_port: where a full stack's databases are served meanwhile; ``s3_port``: its objects.
    :raises InputError: no such backup, damaged or of a newer gptmill; or the state folder is in use.
    :raises Incomplete: all was put back but for artifacts that are damaged or missing in the backup.
    """
    (backups, name), home = chosen(url, at), state_folder()
    about = backups.read(name)
    if remark := clock_remark(name):
        print(remark)
    lacks = ", ".join({f"{each}.dump" for each in postgres.DATABASES if about.full} - about.databases.keys())
    require(not lacks, f"{backups.url}: backup {name}: found no {lacks}, expected all databases of a full stack")
    arriving = home / ".restoring"
    do = "restore into another GPTMILL_HOME, or move it away"
    for each in DATABASES:
        require(_is_as(about, each, home / each), f"{home / each}: is there already; {do}")
    if arriving.exists():  # nothing has ended its servers, either
        do += ", or delete what a killed restore has left: gptmill down --wipe"
    for there in (postgres.data_folder(), s3.data_folder()):
        require(not there.exists(), f"{there}: is there already; {do}")
    shutil.rmtree(arriving, ignore_errors=True)
    try:
        for each, entry in about.entries.items():
            backups.get(each, entry, arriving / each)
        with ExitStack() as stack:  # a failure deletes what the full stack has got
            if about.full:
                stack.enter_context(_full_stack(arriving, about, {postgres.NAME: postgres_port, s3.NAME: s3_port}))
            store, lost, damaged = _store(backups, about.store, store_url)
            _move(arriving / "work", store.scratch / ".work")
            _move(arriving / "files", home)
            note_store(store.url)
            for each in reversed(DATABASES):
                if each in about.databases:
                    _move(arriving / "databases" / each, home / each)
    finally:
        shutil.rmtree(arriving, ignore_errors=True)
    number = sum(map(len, about.store.artifacts.values()))
    print(f"{home}: as of {about.created}, gptmill {about.versions.get('gptmill')}")
    print(f"store: {number - lost:,} of {number:,} artifacts in {store.url}")
    if damaged:
        raise Incomplete(f"{len(damaged)} artifacts are damaged in the backup, and were left out: {damaged[0]}")


def _is_as(about: Listing, name: str, path: Path) -> bool:
    """Whether a database is not there, or as a backup has it: nobody has written to it, nor to a log beside it."""
    if not path.exists():
        return True
    saved = about.databases.get(name)
    return saved is not None and sha256_file(path) == saved.sha256 and not Path(f"{path}-wal").exists()


@contextmanager
def _full_stack(arriving: Path, about: Listing, ports: Mapping[str, int]) -> Iterator[None]:
    """The full stack's databases and MLflow's files on its S3 server, which runs on until the block ends."""
    with storage(ports) as (layout, credentials):
        for name in postgres.DATABASES:
            postgres.load(name, layout.postgres_port, credentials, arriving / "databases" / f"{name}.dump")
        postgres.set_mlflow_password(layout.postgres_port, credentials)
        fs, base = file_system(s3.MLFLOW_ARTIFACTS)
        for name in about.files:
            if name.startswith(f"{FILES}/"):
                fs.put_file(str(arriving / "files" / name), f"{base}{name.removeprefix(FILES)}")
                (arriving / "files" / name).unlink()
        yield


def _store(backups: Backups, saved: Kept, url: str) -> tuple[Store, int, list[str]]:
    """The store of a backup, with its artifacts; how many of them are not there; which are damaged in the backup."""
    url = url or (saved.url if not saved.whole or saved.url == s3.STORE else LIGHT_STORE)
    store, damaged = Store(url), list[str]()
    if saved.whole:
        _, damaged = copy_artifacts(Store(backups.store), saved.artifacts, store)
    there = {stage: {artifact.digest for artifact in store.list(stage)} for stage in saved.artifacts}
    return store, sum(len(set(digests) - there[stage]) for stage, digests in saved.artifacts.items()), damaged


def _move(source: Path, target: Path) -> None:
    """Move a file, or every file below a folder, into the place of what is there."""
    if source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(source, target)  # the store may lie on another disk
    for path in [path for path in source.rglob("*") if path.is_file()]:
        _move(path, target / path.relative_to(source))
