"""GPT-2's text encoder, written plainly and slowly from its description, to test the fast one against.

Nothing is shared with gptcore. The pattern is spelled out by Unicode categories instead of as an expression.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from tests.gptcore.reference_bpe import merged

CONTRACTIONS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")


def kind(character: str) -> str:
    """L letter, N number, S white space, else M."""
    if character.isspace() and character not in "\x1c\x1d\x1e\x1f":  # separators of files are none in the pattern
        return "S"
    category = unicodedata.category(character)[0]
    return category if category in "LN" else "M"


def pieces(text: str) -> Iterator[str]:
    """Contractions; runs of letters, of numbers, of anything else, each with one space before it; white space.

    A run of white space leaves its last character to what follows.
    """
    at = 0
    while at < len(text):
        contraction = next((c for c in CONTRACTIONS if text.startswith(c, at)), "")
        start = at + (text[at] == " " and at + 1 < len(text) and kind(text[at + 1]) != "S")
        end = start
        if contraction:
            end = at + len(contraction)
        elif kind(text[start]) != "S":
            while end < len(text) and kind(text[end]) == kind(text[start]):
                end += 1
        else:
            while end < len(text) and kind(text[end]) == "S":
                end += 1
            if end < len(text) and end - at > 1:
                end -= 1
        yield text[at:end]
        at = end


class ReferenceEncoder:
    """Vocabulary and merges, straight from the two files."""

    def __init__(self, vocabulary_file: Path, merges_file: Path) -> None:
        self.vocabulary: dict[str, int] = json.loads(vocabulary_file.read_text(encoding="utf-8"))
        lines = merges_file.read_text(encoding="utf-8").split("\n")[1:-1]
        self.rank = {tuple(line.split(" ")): number for number, line in enumerate(lines)}
        shown = [byte for byte in range(256) if chr(byte).isprintable() and byte not in (0x20, 0xAD)]
        hidden = [byte for byte in range(256) if byte not in shown]
        self.character = {byte: chr(byte) for byte in shown} | {byte: chr(256 + n) for n, byte in enumerate(hidden)}

    def encode(self, text: str) -> list[int]:
        """Ids of a text."""
        ids = []
        for piece in pieces(text):
            parts = merged([self.character[byte] for byte in piece.encode("utf-8")], self.rank)
            ids += [self.vocabulary[part] for part in parts]
        return ids
