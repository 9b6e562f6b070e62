"""A store behind an fsspec URL (`s3://bucket/prefix`): work happens in a local folder, finished files are sent.

Object stores have no rename and no locks. So every attempt uploads into a folder of its own below the artifact, and
the manifest, written last and only if there is none, names that folder: of two hosts that finish the same recipe at
once one wins, the other adopts its result, and no reader ever sees a mixture.

Unfinished workspaces are mirrored as blobs named by their content, plus one index: another host goes on from there.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from gptcore.base.errors import InputError
from gptcore.base.files import parse_json, sha256_file, sha256_json, write_json_atomic
from gptcore.base.filesystems import names_in, opened, require_address
from tasks.store.locks import exclusive
from tasks.store.manifest import (
    MANIFEST,
    CorruptArtifact,
    Manifest,
    corrupt,
    damage,
    damage_once,
    is_safe,
    part_of,
    problem_of,
    size_problem,
)
from tasks.store.records import manifests, mark, read_small, remove, share
from tasks.store.state import FileDigests, state_folder

log = logging.getLogger(__name__)
_INDEX = "index.json"
_AT_ONCE = 8  # files sent


def scratch_folder(root: str) -> Path:
    """Where this machine works for the store at ``root`` and keeps copies of its artifacts."""
    return state_folder() / "remote" / sha256_json(root)[:16]


class RemoteShelf:
    """Artifacts in an object store. Connections open on first use, in the process that uses them."""

    def __init__(self, url: str) -> None:
        """:raises InputError: a protocol that fsspec does not know, or whose package is not installed."""
        self.root = url.rstrip("/")
        self._file_system, base = opened(self.root, f"--store {url}")
        if isinstance(self._file_system, LocalFileSystem):
            raise InputError(f"--store {url}: found a local address, expected it without the protocol")
        self._base = base.rstrip("/")
        self.scratch = scratch_folder(self.root)
        self._digests = FileDigests()  # checkpoints are big: what was sent is read again only where it has changed

    @property
    def _fs(self) -> Any:
        """The file system; raises InputError where the server is silent, refuses the key or has no such bucket."""
        require_address(self.root, "--store")
        return self._file_system

    # --- finished artifacts

    def read(self, stage: str, digest: str) -> Any | None:
        """The parsed manifest, unchecked; None where there is none."""
        manifest = self._read_json(f"{self._base}/{stage}/{digest}/{MANIFEST}")
        rootless = isinstance(manifest, dict) and not isinstance(manifest.get("root"), str)
        return "unreadable: it names no folder of files" if rootless else manifest

    def manifests(self, stage: str) -> dict[str, Manifest | str]:
        """One listing, and what of it this host has not read before; see :mod:`tasks.store.records`."""
        with self._reaching():
            return manifests(self._fs, self._base, stage, self.scratch)

    def sizes(self, stage: str, digest: str, manifest: Manifest) -> dict[str, int]:
        """One listing of the attempt's folder, not one request a file."""
        folder = self._files(stage, digest, manifest)
        self._fs.invalidate_cache()  # another host may have written since
        listing = self._fs.find(folder, detail=True, withdirs=False)
        return {path.removeprefix(f"{folder}/"): info["size"] for path, info in listing.items()}

    def damage(self, stage: str, digest: str, manifest: Manifest) -> str | None:
        """None: object stores keep checksums of their own, and this host's copy is compared before it is read."""
        return None

    def read_file(self, stage: str, digest: str, manifest: Manifest, path: str) -> bytes:
        """One listed file, from this host's copy where that has it."""
        if (copy := self.cached(stage, digest, path)) is not None:
            return copy.read_bytes()
        data: bytes = self._fs.cat_file(f"{self._files(stage, digest, manifest)}/{path}")
        return data

    def names(self, stage: str = "") -> list[str]:
        """Names of what lies in the folder of one stage, complete or not, or in the store's own."""
        self._fs.invalidate_cache()
        with self._reaching():
            return names_in(self._fs, f"{self._base}/{stage}" if stage else self._base)

    def publish(self, workspace: Path, manifest: Manifest) -> Manifest:
        """Upload every file, several at once, then the manifest; the workspace becomes this host's copy.

        :returns: the manifest that holds.
        """
        stage, digest = manifest["stage"], manifest["digest"]
        mine: Manifest = {**manifest, "root": f"files-{uuid.uuid4().hex[:12]}"}
        folder = self._files(stage, digest, mine)
        names = [file["path"] for file in mine["files"]]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for _ in pool.map(lambda name: self._fs.put_file(str(workspace / name), f"{folder}/{name}"), names):
                pass  # an error ends it here, and what has not begun is not sent
        holds = self._claim(stage, digest, mine)
        if holds["root"] == mine["root"]:
            mark(self._fs, self._base, mine)
            write_json_atomic(workspace / MANIFEST, mine)
            self._keep(workspace, self._copy(stage, digest))
            try:
                share(self._fs, self._base, mine, self.scratch)
            except Exception:  # whatever the client library raises: the artifact is there, look-ups are only slower
                log.warning("%s: the manifests of %s were not packed", self.root, stage, exc_info=True)
        else:  # another host was first; its bytes are the artifact, also where ours came out different
            remove(self._fs, folder)
            shutil.rmtree(workspace)
        remove(self._fs, self._partial(stage, digest))
        return holds

    def local(self, stage: str, digest: str, manifest: Manifest, part: str) -> Path:
        """This host's verified copy of a part; what it lacks is downloaded by one process while others wait.

        :raises CorruptArtifact: where bytes are not what the manifest says.
        """
        copy = self._copy(stage, digest)
        with exclusive(self.scratch / ".locks" / f"download-{stage}-{digest}", f"download of {stage} {digest[:12]}"):
            if self.cached(stage, digest, part) is None:
                self._fetch(stage, digest, manifest, part)
        return copy / part

    def cached(self, stage: str, digest: str, part: str) -> Path | None:
        """A part of this host's copy where all of it is there, down to its bytes; else None."""
        copy, known = self._copy(stage, digest), self._copied(stage, digest)
        if known is None:
            return None
        asked = part_of(known, part)
        if (part and not asked["files"]) or not all((copy / file["path"]).is_file() for file in asked["files"]):
            return None  # nobody has asked for it yet
        if problem := damage_once(copy, asked):
            log.warning("this host's copy is fetched again: %s: %s", copy, problem)
            return None
        return copy / part

    def _copied(self, stage: str, digest: str) -> Manifest | None:
        """The manifest of this host's copy, which may lack files that it lists; None where there is no copy."""
        try:
            manifest = json.loads((self._copy(stage, digest) / MANIFEST).read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        return manifest if problem_of(manifest, stage, digest) is None else None

    def _fetch(self, stage: str, digest: str, manifest: Manifest, part: str) -> None:
        """Bring what this host's copy lacks of a part; nothing lies in the copy that has not been compared before."""
        copy, known = self._copy(stage, digest), self._copied(stage, digest)
        grows = known is not None and all(known.get(key) == manifest.get(key) for key in ("root", "files"))
        asked = part_of(manifest, part)["files"]
        lacking = [file for file in asked if not grows or damage_once(copy, {"files": [file]})]
        arriving = self.scratch / ".arriving" / stage / digest
        shutil.rmtree(arriving, ignore_errors=True)  # what a killed download left
        folder = self._files(stage, digest, manifest)
        for file in lacking:
            (arriving / file["path"]).parent.mkdir(parents=True, exist_ok=True)
        paths = [file["path"] for file in lacking]  # several at a time, where the client can
        self._fs.get([f"{folder}/{path}" for path in paths], [str(arriving / path) for path in paths])
        arriving.mkdir(parents=True, exist_ok=True)
        if problem := damage(arriving, {**manifest, "files": lacking}):
            raise corrupt(f"{self.root}/{stage}/{digest}", problem)
        if not grows:  # none, a broken one, or that of an attempt whose bytes this one's must not be mixed with
            write_json_atomic(arriving / MANIFEST, manifest)
            self._keep(arriving, copy)
            return
        for file in lacking:
            target = copy / file["path"]
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(arriving / file["path"], target)
        shutil.rmtree(arriving)

    # --- unfinished workspaces

    def prepare(self, stage: str, digest: str, inputs: Sequence[str]) -> None:
        """Fail before hours of work rather than after them, and tell other hosts what that work reads.

        :raises InputError: where the store cannot be written.
        """
        try:
            with self._reaching():
                self.refresh(stage, digest, inputs)
        except OSError as error:  # no such bucket, no route, no space: each client has its own words
            raise InputError(f"--store {self.root}: cannot be written ({error})") from None

    def refresh(self, stage: str, digest: str, inputs: Sequence[str]) -> None:
        """Write down what the work reads: how old that note is tells other hosts whether the work goes on."""
        self._fs.pipe_file(f"{self._partial(stage, digest)}/started", "\n".join(inputs).encode())

    def save_partial(self, stage: str, digest: str, workspace: Path) -> None:
        """Send what is new, then an index of everything, then drop what no index names any more.

        Files that change or vanish meanwhile (a pruned checkpoint) are left out: the trainer skips checkpoints that
        are not whole, and its metrics are cut to the checkpoint that it goes on from.
        """
        base = self._partial(stage, digest)
        self._fs.invalidate_cache()
        there = {path.rpartition("/")[2] for path in self._fs.find(f"{base}/blobs")}
        index = {}
        for path in sorted(path for path in workspace.rglob("*") if path.is_file()):
            name = path.relative_to(workspace).as_posix()
            if any(part.startswith(".") for part in name.split("/")):
                continue
            try:
                blob = self._digests.sha256(path)
                if blob not in there:
                    self._fs.put_file(str(path), f"{base}/blobs/{blob}")
                if self._digests.sha256(path) == blob:
                    index[name] = blob
            except FileNotFoundError:
                log.debug("%s vanished while it was being mirrored", path)
        self._fs.pipe_file(f"{base}/{_INDEX}", json.dumps(index, sort_keys=True).encode())
        for blob in there - set(index.values()):
            remove(self._fs, f"{base}/blobs/{blob}")

    def load_partial(self, stage: str, digest: str, workspace: Path) -> bool:
        """Fill an absent workspace from the mirror, all of it or nothing; False where there is none that is whole."""
        base = self._partial(stage, digest)
        index = self._read_json(f"{base}/{_INDEX}")
        if not isinstance(index, dict) or not index:
            return False
        arriving = self.scratch / ".arriving" / f"partial-{stage}" / digest
        shutil.rmtree(arriving, ignore_errors=True)
        try:
            for name, blob in index.items():
                if not is_safe(name) or not isinstance(blob, str):
                    raise CorruptArtifact(f"the index lists the path {name!r}")
                target = arriving / name
                target.parent.mkdir(parents=True, exist_ok=True)
                self._fs.get_file(f"{base}/blobs/{blob}", str(target))
                if sha256_file(target) != blob:
                    raise CorruptArtifact(f"{name} has other bytes than the index says")
        except (CorruptArtifact, FileNotFoundError) as error:
            log.warning("%s: the mirror is not used, the stage starts anew: %s", base, error)
            return False
        workspace.parent.mkdir(parents=True, exist_ok=True)
        os.rename(arriving, workspace)
        return True

    # --- inside

    def _claim(self, stage: str, digest: str, mine: Manifest) -> Manifest:
        """Write the manifest unless a valid one is there by now; return the one that holds."""
        path = f"{self._base}/{stage}/{digest}/{MANIFEST}"
        data = json.dumps(mine, sort_keys=True, indent=2, ensure_ascii=False).encode()
        try:
            self._fs.pipe_file(path, data, mode="create")
        except OSError:  # FileExistsError, or what a client makes of S3's "precondition failed" (s3fs: EINVAL)
            if not self._fs.exists(path):
                raise
            theirs = self.read(stage, digest)
            sound = problem_of(theirs, stage, digest) is None
            if isinstance(theirs, dict) and sound and not size_problem(theirs, self.sizes(stage, digest, theirs)):
                return theirs
            self._fs.pipe_file(path, data)  # a broken one: this attempt repairs the artifact
        return mine

    def _files(self, stage: str, digest: str, manifest: Manifest) -> str:
        return f"{self._base}/{stage}/{digest}/{manifest['root']}"

    def _partial(self, stage: str, digest: str) -> str:
        return f"{self._base}/.partial/{stage}/{digest}"

    def _copy(self, stage: str, digest: str) -> Path:
        return self.scratch / stage / digest

    def _keep(self, folder: Path, copy: Path) -> None:
        """Make ``folder`` this host's copy, in place of a broken one."""
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(copy, ignore_errors=True)
        os.rename(folder, copy)

    def _read_json(self, path: str) -> Any | None:
        try:
            with self._reaching():
                data = read_small(self._fs, path)
        except FileNotFoundError:
            return None
        try:
            return parse_json(data)
        except ValueError as error:
            return f"unreadable: {error}"

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Say in one line that the store may not be used, in place of a client library's pages."""
        try:
            yield
        except PermissionError as error:
            raise InputError(f"--store {self.root}: permission denied ({error})") from None
