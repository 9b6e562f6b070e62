"""What the model server says of itself: a page for people, and an OpenAPI document for programs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
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


def home(service: Service, about: Mapping[str, Any], answer: Any, url: str) -> HTMLResponse:
    """The page of what is served.

    :param answer: what the service's example is answered with.
    :param url: of the server, as its client typed it.
    """
    asked = shlex.quote(json.dumps(service.example, ensure_ascii=False))
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(str(value))}</td></tr>" for name, value in about.items())
    return _page(
        "home",
        f"gptmill serve: {about.get('task', 'a language model')}",
        about=rows,
        command=escape(f"curl -s {url}{service.path} -H 'Content-Type: application/json' \\\n  -d {asked}"),
        answer=escape(json.dumps(answer, ensure_ascii=False)),
        several=_SAID["several"][str(service.at_once > 1).lower()],
    )


def docs(document: Mapping[str, Any]) -> HTMLResponse:
    """The page of the OpenAPI document."""
    return _page("docs", "gptmill serve", document=escape(json.dumps(document, ensure_ascii=False, indent=2)))


def _page(name: str, title: str, **parts: str) -> HTMLResponse:
    body = Template(_SAID[name]).substitute(parts)
    return HTMLResponse(Template(_SAID["page"]).substitute(title=escape(title), body=body).lstrip(), headers=_HEADERS)


def openapi(service: Service, answer: Any) -> dict[str, Any]:
    """The OpenAPI document of the server's routes, whose schemas are those of the service's example and its answer."""
    asked, told = _schema(service.example), _schema(answer)
    if service.at_once > 1:
        asked, told = ({"anyOf": [schema, {"type": "array", "items": schema}]} for schema in (asked, told))
    post = {
        "summary": _SAID["several"][str(service.at_once > 1).lower()],
        "requestBody": {"required": True, "content": _json(asked, service.example)},
        "responses": {"200": {"description": "The answer.", "content": _json(told, answer)}, **_SAID["refusals"]},
    }
    said = _SAID["openapi"]
    return {
        **said,
        "info": {**said["info"], "version": __version__},
        "paths": {service.path: {"post": post}, **said["paths"]},
    }


def _json(schema: Mapping[str, Any], example: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema, "example": example}}


def _schema(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return {"type": "object", "properties": {name: _schema(part) for name, part in value.items()}}
    if isinstance(value, list):
        return {"type": "array", "items": _schema(value[0]) if value else {}}
    return {"type": _KINDS[type(value)]} if type(value) in _KINDS else {}
