"""Byte-level byte pair encoding (GPT-2's paper, section 2.2): every text is bytes, so none is unknown.

A text is cut into words, numbers, runs of marks and white space, a single space going with what follows it (original
code). The bytes of each piece, written as 256 printable characters, are joined by the merges. Nothing is cleaned:
decoding gives back the text that was encoded, to the byte.

Layout of a vocabulary (original code): the 256 bytes; one piece a merge, in order; last ``<|endoftext|>``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Library
from tokenizers import models, pre_tokenizers, trainers

from gptcore.errors import InputError
from gptcore.files import sha256_json
from gptcore.places import file_system
from gptcore.text.vocabulary import (
    END_OF_TEXT,
    MERGES_FILE,
    VOCABULARY_FILE,
    Merge,
    check_vocabulary,
    in_order,
    read_merges,
    read_vocabulary,
    write_vocabulary,
)

_log = logging.getLogger(__name__)

MIN_PAIRS = 2
"""A pair counted once makes no merge: it would compress nothing."""
_KNOWN_NAMES = [
    (VOCABULARY_FILE, MERGES_FILE),  # ours; Hugging Face's gpt2 folders use the same names
    ("encoder.json", "vocab.bpe"),  # the release of 2019
]


def _byte_characters() -> dict[int, str]:
    """Byte -> the printable character that stands for it: itself where it is one, else the next from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}


BYTE_CHARACTERS = _byte_characters()
"""In the order of the released vocabulary's first 256 ids."""
_BYTES = {character: byte for byte, character in BYTE_CHARACTERS.items()}


