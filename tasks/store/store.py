"""The content-addressed store: the one mechanism that is cache, resume, versioning and lineage.

An artifact is the folder `<store>/<stage>/<digest>/`; its files come first, `manifest.json` last, so that a manifest's
existence means complete. `Store.build` skips what is there, and otherwise lets the caller work in a workspace that
has a fixed place per digest and survives crashes: a job that was killed finds its checkpoints again.

What holds after a crash at any moment: either no manifest (the workspace waits to be resumed) or a valid artifact.
Locks hold between processes of one host and between hosts that share a folder (`tasks.store.locks`); none can go stale.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gptcore.base.errors import InputError
from gptcore.base.files import fsync_file, write_json_atomic
from tasks.store import leases
from tasks.store.artifact import Artifact, Recipe
from tasks.store.locks import exclusive, lock_file
from tasks.store.lookup import Lookup
from tasks.store.manifest import MANIFEST, Manifest, drop_unlisted, seal, sealed
from tasks.store.renewal import Renewal

log = logging.getLogger(__name__)
_REFRESH_SECONDS = 600.0  # a fraction of whatever `gc` may call young (`--older-than`, in hours)


@dataclass(frozen=True)
class Built:
    """What :meth:`Store.build` hands back."""

    artifact: Artifact
    manifest: Manifest
    cached: bool
    """True: it was there already, nothing was computed."""


class Store(Lookup):
    """Artifacts under one address: a local folder or any fsspec URL (`s3://bucket/prefix`, `memory://x`).

    How they are found and read is :class:`tasks.store.lookup.Lookup`'s.
    """

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
