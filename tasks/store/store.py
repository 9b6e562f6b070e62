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
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

from gptcore.base.errors import InputError, require, unwritable
from gptcore.base.files import fsync_file, require_room, write_json_atomic
from tasks.store.artifact import Artifact, Recipe, check_name, is_digest, is_stage
from tasks.store.locks import Renewal, exclusive, lock_file
from tasks.store.manifest import (
    MANIFEST,
    Manifest,
    corrupt,
    drop_unlisted,
    part_of,
    problem_of,
    seal,
    sealed,
    sha256_problem,
    size_problem,
)
from tasks.store.presence import note
from tasks.store.records import Record
from tasks.store.remote import RemoteShelf
from tasks.store.shelf import Shelf, shelf_at

log = logging.getLogger(__name__)
_DIGITS = re.compile(r"[0-9a-f]{4,64}")
"""A digest or the beginning of one, long enough to mean something."""
_MADE_BY = {"finetune": "`gptmill finetune TASK`", "adapt": "`gptmill abstracts`"}
"""Stage -> the command that makes its artifacts, where `gptmill pipeline` does not."""
_REFRESH_SECONDS = 600.0  # a fraction of whatever `gc` may call young (`--older-than`, in hours)


@dataclass(frozen=True)
class Built:
    """What :meth:`Store.build` hands back."""

    artifact: Artifact
    manifest: Manifest
    cached: bool
    """True: it was there already, nothing was computed."""

    @property
    def counts(self) -> dict[str, Any]:
        """What the manifest counts."""
        return dict(self.manifest["counts"])


