"""Byte-level byte pair encoding (GPT-2's paper, section 2.2): every text is bytes, so none is unknown.

A text is cut into words, numbers, runs of marks and white space, a single space going with what follows it (original
code). The bytes of each piece, written as 256 printable characters, are joined by the merges. Nothing is cleaned:
decoding gives back the text that was encoded, to the byte.

Layout of a vocabulary (original code): the 256 bytes; one piece a merge, in order; last ``<|endoftext|>``.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import ClassVar, Self

from tokenizers import Tokenizer as Library
from tokenizers import models, pre_tokenizers, trainers

from gptcore.base.errors import InputError
from gptcore.base.types import Advance, Map, quiet
from gptcore.text.bpe_train import MIN_PAIRS, check_merges_asked, tell_fewer
from gptcore.text.parts import encodable, part_files, read_part
from gptcore.text.tokenizer import BytePairTokenizer
from gptcore.text.vocabulary import END_OF_TEXT, in_order


def _byte_characters() -> dict[int, str]:
    """Byte -> the printable character that stands for it: itself where it is one, else the next from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}


BYTE_CHARACTERS = _byte_characters()
"""In the order of the released vocabulary's first 256 ids."""
CLOSING = {*".,;:!?)\u2019'"}
"""Marks that no space sets apart from the word before them."""
_BYTES = {character: byte for byte, character in BYTE_CHARACTERS.items()}


class ByteTokenizer(BytePairTokenizer):
    """GPT-2's kind: any text as it is."""

    kind = "byte-level"
    _mark = END_OF_TEXT
    _digested: ClassVar = {"bytes": True}

    def _check(self, names: tuple[str, str]) -> None:
        for character in (*_BYTES, END_OF_TEXT):
            if character not in self.vocabulary:
                raise InputError(f"{names[0]}: no entry {character!r}, expected all 256 bytes and {END_OF_TEXT}")
        for piece in self.vocabulary:
            if piece != END_OF_TEXT and not _BYTES.keys() >= set(piece):
                raise InputError(f"{names[0]}: entry {piece!r}: expected characters that stand for bytes")
        if not in_order(self.merges):
            raise InputError(f"{names[1]}: a merge joins what only a later one makes; expected the order of learning")
        self._bytes = [
            piece.encode() if piece == END_OF_TEXT else bytes([_BYTES[character] for character in piece])
            for piece in self._pieces
        ]
        self._library = _library(models.BPE(vocab=self.vocabulary, merges=list(self.merges)))

    # --- where tokenizers come from ---

    @classmethod
    def from_corpus(cls, corpus: Path, n_merges: int, work: Path, map: Map = map, progress: Advance = quiet) -> Self:
        """:meth:`train` on the training documents of a raw corpus.

        :param work: not used, nor is ``map``: the library counts on several threads of this process, in its memory.
        :param progress: called with 1 for each file counted.
        """
        return cls.train(_texts(part_files(corpus, "train"), progress), n_merges)

    @classmethod
    def train(cls, texts: Iterable[str], n_merges: int) -> Self:
        """Learn ``n_merges`` merges; texts with fewer possible merges give fewer.

        Equal texts give an equal tokenizer, on any machine.

        :raises InputError: a negative ``n_merges``, or a text that UTF-8 cannot hold.
        """
        check_merges_asked(n_merges)
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
        library.train_from_iterator(map(encodable, texts), trainer)
        learnt = json.loads(library.to_str())["model"]["merges"][:n_merges]
        merges = [(first, second) for first, second in learnt]
        tell_fewer(len(merges), n_merges, where="texts have")
        pieces = [*characters, *dict.fromkeys(first + second for first, second in merges), END_OF_TEXT]
        return cls({piece: index for index, piece in enumerate(pieces)}, merges)

    # --- what a tokenizer is ---

    @property
    def end_of_text(self) -> int:
        """The id of ``<|endoftext|>``, which no text is encoded as."""
        return self.vocabulary[END_OF_TEXT]

    # --- text -> ids -> text ---

    def encode(self, text: str) -> list[int]:
        """Ids of a text as it is; ``<|endoftext|>`` in it is text like any other (original code).

        :raises InputError: half of a surrogate pair, which is no text that UTF-8 could hold.
        """
        ids: list[int] = self._library.encode(encodable(text), add_special_tokens=False).ids
        return ids

    def encode_next(self, text: str) -> list[int]:
        """Ids of a text that goes on another one: behind a space, unless it begins with a mark that takes none."""
        return self.encode(text if text[:1] in CLOSING else f" {text}")

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids. Bytes that are no UTF-8, as where a character's are cut, become U+FFFD (original code).

        :raises InputError: an id outside the vocabulary (the specials of fine-tuning, for one).
        """
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of ids.

        :raises InputError: an id outside the vocabulary.
        """
        return b"".join(map(self._bytes.__getitem__, self._known(ids)))

    def following(self, last: int) -> Callable[[int], str]:
        """What each further id adds to a text; a character comes with the last of its bytes."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        return lambda index: decoder.decode(self.decode_bytes([index]))


def _texts(files: Iterable[Path], progress: Advance) -> Iterator[str]:
    for path in files:
        yield from (text for _, _, text in read_part(path))
        progress(1)


def _library(model: models.BPE) -> Library:
    """The library's encoder: GPT-2's pattern is the one of its byte-level pre-tokenizer."""
    library = Library(model)
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return library
