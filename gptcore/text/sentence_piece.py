"""SentencePiece with ALBERT's way to read a text (ALBERT's paper, section 4.1; its released code is the reference).

White space becomes single spaces, pairs of ` or ' a ", and unless accents are kept a text is decomposed (NFKD) and
loses its combining characters; an uncased vocabulary reads lower case. Then the library cuts the text into the pieces
of its unigram model, the first of a word beginning with ``▁``. A piece that ends in a digit and a comma is cut once
more, the comma set apart. The names of special pieces are text like any other, and no text gives the id of a special
piece but ``<unk>``'s.

Layout of a learnt vocabulary (released code): ``<pad>``, ``<unk>``, ``[CLS]``, ``[SEP]``, ``[MASK]``; the marks that
are always pieces by themselves; then pieces and characters, the likeliest first.
"""

from __future__ import annotations

import hashlib
import io
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gptcore.base.errors import InputError, require
from gptcore.base.files import sha256_json, write_bytes_atomic, write_json_atomic
from gptcore.text.bpe_train import bounded, most_frequent, ranked_characters, tell_fewer, usable_words
from gptcore.text.counting import Counts
from gptcore.text.parts import encodable
from gptcore.text.tokenizer import Specials, Tokenizer, WordByWordTokenizer, WordIds
from gptcore.text.vocabulary import SETTINGS_FILE, TokenizerFolder, read_bytes

MODEL_FILE = "spiece.model"  # transformers' name; the release's is 30k-clean.model
SPECIALS = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
"""In the order of the roles of :class:`gptcore.text.tokenizer.Specials`."""
MARKS = ("(", ")", '"', "-", ".", "–", "£", "€")
"""Always pieces by themselves (released code)."""
COVERAGE = 0.99995
"""Share of a corpus' characters that get pieces, the most frequent ones (released code); the rest are unknown."""
_SPACE = "▁"
_SUFFIX = ".model"
_RULE = "nmt_nfkc"  # the library's default, which the released model was made with


