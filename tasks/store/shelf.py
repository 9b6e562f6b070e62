"""Where artifacts lie: what every kind of place can do, and which one an address names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from gptcore.base.errors import InputError, refuse_password
from tasks.store.local import LocalShelf
from tasks.store.manifest import Manifest
from tasks.store.remote import RemoteShelf


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

    def stages(self) -> list[str]:
        """Names of the folders of stages, whatever lies in them."""

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
        """A local path with the files of a part of the artifact; see :meth:`tasks.store.lookup.Lookup.local`."""

    def save_partial(self, stage: str, digest: str, workspace: Path) -> None:
        """Copy a workspace to where another host finds it."""

    def load_partial(self, stage: str, digest: str, workspace: Path) -> bool:
        """Fill a workspace with what some host saved; False where none did."""


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
    if root.exists() and not root.is_dir():
        raise InputError(f"--store {url}: found a file, expected a folder")
    return LocalShelf(root)