class Store:
    """Artifacts under one address: a local folder or any fsspec URL (`s3://bucket/prefix`, `memory://x`)."""

    def __init__(self, url: str | os.PathLike[str]) -> None:
        """Open a store; raises InputError where ``url`` names a file, or a protocol that fsspec does not know."""
        self._shelf: Shelf = shelf_at(os.fspath(url))
        self.url = self._shelf.root

    @property
    def scratch(self) -> Path:
        """The local folder of its workspaces and locks: the store's own, or one of the state folder."""
        return self._shelf.scratch

    def __reduce__(self) -> tuple[type[Store], tuple[str]]:
        # connections stay behind: a fresh process opens its own (s3fs hangs across a fork)
        return type(self), (self.url,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

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
            except that an InputError leaves nothing that this call created). :class:`tasks.store.locks.LostLock`:
            another host has taken this process for dead, after minutes without a sign of life.
        """
        inputs = [f"{item.stage}/{item.digest}" for item in recipe.inputs.values() if isinstance(item, Artifact)]
        note(self.scratch, [f"{recipe.stage}/{recipe.digest}", *inputs])
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
                refresh = partial(self._shelf.refresh, recipe.stage, recipe.digest, inputs)
                with Renewal(refresh, _REFRESH_SECONDS, str(workspace)):
                    manifest = self._work(recipe, workspace, produce, transient)
            holder.check()
            drop_unlisted(workspace, manifest)
            manifest = self._shelf.publish(workspace, manifest)
        return Built(self.artifact(recipe.stage, recipe.digest), manifest, cached=False)

    def adopt(self, artifact: Artifact) -> Artifact:
        """An artifact in this store: of another store's a copy, manifest and all, so no younger than it is there.

        A manifest names its inputs by stage and digest, so what is made here finds them here only.

        :raises InputError: where the artifact is missing; :class:`tasks.store.manifest.CorruptArtifact` where its
            bytes are wrong; :class:`tasks.store.locks.LostLock` as :meth:`build`.
        """
        own = self.artifact(artifact.stage, artifact.digest)
        note(self.scratch, [f"{own.stage}/{own.digest}"])
        if self._check(own) is not None:
            return own
        manifest, folder = self.manifest(artifact), self.local(artifact)
        lock = self._lock_file(own.stage, own.digest)
        with exclusive(lock, f"{own.stage} {own.short}") as holder:
            if self._check(own) is not None:  # another process was first
                return own
            workspace = self.scratch / ".work" / own.stage / own.digest
            shutil.rmtree(workspace, ignore_errors=True)
            workspace.mkdir(parents=True)  # for its manifest: a baseline has no files
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

    # --- looking up

    def artifact(self, stage: str, digest: str) -> Artifact:
        """The record of `<stage>/<digest>` in this store, whether it is there or not."""
        check_name(stage, digest)
        return Artifact(stage, digest, f"{self.url}/{stage}/{digest}")

    def find(self, stage: Recipe | str, digest: str | None = None) -> Artifact | None:
        """The complete artifact of a recipe (or of a stage and a full digest); None where there is none.

        Cheap: the manifest must fit its recipe, and every file it lists be there with its size; of a recipe's, which
        somebody would make otherwise, in a local store with its bytes (:meth:`LocalShelf.damage`).
        """
        if isinstance(stage, Recipe):
            hit = self._hit(stage)
            return hit.artifact if hit else None
        artifact = self.artifact(stage, digest or "")
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

    def stages(self) -> list[str]:
        """The stages that may have artifacts here, sorted."""
        return sorted(filter(is_stage, self._shelf.names()))

    def records(self, stage: str) -> list[Record]:
        """What the manifests of a stage say, newest first.

        Cheap however many there are: no artifact is looked at. That its files are all there is for :meth:`whole` to
        say, of the one that is chosen.
        """
        records = []
        for digest, manifest in self._shelf.manifests(stage).items():
            artifact = self.artifact(stage, digest)
            if isinstance(manifest, str):
                _warn_once(artifact, manifest)
            else:
                records.append(Record(artifact, manifest))
        return sorted(records, key=lambda record: (record.manifest["created"], record.artifact.digest), reverse=True)

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
        names = [start] if is_digest(start) else [name for name in self._shelf.names(stage) if is_digest(name)]
        fitting = [name for name in names if start and name.startswith(start)]
        checked = ((self._check(artifact), artifact) for artifact in (self.artifact(stage, name) for name in fitting))
        whole = [(manifest["created"], artifact) for manifest, artifact in checked if manifest is not None]
        return [artifact for _, artifact in sorted(whole, key=lambda pair: (pair[0], pair[1].digest), reverse=True)]

    def list(self, stage: str) -> list[Artifact]:
        """The complete artifacts of a stage, newest first: every one is looked at, so only for stages of few."""
        return [record.artifact for record in self.newest(stage)]

    def resolve(self, ref: str, stage: str) -> Artifact:
        """The artifact that a person means by ``ref``: `latest`, the start of a digest, or a full address.

        :raises InputError: where none fits, or several do.
        """
        if "/" in ref:
            root, middle, digest = ref.rstrip("/").rpartition(f"/{stage}/")
            require(middle, f"{stage} {ref!r}: expected a digest, latest, or an address ending in /{stage}/<digest>")
            return type(self)(root).resolve(digest, stage)
        if ref == "latest" and (newest := next(self.newest(stage), None)):
            return newest.artifact
        fitting = self.starting(stage, ref)
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            names = ", ".join(artifact.short for artifact in fitting[:5])
            raise InputError(f"{stage} {ref!r}: found {len(fitting)} artifacts ({names}), expected a longer digest")
        raise self.missing(ref, stage)

    @staticmethod
    def made_by(stage: str, manifest: Mapping[str, Any]) -> str:
        """The command that makes an artifact of a stage, for people: ``manifest`` may say of which task."""
        from gptcore.nlu.registry import BEYOND, REGISTRY

        task = str(manifest.get("config", {}).get("task", "TASK"))
        task += "" if task in ("TASK", *REGISTRY, *BEYOND) else ".toml"  # a user's own, by the file that has its name
        return _MADE_BY.get(stage, "`gptmill pipeline`").replace("TASK", task)

    def missing(self, ref: str, *stages: str) -> InputError:
        """What is said where no artifact of the stages is meant by ``ref``: what is there instead.

        An artifact of another stage whose digest begins so; else the newest of these stages.
        """
        expected = " or ".join(filter(None, (", ".join(stages[:-1]), stages[-1])))
        if _DIGITS.fullmatch(ref.lower()):
            others = [name for name in self.stages() if name not in stages and self.starting(name, ref)]
            if others:
                return InputError(f"{ref}: an artifact of the stage {' and of '.join(others)}, expected {expected}")
        newest = [record.artifact.short for stage in stages for record in islice(self.newest(stage), 5)]
        have = ", ".join(newest) or f"none at all; {self.made_by(stages[0], {})} makes one"
        return InputError(f"{expected} {ref!r}: found no such artifact in {self.url}, which has {have}")

    # --- reading

    def local(self, artifact: Artifact, part: str = "") -> Path:
        """A local folder with the artifact's files: the store's own, or this host's copy.

        Whoever asks is about to read them: a process compares them with the manifest the first time. A copy that is
        broken is fetched again.

        :param part: a file or a folder of the artifact, which is all that is fetched and compared, and whose path is
            returned; what lies beside it may be absent. Empty: all of the artifact.
        :raises InputError: where the artifact or the part is missing; :class:`tasks.store.manifest.CorruptArtifact`
            where its bytes are wrong.
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

        :raises InputError: where artifact or file is missing; :class:`tasks.store.manifest.CorruptArtifact` where
            its bytes are wrong.
        """
        shelf, manifest = self._home(artifact), self.manifest(artifact)
        listed = next((file for file in manifest["files"] if file["path"] == path), None)
        if listed is None:
            raise InputError(f"{artifact.url}: found no file {path} in its {MANIFEST}")
        data = shelf.read_file(artifact.stage, artifact.digest, manifest, path)
        if problem := sha256_problem(listed, hashlib.sha256(data).hexdigest()):
            raise corrupt(artifact.url, problem)
        return data

    # --- inside

    def _home(self, artifact: Artifact) -> Shelf:
        check_name(artifact.stage, artifact.digest)
        root = artifact.url.rstrip("/").removesuffix(f"/{artifact.stage}/{artifact.digest}")
        return self._shelf if root == self.url else shelf_at(root)

    def _check(self, artifact: Artifact, bytes_too: bool = False) -> Manifest | None:
        """The manifest, where it fits its recipe and every file is there with its size; what is wrong is told once.

        :param bytes_too: whether the files' bytes count, too.
        """
        shelf = self._home(artifact)
        manifest = shelf.read(artifact.stage, artifact.digest)
        if manifest is None:
            return None
        problem = problem_of(manifest, artifact.stage, artifact.digest)
        if problem is None:
            sizes = shelf.sizes(artifact.stage, artifact.digest, manifest)
            problem = size_problem(manifest, sizes)
        if problem is None and bytes_too:
            problem = shelf.damage(artifact.stage, artifact.digest, manifest)
        if problem is not None:
            _warn_once(artifact, problem)
            return None
        return dict(manifest)

    def _hit(self, recipe: Recipe) -> Built | None:
        artifact = self.artifact(recipe.stage, recipe.digest)
        manifest = self._check(artifact, bytes_too=True)
        return Built(artifact, manifest, cached=True) if manifest is not None else None

    def _work(
        self, recipe: Recipe, workspace: Path, produce: Callable[[Path], Mapping[str, Any]], transient: Collection[str]
    ) -> Manifest:
        require_room(self.scratch)
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
            if unwritable(error):
                raise
            raise InputError(f"--store {self.url}: cannot write {lock.parent} ({error.strerror})") from None
        return lock


@cache
def _warn_once(artifact: Artifact, problem: str) -> None:
    """Say in this process' log that an artifact is not used; whoever looks it up again is not told again."""
    log.warning("%s is not used: %s", artifact.url, problem)
