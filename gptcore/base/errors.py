"""The one exception that means "the input is wrong, not the program"."""

from __future__ import annotations

import errno
from collections.abc import Iterable

_LONGEST = 2000  # characters of a message
_UNWRITABLE = {
    errno.ENOSPC: ("no space left on the disk", "No space left on device", "disk is full"),
    errno.EDQUOT: ("no space left in the disk quota", "Disk quota exceeded"),
    errno.EROFS: ("nothing can be written to the read-only file system", "Read-only file system", "readonly database"),
}
"""What the system refuses to write for -> how it is told here and by jobs, and how Rust's files and SQLite say it."""


class InputError(ValueError):
    """Bad input: a file, row, field, option or address that cannot be used as given.

    The message is one line that names the place (file, line, column or option), what was found and what was
    expected. The command line prints it and exits with code 2; nothing half-written is left behind.
    What a file put into it may be long or have lines of its own: it is cut, and line ends are written out.
    """

    def __init__(self, message: str) -> None:
        line = message.replace("\r", "\\r").replace("\n", "\\n")
        super().__init__(line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]} ... {line[-_LONGEST // 2 :]}")


def require(condition: object, message: str) -> None:
    """Refuse input that does not fulfil a condition.

    :raises InputError: with the message.
    """
    if not condition:
        raise InputError(message)


def unwritable(error: BaseException) -> tuple[str, str] | None:
    """Why nothing can be written any more, and where, if that is known, where ``error`` comes from that; else None.

    A second try does not mend it, but somebody who makes room does.
    """
    cause: BaseException | None = error
    while cause is not None:
        for number, words in _UNWRITABLE.items():
            if isinstance(cause, OSError) and cause.errno == number:
                return words[0], str(cause.filename2 or cause.filename or "")  # a copy: what was written, not read
            if any(word in str(cause) for word in words):
                return words[0], ""
        cause = cause.__cause__ or cause.__context__
    return None


def near(name: str, known: Iterable[str]) -> str:
    """The known name that is most like ``name``, which is none of them; empty where none is like it."""
    import difflib

    spelled = {each.lower(): each for each in known}
    return next((spelled[each] for each in difflib.get_close_matches(name.lower(), spelled, n=1)), "")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """What stands behind a message about an unknown name: "; did you mean ...?", or nothing where none is like it."""
    meant = near(name, known)
    return f"; did you mean {meant}?" if meant else ""


def nearest(name: str, known: Iterable[str]) -> str:
    """What a message says behind a name that is unknown: the one that may be meant, then all of them."""
    names = list(known)
    meant = near(name, names)
    return (f"did you mean {meant}? " if meant else "") + f"expected one of {', '.join(names)}"
