"""Compressed files, unpacked with a bound: some bytes of a bomb are a disk full of text."""

from __future__ import annotations

import io
from typing import IO, Any

from gptcore.base.errors import InputError

_RATIO = 200
"""Bytes a packed byte; prose has 3 to 5, a table of repeated rows up to 100."""
_FREE = 1 << 26  # bytes that may come of any file


def bounded(unpacked: Any, packed: IO[bytes], name: str) -> io.BufferedReader:
    """What is unpacked of an open file, for as long as it is no more than text can be packed to.

    :param packed: what ``unpacked`` reads.
    :param name: of the file, for messages.
    :return: a reader that raises :class:`InputError` where it becomes too much.
    """
    return io.BufferedReader(_Bounded(unpacked, packed, name), 1 << 18)


def check_unpacked(size: int, packed: int, name: str) -> None:
    """Refuse a file that becomes too large for so many packed bytes.

    :raises InputError: naming it.
    """
    if size > _FREE + _RATIO * packed:
        found = f"{size:,} bytes or more unpacked of {packed:,}"
        raise InputError(f"{name}: found {found}, expected at most {_RATIO} times as many")


class _Bounded(io.RawIOBase):
    def __init__(self, unpacked: Any, packed: IO[bytes], name: str) -> None:
        self._unpacked, self._packed, self._name, self._size = unpacked, packed, name, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._unpacked.read(len(buffer))
        self._size += len(data)
        check_unpacked(self._size, self._packed.tell(), self._name)
        buffer[: len(data)] = data
        return len(data)
