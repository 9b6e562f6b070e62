"""The folder that a tokenizer is read from: which files it holds, and what each of them says, as text or as bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import fsspec

from gptcore.base.errors import InputError
from gptcore.base.files import checked_object
from gptcore.base.filesystems import exists, file_system, names_in

SETTINGS_FILE = "tokenizer_config.json"  # Hugging Face's: what a vocabulary alone does not say


class TokenizerFolder:
    """A folder behind any fsspec URL.

    :ivar url: without a slash at its end.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._files, self._path = file_system(self.url)

    def has(self, name: str) -> bool:
        """Whether it holds a file of this name."""
        return exists(self._files, f"{self._path}/{name}")

    def at(self, name: str) -> str:
        """The address of one of its files."""
        return f"{self.url}/{name}"

    def ending_in(self, suffix: str) -> list[str]:
        """The names, sorted, of its files that end so."""
        return [name for name in names_in(self._files, self._path) if name.endswith(suffix)]

    def settings(self, types: Mapping[str, type]) -> dict[str, Any]:
        """Those of ``types`` that :data:`SETTINGS_FILE` gives a value; none without the file.

        :raises InputError: a file that is no JSON object, or a value of another type.
        """
        if not self.has(SETTINGS_FILE):
            return {}
        url = self.at(SETTINGS_FILE)
        found = parse_object(read_text(url), url, "an object of settings")
        given = {name: found[name] for name in types if found.get(name) is not None}
        return checked_object(given, url, "an object of settings", {name: types[name] for name in given})


def read_bytes(url: str) -> bytes:
    """The bytes of a file, from a path or fsspec URL.

    :raises InputError: a file that cannot be read.
    """
    try:
        with fsspec.open(url, "rb") as file:
            data: bytes = file.read()
    except OSError as error:
        raise InputError(f"{url}: cannot be read: {type(error).__name__}: {error}") from error
    return data


def read_text(url: str) -> str:
    r"""The text of a UTF-8 file, from a path or fsspec URL, its lines ending in "\n".

    :raises InputError: a file that cannot be read, or is not UTF-8.
    """
    try:
        return read_bytes(url).decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{url}: byte {error.start} is not UTF-8") from error


def parse_object(text: str, name: str, expected: str) -> dict[str, Any]:
    """The JSON object that a text is.

    :param expected: what the object should be, in words.
    :raises InputError: no JSON, or another value than an object.
    """
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{name}: line {error.lineno}: not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; brackets thousands deep
        raise InputError(f"{name}: not JSON: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"{name}: found a JSON {type(found).__name__}, expected {expected}")
    return found
