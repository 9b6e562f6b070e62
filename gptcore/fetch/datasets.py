"""One public dataset, from its address into the folder of datasets, complete or not at all.

Archives and parts of them lie in ``.origins/NAME/`` of that folder until the dataset is in its place. What stays is
``.origins/NAME.json``: address, SHA-256, bytes and date of each file fetched, and a digest of the dataset's files.
"""

from __future__ import annotations

import gzip
import os
import shutil
import stat
import sys
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal, NamedTuple

from tqdm import tqdm

from gptcore.base.addresses import refuse_password
from gptcore.base.errors import InputError
from gptcore.base.files import fsync_folder, read_json, sha256_file, sha256_json, try_lock, write_json_atomic
from gptcore.base.unpacking import bounded, check_unpacked
from gptcore.fetch.download import FetchError, Progress, download, session
from gptcore.nlu.origins import Origin

_STATE = ".origins"
_BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, gzip.BadGzipFile, EOFError, FileExistsError)
_NOTICES = ("readme", "license", "licence")
_SECONDS = 10.0  # between two lines of progress where there is no terminal


def get_dataset(origin: Origin, folder: Path, mirror: str = "", pause: float = 1.0) -> Literal["fetched", "there"]:
    """Put one dataset into its sub-folder of ``folder``, under the names that the readers expect.

    A dataset that an earlier call put there is only checked. A file whose SHA-256 is not known is trusted the first
    time; every later time it must be the same.

    :param mirror: an address that has the files under their own names, in the place of the official ones.
    :param pause: see :func:`gptcore.fetch.download.download`.
    :raises InputError: the dataset is there, but not as it was fetched, or not from here.
    :raises FetchError: the dataset cannot be fetched, or is not what it should be; what arrived is kept for
        the next call.
    """
    home, work, record = (
        folder / part for part in (origin.folder, f"{_STATE}/{origin.name}", f"{_STATE}/{origin.name}.json")
    )
    refuse_password(mirror)
    if home.exists():
        _check(home, record)
        return "there"
    with _alone(work):
        fetched = _fetch(origin, work, _known(record), mirror, pause)
        made = work / "made"
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir()
        for wanted in origin.downloads:
            if wanted.name.endswith((".zip", ".tar.gz")):
                unpack(work / wanted.name, wanted.take, made)
            else:
                shutil.copyfile(work / wanted.name, made / wanted.take)
        if origin.name == "mrpc":
            cut_mrpc(made)
        write_json_atomic(
            record,
            {
                "name": origin.name,
                "licence": origin.licence,
                "page": origin.page,
                "downloads": fetched,
                "content": content(made),
            },
        )
        os.rename(made, home)  # last: a dataset that is there is complete
        fsync_folder(folder)
    shutil.rmtree(work)
    return "fetched"


