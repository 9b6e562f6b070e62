"""Every port of a stack asked by who may not: other users' programs, and pages of other origins and rebound names.

:func:`let_in` asks each port that a stack's processes listen on, over HTTP, HTTPS and gRPC, by each of this machine's
addresses, with each method, for every address that the servers themselves name and those of SeaweedFS's sources.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import psutil

from tests.expected import expected

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW")
ELSEWHERE = ("::1", "127.0.0.2")
"""Addresses of this machine on which nothing has to listen."""
PAGES = (
    {"Host": "evil.example"},
    {"Host": "10.evil.example:{port}"},
    {"Host": "127.0.0.1:{port}", "Origin": "http://evil.example"},
    {"Host": "localhost:{port}", "Origin": "null"},
    {"Host": "127.0.0.1:{port}", "Origin": "http://127.0.0.1:1"},
)
"""The heads of requests of web pages: of a rebound name, of another origin, of a sandbox, of another port here."""
PROGRAM = {"Host": "127.0.0.1:{port}"}
"""The `Host` header of another user's program."""
_SOCKET = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "eA=="}
REFUSED = (400, 401, 403, 404, 405, 411)
"""What says no, and shows nothing."""
PUBLIC = {
    "s3": ("/healthz", "/status", "/readyz"),
    "prefect": ("/api/health", "/api/ready", "/", "/docs", "/openapi.json"),
    "mlflow": ("/health", "/version", "/api/3.0/mlflow/server-info", "/ajax-api/3.0/mlflow/server-info"),
}
"""What other users' programs may read: whether the server is well, and what is the same wherever it is installed."""
SEAWEED: list[str] = expected(__file__, "SEAWEED")
"""What SeaweedFS's S3 port, master, volumes and filer answer to, by its sources."""
_NAME = b"\x0a\x07gptmill"
"""A message whose first field is the bucket's name: of the calls that delete or list."""
CALLS: dict[str, list[str]] = expected(__file__, "CALLS")
"""SeaweedFS's gRPC services and those of their calls that tell or delete most."""


@dataclass(frozen=True)
class Answer:
    """What came back; the status is 0 where the server broke off."""

    status: int
    body: bytes


def listening(processes: Mapping[str, Mapping[str, Any]]) -> dict[int, str]:
    """Every port on which a stack's processes, or their children, listen -> the service's name.

    :param processes: as the stack's record has them.
    """
    ports: dict[int, str] = {}
    for name, process in processes.items():
        leader = psutil.Process(process["pid"])
        for one in (leader, *leader.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                listens = [each for each in one.net_connections("inet") if each.status == psutil.CONN_LISTEN]
                assert {each.laddr.ip for each in listens} <= {"127.0.0.1"}, f"{name}: {listens}"
                ports |= {each.laddr.port: name for each in listens}
    return ports


def let_in(processes: Mapping[str, Mapping[str, Any]], passwords: bool) -> tuple[int, list[str]]:
    """How many requests were sent, and those that got more than a refusal or what is public.

    :param passwords: whether the servers ask for one; else whoever is no web page may do everything.
    """
    sent, wrong = 0, []
    for port, name in sorted(listening(processes).items()):
        for request, answer in _asked(port, name, passwords):
            sent += 1
            if not _refused(request, answer, name):
                wrong.append(f"{name}, port {port}: {request}: {answer}")
    return sent, wrong


def _refused(request: str, answer: Answer, name: str) -> bool:
    if answer.status == 0 or (answer.status in REFUSED and len(answer.body) < 1000):
        return True
    method, path, _, head = request.split(" ", 3)
    asks_nothing = method == "OPTIONS" and name == "s3" and "Origin" not in head  # no page's question
    by_page = name != "s3" and ("Origin" in head or "evil" in head)
    public = path in PUBLIC.get(name, ()) and not by_page and (method in ("GET", "HEAD") or not answer.body)
    return answer.status in (200, 204) and (public or (asks_nothing and not answer.body))


def _asked(port: int, name: str, passwords: bool) -> Iterator[tuple[str, Answer]]:
    for host in ELSEWHERE:
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=5):
            yield f"CONNECT {host} - -", Answer(200, b"")
    heads = [*PAGES, *([PROGRAM] if passwords else [])]
    for way in ("http", "https"):
        yield from _over_http(port, way, heads, _paths(name))
    if name == "s3":
        for way in ("http", "https"):
            yield from _over_grpc(port, way)


def _over_http(port: int, way: str, heads: list[dict[str, str]], paths: list[str]) -> Iterator[tuple[str, Answer]]:
    for path in paths:
        said = []
        for number, head in enumerate((*heads, {**heads[0], **_SOCKET})):
            filled = {key: value.format(port=port) for key, value in head.items()}
            every, socket_too = number in (0, len(heads) - 1), number == len(heads)
            for method in METHODS if every else ("GET",) if socket_too else ("GET", "POST"):
                said.append(_ask(port, way, method, path, filled))
                yield f"{method} {path} {way} {filled}", said[-1]
        if way == "https" and not any(answer.status for answer in said):
            return  # no TLS, or none without a certificate: whatever is asked for


def _ask(port: int, way: str, method: str, path: str, head: Mapping[str, str]) -> Answer:
    body = b'{"name": "evil", "value": "1"}' if method in ("POST", "PUT", "PATCH", "BREW") else None
    given = {"Content-Type": "application/json", **head} if body else dict(head)
    if way == "https":
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            "127.0.0.1", port, timeout=5, context=ssl._create_unverified_context()
        )
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(method, path, body, given)
        answer = connection.getresponse()
        return Answer(answer.status, answer.read(2000))
    except (OSError, http.client.HTTPException):
        return Answer(0, b"")
    finally:
        connection.close()


def _over_grpc(port: int, way: str) -> Iterator[tuple[str, Answer]]:
    """Unary calls; what answers them at all has let them in."""
    body = b"\0" + len(_NAME).to_bytes(4, "big") + _NAME
    head = {"Content-Type": "application/grpc", "TE": "trailers"}
    with httpx.Client(http1=False, http2=True, verify=False, timeout=5) as client:
        for service, calls in CALLS.items():
            for call in calls:
                try:
                    response = client.post(f"{way}://127.0.0.1:{port}{service}{call}", content=body, headers=head)
                    answer = Answer(200, f"{dict(response.headers)} {response.content!r}".encode())
                except httpx.HTTPError:
                    answer = Answer(0, b"")
                yield f"CALL {service}{call} {way} -", answer


def _paths(name: str) -> list[str]:
    """The addresses of a service; of those that listen to no HTTP, SeaweedFS's."""
    if name == "prefect":
        from prefect.server.api.server import create_app

        described = create_app(ephemeral=True).openapi()["paths"]
        named = ["/", "/docs", "/openapi.json", "/api/csrf-token", "/api/events/in", "/api/events/out", "/api/logs/out"]
        return [*named, *(f"/api{path}" for path in described)]
    if name == "mlflow":
        from mlflow.server.handlers import get_endpoints

        named = [path for path, *_ in get_endpoints()]  # type: ignore[no-untyped-call]
        pages = ["/", "/health", "/version", "/signup", "/graphql", "/ajax-api/3.0/mlflow/server-info"]
        return [*pages, *(path for path in named if not path.startswith("/ajax-api"))]  # each of them twice
    return SEAWEED
