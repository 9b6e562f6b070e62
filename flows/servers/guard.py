"""Requests that a web page of another origin could make a browser send are refused, before a server sees them.

A server on 127.0.0.1 can be reached by every page that is open in a browser of this machine. Two ways lead in: a
request to the server's own address, which carries the page's `Origin`, and a name of the attacker's that is made to
mean 127.0.0.1 once the page is loaded (DNS rebinding), which stands in `Host`. Whoever is no browser sends neither.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any
from urllib.parse import urlsplit

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]
"""As ASGI has them, these four."""
_POLICY_VIOLATION = 1008


def own_names(host: str, port: int, others: Collection[str] = ()) -> frozenset[str]:
    """What clients of a server on ``host`` put into `Host`: its address and the names of this machine.

    :param others: names with a port, as ``prefect.example:4200``, behind which a proxy or a container is reached.
    """
    names = {host, "127.0.0.1", "localhost", "[::1]"}
    return frozenset({f"{name}:{port}" for name in names} | {name.lower() for name in others})


def guarded(app: Application, names: frozenset[str]) -> Application:
    """The application, which sees no request under another name or of another origin.

    :param names: see :func:`own_names`.
    """

    async def checked(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and (problem := refusal(_headers(scope), names)):
            await _refuse(scope, receive, send, problem)
            return
        await app(scope, receive, send)

    return checked


def refusal(headers: list[tuple[str, str]], names: frozenset[str]) -> str:
    """Why a request is refused; empty where it is not."""
    hosts = [value.lower() for name, value in headers if name == "host"]
    if len(hosts) != 1 or hosts[0] not in names:
        return f"Host: found {', '.join(hosts) or 'none'}, expected {' or '.join(sorted(names))}"
    for name, value in headers:
        if name == "origin" and urlsplit(value.lower()).netloc not in names:
            return f"Origin: found {value}, expected one of this server's own pages"
    return ""


def _headers(scope: Message) -> list[tuple[str, str]]:
    return [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]


async def _refuse(scope: Message, receive: Receive, send: Send, problem: str) -> None:
    if scope["type"] == "websocket":
        await receive()  # the handshake
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": problem[:100]})
        return
    body = f"{problem}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": body})
