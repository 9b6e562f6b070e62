"""Requests that a web page of another origin could make a browser send are refused, before a server sees them.

A server on 127.0.0.1 can be reached by every page that is open in a browser of this machine. Two ways lead in: a
request to the server's own address, which carries the page's `Origin`, and a name of the attacker's that is made to
mean 127.0.0.1 once the page is loaded (DNS rebinding), which stands in `Host`. Whoever is no browser sends neither.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

Headers = Sequence[tuple[str, str]]
"""Names in lower case, each with a value."""
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""The names of this machine for itself."""
_POLICY_VIOLATION = 1008


def own_names(host: str, port: int, others: Collection[str] = ()) -> frozenset[str]:
    """What clients of a server on ``host`` put into `Host`: its address and the names of this machine.

    :param others: names with a port, as ``prefect.example:4200``, behind which a proxy or a container is reached.
    """
    names = {host, *LOOPBACK}
    return frozenset({f"{name}:{port}" for name in names} | {name.lower() for name in others})


def guarded(app: ASGIApp, names: frozenset[str]) -> ASGIApp:
    """The application, which sees no request under another name or of another origin.

    :param names: what :func:`own_names` gives.
    """

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and (problem := refusal(_headers(scope), names)):
            await _refuse(scope, receive, send, problem)
            return
        await app(scope, receive, send)

    return checked


def foreign_host(headers: Headers, names: Collection[str], *, any_port: bool = False) -> str | None:
    """What a request has in `Host` where that is not one of a server's names; None where it is.

    :param any_port: whether ``names`` have no port and a client may name any: that of a tunnel's other end, for one.
    """
    hosts = [value.lower() for name, value in headers if name == "host"]
    host = hosts[0] if len(hosts) == 1 else ", ".join(hosts)
    without_port = host if host.endswith("]") else host.rpartition(":")[0] or host
    return None if len(hosts) == 1 and (without_port if any_port else host) in names else host


def refusal(headers: Headers, names: frozenset[str]) -> str:
    """Why a request is refused; empty where it is not."""
    if (host := foreign_host(headers, names)) is not None:
        return f"Host: found {host or 'none'}, expected {' or '.join(sorted(names))}"
    for name, value in headers:
        if name == "origin" and urlsplit(value.lower()).netloc not in names:
            return f"Origin: found {value}, expected one of this server's own pages"
    return ""


def _headers(scope: Scope) -> list[tuple[str, str]]:
    return [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]


async def _refuse(scope: Scope, receive: Receive, send: Send, problem: str) -> None:
    from starlette.responses import PlainTextResponse  # not for who starts a server of another process
    from starlette.websockets import WebSocketClose

    if scope["type"] == "websocket":
        await receive()  # the handshake
        await WebSocketClose(_POLICY_VIOLATION, problem[:100])(scope, receive, send)
    else:
        await PlainTextResponse(f"{problem}\n", 403)(scope, receive, send)