def content(folder: Path) -> str:
    """SHA-256 of the names and contents of all files of a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return sha256_json({path.relative_to(folder).as_posix(): sha256_file(path) for path in files})


def cut_mrpc(folder: Path) -> None:
    """GLUE's train, dev and test files from SentEval's train and test files and GLUE's list of dev rows.

    As GLUE's own script does it: the rows in their order, those of the list to dev; the test rows counted, unlabelled.

    :raises FetchError: a row of another shape.
    """
    ids = {tuple(line.split("\t")) for line in _lines(folder / "dev_ids.tsv")}
    header, *rows = _lines(folder / "msr_paraphrase_train.txt")
    columns = header.removeprefix("\ufeff").split("\t")
    _, *test = _lines(folder / "msr_paraphrase_test.txt")
    for name, lines in (("msr_paraphrase_train.txt", rows), ("msr_paraphrase_test.txt", test)):
        for number, line in enumerate(lines, start=2):
            if line.count("\t") + 1 != len(columns):
                raise FetchError(
                    f"{name}, line {number}: found {line.count(chr(9)) + 1} columns, expected {len(columns)}"
                )
    is_dev = [tuple(row.split("\t")[1:3]) in ids for row in rows]
    _write(folder / "train.tsv", [header, *(row for row, dev in zip(rows, is_dev, strict=True) if not dev)])
    _write(folder / "dev.tsv", [header, *(row for row, dev in zip(rows, is_dev, strict=True) if dev)])
    unlabelled = [f"{number}\t{row.partition(chr(9))[2]}" for number, row in enumerate(test)]
    _write(folder / "test.tsv", ["\t".join(["index", *columns[1:]]), *unlabelled])
    for name in ("dev_ids.tsv", "msr_paraphrase_train.txt", "msr_paraphrase_test.txt"):
        (folder / name).unlink()


def _known(record: Path) -> dict[str, Any]:
    """What was fetched before; empty where nothing was.

    :raises InputError: a file that is no such record.
    """
    try:
        known: dict[str, Any] = read_json(record)
        if known["content"] and known["downloads"]:
            return known
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{record}: not a record of a fetched dataset ({error}); delete it") from None
    raise InputError(f"{record}: found an empty record of a fetched dataset; delete it")


def _check(home: Path, record: Path) -> None:
    """Check that a dataset which is there is the one that was fetched."""
    if not record.exists():
        raise InputError(f"{home}: found a folder that was not fetched by this command, expected none; move it away")
    known = _known(record)
    if content(home) != known["content"]:
        when = known["downloads"][0]["fetched"]
        raise InputError(f"{home}: found files that changed since they were fetched ({when}); move the folder away")


@contextmanager
def _alone(work: Path) -> Iterator[None]:
    """Two commands do not write the same parts."""
    work.mkdir(parents=True, exist_ok=True)
    with open(work / "lock", "w", encoding="ascii") as file:
        if not try_lock(file):
            raise FetchError(f"{work}: another command is fetching this dataset")
        yield


def _fetch(origin: Origin, work: Path, earlier: dict[str, Any], mirror: str, pause: float) -> list[dict[str, Any]]:
    """Every file of a dataset, with what is to be remembered of it."""
    first_seen = {known["name"]: known for known in earlier.get("downloads", [])}
    fetched = []
    with session(pause) as connection:
        for wanted in origin.downloads:
            url = f"{mirror.rstrip('/')}/{wanted.name}" if mirror else wanted.url
            path, known = work / wanted.name, first_seen.get(wanted.name, {})
            digest = wanted.sha256
            if not (digest and path.exists() and sha256_file(path) == digest):  # else an earlier call got so far
                with _shown(wanted.name, wanted.size) as progress:
                    try:
                        digest = download(url, path, digest or known.get("sha256", ""), progress, connection, pause)
                    except FetchError as error:
                        since = f" (as first fetched, {known['fetched']})" if known and not wanted.sha256 else ""
                        raise FetchError(f"{error}{since}") from error
            fetched.append(
                {
                    "name": wanted.name,
                    "url": url,
                    "sha256": digest,
                    "sha256 known before": bool(wanted.sha256),
                    "bytes": path.stat().st_size,
                    "fetched": datetime.now(UTC).isoformat(timespec="seconds"),
                }
            )
    return fetched


@contextmanager
def _shown(name: str, size: int) -> Iterator[Progress]:
    """Progress as a bar on a terminal, as a line now and then elsewhere."""
    if sys.stderr.isatty():
        with tqdm(total=size or None, desc=name, unit="B", unit_scale=True) as bar:

            def move(there: int, whole: int) -> None:
                bar.total = whole or bar.total
                bar.update(there - bar.n)

            yield move
        return
    said = time.monotonic()

    def say(there: int, whole: int) -> None:
        nonlocal said
        if time.monotonic() - said >= _SECONDS or there == whole:
            said = time.monotonic()
            of = f" of {whole / 1e6:,.1f}" if whole else ""
            print(f"{name}: {there / 1e6:,.1f}{of} MB", file=sys.stderr, flush=True)

    yield say


def _lines(path: Path) -> list[str]:
    return [line.strip() for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]


def _write(path: Path, lines: list[str]) -> None:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())


# --- archives, unpacked without trust in their names ---


class _Member(NamedTuple):
    name: str
    is_link: bool
    open: Callable[[], IO[bytes] | None] | None
    """None for what is no file."""


def unpack(archive: Path, pattern: str, out: Path) -> int:
    """Unpack the files whose names match into the new folder ``out``, without the first part of their names.

    What the authors say of the data, and on what terms (``README``, ``LICENSE``), comes along.

    :param pattern: as many parts as the names have, each with wildcards: ``RACE/*/*/*.txt``.
    :return: the number of files that match.
    :raises FetchError: no archive, no such file in it, or any name in it that leads out of it, or a link.
    :raises InputError: it becomes far larger than text can be packed.
    """
    parts, count = PurePosixPath(pattern).parts, 0
    try:
        for member in _members(archive):
            name = PurePosixPath(member.name)
            if name.is_absolute() or ".." in name.parts or "\\" in member.name or ":" in "".join(name.parts[:1]):
                raise FetchError(f"{archive.name}: found the name {member.name!r}, expected none that leads out of it")
            if member.is_link:
                raise FetchError(f"{archive.name}: found the link {member.name!r}, expected files and folders only")
            wanted = len(name.parts) == len(parts) and name.match(pattern) and not name.name.startswith(".")
            notice = name.parts[:-1] == parts[:1] and name.name.lower().startswith(_NOTICES)
            if member.open is None or not (wanted or notice):
                continue
            target = out.joinpath(*name.parts[1:])
            target.parent.mkdir(parents=True, exist_ok=True)
            source = member.open()
            assert source is not None, "a file has content"
            with source, open(target, "xb") as file:
                shutil.copyfileobj(source, file)
            count += wanted
    except _BROKEN as error:
        raise FetchError(f"{archive.name}: found {type(error).__name__}: {error}, expected a whole archive") from error
    if not count:
        raise FetchError(f"{archive.name}: found no file {pattern}, expected some")
    return count


def _members(archive: Path) -> Iterator[_Member]:
    if archive.name.endswith(".zip"):
        with zipfile.ZipFile(archive) as opened:
            size, infos = archive.stat().st_size, opened.infolist()
            check_unpacked(sum(info.file_size for info in infos), size, archive.name)
            for info in infos:
                link = stat.S_ISLNK(info.external_attr >> 16)
                yield _Member(info.filename, link, None if info.is_dir() else partial(opened.open, info))
        return
    with (
        open(archive, "rb") as packed,
        gzip.GzipFile(fileobj=packed) as raw,
        tarfile.open(fileobj=bounded(raw, packed, archive.name), mode="r|") as tar,
    ):
        for entry in tar:
            other = not (entry.isfile() or entry.isdir())  # links, devices
            yield _Member(entry.name, other, partial(tar.extractfile, entry) if entry.isfile() else None)