class ByteTokenizer:
    """A vocabulary and its merges; immutable, comparable by :attr:`digest`, cheap to send to another process."""

    def __init__(
        self, vocabulary: Mapping[str, int], merges: Sequence[Merge], *, names: tuple[str, str] | None = None
    ) -> None:
        """Check that the two parts fit each other.

        :param vocabulary: piece -> id, the ids being 0..n-1; all 256 bytes are among the pieces, and ``<|endoftext|>``.
        :param merges: pairs of pieces, the most important first.
        :param names: what messages call the two parts; the files they came from.
        :raises InputError: naming the part, the entry or line, what was found and what was expected.
        """
        names = names or ("vocabulary", "merges")
        check_vocabulary(vocabulary, merges, names)
        for character in (*_BYTES, END_OF_TEXT):
            if character not in vocabulary:
                raise InputError(f"{names[0]}: no entry {character!r}, expected all 256 bytes and {END_OF_TEXT}")
        for piece in vocabulary:
            if piece != END_OF_TEXT and not _BYTES.keys() >= set(piece):
                raise InputError(f"{names[0]}: entry {piece!r}: expected characters that stand for bytes")
        if not in_order(merges):
            raise InputError(f"{names[1]}: a merge joins what only a later one makes; expected the order of learning")
        self.vocabulary = dict(sorted(vocabulary.items(), key=lambda entry: entry[1]))
        self.merges = tuple(merges)
        self._pieces = [
            piece.encode() if piece == END_OF_TEXT else bytes(_BYTES[character] for character in piece)
            for piece in self.vocabulary
        ]
        self._library = _library(models.BPE(vocab=self.vocabulary, merges=list(self.merges)))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.vocabulary, self.merges)

    # --- where tokenizers come from and go to ---

    @classmethod
    def load(cls, url: str | Path) -> ByteTokenizer:
        """Read the tokenizer in a folder (any fsspec URL), under our file names or the original release's.

        :raises InputError: no such folder or files in it, a file that cannot be read or parsed, or two files that do
            not fit each other.
        """
        folder = str(url).rstrip("/")
        filesystem, path = file_system(folder)
        for names in _KNOWN_NAMES:
            if all(filesystem.exists(f"{path}/{name}") for name in names):
                vocabulary, merges = (f"{folder}/{name}" for name in names)
                return cls(read_vocabulary(vocabulary), read_merges(merges), names=(vocabulary, merges))
        expected = " or ".join(" + ".join(names) for names in _KNOWN_NAMES)
        raise InputError(f"{folder}: no byte-level tokenizer here, expected a folder with {expected}")

    def save(self, folder: str | Path) -> None:
        """Write ``vocab.json`` and ``merges.txt``, in the released format, into a local folder."""
        write_vocabulary(self.vocabulary, self.merges, Path(folder))

    @classmethod
    def train(cls, texts: Iterable[str], n_merges: int) -> ByteTokenizer:
        """Learn ``n_merges`` merges; texts with fewer possible merges give fewer.

        Equal texts give an equal tokenizer, on any machine.

        :raises InputError: a negative ``n_merges``, or a text that UTF-8 cannot hold.
        """
        if n_merges < 0:
            raise InputError(f"tokenizer.n_merges = {n_merges}: expected 0 or more")
        library = _library(models.BPE())
        characters = list(BYTE_CHARACTERS.values())
        # Ties between equally frequent pairs are broken by id, so that the ids have to be given out in a fixed order:
        # the trainer goes through its alphabet in the order of code points.
        trainer = trainers.BpeTrainer(
            vocab_size=len(characters) + n_merges,
            min_frequency=MIN_PAIRS,
            initial_alphabet=characters,
            show_progress=False,
        )
        library.train_from_iterator(map(_encodable, texts), trainer)
        learnt = json.loads(library.to_str())["model"]["merges"][:n_merges]
        merges = [(first, second) for first, second in learnt]
        if len(merges) < n_merges:
            _log.warning("tokenizer: %d merges asked for, the texts have only %d", n_merges, len(merges))
        pieces = [*characters, *dict.fromkeys(first + second for first, second in merges), END_OF_TEXT]
        return cls({piece: index for index, piece in enumerate(pieces)}, merges)

    # --- what a tokenizer is ---

    @property
    def n_vocab(self) -> int:
        """Number of ids, that of ``<|endoftext|>`` among them; the specials of fine-tuning come after them."""
        return len(self._pieces)

    @property
    def n_merges(self) -> int:
        """Number of merges; after :meth:`train` it is smaller than asked where the texts hold no more."""
        return len(self.merges)

    @property
    def end_of_text(self) -> int:
        """The id of ``<|endoftext|>``, which no text is encoded as."""
        return self.vocabulary[END_OF_TEXT]

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the vocabulary and the merges, whatever the formatting of the files they came from."""
        return sha256_json({"bytes": True, "vocabulary": list(self.vocabulary), "merges": self.merges})

    def __repr__(self) -> str:
        return f"ByteTokenizer(n_vocab={self.n_vocab}, n_merges={self.n_merges}, digest={self.digest[:12]})"

    # --- text -> ids -> text ---

    def encode(self, text: str) -> list[int]:
        """Ids of a text as it is; ``<|endoftext|>`` in it is text like any other (original code).

        :raises InputError: half of a surrogate pair, which is no text that UTF-8 could hold.
        """
        ids: list[int] = self._library.encode(_encodable(text), add_special_tokens=False).ids
        return ids

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """:meth:`encode` of each text."""
        return [self.encode(text) for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids. Bytes that are no UTF-8, as where a character's are cut, become U+FFFD (original code).

        :raises InputError: an id outside the vocabulary (the specials of fine-tuning, for one).
        """
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of ids.

        :raises InputError: an id outside the vocabulary.
        """
        found = []
        for position, index in enumerate(ids):
            if not 0 <= index < len(self._pieces):
                raise InputError(f"ids[{position}] = {index}: expected an id in 0..{len(self._pieces) - 1}")
            found.append(self._pieces[index])
        return b"".join(found)


def _library(model: models.BPE) -> Library:
    """The library's encoder: GPT-2's pattern is the one of its byte-level pre-tokenizer."""
    library = Library(model)
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return library


def _encodable(text: str) -> str:
    """The text itself.

    :raises InputError: it holds half of a surrogate pair.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        place = f"text: character {error.start}"
        raise InputError(f"{place}: half of a surrogate pair, which UTF-8 cannot hold") from None
    return text
