"""The original release's text encoder, written plainly and slowly from its description, to test the fast one against.

Order: ftfy, standardise, spaCy English tokenizer, lower-case, byte pair encoding with ``</w>``, id or 0.
Everything is spelled out character by character; nothing is shared with gptcore.
"""

from __future__ import annotations

import json
from functools import cache
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import ftfy

REPLACED = {"\u2014": "-", "\u2013": "-", "\u2015": "-", "\u2026": "...", "\u00b4": "'"}
SET_OFF = '-~!";?+,)(/*[]}{|_'  # no backslash: the original pattern lost it for want of a raw string


@cache
def spacy_english() -> Any:
    import spacy

    return spacy.blank("en")


def standardise(text: str) -> str:
    """Dashes, dots and accents made plain; runs of punctuation set off; white space made single."""
    text = "".join(REPLACED.get(character, character) for character in text)
    spaced = []
    for character, run in groupby(text):
        repeated = "".join(run)
        spaced.append(f" {repeated} " if character in SET_OFF else repeated)
    out = []
    for is_space, run in groupby("".join(spaced), str.isspace):
        stretch = "".join(run)
        out.append((" \n " if "\n" in stretch else " ") if is_space else stretch)
    return "".join(out).strip()


def tokens(text: str) -> list[str]:
    """Lower-cased spaCy tokens, white-space tokens as spaCy gives them."""
    return [token.text.lower() for token in spacy_english().tokenizer(standardise(ftfy.fix_text(text)))]


def merged(pieces: list[str], rank: dict[tuple[str, ...], int]) -> list[str]:
    """Join the best-ranked pair wherever it occurs, until there is none."""
    while pairs := [pair for pair in pairwise(pieces) if pair in rank]:
        best = min(pairs, key=lambda pair: rank[pair])
        joined: list[str] = []
        while pieces:
            size = 2 if tuple(pieces[:2]) == best else 1
            joined.append("".join(pieces[:size]))
            pieces = pieces[size:]
        pieces = joined
    return pieces


class ReferenceEncoder:
    """Vocabulary and merges, straight from the two files."""

    def __init__(self, vocabulary_file: Path, merges_file: Path) -> None:
        self.vocabulary: dict[str, int] = json.loads(vocabulary_file.read_text(encoding="utf-8"))
        lines = merges_file.read_text(encoding="utf-8").split("\n")[1:-1]
        self.merges = [tuple(line.split()) for line in lines]
        self.rank = {merge: i for i, merge in enumerate(self.merges)}

    def joined(self, token: str) -> str:
        """Pieces of one token, joined by spaces."""
        text = " ".join(merged([*token[:-1], token[-1] + "</w>"], self.rank))
        return "\n</w>" if text == "\n  </w>" else text

    def encode_token(self, token: str) -> list[int]:
        """Ids of one token: its joined pieces are split at every space, those inside the token included."""
        return [self.vocabulary.get(piece, 0) for piece in self.joined(token).split(" ")]

    def encode(self, text: str) -> list[int]:
        """Ids of a raw text."""
        return [index for token in tokens(text) for index in self.encode_token(token)]
