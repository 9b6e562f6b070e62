"""The content-addressed store: the one mechanism that is cache, resume, versioning and lineage.

An artifact is the folder `<store>/<stage>/<digest>/`; its files come first, `manifest.json` last, so that a manifest's
existence means complete. `Store.build` skips what is there, and otherwise lets the caller work in a workspace that
has a fixed place per digest and survives crashes: a job that was killed finds its checkpoints again.

What holds after a crash at any moment: either no manifest (the workspace waits to be resumed) or a valid artifact.
Locks hold between processes of one host and between hosts that share a folder (`tasks.store.locks`); none can go stale.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from gptcore.errors import InputError, refuse_password
from gptcore.files import fsync_file, write_json_atomic
from tasks.store import leases
from tasks.store.artifact import Artifact, Recipe, check_name, is_digest
from tasks.store.keepalive import keepalive
from tasks.store.local import LocalShelf
from tasks.store.locks import exclusive, lock_file
from tasks.store.manifest import (
    MANIFEST,
    CorruptArtifact,
    Manifest,
    drop_unlisted,
    part_of,
    problem_of,
    seal,
    sealed,
    size_problem,
)
from tasks.store.records import Record
from tasks.store.remote import RemoteShelf

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Built:
    """What :meth:`Store.build` hands back."""

    artifact: Artifact
    manifest: Manifest
    cached: bool
    """True: it was there already, nothing was computed."""


class Shelf(Protocol):
    """Where artifacts lie: a local folder (:class:`LocalShelf`) or an object store (:class:`RemoteShelf`)."""

    root: str
    """The store's address without a trailing slash."""
    scratch: Path
    """A local folder for workspaces and locks, which survives crashes."""

    def read(self, stage: str, digest: str) -> Any | None:
        """The parsed manifest, unchecked; None where there is none."""

    def sizes(self, stage: str, digest: str, manifest: Manifest) -> dict[str, int]:
        """Bytes of each file that the artifact has, by the manifest's paths."""

    def sha256(self, stage: str, digest: str, manifest: Manifest, path: str) -> str:
        """SHA-256 of one listed file as it lies there now."""

    def read_file(self, stage: str, digest: str, manifest: Manifest, path: str) -> bytes:
        """One listed file as it lies there now."""

    def manifests(self, stage: str) -> dict[str, Manifest | str]:
        """By digest, of every artifact of one stage that has a manifest: that, or what is wrong with it in words."""

    def digests(self, stage: str) -> list[str]:
        """Names of the folders of one stage, complete or not."""

    def prepare(self, stage: str, digest: str, inputs: Sequence[str]) -> None:
        """Make sure that the store can be written, before any work; say there what the work reads."""

    def refresh(self, stage: str, digest: str, inputs: Sequence[str]) -> None:
        """Say again what the work reads, as :meth:`prepare` did, so that other hosts see that it goes on."""

    def publish(self, workspace: Path, manifest: Manifest) -> Manifest:
        """Make a sealed workspace the artifact, in one step that either happened or did not.

        Returns the manifest that holds: another host may have been first.
        """

    def local(self, stage: str, digest: str, manifest: Manifest, part: str) -> Path:
        """A local path with the files of a part of the artifact; see :meth:`Store.local`."""

    def save_partial(self, stage: str, digest: str, workspace: Path) -> None:
        """Copy a workspace to where another host finds it."""

    def load_partial(self, stage: str, digest: str, workspace: Path) -> bool:
        """Fill a workspace with what some host saved; False where none did."""


