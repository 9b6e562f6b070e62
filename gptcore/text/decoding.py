"""Bytes of a corpus' files as text: UTF-8, or another encoding in its place, and what of them is neither."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, repeat

from gptcore.base.errors import InputError

_WESTERN = 0.2  # share of letters with accents at most; of what is written in Cyrillic or Greek most are beyond ASCII
_SAMPLE = 1 << 16  # bytes that tell what a text is in
_CONTROLS = re.compile(rb"[\x00-\x08\x0b\x0e-\x1f]")  # of no text, but for a few
_MOST_CONTROLS = 0.01  # share of bytes; DOS ends a text with one


@dataclass
class Read:
    """What was read of a source so far."""

    bytes: int = 0
    """UTF-8 bytes of text, decompressed, before anything is cut."""
    undecodable: int = 0
    """Bytes that are no UTF-8 (or lone surrogates in JSON)."""
    example: str = field(default="", compare=False)
    """The first of them as U+FFFD, amid the text around."""

    def __add__(self, other: Read) -> Read:
        return Read(self.bytes + other.bytes, self.undecodable + other.undecodable)


# --- another encoding ------------------------------------------------------------------------------------------------


def as_utf8(blocks: Iterable[bytes], name: str, encoding: str | None) -> Iterator[bytes]:
    """The bytes of a file in UTF-8. Which of the two a file is in is told by the first of its bytes beyond ASCII.

    What begins with the byte order mark of UTF-16 is that; half of a character in it becomes undecodable bytes.

    :param encoding: of files that are no UTF-8; None: there should be none.
    :raises InputError: the file is text in another encoding, and none is given, or it is not in that.
    """
    blocks, position, waiting = iter(blocks), 0, b""
    begin = next(blocks, b"")
    if begin.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        yield from _from_encoding(chain([begin], blocks), name, "utf-16", _MARK)
        return
    blocks = chain([begin], blocks)
    for block, final in _with_last(blocks):
        data, waiting = waiting + block, b""
        try:
            data.decode("utf-8")
        except UnicodeDecodeError as error:
            first = data[: error.start].isascii()
            if first and not final and error.reason == "unexpected end of data":
                data, waiting = data[: error.start], data[error.start :]
            elif first and encoding:
                yield from _from_encoding(chain([data], blocks), name, encoding)
                return
            elif first and (guess := _looks_like(data, name, position, error.start)):
                raise InputError(guess) from None
        yield data
        position += len(data)
        if not data.isascii():
            yield from blocks


def _from_encoding(blocks: Iterable[bytes], name: str, encoding: str, errors: str = "strict") -> Iterator[bytes]:
    try:
        decoder = codecs.getincrementaldecoder(encoding)(errors)
        for block, final in _with_last(blocks):
            yield decoder.decode(block, final).encode("utf-8", "surrogatepass")
    except LookupError:
        raise InputError(f"corpus.encoding = {encoding!r}: no such encoding, expected one that Python knows") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: found neither UTF-8 nor {encoding} ({error.reason}), expected one of them") from None


def _looks_like(data: bytes, name: str, position: int, at: int) -> str:
    """What a file seems to be in, for a person to see; empty: it seems to be no text."""
    from charset_normalizer import from_bytes

    part = data[at : at + _SAMPLE]
    share = sum(byte > 127 for byte in part) / len(part)
    best = from_bytes(part).best() if share > _WESTERN else None
    if len(_CONTROLS.findall(data.rstrip(b"\x1a"))) > _MOST_CONTROLS * len(data) or (share > _WESTERN and best is None):
        return ""
    guess = best.encoding if best else "cp1252"
    words = " ".join(data[max(0, at - 20) : at + 20].decode(guess, "replace").split())
    return (
        f"{name}, byte {position + at}: found 0x{data[at]:02x}, expected UTF-8; from there on {share:.2%} of the bytes "
        f"are beyond ASCII, and as {guess} they read {words!r}: the setting corpus.encoding = {guess!r} has files that "
        "are no UTF-8 read so"
    )


# --- decoding --------------------------------------------------------------------------------------------------------


def _with_last(blocks: Iterable[bytes]) -> Iterable[tuple[bytes, bool]]:
    """The blocks, each with whether none comes behind it: behind the last there is an empty one."""
    return chain(zip(blocks, repeat(False)), [(b"", True)])


def decode(blocks: Iterable[bytes], name: str, strict: bool, read: Read, start: int = 0) -> Iterator[str]:
    """Decode UTF-8 in bounded memory; a byte order mark in front is dropped.

    Undecodable bytes become U+FFFD as Python's own "replace" does it, and are counted in ``read``.

    :param start: offset of the first byte in the file ``name``.
    :raises InputError: at the first undecodable byte, where ``strict``.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("strict" if strict else _MARK)
    position, first = start, True  # position of the block's first byte
    for block, final in _with_last(blocks):
        read.bytes += len(block)
        waiting = len(decoder.getstate()[0])
        try:
            text = decoder.decode(block, final)
        except UnicodeDecodeError as error:
            offset = position - waiting + error.start
            found = f"0x{error.object[error.start]:02x}"
            raise InputError(f"{name}, byte {offset}: found {found}, expected UTF-8 ({error.reason})") from error
        position += len(block)
        if first and text:
            text, first = text.removeprefix("\ufeff"), False
        if any(map(text.__contains__, _MARKS)):
            text = re.sub(f"[{_MARKS}]", lambda mark: _count(mark, read, ord(mark[0]) - 0xDC00), text)
        if text:
            yield text


_MARK = "gptcore.mark-undecodable"
_MARKS = "\udc01\udc02\udc03\udc04"


def _mark(error: UnicodeError) -> tuple[str, int]:
    """Undecodable bytes become one lone surrogate that tells how many they were; decoded UTF-8 never has any."""
    assert isinstance(error, UnicodeDecodeError)
    return chr(0xDC00 + error.end - error.start), error.end


codecs.register_error(_MARK, _mark)


_SURROGATES = re.compile("[\ud800-\udfff]")
_AROUND = 20  # characters on either side of an example


def _count(mark: re.Match[str], read: Read, n: int) -> str:
    read.undecodable += n
    if not read.example:
        around = mark.string[max(0, mark.start() - _AROUND) : mark.end() + _AROUND]
        read.example = " ".join(_SURROGATES.sub("\ufffd", around).split())
    return "\ufffd"


def without_surrogates(text: str, read: Read) -> str:
    """Lone surrogates, which JSON may hold, as U+FFFD; counted in ``read``."""
    return _SURROGATES.sub(lambda mark: _count(mark, read, 1), text)


def unified(pieces: Iterable[str]) -> Iterator[str]:
    """One spelling of line ends, so that the same book saved on another system is the same document."""
    newlines = io.IncrementalNewlineDecoder(None, translate=True)
    for piece in pieces:
        if text := newlines.decode(piece):
            yield text
    if text := newlines.decode("", final=True):
        yield text
