"""A stand-in for the Hugging Face hub on 127.0.0.1 that takes models: the few calls that an upload makes."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.gptcore.file_server import serving


@dataclass
class Hub:
    """What was uploaded."""

    url: str = ""
    token: str = "hf_right"
    """The one token that it takes."""
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """Repository and branch, as OWNER/NAME@BRANCH -> path -> content."""


@contextmanager
def hub_of_uploads() -> Iterator[Hub]:
    """Take uploads; what is uploaded stands in the value that is given."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            self._answer({"error": "Invalid username or password."}, 401)

        def do_POST(self) -> None:
            body = self._body()
            if self.headers.get("Authorization") != f"Bearer {hub.token}":
                self._answer({"error": "Invalid username or password."}, 401)
            elif self.path == "/api/repos/create":
                asked = json.loads(body)
                name = f"{asked['organization']}/{asked['name']}"
                hub.files[f"{name}@main"] = {}
                self._answer({"url": f"{hub.url}/{name}"})
            elif self.path == "/api/validate-yaml":  # of README.md
                self._answer({"errors": [], "warnings": []})
            elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/branch/(.+)", self.path):
                hub.files[f"{found[1]}@{found[2]}"] = {}
                self._answer({})
            elif re.fullmatch(r"/api/models/[^/]+/[^/]+/preupload/.+", self.path):
                files = json.loads(body)["files"]
                self._answer(
                    {
                        "files": [
                            {"path": each["path"], "uploadMode": "regular", "shouldIgnore": False} for each in files
                        ]
                    }
                )
            elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/(.+)", self.path):
                for line in map(json.loads, body.splitlines()):
                    if line["key"] == "file":
                        content = base64.b64decode(line["value"]["content"])
                        hub.files[f"{found[1]}@{found[2]}"][line["value"]["path"]] = content
                self._answer({"commitUrl": f"{hub.url}/{found[1]}/commit/1", "commitOid": "1" * 40})
            else:
                self._answer({}, 404)

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def _answer(self, value: Any, status: int = 200) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    with serving(Handler) as hub.url:
        yield hub
