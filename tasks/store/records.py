"""The manifests of a stage behind an fsspec URL: each is read once, however often and wherever models are looked up.

A manifest changes only where an artifact was deleted and made again, or a damaged one was repaired. So what was read is
kept: in a file of this host's scratch folder, and packed into one object of the store
(`<store>/.manifests/<stage>.json.gz`) for hosts that come new, as pods do: by a host that had to read many, and by
one of some hundred that publish an artifact (:func:`share`).

To tell that a manifest was replaced, whoever publishes one leaves a mark, a folder called by the artifact and by that
attempt's files: `<store>/.manifests/<stage>/<digest>-files-<id>/` (:func:`mark`). A look-up lists the names of the
stage's folders and of its marks. What is kept of an artifact counts only while its folder is there and has the marks
that it had when the manifest was read; an artifact of an older version has none until it is made again. Only manifests
that `problem_of` accepts are kept, without their lists of files and checksums; what another version of the package kept
is read anew, and what other hosts packed is checked for its form.

So a look-up trusts what is kept for the order of artifacts and for the choice among them. That the chosen one is there,
whole and unchanged is never trusted: its manifest and its files' sizes are read when it is handed out (`Store.whole`).
"""

from __future__ import annotations

import gzip
import json
import logging
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gptcore
from gptcore.base.files import parse_json, write_bytes_atomic
from gptcore.base.filesystems import names_in
from tasks.store.artifact import Artifact, is_digest
from tasks.store.manifest import MANIFEST, Manifest, problem_of

log = logging.getLogger(__name__)
_FOLDER = ".manifests"
_MANY = 200  # manifests that one host reads and others should not have to
_ONE_IN = 256
_Kept = dict[str, tuple[str, Manifest]]
"""Digest -> its marks when the manifest was read, and the manifest."""


@dataclass(frozen=True)
class Record:
    """What the manifest of an artifact says, of whose files nothing is known."""

    artifact: Artifact
    manifest: Manifest
    """The manifest, which may lack its list of files."""


def share(fs: Any, base: str, manifest: Manifest, scratch: Path) -> None:
    """Pack what is known of a published artifact's stage, once in :data:`_ONE_IN` artifacts, as their digests fall.

    So a new host reads the manifests of a few hundred one by one, however many there are.
    """
    if int(manifest["digest"][:8], 16) % _ONE_IN == 0:
        manifests(fs, base, manifest["stage"], scratch, pack_all=True)


def manifests(fs: Any, base: str, stage: str, scratch: Path, pack_all: bool = False) -> dict[str, Manifest | str]:
    """Digest -> the manifest, or what is wrong with it in words, of every artifact of a stage that has one.

    :param base: the store's path on ``fs``.
    :param scratch: this host's folder for the store.
    :param pack_all: whether what is kept is packed for other hosts, too, where not much of it was new here.
    """
    states = _states(fs, base, stage)
    file, pack = scratch / _FOLDER / f"{stage}.json", f"{_marks(base, stage)}.json.gz"
    before = _unpacked(file.read_bytes, file)
    kept = _current(before, states)
    if len(states) - len(kept) > _MANY:
        packed = _current(_unpacked(lambda: gzip.decompress(read_small(fs, pack)), pack), states)
        kept |= {
            digest: entry
            for digest, entry in packed.items()
            if problem_of({**entry[1], "files": []}, stage, digest) is None
        }
    missing = [digest for digest in states if digest not in kept]
    fresh = dict(_read(fs, f"{base}/{stage}", stage, missing))
    for digest, manifest in fresh.items():
        if isinstance(manifest, dict):
            said = {name: value for name, value in manifest.items() if name not in ("files", "checksum")}
            kept[digest] = states[digest], said
    if kept.keys() != before.keys() or any(before[digest][0] != state for digest, (state, _) in kept.items()):
        _to_file(file, kept)
    if pack_all or len(missing) > _MANY:
        _to_pack(fs, pack, kept)
    return {digest: manifest for digest, (_, manifest) in kept.items()} | fresh


