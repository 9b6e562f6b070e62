"""The manifest: an artifact's table of contents, and the proof that it is whole.

It lists every file with size and SHA-256, the inputs, the config, counts, the code's version and the duration, and a
checksum of all this, and it is written last. Reading one trusts nothing: shape, paths, recipe, bytes are all checked.
"""

from __future__ import annotations

import logging
import math
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

import gptcore
from gptcore.base.errors import InputError
from gptcore.base.files import fsync_file, fsync_folder, read_json, sha256_file, sha256_json, write_json_atomic
from tasks.store.artifact import Recipe, canonical, recipe_digest
from tasks.store.state import FileDigests

log = logging.getLogger(__name__)
MANIFEST = "manifest.json"
Manifest = dict[str, Any]
_REBUILD = "delete this folder and run again to rebuild it"
_SHA256 = re.compile(r"[0-9a-f]{64}")


class CorruptArtifact(InputError):
    """Files of a stored artifact are not those that its manifest lists."""


def seal(
    workspace: Path, recipe: Recipe, counts: Mapping[str, Any], seconds: float, transient: Collection[str] = ()
) -> Manifest:
    """Hash and flush the files of a finished workspace, then write its manifest there.

    Names that start with a dot are scratch and are not listed. They still lie there (:func:`drop_unlisted`): what an
    interrupted run would go on from may go only once the manifest says that there is nothing left to do.

    :param transient: names at the workspace's top that are not listed either.
    :raises ValueError: where a symbolic link was left: an artifact holds its own bytes.
    """
    files = []
    for folder, folders, names in os.walk(workspace):
        left_out = transient if Path(folder) == workspace else ()
        folders[:] = [name for name in folders if not name.startswith(".") and name not in left_out]
        for path in (Path(folder, name) for name in names if not name.startswith(".") and name not in left_out):
            if path.is_symlink():
                raise ValueError(f"{path}: a stage left a symbolic link; an artifact holds its own bytes")
            fsync_file(path)
            listed = path.relative_to(workspace).as_posix()
            files.append({"path": listed, "size": path.stat().st_size, "sha256": sha256_file(path)})
        fsync_folder(folder)
    manifest = {
        "stage": recipe.stage,
        "version": recipe.version,
        "digest": recipe.digest,
        "config": canonical(recipe.config),
        "inputs": {
            role: {"digest": item} if isinstance(item, str) else {"stage": item.stage, "digest": item.digest}
            for role, item in recipe.inputs.items()
        },
        "files": sorted(files, key=lambda file: str(file["path"])),
        "counts": _finite(counts),
        "code": code_version(),
        "created": datetime.now(UTC).isoformat(timespec="microseconds"),
        "duration_seconds": round(seconds, 3),
    }
    manifest["checksum"] = _checksum(manifest)
    write_json_atomic(workspace / MANIFEST, manifest)
    return manifest


def sealed(workspace: Path, recipe: Recipe) -> Manifest | None:
    """The manifest of a workspace whose builder was killed between sealing and publishing; None for any other."""
    try:
        manifest = read_json(workspace / MANIFEST)
    except FileNotFoundError:
        return None
    except ValueError as error:
        log.warning("%s: its manifest is unreadable (%s); the stage is resumed", workspace, error)
        return None
    if problem := problem_of(manifest, recipe.stage, recipe.digest) or damage(workspace, manifest):
        log.warning("%s: %s; the stage is resumed", workspace, problem)
        return None
    return dict(manifest)


def drop_unlisted(workspace: Path, manifest: Manifest) -> None:
    """Delete what a sealed workspace holds beside the files that its manifest lists."""
    listed = [PurePosixPath(file["path"]) for file in manifest["files"]]
    kept = {MANIFEST, *map(str, listed), *(str(parent) for path in listed for parent in path.parents)}
    for folder, folders, names in os.walk(workspace):
        for path in (Path(folder, name) for name in [*folders, *names]):
            if path.relative_to(workspace).as_posix() in kept:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        folders[:] = [name for name in folders if Path(folder, name).is_dir()]