class SentencePieceTokenizer(WordByWordTokenizer):
    """ALBERT's kind: any text, in lower case if its vocabulary is uncased, without accents if those are not kept."""

    kind = "SentencePiece"
    _files = f"*{_SUFFIX}"

    def __init__(self, model: bytes, *, cased: bool | None = None, keep_accents: bool = False, name: str = "") -> None:
        """Check the model.

        :param model: the bytes of a model of the library's.
        :param cased: whether upper case is kept; None keeps it if a piece has any.
        :param keep_accents: whether accents are kept, and compatibility characters.
        :param name: what messages call the model; the file it came from.
        :raises InputError: no model, or one without ALBERT's special pieces or with pieces of several words.
        """
        name = name or "model"
        self._model = model
        self._library = _loaded(model, name)
        vocabulary = _vocabulary(self._library, name)
        super().__init__(vocabulary)
        for piece in SPECIALS:
            if piece not in vocabulary:
                raise InputError(f"{name}: no piece {piece}, expected ALBERT's special pieces {', '.join(SPECIALS)}")
        self.cased = any(p != p.lower() for p in vocabulary if p not in SPECIALS) if cased is None else cased
        self.keep_accents, self.drops_signs = keep_accents, not keep_accents
        self._specials = Specials(*map(vocabulary.__getitem__, SPECIALS))
        if self._library.unk_id() != self._specials.unk:
            raise InputError(f"{name}: unknown text has id {self._library.unk_id()}, expected that of {SPECIALS[1]}")
        _check_words(self._library, vocabulary, name)
        ends = [piece for piece in vocabulary if _ends_in_a_number(piece)]
        self._parts = {vocabulary[piece]: self._comma_apart(piece) for piece in ends}
        self._word_ids = WordIds(self._encode_plain)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), cased=self.cased, keep_accents=self.keep_accents), (self._model,)

    # --- where tokenizers come from and go to ---

    @classmethod
    def _in_folder(cls, folder: TokenizerFolder) -> Tokenizer | None:
        names = folder.ending_in(_SUFFIX)
        if not names:
            return None
        require(len(names) <= 1, f"{folder.url}: found {', '.join(names)[:200]}, expected one *{_SUFFIX}")
        settings = folder.settings({"do_lower_case": bool, "keep_accents": bool})
        file = folder.at(names[0])
        cased = not settings["do_lower_case"] if "do_lower_case" in settings else None
        return cls(read_bytes(file), cased=cased, keep_accents=settings.get("keep_accents", False), name=file)

    @classmethod
    def from_counts(cls, counts: Counts, n_merges: int) -> Self:
        """Learn an uncased unigram model of ``n_merges`` pieces on top of special pieces, marks and characters.

        Words with fewer give fewer. Equal counts, in any order, give an equal tokenizer: the library learns in one
        thread.
        """
        model, n_fixed = _learn(counts, n_merges)
        learnt = cls(model, cased=False)
        tell_fewer(learnt.n_vocab - n_fixed, n_merges, "pieces")
        return learnt

    @classmethod
    def _counted(cls, text: str) -> Counter[str]:
        """How often each of a raw text's words comes, normalised as the library will do it."""
        from sentencepiece import SentencePieceNormalizer

        normalise = SentencePieceNormalizer(rule_name=_RULE).normalize
        counts: Counter[str] = Counter()
        for word, n in Counter(encodable(text).split()).items():
            for plain in normalise(prepared(word, cased=False, keep_accents=False)).replace(_SPACE, " ").split():
                for part in bounded(plain):
                    counts[part] += n
        return counts

    def save(self, folder: str | Path) -> None:
        """Write ``spiece.model`` and ``tokenizer_config.json`` into a local folder (made if absent)."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes_atomic(folder / MODEL_FILE, self._model)
        settings = {"do_lower_case": not self.cased, "keep_accents": self.keep_accents}
        write_json_atomic(folder / SETTINGS_FILE, {**settings, "tokenizer_class": "AlbertTokenizer"})

    # --- what a tokenizer is ---

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the model's bytes, and of whether case and accents are kept."""
        model = hashlib.sha256(self._model).hexdigest()
        return sha256_json({"model": model, "cased": self.cased, "keep_accents": self.keep_accents})

    # --- text -> ids -> text ---

    def encode(self, text: str) -> list[int]:
        """Ids of a text, cut as a whole (released code).

        :raises InputError: half of a surrogate pair, which is no text that UTF-8 could hold.
        """
        return self._encode_plain(encodable(text))

    def encode_clean(self, text: str) -> NDArray[np.int32]:
        """Ids [N] of a row of a raw corpus, each word cut by itself, so that it does not show where rows end.

        They are those of ``encode`` but for words that two ways to be cut are equally likely for: the library adds up
        the scores of a whole text in 32 bits, and how the sum of what stands before a word is rounded decides.

        :raises InputError: half of a surrogate pair.
        """
        return self._word_ids.of(encodable(text).split())

    def normalised(self, text: str) -> str:
        plain = prepared(encodable(text), cased=self.cased, keep_accents=self.keep_accents)
        return str(self._library.normalize(plain)).replace(_SPACE, "").replace(" ", "")

    def _encode_plain(self, text: str) -> list[int]:
        text = prepared(text, cased=self.cased, keep_accents=self.keep_accents)
        ids: list[int] = self._library.encode(text)
        if self._specials.unk in ids and "," not in self.vocabulary:  # a piece of unknown text may end in a comma
            pieces = self._library.encode(text, out_type=str)
            return [index for piece in pieces for index in self._ids_of(piece)]
        if self._parts.keys().isdisjoint(ids):
            return ids
        return [part for index in ids for part in self._parts.get(index, (index,))]

    def _ids_of(self, piece: str) -> list[int]:
        return self._comma_apart(piece) if _ends_in_a_number(piece) else [self._id(piece)]

    def _comma_apart(self, piece: str) -> list[int]:
        """Ids in the place of a piece that ends in a digit and a comma (released code, `encode_pieces`)."""
        number: list[str] = self._library.encode(piece[:-1].replace(_SPACE, ""), out_type=str)
        if number and not piece.startswith(_SPACE):
            number[0] = number[0].removeprefix(_SPACE)
        return [self._id(part) for part in [*filter(None, number), ","]]

    def _id(self, piece: str) -> int:
        """The id of a piece of text; unknown text may have the name of a special piece."""
        index = self.vocabulary.get(piece, self._specials.unk)
        return self._specials.unk if index in self._specials.ids else index

    def _added(self, index: int) -> str:
        return self._pieces[index].replace(_SPACE, " ")