def _read(fs: Any, folder: str, stage: str, digests: list[str]) -> Iterator[tuple[str, Manifest | str]]:
    """The manifests themselves, a hundred and more at a time where the file system can."""
    paths = {digest: f"{folder}/{digest}/{MANIFEST}" for digest in digests}
    there = fs.cat(list(paths.values()), on_error="return", **_whole(fs)) if paths else {}
    for digest, path in paths.items():
        data = there[path]
        if isinstance(data, FileNotFoundError):
            continue  # deleted since it was listed
        if isinstance(data, Exception):
            raise data
        manifest = parsed(data, stage, digest)
        rootless = isinstance(manifest, dict) and not isinstance(manifest.get("root"), str)
        yield digest, "unreadable: it names no folder of files" if rootless else manifest


def read_small(fs: Any, path: str) -> bytes:
    """A small file, in one request.

    :raises FileNotFoundError: there is none.
    """
    data: bytes = fs.cat_file(path, **_whole(fs))
    return data


def _whole(fs: Any) -> dict[str, int]:
    """What keeps s3fs from asking for a file's size first, for the parts of big ones."""
    return {"max_concurrency": 1} if hasattr(fs, "call_s3") else {}


def parsed(data: bytes, stage: str, digest: str) -> Manifest | str:
    """An artifact's manifest from its file, or what is wrong with it in words."""
    try:
        manifest = parse_json(data)
    except ValueError as error:
        return f"unreadable: {error}"
    problem = problem_of(manifest, stage, digest)
    return dict(manifest) if problem is None else problem


# --- what is there


def mark(fs: Any, base: str, manifest: Manifest) -> None:
    """Tell other hosts that this manifest is new; after it was written, or they would keep the one before."""
    fs.pipe_file(f"{_mark(base, manifest)}/published", b"")


def unmark(fs: Any, base: str, manifest: Mapping[str, Any]) -> None:
    """Take the mark of an artifact away that was deleted."""
    remove(fs, _mark(base, manifest))


def published(fs: Any, base: str, stage: str) -> set[str]:
    """Digests of the artifacts of a stage whose marks are there: each had a manifest that nobody has deleted."""
    return {name.partition("-")[0] for name in names_in(fs, _marks(base, stage))}


def remove(fs: Any, path: str) -> None:
    """Delete a file or a folder, if it is there."""
    try:
        fs.rm(path, recursive=True)
    except FileNotFoundError:
        log.debug("%s was gone already", path)


def _mark(base: str, manifest: Mapping[str, Any]) -> str:
    return f"{_marks(base, manifest['stage'])}/{manifest['digest']}-{manifest['root']}"


def _marks(base: str, stage: str) -> str:
    return f"{base}/{_FOLDER}/{stage}"


def _states(fs: Any, base: str, stage: str) -> dict[str, str]:
    """Digest of each folder -> its marks. Of folders a listing tells the names only, which makes it quick."""
    fs.invalidate_cache()  # another host may have written since
    with ThreadPoolExecutor(2) as pool:
        folders, marked = pool.map(partial(names_in, fs), (f"{base}/{stage}", _marks(base, stage)))
    states = {name: "" for name in folders if is_digest(name)}
    for name in marked:  # sorted
        digest, _, attempt = name.partition("-")
        if digest in states:
            states[digest] += f"{attempt} "
    return states


# --- what is kept


def _current(kept: _Kept, states: Mapping[str, str]) -> _Kept:
    return {digest: entry for digest, entry in kept.items() if states.get(digest) == entry[0]}


def _to_file(file: Path, kept: _Kept) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_bytes_atomic(file, _packed(kept))
    except OSError as error:
        log.info("%s: cannot be written (%s); the next look-up reads the manifests again", file, error)


def _to_pack(fs: Any, pack: str, kept: _Kept) -> None:
    try:
        fs.pipe_file(pack, gzip.compress(_packed(kept), compresslevel=1))
    except OSError as error:  # a key that may only read
        log.info("%s: cannot be written (%s); other hosts read the manifests one by one", pack, error)


def _packed(kept: _Kept) -> bytes:
    return json.dumps({"version": gptcore.__version__, "manifests": kept}, separators=(",", ":")).encode()


def _unpacked(read: Callable[[], bytes], where: object) -> _Kept:
    """What :func:`_packed` wrote; nothing where there is none yet, it is damaged, or another version's."""
    try:
        whole = parse_json(read())
        if whole["version"] != gptcore.__version__:
            return {}
        return {digest: (str(state), dict(manifest)) for digest, (state, manifest) in whole["manifests"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, EOFError, zlib.error, ValueError, TypeError, KeyError, AttributeError) as error:
        log.info("%s: is not used (%s)", where, error)
        return {}