def problem_of(manifest: Any, stage: str, digest: str) -> str | None:
    """Why ``manifest`` cannot be that of `<stage>/<digest>`, in words; None where it can.

    Shape, safe relative paths (a manifest from a shared bucket must not make us read or write elsewhere), the recipe
    it states giving the digest it lies under, and the checksum of all that it says (one of a former version has none).
    """
    if not isinstance(manifest, Mapping):
        return f"its manifest is no JSON object ({str(manifest)[:80]})"
    try:
        inputs = {role: item["digest"] for role, item in manifest["inputs"].items()}
        made = recipe_digest(manifest["stage"], manifest["version"], manifest["config"], inputs)
        if (manifest["stage"], made, manifest["digest"]) != (stage, digest, digest):
            return f"its recipe has the digest {made[:12]}, expected {digest[:12]}"
        for file in manifest["files"]:
            if not is_safe(file["path"]):
                return f"it lists the path {file['path']!r}, expected a relative path inside the artifact"
            if not (isinstance(file["size"], int) and file["size"] >= 0 and _SHA256.fullmatch(file["sha256"])):
                return f"its entry for {file['path']} has no size and SHA-256"
        if (root := manifest.get("root")) is not None and not is_safe(root):
            return f"its root is {root!r}, expected a folder inside the artifact"
        if not isinstance(manifest["created"], str) or not isinstance(manifest["counts"], Mapping):
            return "its creation time is no text or its counts are no object"
        if (stated := manifest.get("checksum")) is not None and stated != (checksum := _checksum(manifest)):
            return f"its own content has the SHA-256 {checksum[:12]}, expected {str(stated)[:12]}"
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        return f"it is not a manifest ({type(error).__name__}: {error})"
    return None


def _checksum(manifest: Mapping[str, Any]) -> str:
    """SHA-256 of what a manifest says, wherever its artifact lies: a remote shelf adds its folder of files (`root`)."""
    return sha256_json({name: value for name, value in manifest.items() if name not in ("checksum", "root")})


def is_safe(path: Any) -> bool:
    """Whether ``path`` names a place inside a folder: relative, `/` only, no `..`, and not the manifest itself."""
    if not isinstance(path, str) or not path or "\\" in path or "\0" in path or path == MANIFEST:
        return False
    return "/".join(PurePosixPath(path).parts) == path and ".." not in path.split("/") and not path.startswith("/")


def part_of(manifest: Manifest, part: str) -> Manifest:
    """The manifest with no other files than ``part``: one path, or all that lie below it; empty: every file."""
    files = manifest["files"]
    return {**manifest, "files": [file for file in files if not part or f"{file['path']}/".startswith(f"{part}/")]}


def size_problem(manifest: Manifest, sizes: Mapping[str, int]) -> str | None:
    """The first listed file that is missing or has another size, in words; None where all fit."""
    for file in manifest["files"]:
        size = sizes.get(file["path"])
        if size is None:
            return f"{file['path']} is missing"
        if size != file["size"]:
            return f"{file['path']} has {size} bytes, expected {file['size']}"
    return None


def local_sizes(folder: Path, manifest: Manifest) -> dict[str, int]:
    """Bytes of each listed file that a local folder has."""
    paths = ((file["path"], folder / file["path"]) for file in manifest["files"])
    return {name: path.stat().st_size for name, path in paths if path.is_file()}


def damage(folder: Path, manifest: Manifest, sha256: Callable[[Path], str] | None = None) -> str | None:
    """The first listed file of a local folder with another size or SHA-256, in words; None where all fit.

    :param sha256: how the SHA-256 of a file is found; None: all of it is read.
    """
    if problem := size_problem(manifest, local_sizes(folder, manifest)):
        return problem
    hashed = ((file, (sha256 or sha256_file)(folder / file["path"])) for file in manifest["files"])
    return next(filter(None, (sha256_problem(file, digest) for file, digest in hashed)), None)


def damage_once(folder: Path, manifest: Manifest) -> str | None:
    """:func:`damage`, a file once for as long as it keeps its inode, size and times, whichever process asks."""
    with FileDigests() as digests:
        return damage(folder, manifest, digests.sha256)


def sha256_problem(file: Mapping[str, Any], sha256: str) -> str | None:
    """The sentence that a listed file has another SHA-256 than the manifest says; None where it has not."""
    if sha256 == file["sha256"]:
        return None
    return f"{file['path']} has the SHA-256 {sha256[:12]}, expected {file['sha256'][:12]}"


def corrupt(name: str, problem: str) -> CorruptArtifact:
    """What is raised where the files of an artifact are not those that its manifest lists: one line."""
    return CorruptArtifact(f"{name}: {problem}; {_REBUILD}")


@lru_cache(maxsize=1)
def code_version() -> dict[str, str | bool | None]:
    """The package's version, and the git commit where the code runs from a checkout (`dirty`: with local changes)."""
    root = Path(gptcore.__file__).resolve().parents[1]  # not of this module: it may move
    version: dict[str, str | bool | None] = {"package": gptcore.__version__, "git": None, "dirty": None}
    if (root / ".git").exists():  # never the commit of some outer repository around an installed package
        try:
            version["git"] = _git(root, "rev-parse", "HEAD")
            version["dirty"] = bool(_git(root, "status", "--porcelain", "--untracked-files=no"))
        except (OSError, subprocess.SubprocessError):
            return {**version, "git": None, "dirty": None}  # no git program, or a broken checkout: the version stays
    return version


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=20).stdout.strip()


def _finite(value: Any) -> Any:
    """``value`` with None for each NaN or infinity: a diverged metric must not lose a manifest of hours of work."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