def prepared(text: str, *, cased: bool, keep_accents: bool) -> str:
    """A text as the library is to read it (released code, `preprocess_text`; transformers' quotation marks)."""
    text = " ".join(text.split()).replace("``", '"').replace("''", '"')
    if not (keep_accents or text.isascii()):
        decomposed = unicodedata.normalize("NFKD", text)
        text = "".join(character for character in decomposed if not unicodedata.combining(character))
    return text if cased else text.lower()


def _ends_in_a_number(piece: str) -> bool:
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


# --- models ---


def _loaded(model: bytes, name: str) -> Any:
    from sentencepiece import SentencePieceProcessor  # here: those who read no such model need not wait for it

    try:
        if not model:
            raise ValueError("empty")  # the library takes that for a model that comes later
        return SentencePieceProcessor(model_proto=model)
    except (RuntimeError, ValueError, OSError) as error:
        said = " ".join(str(error).split())[:200]
        raise InputError(f"{name}: no SentencePiece model ({said}), expected a *{_SUFFIX} of that library") from None


def _vocabulary(library: Any, name: str) -> dict[str, int]:
    """Piece -> id of a model.

    :raises InputError: a piece that is no text, or comes twice.
    """
    vocabulary: dict[str, int] = {}
    for index in range(library.get_piece_size()):
        try:
            piece = library.id_to_piece(index)
        except UnicodeDecodeError:
            raise InputError(f"{name}: piece {index} is not UTF-8") from None
        if piece in vocabulary:
            raise InputError(f"{name}: piece {index} repeats piece {vocabulary[piece]} ({piece[:40]!r})")
        vocabulary[piece] = index
    return vocabulary


def _check_words(library: Any, vocabulary: Iterable[str], name: str) -> None:
    """Refuse a model by which the ids of a text are not those of its words, one after the other.

    :raises InputError: a piece of several words, or words that do not begin with the mark of white space.
    """
    for piece in vocabulary:
        if _SPACE in piece[1:]:
            raise InputError(f"{name}: piece {piece[:40]!r}: crosses white space, expected {_SPACE} at its beginning")
    first, *_ = library.encode("a", out_type=str)
    if not first.startswith(_SPACE) or library.encode("a  b") != library.encode("a b"):
        raise InputError(f"{name}: does not mark where words begin, expected ALBERT's way to treat white space")


def _learn(counts: Counts, n_merges: int) -> tuple[bytes, int]:
    """A unigram model by the released code's settings, and how many of its pieces are not learnt."""
    from sentencepiece import SentencePieceTrainer

    characters = set(most_frequent(ranked_characters(counts, n_merges), 0, COVERAGE))
    words = sorted(usable_words(counts, characters))
    require(words, "tokenizer: the corpus holds no words to learn from, only ones of more than 100 characters")
    n_fixed = len(SPECIALS) + len(MARKS) + len((characters | {_SPACE}).difference(MARKS))
    out = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=(f"{word}\t{n}" for word, n in words),
        input_format="tsv",
        model_writer=out,
        model_type="unigram",
        vocab_size=n_fixed + n_merges,
        hard_vocab_limit=False,
        character_coverage=1.0,  # rarer characters are left out already
        normalization_rule_name=_RULE,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        pad_piece=SPECIALS[0],
        unk_piece=SPECIALS[1],
        control_symbols=list(SPECIALS[2:]),
        user_defined_symbols=list(MARKS),
        num_threads=1,
        minloglevel=2,
    )
    return out.getvalue(), n_fixed
