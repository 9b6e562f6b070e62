"""What is asked of a tokenizer, whichever its kind: one a family of models, each with its own way to read a text.

A kind is a subclass. :meth:`Tokenizer.load` finds the right one by what a folder holds.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from gptcore.base.errors import InputError, require
from gptcore.base.files import sha256_json
from gptcore.base.types import Advance, Map, quiet
from gptcore.text.counting import Counts, count_corpus, count_words
from gptcore.text.parts import raw_rows
from gptcore.text.vocabulary import (
    LIBRARY_FILE,
    MERGES_FILE,
    SETTINGS_FILE,
    VOCABULARY_FILE,
    Merge,
    TokenizerFolder,
    check_ids,
    check_merges,
    parse_object,
    read_merges,
    read_text,
    write_vocabulary,
)
from gptcore.text.word_edges import word_edges

_KNOWN_NAMES = [
    (VOCABULARY_FILE, MERGES_FILE),  # ours; Hugging Face's folders use the same names
    ("encoder_bpe_40000.json", "vocab_40000.bpe"),  # the release of 2018
    ("encoder_bpe.json", "vocab.bpe"),
    ("encoder.json", "vocab.bpe"),  # the release of 2019
]


_KEPT_WORDS = 1 << 20  # distinct words remembered by one tokenizer (some 200 MB, full)
_KEPT_LENGTH = 64  # longer words are hardly ever seen twice
_CHARACTER_BYTES = 4  # of the longest in UTF-8


class Specials(NamedTuple):
    """The ids of the pieces that stand for no text, by their role in a sequence (BERT's paper, sections 3 and 3.1)."""

    pad: int
    """Behind the end of a sequence that is shorter than others of its batch."""
    unk: int
    """In the place of a word that the vocabulary has no pieces for."""
    cls: int
    """The first of every sequence, whose last state stands for the whole."""
    sep: int
    """The last of each of a sequence's parts."""
    mask: int
    """In the place of a piece that is to be predicted."""
    joints: int = 1
    """How many of ``sep`` stand between two parts: RoBERTa has two."""
    segments: int = 2
    """How many kinds of parts are told apart: 1 where the second part of two is of the same kind as the first."""

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids, in the order of the roles."""
        return self.pad, self.unk, self.cls, self.sep, self.mask


class Tokenizer(ABC):
    """A vocabulary and a way to cut text into its pieces; immutable, comparable by :attr:`digest`.

    It is cheap to send to another process.

    :ivar vocabulary: piece -> id, in the order of the ids, which are 0..n-1.
    """

    kind: str
    """What people call it: "word" or "byte-level", "WordPiece" or "SentencePiece"."""
    drops_signs = False
    """Whether vowel signs go with the accents that it drops (:func:`gptcore.text.word_edges.has_signs`)."""
    _readers: ClassVar[list[type[Tokenizer]]] = []
    """The classes that read a folder, in the order in which they are asked: an ending of a file's name says least."""
    _files: ClassVar[str]
    """What a folder of a reader's kind holds, as messages call it."""

    def __init_subclass__(cls) -> None:
        if "_files" in vars(cls):
            Tokenizer._readers.append(cls)
            Tokenizer._readers.sort(key=lambda reader: (reader._files != LIBRARY_FILE, "*" in reader._files))

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        """:param vocabulary: piece -> id, the ids being 0..n-1."""
        self.vocabulary = dict(sorted(vocabulary.items(), key=lambda entry: entry[1]))
        self._pieces = tuple(self.vocabulary)

    @abstractmethod
    def __reduce__(self) -> tuple[Any, ...]:
        """What it is made from, without what it remembers."""

    # --- where tokenizers come from and go to ---

    @staticmethod
    def load(url: str | Path) -> Tokenizer:
        """Read the tokenizer in a folder (any fsspec URL): its ``tokenizer.json``, or any kind by our names or others'.

        :raises InputError: no such folder or files in it, a file that cannot be read or parsed, or files that do not
            make a tokenizer; names the file and the line or entry.
        """
        folder = TokenizerFolder(str(url))
        for reader in Tokenizer._readers:
            if (tokenizer := reader._in_folder(folder)) is not None:
                for name in folder.added_tokens():
                    said = f"{folder.url}: found the added token {name!r:.60}"
                    require(name in tokenizer.vocabulary, f"{said}, expected one of the vocabulary's pieces")
                return tokenizer
        expected = " or ".join(reader._files for reader in Tokenizer._readers)
        raise InputError(f"{folder.url}: no tokenizer here, expected a folder with {expected}")

    @staticmethod
    def from_openai(vocabulary: str | Path, merges: str | Path) -> Tokenizer:
        """Read a vocabulary (JSON) and a merges file in the format of the releases; paths or fsspec URLs.

        :raises InputError: a file that cannot be read or parsed, marks of no kind or of several, or two files that do
            not fit each other.
        """
        names = str(vocabulary), str(merges)
        pieces = parse_object(read_text(names[0]), names[0], "an object of piece -> id")
        kinds = [kind for kind in BytePairTokenizer._marked if kind._mark in pieces]
        if len(kinds) != 1:
            marks = " or ".join(f"{kind._mark} ({kind.kind})" for kind in BytePairTokenizer._marked)
            raise InputError(f"{names[0]}: {'both' if kinds else 'no entry'} {marks}, expected one of the two")
        return kinds[0](pieces, read_merges(names[1]), names=names)

    @classmethod
    def _in_folder(cls, folder: TokenizerFolder) -> Tokenizer | None:
        """The tokenizer of a folder that holds files of a reader's kind; None where it holds none."""
        raise NotImplementedError

    @classmethod
    def from_corpus(cls, corpus: Path, n_merges: int, work: Path, map: Map = map, progress: Advance = quiet) -> Self:
        """Learn at most ``n_merges`` pieces from the training documents of a corpus cleaned for this kind.

        They come on top of special pieces and single characters; a byte pair encoding makes each by a merge. Equal
        documents give an equal tokenizer, on any machine.

        :param work: a folder for words that are counted, made and removed.
        :param map: the built-in, or one that gives results in order and whose workers see both folders.
        :param progress: called with 1 for each file counted.
        :raises InputError: a negative ``n_merges``, or no words where the kind learns from words.
        """
        made = cls.from_counts(count_corpus(corpus, work, map, progress, cls._counted), n_merges)
        shutil.rmtree(work)
        return made

    @classmethod
    def train(cls, texts: Iterable[str], n_merges: int) -> Self:
        """:meth:`from_corpus` of rows: cleaned ones where the kind takes those, else any text that UTF-8 can hold."""
        return cls.from_counts(count_words(texts, cls._counted), n_merges)

    @classmethod
    def from_counts(cls, counts: Counts, n_merges: int) -> Self:
        """Learn as :meth:`from_corpus` does from words that are counted already, if the kind learns from words."""
        raise NotImplementedError

    @classmethod
    def _counted(cls, text: str) -> Mapping[str, int]:
        """How often each word of a document comes, for kinds that learn from words."""
        raise NotImplementedError

    @abstractmethod
    def save(self, folder: str | Path) -> None:
        """Write the files that :meth:`load` reads, in the released format, into a local folder (made if absent)."""

    # --- what a tokenizer is ---

    @property
    def n_vocab(self) -> int:
        """Number of ids; the specials of fine-tuning come after them."""
        return len(self._pieces)

    def require_rows(self, n_vocab: int, where: str) -> None:
        """Refuse a model that has not just one row for each id.

        :param where: what a message calls the model.
        :raises InputError: it has another number of rows.
        """
        if n_vocab != self.n_vocab:
            raise InputError(f"{where}: found n_vocab = {n_vocab}, expected the tokenizer's {self.n_vocab}")

    @property
    def specials(self) -> Specials | None:
        """The ids of the special pieces by role; None where there are none, and a task adds rows for them."""
        return None

    @cached_property
    def word_edges(self) -> str:
        """Whether each piece begins or ends a word, a digit a piece, as :func:`word_edges` has it."""
        return "".join(map(str, word_edges(self.kind, self._pieces, self.specials.ids if self.specials else ())))

    @property
    def end_of_text(self) -> int | None:
        """The id that stands before and behind every document; None where the kind has no such piece."""
        return None

    @property
    def opening(self) -> tuple[int, ...]:
        """The ids that a decoder's every text begins with, such as Llama's ``<s>``; mostly none."""
        return ()

    @property
    def beginning(self) -> int | None:
        """The id that the first piece of a document is predicted from; None where the kind has no such piece."""
        return self.end_of_text

    @property
    def beside(self) -> Mapping[str, Any]:
        """Settings that others read in its folder, and that no id hangs on."""
        return {}

    @cached_property
    @abstractmethod
    def digest(self) -> str:
        """SHA-256 (hex) of all that its ids depend on, whatever the formatting of the files it came from."""

    def __repr__(self) -> str:
        merges = f", n_merges={self.n_merges}" if isinstance(self, BytePairTokenizer) else ""
        return f"{type(self).__name__}(n_vocab={self.n_vocab}{merges}, digest={self.digest[:12]})"

    # --- text -> ids -> text ---

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Ids of a raw text."""

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """:meth:`encode` of each text."""
        return [self.encode(text) for text in texts]

    def encode_next(self, text: str) -> list[int]:
        """Ids of a raw text that goes on another one, from which white space or its own mark sets it apart.

        Those of the text itself, where a word's beginning or end is in its pieces.
        """
        return self.encode(text)

    @staticmethod
    def rows(document: Iterable[str]) -> Iterator[str]:
        """A raw document given in pieces as rows for :meth:`encode_clean`, in bounded memory."""
        return raw_rows(document)

    def encode_clean(self, text: str) -> NDArray[np.int32]:
        """Ids [N] of a row of a document; those of its :meth:`rows`, one after the other, are those of the whole."""
        return np.asarray(self.encode(text), dtype=np.int32)

    def located(self, text: str) -> list[tuple[int, int, int]] | None:
        """Each id of a text with its first character and the one behind its last; None where a kind cannot tell."""
        return None

    def normalised(self, text: str) -> str:
        """A text as the pieces spell it, without white space; asked for by kinds whose pieces never cross any.

        :raises InputError: a kind that reads a text otherwise.
        """
        raise InputError(f"tokenizer: found a {self.kind} one, expected WordPiece or SentencePiece to point at words")

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids.

        :raises InputError: an id outside the vocabulary (the specials of fine-tuning, for one).
        """

    def following(self, last: int) -> Callable[[int], str]:
        """What each further id, in turn, adds to a text whose last is ``last``; a character comes with all bytes."""
        before, pending = [last], list[int]()

        def add(index: int) -> str:
            pending.append(index)
            text = self.decode([*before, *pending])[len(self.decode(before)) :]
            if text.endswith("\ufffd") and len(pending) < _CHARACTER_BYTES:
                return ""
            before[:] = pending
            pending.clear()
            return text

        return add

    def _known(self, ids: Iterable[int]) -> Iterator[int]:
        """The ids, each of them looked at.

        :raises InputError: an id outside the vocabulary.
        """
        for position, index in enumerate(ids):
            if not 0 <= index < len(self._pieces):
                raise InputError(f"ids[{position}] = {index}: expected an id in 0..{len(self._pieces) - 1}")
            yield index


class WordIds(dict[str, bytes]):
    """Word -> its ids, worked out when first asked for, remembered within bounds: texts repeat their words.

    Kept as int32 in bytes, which the garbage collector passes over.
    """

    def __init__(self, encode: Callable[[str], Iterable[int]]) -> None:
        """:param encode: gives the ids of a word."""
        super().__init__()
        self._encode = encode

    def __missing__(self, word: str) -> bytes:
        ids = array("i", self._encode(word)).tobytes()
        if len(word) <= _KEPT_LENGTH:
            if len(self) >= _KEPT_WORDS:
                self.clear()
            self[word] = ids
        return ids

    def of(self, words: Iterable[str]) -> NDArray[np.int32]:
        """Ids of words, one after the other: [N]."""
        return np.frombuffer(b"".join(map(self.__getitem__, words)), np.int32)


class WordByWordTokenizer(Tokenizer):
    """WordPiece and SentencePiece, whose pieces never cross the white space between words: a piece for each role.

    What stands around a text is up to the sequence that it becomes part of, so that none of its pieces ends a text.
    """

    _specials: Specials

    @property
    def specials(self) -> Specials:
        return self._specials

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids: pieces joined, words set apart by one space, special pieces by their names.

        What a text lost when it was encoded (case, accents, white space, unknown text) does not come back.

        :raises InputError: an id outside the vocabulary.
        """
        return "".join(map(self._added, self._known(ids))).removeprefix(" ")

    @abstractmethod
    def _added(self, index: int) -> str:
        """What a piece adds to a text, with a space before it where it begins a word."""


class BytePairTokenizer(Tokenizer):
    """A vocabulary whose pieces are joined from smaller ones, by a list of merges."""

    _mark: ClassVar[str]
    """The piece that all vocabularies of the kind hold, and none of another."""
    _digested: ClassVar[Mapping[str, bool]] = {}
    """What of the kind its digest is of, beside the vocabulary and the merges."""
    _marked: ClassVar[list[type[BytePairTokenizer]]] = []
    _files = " or ".join(map(" + ".join, _KNOWN_NAMES))

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        BytePairTokenizer._marked.append(cls)

    def __init__(
        self, vocabulary: Mapping[str, int], merges: Sequence[Merge], *, names: tuple[str, str] | None = None
    ) -> None:
        """Check that the two parts fit each other.

        :param vocabulary: piece -> id, the ids being 0..n-1.
        :param merges: pairs of pieces, the most important first.
        :param names: what messages call the two parts; the files they came from.
        :raises InputError: naming the part, the entry or line, what was found and what was expected.
        """
        names = names or ("vocabulary", "merges")
        check_ids(vocabulary, names[0])
        check_merges(vocabulary, merges, names)
        super().__init__(vocabulary)
        self.merges = tuple(merges)
        self._check(names)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.vocabulary, self.merges)

    @classmethod
    def _in_folder(cls, folder: TokenizerFolder) -> Tokenizer | None:
        for names in _KNOWN_NAMES:
            if all(map(folder.has, names)):
                prefix = folder.settings({"add_prefix_space": bool}).get("add_prefix_space", False)
                require(not prefix, f"{folder.at(SETTINGS_FILE)}: add_prefix_space = {prefix}, expected False")
                return Tokenizer.from_openai(*map(folder.at, names))
        return None

    def save(self, folder: str | Path) -> None:
        """Write ``vocab.json`` and ``merges.txt``, in the released format, into a local folder."""
        write_vocabulary(self.vocabulary, self.merges, Path(folder))

    @abstractmethod
    def _check(self, names: tuple[str, str]) -> None:
        """Refuse two parts that make no tokenizer of this kind.

        :raises InputError: naming the part, what was found and what was expected.
        """

    @property
    def n_merges(self) -> int:
        """Number of merges; after training it is smaller than asked where the texts hold no more."""
        return len(self.merges)

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the vocabulary and the merges, whatever the formatting of the files they came from."""
        return sha256_json({**self._digested, "vocabulary": self._pieces, "merges": self.merges})