class Store:
    """Artifacts under one address: a local folder or any fsspec URL (`s3://bucket/prefix`, `memory://x`)."""

    def __init__(self, url: str | os.PathLike[str]) -> None:
        """
        :raises InputError: where the address names a file, or a protocol that fsspec does not know.
        """
        self._shelf: Shelf = _shelf(os.fspath(url))
        self.url = self._shelf.root

    @property
    def scratch(self) -> Path:
        """The local folder of its workspaces and locks: the store's own, or one of the state folder."""
        return self._shelf.scratch

    def __reduce__(self) -> tuple[type[Store], tuple[str]]:
        return Store, (self.url,)  # connections stay behind: a fresh process opens its own (s3fs hangs across a fork)

    def __repr__(self) -> str:
        return f"Store({self.url!r})"

    # --- looking up

    def artifact(self, stage: str, digest: str) -> Artifact:
        """The record of `<stage>/<digest>` in this store, whether it is there or not."""
        check_name(stage, digest)
        return Artifact(stage, digest, f"{self.url}/{stage}/{digest}")

    def find(self, stage: Recipe | str, digest: str | None = None) -> Artifact | None:
        """The complete artifact of a recipe (or of a stage and a full digest); None where there is none.

        Cheap: the manifest must fit its recipe, and every file it lists be there with its size. :meth:`verify`
        also reads the bytes.
        """
        name, digest = (stage.stage, stage.digest) if isinstance(stage, Recipe) else (stage, digest or "")
        artifact = self.artifact(name, digest)
        return artifact if self._check(artifact) is not None else None

    def manifest(self, artifact: Artifact) -> Manifest:
        """The manifest of a complete artifact, of this store or of the one in the artifact's own address.

        :raises InputError: where it is missing or incomplete.
        """
        manifest = self._check(artifact)
        if manifest is None:
            raise InputError(
                f"{artifact.url}: found no complete artifact, expected a {MANIFEST} and the files it lists"
            )
        return manifest

    def records(self, stage: str) -> list[Record]:
        """What the manifests of a stage say, newest first.

        Cheap however many there are: no artifact is looked at. That its files are all there is for :meth:`whole` to
        say, of the one that is chosen.
        """
        found = []
        for digest, manifest in self._shelf.manifests(stage).items():
            artifact = self.artifact(stage, digest)
            if isinstance(manifest, str):
                log.warning("%s is not used: %s", artifact.url, manifest)
            else:
                found.append(Record(artifact, manifest))
        return sorted(found, key=lambda record: (record.manifest["created"], record.artifact.digest), reverse=True)

    def whole(self, record: Record) -> bool:
        """Whether a record's artifact is there now, with every file that its manifest lists."""
        return self._check(record.artifact) is not None

    def newest(self, stage: str) -> Iterator[Record]:
        """The complete artifacts of a stage, newest first; each is looked at only when it is asked for."""
        return filter(self.whole, self.records(stage))

    def starting(self, stage: str, start: str) -> list[Artifact]:
        """The complete artifacts of a stage whose digest begins with ``start``, newest first.

        Only those whose folder's name fits are looked at, of a whole digest only that one.
        """
        start = start.lower()
        names = [start] if is_digest(start) else [name for name in self._shelf.digests(stage) if is_digest(name)]
        fitting = [name for name in names if start and name.startswith(start)]
        checked = ((self._check(artifact), artifact) for artifact in (self.artifact(stage, name) for name in fitting))
        found = [(manifest["created"], artifact) for manifest, artifact in checked if manifest is not None]
        return [artifact for _, artifact in sorted(found, key=lambda pair: (pair[0], pair[1].digest), reverse=True)]

    def list(self, stage: str) -> list[Artifact]:
        """The complete artifacts of a stage, newest first: every one is looked at, so only for stages of few."""
        return [record.artifact for record in self.newest(stage)]

    def resolve(self, ref: str, stage: str) -> Artifact:
        """The artifact that a person means by ``ref``: `latest`, the start of a digest, or a full address.

        :raises InputError: where none fits, or several do.
        """
        if "/" in ref:
            root, middle, digest = ref.rstrip("/").rpartition(f"/{stage}/")
            if not middle:
                raise InputError(
                    f"{stage} {ref!r}: expected a digest, latest, or an address ending in /{stage}/<digest>"
                )
            return Store(root).resolve(digest, stage)
        if ref == "latest" and (newest := next(self.newest(stage), None)):
            return newest.artifact
        fitting = self.starting(stage, ref)
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            names = ", ".join(artifact.short for artifact in fitting[:5])
            raise InputError(f"{stage} {ref!r}: found {len(fitting)} artifacts ({names}), expected a longer digest")
        have = ", ".join(record.artifact.short for record in islice(self.newest(stage), 5)) or "none at all"
        raise InputError(f"{stage} {ref!r}: found no such artifact in {self.url}, which has {have}")

    # --- reading

    def local(self, artifact: Artifact, part: str = "") -> Path:
        """A local folder with the artifact's files: the store's own, or this host's copy.

        Whoever asks is about to read them: a process compares them with the manifest the first time. A copy that is
        broken is fetched again.

        :param part: a file or a folder of the artifact, which is all that is fetched and compared, and whose path is
            returned; what lies beside it may be absent. Empty: all of the artifact.
        :raises InputError: where the artifact or the part is missing; :class:`CorruptArtifact` where its bytes are
            wrong.
        """
        shelf = self._home(artifact)
        if isinstance(shelf, RemoteShelf) and (copy := shelf.cached(artifact.stage, artifact.digest, part)):
            return copy
        manifest = self.manifest(artifact)
        if part and not part_of(manifest, part)["files"]:
            raise InputError(f"{artifact.url}: found no {part} in its {MANIFEST}")
        return shelf.local(artifact.stage, artifact.digest, manifest, part)

    def read(self, artifact: Artifact, path: str) -> bytes:
        """One small file of an artifact, without the others.

        :raises InputError: where artifact or file is missing; :class:`CorruptArtifact` where its bytes are wrong.
        """
        shelf, manifest = self._home(artifact), self.manifest(artifact)
        listed = {file["path"]: file["sha256"] for file in manifest["files"]}
        if path not in listed:
            raise InputError(f"{artifact.url}: found no file {path} in its {MANIFEST}")
        data = shelf.read_file(artifact.stage, artifact.digest, manifest, path)
        if (found := hashlib.sha256(data).hexdigest()) != listed[path]:
            wrong = f"{path} has the SHA-256 {found[:12]}, expected {listed[path][:12]}"
            raise CorruptArtifact(f"{artifact.url}: {wrong}; delete this folder and run again to rebuild it")
        return data

    def verify(self, artifact: Artifact) -> None:
        """Read every byte of an artifact and compare with its manifest.

        :raises CorruptArtifact: one line that names the first file that differs.
        """
        shelf, manifest = self._home(artifact), self.manifest(artifact)
        for file in manifest["files"]:
            found = shelf.sha256(artifact.stage, artifact.digest, manifest, file["path"])
            if found != file["sha256"]:
                wrong = f"{file['path']} has the SHA-256 {found[:12]}, expected {file['sha256'][:12]}"
                raise CorruptArtifact(f"{artifact.url}: {wrong}; delete this folder and run again to rebuild it")

    # --- making

    def workspace(self, recipe: Recipe) -> Path:
        """The local folder in which a recipe is worked on: fixed, so that a resumed run finds what a crash left."""
        return self.scratch / ".work" / recipe.stage / recipe.digest

    def build(
        self, recipe: Recipe, produce: Callable[[Path], Mapping[str, Any]], transient: Collection[str] = ()
    ) -> Built:
        """The recipe's artifact: found, or made by ``produce``.

        ``produce(workspace)`` writes the files into the workspace and returns counts for the manifest (JSON values;
        NaN becomes null). It may find there what a killed run left. Names that start with a dot are scratch: they
        stay out of the artifact. Several processes may build one recipe at once: one works, the others wait for it.

        :param transient: names at the workspace's top that are scratch, too, but go with its mirror: what unfinished
            work goes on from, such as checkpoints.
        :raises InputError: bad config; or whatever ``produce`` raises (then the workspace stays for the next try,
            except that an InputError leaves nothing that this call created). :class:`LostLock`: another host has taken
            this process for dead, after minutes without a sign of life.
        """
        inputs = [f"{item.stage}/{item.digest}" for item in recipe.inputs.values() if isinstance(item, Artifact)]
        leases.note(self.scratch, [f"{recipe.stage}/{recipe.digest}", *inputs])
        if hit := self._hit(recipe):
            return hit
        lock = self._lock_file(recipe.stage, recipe.digest)
        with exclusive(lock, f"{recipe.stage} {recipe.digest[:12]}") as holder:
            if hit := self._hit(recipe):  # another process finished it while this one waited
                return hit
            workspace = self.workspace(recipe)
            manifest = sealed(workspace, recipe)
            if manifest is None:
                lock.write_text("\n".join(inputs), encoding="utf-8")  # for who asks what unfinished work goes on from
                self._shelf.prepare(recipe.stage, recipe.digest, inputs)
                with keepalive(lambda: self._shelf.refresh(recipe.stage, recipe.digest, inputs), str(workspace)):
                    manifest = self._work(recipe, workspace, produce, transient)
            holder.check()
            drop_unlisted(workspace, manifest)
            manifest = self._shelf.publish(workspace, manifest)
        return Built(self.artifact(recipe.stage, recipe.digest), manifest, cached=False)

    def adopt(self, artifact: Artifact) -> Artifact:
        """An artifact in this store: of another store's a copy, manifest and all, so no younger than it is there.

        A manifest names its inputs by stage and digest, so what is made here finds them here only.

        :raises InputError: where the artifact is missing; :class:`CorruptArtifact` where its bytes are wrong;
            :class:`LostLock` as :meth:`build`.
        """
        own = self.artifact(artifact.stage, artifact.digest)
        leases.note(self.scratch, [f"{own.stage}/{own.digest}"])
        if self._check(own) is not None:
            return own
        manifest, folder = self.manifest(artifact), self.local(artifact)
        lock = self._lock_file(own.stage, own.digest)
        with exclusive(lock, f"{own.stage} {own.short}") as holder:
            if self._check(own) is not None:  # another process was first
                return own
            workspace = self.scratch / ".work" / own.stage / own.digest
            shutil.rmtree(workspace, ignore_errors=True)
            self._shelf.prepare(own.stage, own.digest, [])
            for file in manifest["files"]:
                target = workspace / file["path"]
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(folder / file["path"], target)
                fsync_file(target)
            copied = {name: value for name, value in manifest.items() if name != "root"}  # where the other store put it
            write_json_atomic(workspace / MANIFEST, copied)
            holder.check()
            self._shelf.publish(workspace, copied)
        log.info("%s is now in %s, too", artifact.url, self.url)
        return own

    def sync_partial(self, recipe: Recipe, workspace: Path) -> None:
        """Mirror an unfinished workspace, so that another host can go on from its checkpoints.

        Incremental: a file that the mirror has (by content) is not sent again. Does nothing for a local store. An
        object store that cannot be reached is a warning.
        """
        try:
            self._shelf.save_partial(recipe.stage, recipe.digest, workspace)
        except Exception:  # whatever the client library raises: an insurance must not end the work that it insures
            log.warning("%s: could not mirror %s; the work goes on", self.url, workspace, exc_info=True)

    # --- inside

    def _home(self, artifact: Artifact) -> Shelf:
        check_name(artifact.stage, artifact.digest)
        root = artifact.url.rstrip("/").removesuffix(f"/{artifact.stage}/{artifact.digest}")
        return self._shelf if root == self.url else _shelf(root)

    def _check(self, artifact: Artifact) -> Manifest | None:
        """The manifest, where it fits its recipe and every file is there with its size."""
        shelf = self._home(artifact)
        manifest = shelf.read(artifact.stage, artifact.digest)
        if manifest is None:
            return None
        problem = problem_of(manifest, artifact.stage, artifact.digest)
        if problem is None:
            sizes = shelf.sizes(artifact.stage, artifact.digest, manifest)
            problem = size_problem(manifest, sizes)
        if problem is not None:
            log.warning("%s is not used: %s", artifact.url, problem)
            return None
        return dict(manifest)

    def _hit(self, recipe: Recipe) -> Built | None:
        artifact = self.artifact(recipe.stage, recipe.digest)
        manifest = self._check(artifact)
        return Built(artifact, manifest, cached=True) if manifest is not None else None

    def _work(
        self,
        recipe: Recipe,
        workspace: Path,
        produce: Callable[[Path], Mapping[str, Any]],
        transient: Collection[str],
    ) -> Manifest:
        fresh = not workspace.exists() and not self._shelf.load_partial(recipe.stage, recipe.digest, workspace)
        workspace.mkdir(parents=True, exist_ok=True)
        (workspace / MANIFEST).unlink(missing_ok=True)
        start = time.monotonic()
        try:
            counts = produce(workspace)
        except InputError:
            if fresh:
                shutil.rmtree(workspace)
            raise
        return seal(workspace, recipe, counts, time.monotonic() - start, transient)

    def _lock_file(self, stage: str, digest: str) -> Path:
        lock = lock_file(self.scratch, stage, digest)
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"--store {self.url}: cannot write {lock.parent} ({error.strerror})") from None
        return lock


def _shelf(url: str) -> Shelf:
    """The local folder or remote place of an address."""
    refuse_password(url)
    url = url.rstrip("/") or "/"
    if url.startswith("file://"):
        url = url.removeprefix("file://")
    if "://" in url or "::" in url:
        return RemoteShelf(url)
    root = Path(url).expanduser().absolute()
    if root.exists() and not root.is_dir():
        raise InputError(f"--store {url}: found a file, expected a folder")
    return LocalShelf(root)
