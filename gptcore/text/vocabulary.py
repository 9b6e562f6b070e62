"""The folder that a tokenizer is read from and what its files say; of a byte pair encoding the two parts.

These are piece -> id and the merges: read from two files or one, checked, written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import fsspec

from gptcore.base.errors import InputError, require
from gptcore.base.files import checked_object, write_bytes_atomic
from gptcore.base.filesystems import Folder, is_folder, names_in

SETTINGS_FILE = "tokenizer_config.json"  # Hugging Face's: what a vocabulary alone does not say
VOCABULARY_FILE = "vocab.json"
MERGES_FILE = "merges.txt"
LIBRARY_FILE = "tokenizer.json"  # all of a tokenizer, as the library `tokenizers` writes it, and transformers
END_OF_TEXT = "<|endoftext|>"  # GPT-2's only special piece, which tells its vocabularies from GPT-1's
PAPER_MARKS = ("<|startoftext|>", "<|sep|>")  # of titles and abstracts: no pieces, but rows behind the vocabulary
_VERSION_LINE = "#version: 0.2"  # first line of a merges file, as released

Merge = tuple[str, str]


class TokenizerFolder(Folder):
    """A folder that a tokenizer is read from."""

    def ending_in(self, suffix: str) -> list[str]:
        """The names, sorted, of its files that end so."""
        names = names_in(self._files, self._path) if is_folder(self._files, self._path) else []
        return [name for name in names if name.endswith(suffix)]

    def object(self, name: str) -> dict[str, Any]:
        """The JSON object in one of its files; an empty one without the file.

        :raises InputError: a file that is no JSON object.
        """
        url = self.at(name)
        return parse_object(read_text(url), url, "an object of settings") if self.has(name) else {}

    def added_tokens(self) -> list[str]:
        """The added tokens that are text: special ones, which stand for none, are asked for by their roles."""
        listed = self.object(SETTINGS_FILE).get("added_tokens_decoder") or {}
        good = isinstance(listed, dict) and all(
            isinstance(token, dict) and "content" in token for token in listed.values()
        )
        require(good, f"{self.at(SETTINGS_FILE)}: added_tokens_decoder: expected an object of tokens by their ids")
        return [*self.object("added_tokens.json"), *(t["content"] for t in listed.values() if not t.get("special"))]

    def settings(self, types: Mapping[str, type]) -> dict[str, Any]:
        """The settings among ``types`` that :data:`SETTINGS_FILE` gives a value; none without the file.

        :raises InputError: a file that is no JSON object, or a value of another type.
        """
        written = self.object(SETTINGS_FILE)
        given = {name: written[name] for name in types if written.get(name) is not None}
        return checked_object(
            given, self.at(SETTINGS_FILE), "an object of settings", {name: types[name] for name in given}
        )


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
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{name}: line {error.lineno}: not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; brackets thousands deep
        raise InputError(f"{name}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InputError(f"{name}: found a JSON {type(value).__name__}, expected {expected}")
    return value


def read_merges(url: str) -> list[Merge]:
    """Pairs of pieces, the most important first, from a path or fsspec URL.

    :raises InputError: a file that cannot be read or parsed; names the line.
    """
    lines = read_text(url).split("\n")
    if not lines[0].startswith("#version"):
        raise InputError(f"{url}: line 1: found {lines[0][:40]!r}, expected {_VERSION_LINE!r}")
    if lines[-1] == "":
        lines.pop()
    merges = []
    for number, line in enumerate(lines[1:], start=2):
        pieces = line.split()
        if len(pieces) != 2:
            raise InputError(f"{url}: line {number}: found {line[:40]!r}, expected two pieces with a space between")
        merges.append((pieces[0], pieces[1]))
    return merges


def write_vocabulary(vocabulary: Mapping[str, int], merges: Sequence[Merge], folder: Path) -> None:
    """Write ``vocab.json`` and ``merges.txt``, in the released format, into a local folder (made if absent)."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [_VERSION_LINE, *(" ".join(merge) for merge in merges)]
    write_bytes_atomic(folder / VOCABULARY_FILE, json.dumps(vocabulary, ensure_ascii=False).encode("utf-8"))
    write_bytes_atomic(folder / MERGES_FILE, ("\n".join(lines) + "\n").encode("utf-8"))


def check_ids(vocabulary: Mapping[str, int], name: str) -> None:
    """Refuse a vocabulary whose ids are not 0..n-1, or with a piece that is no text.

    :param name: what messages call the vocabulary.
    :raises InputError: naming the entry, what was found and what was expected.
    """
    owners: dict[int, str] = {}
    for piece, index in vocabulary.items():
        if type(index) is not int or not 0 <= index < len(vocabulary):
            raise InputError(
                f"{name}: entry {piece!r}: id {index!r}, expected a whole number in 0..{len(vocabulary) - 1}"
            )
        if index in owners:
            raise InputError(f"{name}: entry {piece!r}: id {index} belongs to {owners[index]!r} already")
        if not piece.isascii() and any("\ud800" <= character <= "\udfff" for character in piece):
            raise InputError(f"{name}: entry {piece!r}: half of a surrogate pair, which UTF-8 cannot hold")
        owners[index] = piece


def check_merges(vocabulary: Mapping[str, int], merges: Sequence[Merge], names: tuple[str, str]) -> None:
    """Refuse a merge that makes no piece of the vocabulary, or comes twice.

    :param names: what messages call the vocabulary and the merges.
    :raises InputError: naming the part, the line, what was found and what was expected.
    """
    vocabulary_name, merges_name = names
    seen: dict[Merge, int] = {}
    for line, (first, second) in enumerate(merges, start=2):  # line 1 of a merges file is its version
        if first + second not in vocabulary:
            raise InputError(
                f"{merges_name}: line {line}: {first!r} + {second!r} gives {first + second!r}, "
                f"which {vocabulary_name} does not hold"
            )
        if (first, second) in seen:
            raise InputError(f"{merges_name}: line {line}: repeats line {seen[first, second]} ({first} {second})")
        seen[first, second] = line


def in_order(merges: Sequence[Merge]) -> bool:
    """Whether every merge comes after all that make its two pieces, as in every list that was learnt.

    Then no pair that a merge creates comes before it, and it does not matter whether one looks at such pairs at once,
    as the library `tokenizers` does, or when all occurrences of the merge's own pair are joined (original code).
    """
    made: dict[str, int] = {}  # piece -> the last merge that makes it
    for rank, (first, second) in enumerate(merges):
        made[first + second] = rank
    return all(made.get(piece, -1) < rank for rank, merge in enumerate(merges) for piece in merge)
