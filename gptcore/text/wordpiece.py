"""WordPiece (BERT's paper, section 3): words set apart by white space and punctuation, each cut into known pieces.

The released code is the reference. A text loses its control characters, U+0000 and U+FFFD; each ideograph of the CJK
blocks becomes a word. An uncased vocabulary reads lower case without accents. Each punctuation mark becomes a word, all
ASCII but letters, digits and white space counting as such. From the start of a word the longest piece of the
vocabulary is taken, then the longest that goes on with ``##``, and so on; a word that the pieces do not make up, or of
more than 200 characters, is ``[UNK]``. The names of special pieces are text like any other: ``[CLS]`` in a text is
three words, and no text gives the id of a special piece but ``[UNK]``'s.

Layout of a learnt vocabulary: the special pieces; the characters, the most frequent first; the same with ``##``, those
that are always words by themselves left out; one piece a merge, in order.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, Self

from tokenizers import Tokenizer as Library
from tokenizers import models, pre_tokenizers, trainers

from gptcore.base.errors import InputError, require
from gptcore.base.files import sha256_json, write_bytes_atomic, write_json_atomic
from gptcore.text.bpe_train import MIN_PAIRS, alphabet, bounded, repeated, tell_fewer, usable_words
from gptcore.text.counting import Counts
from gptcore.text.parts import encodable
from gptcore.text.tokenizer import Specials, Tokenizer, WordByWordTokenizer, WordIds
from gptcore.text.vocabulary import SETTINGS_FILE, TokenizerFolder, check_ids, read_text

PIECES_FILE = "vocab.txt"
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""In the order of the roles of :class:`gptcore.text.tokenizer.Specials`."""
MAX_WORD = 200
"""Characters of a word that is looked at (released code; transformers looks at 100)."""
GOES_ON = "##"
"""Begins a piece that goes on a word."""

# White space to `str.split`, but control characters to the released code, which drops them and joins what they part.
_DROPPED_SPACES = re.compile("[\x0b\x0c\x1c-\x1f\x85]")
_PRINTABLE = re.compile(r"[!-~]+")
_PLAIN_WORDS = re.compile(r"[0-9A-Za-z]+|.")
_IDEOGRAPHS = re.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f\U0002b820-\U0002ceaf"
    "\uf900-\ufaff\U0002f800-\U0002fa1f]"
)


class WordPieceTokenizer(WordByWordTokenizer):
    """BERT's kind: words of any text, in lower case without accents if its vocabulary is uncased."""

    kind = "WordPiece"
    _files = PIECES_FILE

    def __init__(self, vocabulary: Mapping[str, int], *, cased: bool, name: str = "vocabulary") -> None:
        """Check the vocabulary.

        :param vocabulary: piece -> id, the ids being 0..n-1.
        :param cased: whether upper case and accents are kept.
        :param name: what messages call the vocabulary; the file it came from.
        :raises InputError: naming the entry, what was found and what was expected.
        """
        check_ids(vocabulary, name)
        for piece in SPECIALS:
            if piece not in vocabulary:
                raise InputError(f"{name}: no entry {piece}, expected BERT's special pieces {', '.join(SPECIALS)}")
        for piece, index in vocabulary.items():
            if not piece or "\n" in piece or "\r" in piece:
                raise InputError(f"{name}: entry {piece!r} of id {index}: expected a piece that fits a line")
        super().__init__(vocabulary)
        self.cased, self.drops_signs = cased, not cased
        self._specials = Specials(*map(self.vocabulary.__getitem__, SPECIALS))
        self._library = models.WordPiece(
            self.vocabulary, unk_token=SPECIALS[1], max_input_chars_per_word=MAX_WORD, continuing_subword_prefix=GOES_ON
        )
        self._word_ids = WordIds(self._encode_word)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), cased=self.cased), (self.vocabulary,)

    # --- where tokenizers come from and go to ---

    @classmethod
    def _in_folder(cls, folder: TokenizerFolder) -> Tokenizer | None:
        """The tokenizer of a ``vocab.txt``: one without settings is uncased if its pieces have no upper case."""
        if not folder.has(PIECES_FILE):
            return None
        name = folder.at(PIECES_FILE)
        vocabulary = _read_pieces(name)
        given = folder.settings({"do_lower_case": bool, "strip_accents": bool, "tokenize_chinese_chars": bool})
        capitals = any(piece != piece.lower() for piece in vocabulary if piece not in SPECIALS)
        cased = not given["do_lower_case"] if "do_lower_case" in given else capitals
        for setting, only in (("strip_accents", not cased), ("tokenize_chinese_chars", True)):
            if given.get(setting, only) != only:
                file = folder.at(SETTINGS_FILE)
                raise InputError(f"{file}: {setting} = {given[setting]}, expected {only}, as BERT's released code does")
        return cls(vocabulary, cased=cased, name=name)

    @classmethod
    def from_counts(cls, counts: Counts, n_merges: int, *, cased: bool = False) -> Self:
        """Learn ``n_merges`` pieces on top of special pieces and characters; words with fewer give fewer.

        Equal counts, in whatever order, give an equal tokenizer, on any machine.
        """
        pieces = _learn(counts, n_merges, cased)
        return cls({piece: index for index, piece in enumerate(pieces)}, cased=cased)

    @classmethod
    def _counted(cls, text: str, cased: bool = False) -> Counter[str]:
        counts: Counter[str] = Counter()
        for word, n in Counter(_DROPPED_SPACES.sub("", encodable(text)).split()).items():
            for basic in basic_words(word, cased):
                counts[basic] += n
        return counts

    def save(self, folder: str | Path) -> None:
        """Write ``vocab.txt``, a piece a line, and ``tokenizer_config.json`` into a local folder (made if absent)."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes_atomic(folder / PIECES_FILE, "".join(f"{piece}\n" for piece in self._pieces).encode("utf-8"))
        settings = {"do_lower_case": not self.cased, "tokenizer_class": "BertTokenizer"}
        write_json_atomic(folder / SETTINGS_FILE, settings)

    # --- what a tokenizer is ---

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the vocabulary and whether it is cased, whatever the formatting of its files."""
        return sha256_json({"word pieces": self._pieces, "cased": self.cased})

    # --- text -> ids -> text ---

    def encode(self, text: str) -> list[int]:
        """Ids of any text; half of a surrogate pair is a character like any other, of an unknown word."""
        ids: list[int] = self._word_ids.of(_DROPPED_SPACES.sub("", text).split()).tolist()
        return ids

    def normalised(self, text: str) -> str:
        return "".join(basic_words(text, self.cased))

    def _encode_word(self, word: str) -> Iterator[int]:
        return chain.from_iterable(map(self._piece_ids, basic_words(word, self.cased)))

    def _piece_ids(self, word: str) -> list[int]:
        """The ids of one of :func:`basic_words`, the longest piece first (released code)."""
        try:
            return [token.id for token in self._library.tokenize(word)]
        except UnicodeEncodeError:  # half of a surrogate pair, which no piece holds
            return [self._specials.unk]

    def _added(self, index: int) -> str:
        piece = self._pieces[index]
        return piece.removeprefix(GOES_ON) if piece.startswith(GOES_ON) else f" {piece}"


