"""Where artifacts lie: what every kind of place can do, and which one an address names."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gptcore.base.addresses import refuse_password
from gptcore.base.errors import require
from gptcore.base.files import fsync_folder, read_json
from tasks.store.artifact import is_digest
from tasks.store.manifest import MANIFEST, Manifest, corrupt, damage_once, local_sizes, part_of, problem_of
from tasks.store.remote import RemoteShelf


class LocalShelf:
    """Artifacts in a local folder. Publishing is one rename inside the store."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.scratch = root

    def read(self, stage: str, digest: str) -> Any | None:
        """The parsed manifest, unchecked; None where there is none."""
        try:
            return read_json(Path(self.root, stage, digest, MANIFEST))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError as error:
            return f"unreadable: {error}"

    def manifests(self, stage: str) -> dict[str, Manifest | str]:
        """By digest, of every artifact of one stage that has a manifest: that, or what is wrong with it in words."""
        manifests: dict[str, Manifest | str] = {}
        for digest in filter(is_digest, self.names(stage)):
            if (manifest := self.read(stage, digest)) is not None:
                problem = problem_of(manifest, stage, digest)
                manifests[digest] = manifest if problem is None else problem
        return manifests

    def sizes(self, stage: str, digest: str, manifest: Manifest) -> dict[str, int]:
        """Bytes of each file that the artifact has, by the manifest's paths."""
        return local_sizes(Path(self.root, stage, digest), manifest)

    def damage(self, stage: str, digest: str, manifest: Manifest) -> str | None:
        """What is wrong with the bytes of the first file that has others than listed, in words; None where none has.

        A file is read once for as long as it keeps its inode, size and times, whichever process asks.
        """
        return damage_once(Path(self.root, stage, digest), manifest)

    def read_file(self, stage: str, digest: str, manifest: Manifest, path: str) -> bytes:
        """One listed file as it lies there now."""
        return Path(self.root, stage, digest, path).read_bytes()

    def names(self, stage: str = "") -> list[str]:
        """Names of what lies in the folder of one stage, complete or not, or in the store's own."""
        path = Path(self.root, stage)
        return [item.name for item in path.iterdir()] if path.is_dir() else []

    def prepare(self, stage: str, digest: str, inputs: Sequence[str]) -> None:
        """Nothing to do: opening the lock file in the store was the proof."""

    def refresh(self, stage: str, digest: str, inputs: Sequence[str]) -> None:
        """Nothing to do: what the workspace holds is as young as the work."""

    def publish(self, workspace: Path, manifest: Manifest) -> Manifest:
        """Make a sealed workspace the artifact, in one step that either happened or did not.

        Returns the manifest that holds: another host may have been first.
        """
        target = Path(self.root, manifest["stage"], manifest["digest"])
        target.parent.mkdir(parents=True, exist_ok=True)
        discarded = workspace.with_name(workspace.name + ".discarded")
        shutil.rmtree(discarded, ignore_errors=True)
        if target.exists():  # only ever a broken artifact: a valid one would have been found
            os.rename(target, discarded)
        os.rename(workspace, target)
        fsync_folder(target.parent)
        shutil.rmtree(discarded, ignore_errors=True)
        return manifest

    def local(self, stage: str, digest: str, manifest: Manifest, part: str) -> Path:
        """A local path with the files of a part of the artifact; see :meth:`tasks.store.store.Store.local`."""
        folder = Path(self.root, stage, digest)
        if problem := damage_once(folder, part_of(manifest, part)):
            raise corrupt(str(folder), problem)
        return folder / part

    def save_partial(self, stage: str, digest: str, workspace: Path) -> None:
        """Nothing to do: the workspace lies in the store itself."""

    def load_partial(self, stage: str, digest: str, workspace: Path) -> bool:
        """False: the workspace lies in the store itself, where nothing else was saved."""
        return False


Shelf = LocalShelf | RemoteShelf
"""Where artifacts lie; both can do the same."""


def shelf_at(url: str) -> Shelf:
    """The local folder or remote place of an address.

    :raises InputError: where the address names a file, or a protocol that fsspec does not know.
    """
    refuse_password(url)
    url = url.rstrip("/") or "/"
    if url.startswith("file://"):
        url = url.removeprefix("file://")
    if "://" in url or "::" in url:
        return RemoteShelf(url)
    root = Path(url).expanduser().absolute()
    require(root.is_dir() or not root.exists(), f"--store {url}: found a file, expected a folder")
    return LocalShelf(root)
