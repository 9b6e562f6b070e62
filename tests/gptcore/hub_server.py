"""A stand-in for the Hugging Face hub on 127.0.0.1: the few addresses that reading `hf://...` asks for."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.gptcore.file_server import serving

_COMMIT = "0" * 40
_API = re.compile(r"/api/(?:datasets|models)/([^/]+/[^/]+)(?:/(revision|tree|paths-info)/[^/]+(?:/(.*))?)?")


@contextmanager
def hub_server(folder: Path) -> Iterator[str]:
    """Serve ``folder/OWNER/NAME`` as data sets and as models, whichever revision is asked for: for HF_ENDPOINT."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._api(_asked_paths(body))

        def do_GET(self) -> None:
            self._api([]) if self.path.startswith("/api/") else self._file()

        do_HEAD = do_GET

        def _api(self, paths: list[str]) -> None:
            path = unquote(urlsplit(self.path).path)
            found = _API.fullmatch(path)
            repo = folder / found[1] if found else folder / "none"
            if not found or not repo.is_dir():
                self._missing("RepoNotFound")
            elif found[2] in (None, "revision"):
                self._json({"id": found[1], "sha": _COMMIT, "private": False, "siblings": []})
            elif found[2] == "paths-info":
                self._json([_entry(repo, repo / path) for path in paths if (repo / path).exists()])
            elif (inside := repo / (found[3] or "")).is_dir():
                recursive = "recursive=true" in self.path.lower()
                below = inside.rglob("*") if recursive else inside.iterdir()
                self._json([_entry(repo, path) for path in sorted(below)])
            else:
                self._missing("EntryNotFound")

        def _file(self) -> None:
            found = re.fullmatch(r"(?:/datasets)?/([^/]+/[^/]+)/resolve/[^/]+/(.*)", unquote(urlsplit(self.path).path))
            if not found or not (path := folder / found[1] / found[2]).is_file():
                self._missing("EntryNotFound")
                return
            data, status = path.read_bytes(), 200
            etag = hashlib.sha256(data).hexdigest()
            if asked := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
                first, last = int(asked[1]), min(int(asked[2] or len(data)), len(data) - 1)
                data, status, whole = data[first : last + 1], 206, len(data)
            self.send_response(status)
            if status == 206:
                self.send_header("Content-Range", f"bytes {first}-{last}/{whole}")
            self.send_header("ETag", f'"{etag}"')
            self.send_header("X-Repo-Commit", _COMMIT)
            self._body(data)

        def _json(self, value: Any) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self._body(json.dumps(value).encode())

        def _missing(self, code: str) -> None:
            self.send_response(404)
            self.send_header("X-Error-Code", code)
            self._body(b"")

        def _body(self, data: bytes) -> None:
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

    with serving(Handler) as url:
        yield url


def _entry(repo: Path, path: Path) -> dict[str, Any]:
    name = path.relative_to(repo).as_posix()
    if path.is_dir():
        return {"type": "directory", "path": name, "oid": _COMMIT, "size": 0}
    data = path.read_bytes()
    return {"type": "file", "path": name, "oid": hashlib.sha1(data).hexdigest(), "size": len(data)}


def _asked_paths(body: str) -> list[str]:
    if body.startswith("{"):
        asked = json.loads(body)["paths"]
        return [asked] if isinstance(asked, str) else list(asked)
    return [unquote(part.partition("=")[2].replace("+", " ")) for part in body.split("&") if part.startswith("paths=")]
