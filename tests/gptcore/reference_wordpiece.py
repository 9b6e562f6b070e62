"""BERT's text encoder, written plainly and slowly from its description, to test the fast one against.

Nothing is shared with gptcore, and nothing is remembered: one pass over the characters after the other.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

IDEOGRAPHS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


def cleaned(text: str) -> str:
    """Without control characters; white space is a space, an ideograph has one on either side."""
    found = ""
    for character in text:
        category = unicodedata.category(character)
        if character in " \t\n\r" or category == "Zs":
            found += " "
        elif character in "\0\ufffd" or category in ("Cc", "Cf"):
            continue
        elif any(first <= ord(character) <= last for first, last in IDEOGRAPHS):
            found += " " + character + " "
        else:
            found += character
    return found


def is_mark(character: str) -> bool:
    """A punctuation mark, or any printable of ASCII that is no letter, digit or space."""
    code = ord(character)
    if 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126:
        return True
    return unicodedata.category(character)[0] == "P"


def words(text: str, cased: bool) -> list[str]:
    """Between white space, then each mark by itself."""
    found = []
    for word in cleaned(text).split():
        if not cased:
            decomposed = unicodedata.normalize("NFD", word.lower())
            word = "".join(each for each in decomposed if unicodedata.category(each) != "Mn")
        for character in word:
            if is_mark(character):
                found += [" ", character, " "]
            else:
                found.append(character)
        found.append(" ")
    return "".join(found).split()


class ReferenceWordPiece:
    """A list of pieces, whose ids are their places."""

    def __init__(self, pieces: Sequence[str], cased: bool) -> None:
        self.ids = {piece: index for index, piece in enumerate(pieces)}
        self.cased = cased

    def encode(self, text: str) -> list[int]:
        """Ids of a text."""
        return [index for word in words(text, self.cased) for index in self.encode_word(word)]

    def encode_word(self, word: str) -> list[int]:
        """The longest piece at the beginning, then at the beginning of what is left."""
        found = []
        rest, prefix = word, ""
        while rest and len(word) <= 200:
            beginnings = [rest[:end] for end in range(len(rest), 0, -1)]
            piece = next((each for each in beginnings if prefix + each in self.ids), None)
            if piece is None:
                break
            found.append(self.ids[prefix + piece])
            rest, prefix = rest[len(piece) :], "##"
        else:
            if not rest:
                return found
        return [self.ids["[UNK]"]]
