"""Artifacts for tests of stores: made, looked at, and spoilt behind the store's back."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec

from tasks.store import presence
from tasks.store.artifact import Artifact
from tasks.store.manifest import MANIFEST, sha256_problem
from tasks.store.store import Store


def writes(**files: str) -> Callable[[Path], dict[str, Any]]:
    """Leaves these files in a workspace; ``__`` in a name is a slash."""

    def produce(workspace: Path) -> dict[str, Any]:
        for name, text in files.items():
            path = workspace / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return {"files": len(files)}

    return produce


def never(workspace: Path) -> dict[str, Any]:
    raise AssertionError("computed twice")


def files_in(folder: Path) -> dict[str, str]:
    """Path -> text of what lies below a folder, but for its manifest."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST]
    return {path.relative_to(folder).as_posix(): path.read_text() for path in paths}


def files_of(store: Store, artifact: Artifact) -> dict[str, str]:
    return files_in(store.local(artifact))


def overwrite(store: Store, artifact: Artifact, name: str, text: str) -> None:
    """Change a stored file behind the store's back."""
    fs, base = fsspec.core.url_to_fs(artifact.url)
    root = "" if name == MANIFEST else store.manifest(artifact).get("root", "")
    fs.pipe_file("/".join(part for part in (base, root, name) if part), text.encode())


def verify(store: Store, artifact: Artifact) -> None:
    """Every byte of an artifact, where it lies, is what its manifest says."""
    manifest = store.manifest(artifact)
    for file in manifest["files"]:
        with fsspec.open("/".join(filter(None, (artifact.url, manifest.get("root"), file["path"])))) as there:
            assert sha256_problem(file, hashlib.sha256(there.read()).hexdigest()) is None


@contextmanager
def bucket() -> Iterator[str]:
    """The address of a fresh store in memory."""
    name = f"store-{uuid.uuid4().hex}"
    fs = fsspec.filesystem("memory")
    fs.pipe_file(f"/{name}/deep/.here", b"")
    yield f"memory://{name}/deep"
    fs.rm(f"/{name}", recursive=True)


def forget() -> None:
    """Make this process look as if it had ended: what it noted is nobody's any more."""
    for held in presence._held.values():
        held.close()
    presence._held.clear()
