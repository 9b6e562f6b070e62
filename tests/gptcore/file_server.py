"""A web server on 127.0.0.1 that serves bytes, and misbehaves as told: cuts, ignores ranges, is busy, changes files."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Served:
    """One file and how it is served."""

    data: bytes
    etag: str = '"one"'
    """Empty: none is sent."""
    ranges: bool = True
    """Whether ranges are understood."""
    cuts: list[int] = field(default_factory=list)
    """Bytes after which the next answers break off, one an answer."""
    statuses: list[int] = field(default_factory=list)
    """What the next requests are answered with instead, one each."""
    asked: list[str] = field(default_factory=list)
    """The Range header of each request, or ""."""


class FileServer:
    """Files by name, at :attr:`url`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.files: dict[str, Served] = {}

    def add(self, name: str, data: bytes, **behaviour: object) -> Served:
        self.files[name] = Served(data, **behaviour)  # type: ignore[arg-type]  # a test's own words
        return self.files[name]


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """A server on 127.0.0.1 for the time of the block; gives its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def file_server() -> Iterator[FileServer]:
    """A server for the time of the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            file = served.files.get(self.path.lstrip("/"))
            if file is None:
                self.send_error(404)
                return
            asked = self.headers.get("Range", "")
            file.asked.append(asked)
            if file.statuses:
                self.send_response(file.statuses.pop(0))
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            start = self._start(file, asked)
            if start > len(file.data) or (start and start == len(file.data)):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(file.data) - 1}/{len(file.data)}")
            if file.etag:
                self.send_header("ETag", file.etag)
            body = file.data[start:]
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if file.cuts:
                self.wfile.write(body[: file.cuts.pop(0)])
                self.wfile.flush()
                self.close_connection = True
                return
            self.wfile.write(body)

        def _start(self, file: Served, asked: str) -> int:
            wanted = re.fullmatch(r"bytes=(\d+)-", asked)
            same = self.headers.get("If-Range", file.etag) == file.etag
            return int(wanted[1]) if wanted and file.ranges and same else 0

    with serving(Handler) as url:
        served = FileServer(url)
        yield served
