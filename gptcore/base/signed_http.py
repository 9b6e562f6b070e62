"""http(s):// for fsspec: addresses get their signatures back as they are asked for, and no error tells of one."""

from __future__ import annotations

from typing import Any

import aiohttp
from fsspec.implementations.http import HTTPFileSystem

from gptcore.base.addresses import signed, unsigned

_ERRORS = {401: PermissionError, 403: PermissionError, 404: FileNotFoundError}


class _Answer(aiohttp.ClientResponse):
    def raise_for_status(self) -> None:
        """:raises OSError: the server refuses, or has no such file."""
        if self.status >= 400:
            kind = _ERRORS.get(self.status, OSError)
            raise kind(f"{unsigned(str(self.url))}: found HTTP {self.status} {self.reason}, expected the file")


class SignedHTTP(HTTPFileSystem):  # type: ignore[misc]  # fsspec has no types
    """fsspec's own, but for that."""

    def __init__(self, *arguments: Any, client_kwargs: dict[str, Any] | None = None, **others: Any) -> None:
        """Take the arguments of fsspec's own file system."""
        super().__init__(*arguments, client_kwargs={"response_class": _Answer, **(client_kwargs or {})}, **others)

    def encode_url(self, url: str) -> Any:
        """The address to ask for."""
        return super().encode_url(signed(url))
