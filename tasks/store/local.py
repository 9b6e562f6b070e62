"""A store in a local folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gptcore.base.files import fsync_folder, read_json, sha256_file
from tasks.store.artifact import is_digest, is_stage
from tasks.store.manifest import MANIFEST, Manifest, local_sizes, part_of, problem_of, verify_once


class LocalShelf:
    """See :class:`tasks.store.shelf.Shelf`. Publishing is one rename inside the store."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.scratch = root

    def read(self, stage: str, digest: str) -> Any | None:
        try:
            return read_json(Path(self.root, stage, digest, MANIFEST))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError as error:
            return f"unreadable: {error}"

    def manifests(self, stage: str) -> dict[str, Manifest | str]:
        found: dict[str, Manifest | str] = {}
        for digest in filter(is_digest, self.digests(stage)):
            if (manifest := self.read(stage, digest)) is not None:
                problem = problem_of(manifest, stage, digest)
                found[digest] = manifest if problem is None else problem
        return found

    def sizes(self, stage: str, digest: str, manifest: Manifest) -> dict[str, int]:
        return local_sizes(Path(self.root, stage, digest), manifest)

    def sha256(self, stage: str, digest: str, manifest: Manifest, path: str) -> str:
        return sha256_file(Path(self.root, stage, digest, path))

    def read_file(self, stage: str, digest: str, manifest: Manifest, path: str) -> bytes:
        return Path(self.root, stage, digest, path).read_bytes()

    def stages(self) -> list[str]:
        return sorted(filter(is_stage, self._names("")))

    def digests(self, stage: str) -> list[str]:
        return self._names(stage)

    def _names(self, folder: str) -> list[str]:
        path = Path(self.root, folder)
        return [item.name for item in path.iterdir()] if path.is_dir() else []

    def prepare(self, stage: str, digest: str, inputs: Sequence[str]) -> None:
        """Nothing to do: opening the lock file in the store was the proof."""

    def refresh(self, stage: str, digest: str, inputs: Sequence[str]) -> None:
        """Nothing to do: what the workspace holds is as young as the work."""

    def publish(self, workspace: Path, manifest: Manifest) -> Manifest:
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
        folder = Path(self.root, stage, digest)
        verify_once(folder, part_of(manifest, part), str(folder))
        return folder / part

    def save_partial(self, stage: str, digest: str, workspace: Path) -> None:
        """Nothing to do: the workspace lies in the store itself."""

    def load_partial(self, stage: str, digest: str, workspace: Path) -> bool:
        return False