# --- words ---


def basic_words(word: str, cased: bool) -> list[str]:
    """The words that one of a text, set apart by white space, is made of (released code, `BasicTokenizer`)."""
    if _PRINTABLE.fullmatch(word):
        return _PLAIN_WORDS.findall(word if cased else word.lower())
    kept = "".join(character for character in word if not _dropped(character))
    words = _IDEOGRAPHS.sub(r" \g<0> ", kept).split()
    if not cased:
        words = [_without_accents(each.lower()) for each in words]
    apart = "".join(f" {character} " if _sets_apart(character) else character for character in " ".join(words))
    return [part for each in apart.split() for part in bounded(each, MAX_WORD)]


def _dropped(character: str) -> bool:
    # The released code drops these two categories; transformers all that begin with C, so also characters for private
    # use and those that the Unicode of its Python does not know yet.
    return character in "\x00\ufffd" or unicodedata.category(character) in ("Cc", "Cf")


def _without_accents(word: str) -> str:
    return "".join(each for each in unicodedata.normalize("NFD", word) if unicodedata.category(each) != "Mn")


def _sets_apart(character: str) -> bool:
    if "!" <= character <= "~":
        return not character.isalnum()
    return unicodedata.category(character).startswith("P")


# --- vocabularies ---


def _read_pieces(url: str) -> dict[str, int]:
    """Piece -> id of a file with a piece a line.

    :raises InputError: a file that cannot be read, an empty line, a piece twice; names the line.
    """
    lines = read_text(url).removesuffix("\n").split("\n")
    vocabulary: dict[str, int] = {}
    for index, piece in enumerate(lines):
        require(piece, f"{url}: line {index + 1}: found nothing, expected a piece")
        if piece in vocabulary:
            raise InputError(f"{url}: line {index + 1}: repeats line {vocabulary[piece] + 1} ({piece[:40]})")
        vocabulary[piece] = index
    return vocabulary


def _learn(counts: Counts, n_merges: int, cased: bool) -> list[str]:
    characters = alphabet(counts, n_merges)
    inside = [character for character in characters if len(basic_words(f"a{character}a", cased)) == 1]
    singles = [*characters, *(GOES_ON + character for character in inside)]
    # Words in a fixed order, whichever of the corpus' files was counted first. The trainer gives out ids to "##x" in
    # the order of a hash map seeded anew in each process, and breaks ties between equally frequent pairs by id; naming
    # those pieces as special tokens fixes their ids.
    words = sorted(usable_words(counts, characters))
    trainer = trainers.WordPieceTrainer(
        vocab_size=len(SPECIALS) + len(singles) + n_merges,
        min_frequency=MIN_PAIRS,
        special_tokens=[*SPECIALS, *singles],
        continuing_subword_prefix=GOES_ON,
        show_progress=False,
    )
    library = Library(models.WordPiece(unk_token=SPECIALS[1]))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    library.train_from_iterator(repeated(words), trainer)
    vocabulary: dict[str, int] = library.get_vocab()
    tell_fewer(len(vocabulary) - len(SPECIALS) - len(singles), n_merges, "pieces")
    return sorted(vocabulary, key=lambda piece: vocabulary[piece])
