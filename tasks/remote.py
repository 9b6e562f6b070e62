"""A store behind an fsspec URL (`s3://bucket/prefix`): work happens in a local scratch folder, finished files are sent.

Object stores have no rename and no locks. So every attempt uploads into a folder of its own below the artifact and
the manifest, written last, names that folder: two hosts that finish the same recipe at once both end well, and the
manifest that lands last points at files that are all its own.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from gptcore.errors import InputError
from gptcore.files import sha256_file, sha256_json, write_json_atomic
from tasks.manifest import MANIFEST

_PARTIAL = ".partial"
_INDEX = "index.json"


class RemoteShelf:
    """See :class:`tasks.store.Shelf`. Connections open on first use, in the process that uses them."""

    def __init__(self, url: str) -> None:
        """:raises InputError: a protocol that fsspec does not know, or whose package is not installed."""
        self.root = url.rstrip("/")
        try:
            self._fs, self._base = fsspec.core.url_to_fs(self.root)
        except (ValueError, ImportError) as error:
            raise InputError(f"--store {url}: {error}") from None
        if isinstance(self._fs, LocalFileSystem):
            raise InputError(f"--store {url}: found a local address, expected it without the protocol")
        cache = Path(os.environ.get("GPTMILL_CACHE", Path.home() / ".cache" / "gptmill"))
        self.scratch = cache / sha256_json(self.root)[:16]

    def read(self, stage: str, digest: str) -> Any | None:
        """The parsed manifest, unchecked; None where there is none."""
        return self._read_json(f"{self._base}/{stage}/{digest}/{MANIFEST}")

    def sizes(self, stage: str, digest: str, manifest: dict[str, Any]) -> dict[str, int]:
        """One listing of the attempt's folder, not one request a file."""
        folder = self._files(stage, digest, manifest)
        found = self._fs.find(folder, detail=True, withdirs=False)
        return {path.removeprefix(f"{folder}/"): info["size"] for path, info in found.items()}

    def digests(self, stage: str) -> list[str]:
        """Names of the folders of one stage."""
        try:
            return [path.rstrip("/").rpartition("/")[2] for path in self._fs.ls(f"{self._base}/{stage}", detail=False)]
        except FileNotFoundError:
            return []

    def publish(self, workspace: Path, manifest: dict[str, Any]) -> None:
        """Upload every file, then the manifest; then the workspace becomes this host's cached copy."""
        stage, digest = manifest["stage"], manifest["digest"]
        manifest["root"] = f"files-{uuid.uuid4().hex[:12]}"
        folder = self._files(stage, digest, manifest)
        for file in manifest["files"]:
            self._put(workspace / file["path"], f"{folder}/{file['path']}")
        write_json_atomic(workspace / MANIFEST, manifest)
        self._put(workspace / MANIFEST, f"{self._base}/{stage}/{digest}/{MANIFEST}")
        self._keep(workspace, self._copy(stage, digest))
        partial = f"{self._base}/{_PARTIAL}/{stage}/{digest}"
        if self._fs.exists(partial):
            self._fs.rm(partial, recursive=True)

    def local(self, stage: str, digest: str, manifest: dict[str, Any]) -> Path:
        """Download into the cache, checking every file; a file that does not fit its checksum is an error."""
        if copy := self.cached(stage, digest):
            return copy
        arriving = self.scratch / ".arriving" / f"{stage}-{digest}-{uuid.uuid4().hex[:8]}"
        folder = self._files(stage, digest, manifest)
        for file in manifest["files"]:
            target = arriving / file["path"]
            target.parent.mkdir(parents=True, exist_ok=True)
            self._fs.get_file(f"{folder}/{file['path']}", str(target))
            if (found := sha256_file(target)) != file["sha256"]:
                shutil.rmtree(arriving)
                raise InputError(
                    f"{self.root}/{stage}/{digest}: {file['path']} has the SHA-256 {found[:12]}, expected {file['sha256'][:12]}"
                )
        write_json_atomic(arriving / MANIFEST, manifest)
        self._keep(arriving, self._copy(stage, digest))
        return self._copy(stage, digest)

    def cached(self, stage: str, digest: str) -> Path | None:
        """This host's verified copy, whose manifest was written last; None where there is none."""
        copy = self._copy(stage, digest)
        return copy if (copy / MANIFEST).is_file() else None

    def save_partial(self, stage: str, digest: str, workspace: Path) -> None:
        """Send the files that changed, then an index of all: another host sees one consistent state."""
        base = f"{self._base}/{_PARTIAL}/{stage}/{digest}"
        known = (self._read_json(f"{base}/{_INDEX}") or {}).values()
        index = {}
        for path in sorted(p for p in workspace.rglob("*") if p.is_file()):
            name = path.relative_to(workspace).as_posix()
            if any(part.startswith(".") for part in name.split("/")):
                continue
            index[name] = sha256_file(path)
            if index[name] not in known:
                self._put(path, f"{base}/blobs/{index[name]}")
        self._fs.pipe_file(f"{base}/{_INDEX}", json.dumps(index).encode())

    def load_partial(self, stage: str, digest: str, workspace: Path) -> bool:
        """Fill an empty workspace from the mirror; False where there is none. Blobs are checked against their names."""
        base = f"{self._base}/{_PARTIAL}/{stage}/{digest}"
        index = self._read_json(f"{base}/{_INDEX}")
        if not index:
            return False
        for name, blob in index.items():
            target = workspace / name
            if ".." in Path(name).parts or Path(name).is_absolute():
                raise InputError(f"{self.root}: the mirror of {stage} {digest[:12]} lists the path {name!r}")
            target.parent.mkdir(parents=True, exist_ok=True)
            self._fs.get_file(f"{base}/blobs/{blob}", str(target))
            if sha256_file(target) != blob:
                raise InputError(f"{self.root}: the mirror of {stage} {digest[:12]} is damaged at {name}; delete {base}")
        return True

    def _files(self, stage: str, digest: str, manifest: dict[str, Any]) -> str:
        return f"{self._base}/{stage}/{digest}/{manifest['root']}"

    def _copy(self, stage: str, digest: str) -> Path:
        return self.scratch / stage / digest

    def _keep(self, folder: Path, copy: Path) -> None:
        """Rename ``folder`` to ``copy``; if another process was first, its copy is as good."""
        copy.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.rename(folder, copy)
        except OSError:
            if not (copy / MANIFEST).is_file():
                raise
            shutil.rmtree(folder)

    def _put(self, path: Path, target: str) -> None:
        self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
        self._fs.put_file(str(path), target)

    def _read_json(self, path: str) -> Any | None:
        try:
            return json.loads(self._fs.cat_file(path))
        except FileNotFoundError:
            return None
        except ValueError as error:
            return f"unreadable: {error}"
