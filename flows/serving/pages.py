"""What the model server says of itself: pages for people, and an OpenAPI document for programs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from functools import partial
from html import escape
from string import Template
from typing import Any

from starlette.responses import HTMLResponse

from flows.serving.answering import Service
from gptcore import __version__
from gptcore.base.tables import read_table

_SAID = read_table(__file__, "pages.toml")
_HEADERS = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"}
_KINDS = {bool: "boolean", int: "integer", float: "number", str: "string"}
_written = partial(json.dumps, ensure_ascii=False)


def home(service: Service, about: Mapping[str, Any], answer: Any, url: str) -> HTMLResponse:
    """The page of what is served.

    :param answer: what the service's example is answered with.
    :param url: of the server, as its client typed it.
    """
    asked = shlex.quote(_written(service.example))
    command = f"curl -s {url}{service.path} -H 'Content-Type: application/json' \\\n  -d {asked}"
    told = {name: ", ".join(value) if isinstance(value, list) else str(value) for name, value in about.items()}
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(words)}</td></tr>" for name, words in told.items())
    return page("home", about=rows, command=escape(command), answer=escape(_written(answer)), how=_how(service))


def page(name: str, **parts: str) -> HTMLResponse:
    """A page of `pages.toml` with its parts, which are HTML."""
    return HTMLResponse(_SAID["page"] + Template(_SAID[name]).substitute(parts), headers=_HEADERS)


def _how(service: Service) -> str:
    return str(_SAID["several" if service.at_once > 1 else "alone"])


def openapi(service: Service, answer: Any) -> dict[str, Any]:
    """The OpenAPI document of the server's routes, whose schemas are those of the service's example and its answer."""
    asked, told = _schema(service.example), _schema(answer)
    if service.at_once > 1:
        texts = {"type": "object", "properties": {name: {"type": ["string", "null"]} for name in service.example}}
        blank = {"type": "object", "properties": {"note": {"type": "string"}}, "required": ["note"]}
        told = {"anyOf": [told, blank]}
        asked, told = ({"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]} for one in (texts, told))
    else:
        asked["required"] = [next(iter(service.example))]
    said = {"version": __version__, "path": service.path, "how": _how(service), "asked": asked, "told": told}
    parts = {name: _written(value) for name, value in {**said, "example": service.example, "answer": answer}.items()}
    return dict(json.loads(Template(_SAID["openapi"]).substitute(parts)))


def _schema(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return {"type": "object", "properties": {name: _schema(part) for name, part in value.items()}}
    if isinstance(value, list):
        return {"type": "array", "items": _schema(value[0]) if value else {}}
    return {"type": _KINDS[type(value)]} if type(value) in _KINDS else {}
