"""One file over HTTP, resumed where it broke off, in the place it belongs only when it is whole and right.

What has arrived lies beside it as ``NAME.part``, with the server's word on which version it is part of (``ETag``, date,
size) as ``NAME.part.json``. A server that ignores ranges, or has another version by now, makes it start again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError
from urllib3.util import Retry

from gptcore.base.addresses import signed, without_password
from gptcore.base.files import fsync_folder, read_json, sha256_file, write_json_atomic
from gptcore.base.types import quiet

Progress = Callable[[int, int], None]
"""Called with (bytes there, bytes in all or 0 where the server does not say)."""

_CHUNK = 1 << 16  # bytes
_TIMEOUT = (10, 60)  # seconds to connect, and without a byte
_TRIES = 5  # in a row without a single new byte
_PAUSE = 1.0  # seconds before the second try, doubled each time
_BUSY = (429, 500, 502, 503, 504)
_RANGE_NOT_SATISFIABLE = 416
_NO_FILE = (
    requests.exceptions.MissingSchema,
    requests.exceptions.InvalidSchema,
    requests.exceptions.InvalidURL,
    requests.TooManyRedirects,
)
"""What no second try mends."""


class FetchError(Exception):
    """A file that could not be fetched; the message is one line with its address."""


def session(pause: float = _PAUSE) -> requests.Session:
    """A connection that asks a busy server again (``Retry-After`` obeyed) and uses the environment's proxies."""
    # a connection that breaks is ours to take up again: from where it broke
    retry = Retry(
        total=_TRIES, connect=0, read=0, other=0, backoff_factor=pause, status_forcelist=_BUSY, raise_on_status=False
    )
    made = requests.Session()
    for scheme in ("http://", "https://"):
        made.mount(scheme, HTTPAdapter(max_retries=retry))
    return made


def download(
    url: str,
    path: Path,
    sha256: str = "",
    progress: Progress = quiet,
    connection: requests.Session | None = None,
    pause: float = _PAUSE,
) -> str:
    """Fetch ``url`` into the file ``path``, going on from what an earlier call left.

    :param sha256: the SHA-256 that the file must have; if empty, the file may have any.
    :param pause: seconds before a broken transfer is tried again, doubled with each try that brought nothing.
    :return: the file's SHA-256.
    :raises FetchError: an answer that is no file, a connection that stays broken (what arrived is kept for the next
        call), or another SHA-256 than expected (nothing is kept).
    """
    part = path.with_name(path.name + ".part")
    connection = connection or session(pause)
    tries = 0
    while True:
        before = _size(part)
        try:
            _transfer(url, part, connection, progress)
            break
        except _NO_FILE as error:
            raise FetchError(f"{url}: no address to fetch a file from ({_reason(error)})") from error
        except (requests.RequestException, HTTPError) as error:
            tries = 1 if _size(part) > before else tries + 1
            if tries >= _TRIES:
                kept = f"broken off after {_size(part)} bytes; the same command goes on from there"
                raise FetchError(f"{url}: {kept} ({_reason(error)})") from error
            time.sleep(pause * 2 ** (tries - 1))
    digest = sha256_file(part)
    if sha256 and digest != sha256:
        _forget(part)
        raise FetchError(f"{url}: found SHA-256 {digest}, expected {sha256}; nothing is kept")
    os.replace(part, path)
    _forget(part)
    fsync_folder(path.parent)
    return digest


def _transfer(url: str, part: Path, connection: requests.Session, progress: Progress) -> None:
    """Append what is missing to ``part``; one request."""
    known = _known(url, part)
    start = _size(part) if known else 0
    if start and start == known["size"]:
        return  # all of it had arrived
    headers = {"Accept-Encoding": "identity"}
    if start:
        headers |= {"Range": f"bytes={start}-"}
        headers |= {"If-Range": known["version"]} if known["version"] else {}
    with connection.get(signed(url), headers=headers, stream=True, timeout=_TIMEOUT) as answer:
        if start and (answer.status_code == _RANGE_NOT_SATISFIABLE or _other_version(answer, start, known)):
            _forget(part)
            _transfer(url, part, connection, progress)
            return
        if answer.status_code not in (200, 206):
            raise FetchError(f"{url}: found HTTP {answer.status_code} {answer.reason}, expected the file")
        if answer.status_code == 200:
            start = 0
            _forget(part)  # before the note changes: bytes of one version must never stand under another's name
            tag = answer.headers.get("ETag", "")  # If-Range compares a strong one, else the date
            version = tag if tag and not tag.startswith("W/") else answer.headers.get("Last-Modified", "")
            write_json_atomic(_note(part), {"url": url, "version": version, "size": _length(url, answer)})
        size = start + _length(url, answer)
        with open(part, "r+b" if start else "wb") as file:
            file.seek(start)
            # not iter_content: of a chunk that is cut short it gives nothing, and a bad line would never get on
            while chunk := answer.raw.read1(_CHUNK, decode_content=False):
                file.write(chunk)
                progress(file.tell(), size)
            file.flush()
            os.fsync(file.fileno())


def _known(url: str, part: Path) -> dict[str, Any]:
    """Which version of the file ``part`` begins; empty where that is not known, or it is of another address."""
    if not (part.exists() and _note(part).exists()):
        return {}
    try:
        known: dict[str, Any] = read_json(_note(part))
        return known if known["url"] == url and (known["version"] or known["size"]) else {}
    except (ValueError, KeyError, TypeError):  # nothing that this module wrote: what it was about is not known
        return {}


def _other_version(answer: requests.Response, start: int, known: dict[str, Any]) -> bool:
    """Whether a partial answer does not go on where ours ends."""
    if answer.status_code != 206:
        return False
    unit_and_first, _, total = answer.headers.get("Content-Range", "").partition("/")
    other_size = known["size"] and total.isdigit() and int(total) != known["size"]
    return not unit_and_first.startswith(f"bytes {start}-") or bool(other_size)


def _length(url: str, answer: requests.Response) -> int:
    """Bytes that the answer says it has; 0 where it does not say."""
    said = answer.headers.get("Content-Length") or "0"
    if not said.isdigit():
        raise FetchError(f"{url}: found the Content-Length {said!r}, expected a number")
    return int(said)


def _note(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    _note(part).unlink(missing_ok=True)


def _reason(error: Exception) -> str:
    return without_password(f"{type(error).__name__}: {' '.join(str(error).split())}")
