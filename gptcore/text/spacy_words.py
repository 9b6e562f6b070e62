"""Repaired text as pieces, between spaces once punctuation is set off; their words as spaCy finds them; sentences.

A short text becomes a list of pieces. A long one becomes an Arrow column of numbers, and the few distinct pieces that
they stand for, found by what kind of character each byte belongs to: no regular expression passes over the text.
Quotes are made straight and dashes plain in the distinct pieces alone.

spaCy looks at one white-space delimited piece at a time, so its answer for each distinct piece is computed once and
remembered, within a fixed memory budget. There is one exception to that locality: afterwards spaCy looks for its
special cases ("Mr.", ":D") as *sequences of tokens*, ignoring the white space between them, and a sequence that spans
two pieces, though then discarded, hides one inside either of them: "goin ''twas" is not "goin" + "''twas". So a line
that holds a piece in which such a sequence was joined goes through spaCy as a whole. No sequence spans a newline.
"""

from __future__ import annotations

import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, combinations
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gptcore.base.arrays import numbers
from gptcore.text.word_edges import SENTENCE_ENDS

LONG = 4096
"""Characters from which on a column pays."""

SIGNS = '-~!";?+,)(/*[]}{|_'
RUNS = re.compile(rf"([{re.escape(SIGNS)}])\1*")
"""One sign, once or several times in a row."""
_BLANKS = re.compile(r"[^\S\n]+")
_NEWLINES = re.compile(r" ?\n\s*")

CURLY = {"'": "\u02bc\u2018\u2019\u201a\u201b", '"': "\u201c\u201d\u201e\u201f"}
"""What ftfy makes straight."""
_DASHES = "\u2013\u2014\u2015"
_SET_OFF = re.escape(SIGNS) + CURLY['"'] + _DASHES
_PIECES = re.compile(rf"\n+|[{_SET_OFF}]+|[^\s{_SET_OFF}]+")

_BLANK, _LETTER, _SIGN, _NEWLINE = range(4)
_WHITE = b" \t\x0b\x0c\r"  # beyond ASCII and its control characters a repaired text has no other
_KINDS = bytes(
    _BLANK if byte in _WHITE else _SIGN if byte in SIGNS.encode() else _NEWLINE if byte == 10 else _LETTER
    for byte in range(256)
)
_SIGN_ENDS = np.isin(np.arange(256), [sign.encode()[2] for sign in CURLY['"'] + _DASHES])
"""The third bytes of the signs beyond ASCII, which all begin with the same two."""


def standardise(text: str) -> str:
    r"""Set punctuation off by spaces and make white space uniform (original code, `text_standardize`).

    Dashes become "-", the ellipsis "...", the acute accent "'". Each run of one character of
    ``- ~ ! " ; ? + , ) ( / * [ ] } { | _`` is set off; a backslash is not, because the original's pattern misses a raw
    string prefix, and the released vocabulary was made that way. White space with a newline becomes `` \n ``, other
    white space one space, and the ends are stripped. Takes linear time, which the original's ``\s*\n\s*`` does not.
    """
    text = _BLANKS.sub(" ", RUNS.sub(r" \g<0> ", _plain_dashes(text)))
    return _NEWLINES.sub(" \n ", text).strip()


def _plain_dashes(text: str) -> str:
    for dash in _DASHES:
        text = text.replace(dash, "-")
    return text.replace("\u2026", "...").replace("\u00b4", "'")


def straight(text: str) -> str:
    """Every curly quote a straight one, as ftfy has it."""
    for plain, curly in CURLY.items():
        for character in curly:
            text = text.replace(character, plain)
    return text


class Pieces:
    """The pieces of a text: a list of them, or the distinct ones and a column of their numbers.

    :ivar distinct: what :meth:`joined` and :meth:`gathered` want to know the words or the ids of.
    """

    def __init__(self, distinct: list[str], numbers: NDArray[np.int32] | None = None) -> None:
        self.distinct = distinct
        self._numbers = numbers

    @classmethod
    def of(cls, text: str) -> Pieces:
        """The pieces of repaired text. Several runs of signs may be together, and so may line breaks."""
        if len(text) < LONG:
            return cls(_PIECES.findall(text))
        data = b" " + text.encode() + b" "
        kinds = np.frombuffer(bytearray(data).translate(_KINDS), np.uint8)
        if not text.isascii():
            codes = np.frombuffer(data, np.uint8)
            marks = np.flatnonzero(codes == 0xE2)
            marks = marks[(codes[marks + 1] == 0x80) & _SIGN_ENDS[codes[marks + 2]]]
            for byte in range(3):
                kinds[marks + byte] = _SIGN
        borders, filled = kinds[1:] != kinds[:-1], kinds != _BLANK
        lengths = np.flatnonzero(borders & filled[:-1]) - np.flatnonzero(borders & filled[1:])
        return cls._cut(data.translate(None, _WHITE), lengths)

    @classmethod
    def of_clean(cls, text: str) -> Pieces:
        """The words of a cleaned text."""
        if len(text) < LONG:
            return cls(text.split(" ") if text else [])
        data = text.encode()
        spaces = np.flatnonzero(np.frombuffer(data, np.uint8) == 0x20)
        return cls._cut(data.replace(b" ", b""), np.diff(spaces, prepend=-1, append=len(data)) - 1)

    @classmethod
    def _cut(cls, data: bytes, lengths: NDArray[np.int64]) -> Pieces:
        """Pieces that stand one behind the other without anything between."""
        ends = np.zeros(len(lengths) + 1, np.int32)
        np.cumsum(lengths, out=ends[1:])
        column = pa.StringArray.from_buffers(len(lengths), pa.py_buffer(ends), pa.py_buffer(data)).dictionary_encode()
        return cls(column.dictionary.to_pylist(), numbers(column.indices))

    def lines_apart(self, marked: Collection[int]) -> Iterator[tuple[Pieces, str]]:
        """Each line with one of the distinct pieces whose places are ``marked``, and what stands before it.

        Behind the last of them there is an empty line.
        """
        entries = np.arange(len(self.distinct), dtype=np.int32) if self._numbers is None else self._numbers
        ends = np.flatnonzero(np.array([piece[0] == "\n" for piece in self.distinct])[entries])
        places = np.flatnonzero(np.isin(entries, list(marked)))
        start = 0
        for line in np.unique(np.searchsorted(ends, places)).tolist():
            begin = int(ends[line - 1]) + 1 if line else 0
            end = int(ends[line]) if line < len(ends) else len(entries)
            yield Pieces(self.distinct, entries[start:begin]), " ".join(self.distinct[n] for n in entries[begin:end])
            start = end
        yield Pieces(self.distinct, entries[start:]), ""

    def counted(self) -> dict[str, int]:
        """How often each piece comes, in the order in which they first came."""
        if self._numbers is None:
            return Counter(self.distinct)
        times = np.bincount(self._numbers, minlength=len(self.distinct))
        return dict(zip(self.distinct, times.tolist(), strict=True))

    def joined(self, words: list[str]) -> str:
        """Text of the words of each distinct piece, piece after piece, with spaces between."""
        if self._numbers is None:
            return " ".join(words)
        import pyarrow.compute as pc

        column = pa.array(words, pa.string()).take(pa.array(self._numbers))
        text: str = pc.binary_join(pa.ListArray.from_arrays([0, len(column)], column), " ")[0].as_py()
        return text

    def gathered(self, ids: list[bytes]) -> NDArray[np.int32]:
        """The ids of each distinct piece (int32 in bytes), piece after piece: [N]."""
        lengths = np.fromiter(map(len, ids), np.int32, len(ids)) // 4
        ends = np.cumsum(lengths, dtype=np.int32)
        flat = np.frombuffer(b"".join(ids), np.int32)
        if self._numbers is None:
            return flat
        counts = lengths[self._numbers]
        places = np.repeat(ends[self._numbers] - np.cumsum(counts, dtype=np.int32), counts)
        every: NDArray[np.int32] = flat[places + np.arange(len(places), dtype=np.int32)]
        return every


# --- words ---


_BUDGET = 120_000_000  # bytes of remembered pieces, estimated; about 500 000 distinct ones
_ENTRY = 220  # bytes that a remembered piece costs besides its characters, spaCy's tables included
NEIGHBOURS = "\x01"
"""Stands for the words of a piece that only its line can tell."""

_BLANK_LINES = re.compile(r"\n\s*\n")
_OPENING = re.compile(r"\s([^\w\s]+)\Z")  # at the end of one: signs that stand at the next one's first word
_SENTENCES_BUDGET = (
    64_000_000  # characters, after which spaCy's table of strings, which grows with each new word, starts afresh
)

_PLAIN = re.compile(r"('?)([A-Za-zÀ-ÖØ-öø-ſ]+)('s)?(\.)?(:)?(')?")


class LineSplitter:
    """Words of lines, as ``standardise`` -> spaCy's blank English tokenizer -> lower case gives them."""

    def __init__(self, budget: int = _BUDGET) -> None:
        self._budget = budget
        self._known = _Pieces()

    def words(self, text: str) -> str:
        r"""The words of lines of repaired text, joined by single spaces, "\n" between two lines."""
        self._forget()
        whole = Pieces.of(text)
        words = list(map(self._known.__getitem__, whole.distinct))
        if NEIGHBOURS not in words:
            return whole.joined(words)
        marked = [place for place, its in enumerate(words) if its == NEIGHBOURS]
        parts = ((pieces.joined(words), self.line(line)) for pieces, line in whole.lines_apart(marked))
        return " ".join(filter(None, chain.from_iterable(parts)))

    def line(self, line: str) -> str:
        """The words of one line as spaCy finds them."""
        return _lower(self._known.spacy(standardise(straight(line))))

    def piece(self, piece: str) -> str:
        """The words of one piece; :data:`NEIGHBOURS` where they depend on those around it."""
        self._forget()
        return self._known[piece]

    def _forget(self) -> None:
        # spaCy's own string table grows with every new piece as well, so the tokenizers start afresh too
        if self._known.spent > self._budget:
            self._known = _Pieces()


class _Pieces(dict[str, str]):
    """Piece -> its words, joined by spaces; worked out when first asked for.

    Looked up from C, a known one costs 50 ns.
    """

    def __init__(self) -> None:
        super().__init__({"\n": "\n"})
        self.spacy, self._without_sequences, self._special_cases = _tokenizers()
        self._firsts = {tokens[0] for tokens in self._special_cases.values()}
        self.spent = 0
        """Bytes that its entries take, estimated."""

    def __missing__(self, piece: str) -> str:
        plain = "\n" if piece[0] == "\n" else piece if piece.isascii() else _plain_dashes(straight(piece))
        words = self[plain] if plain != piece else self._signs(piece) or self._plain(piece) or self._asked(piece)
        self[piece] = words
        self.spent += len(piece) + len(words) + _ENTRY
        return words

    def _signs(self, piece: str) -> str:
        """The words of runs of signs that follow one another; "" for anything else."""
        if piece[0] not in SIGNS or RUNS.match(piece)[0] == piece:  # type: ignore[index]  # it begins with a sign
            return ""
        words = [self[run[0]] for run in RUNS.finditer(piece)]
        return NEIGHBOURS if NEIGHBOURS in words else " ".join(words)

    def _asked(self, piece: str) -> str:
        """What spaCy says."""
        tokens = [token.text for token in self.spacy(piece)]
        words = " ".join([token.lower() for token in tokens])
        # a sequence that was joined shows as the first word of a special case, one of several words here
        suspect = len(tokens) > 1 and not self._firsts.isdisjoint(tokens)
        return NEIGHBOURS if suspect and _lower(self._without_sequences(piece)) != words else words

    def _plain(self, piece: str) -> str:
        """The words of letters, alone or with a few signs around them; "": it takes spaCy to tell.

        spaCy takes prefixes and suffixes off a string until a special case is left, or nothing to take off: a quote on
        either side, a colon, an 's, behind a small letter a full stop. In letters alone its patterns find nothing.
        Then it joins those of these tokens that are a special case together.
        """
        if piece in self._special_cases or not (parts := _PLAIN.fullmatch(piece)):
            return ""
        if piece == parts[2]:
            return piece.lower()
        if parts[4] and not (parts[3] or parts[2][-1].islower()):
            return ""
        tokens = [token for token in parts.groups() if token]
        for first, last in combinations(range(len(tokens) + 1), 2):
            part = "".join(tokens[first:last])
            if part in self._special_cases and (last - first > 1 or part == parts[2]):
                return ""
        return " ".join(tokens).lower()


def _lower(tokens: Iterable[Any]) -> str:
    return " ".join([token.text.lower() for token in tokens])


def _tokenizers() -> tuple[Any, Any, dict[str, list[str]]]:
    """spaCy's English tokenizer, its twin that does not search for special cases across tokens, and these with tokens.

    A tokenizer files a special case for that search when its patterns find something in it. The twin's patterns find
    nothing until it is built.
    """
    with torch_left_out():
        import spacy
    from spacy.symbols import ORTH
    from spacy.tokenizer import Tokenizer

    english: Any = spacy.blank("en").tokenizer
    english.vocab.lex_attr_getters = {}  # what each new string looks like, which takes longer than cutting it
    built = False

    def when_built(search: Callable[[str], Any], otherwise: Any) -> Callable[[str], Any]:
        return lambda text: search(text) if built else otherwise

    twin = Tokenizer(
        english.vocab,
        rules=english.rules,
        prefix_search=when_built(english.prefix_search, None),
        suffix_search=when_built(english.suffix_search, None),
        infix_finditer=when_built(english.infix_finditer, ()),
        token_match=english.token_match,
        url_match=english.url_match,
    )
    built = True
    return english, twin, {text: [token[ORTH] for token in tokens] for text, tokens in english.rules.items()}


@contextmanager
def torch_left_out() -> Iterator[None]:
    """Let no import find torch, which the library of spaCy's networks would load: no tokenizer needs those.

    It is half of what a process takes that only reads text. Not where another thread might look for torch meanwhile.
    """
    if "torch" in sys.modules or threading.active_count() > 1:
        yield
        return
    sys.modules["torch"] = None  # type: ignore[assignment]  # documented: the import system takes it as "not there"
    try:
        yield
    finally:
        del sys.modules["torch"]


def split_sentences(text: str) -> Iterator[str]:
    """The sentences of a text, for families that are pre-trained on pairs of them: spaCy's rule-based sentencizer.

    A sentence ends behind a full stop, a question mark or an exclamation mark and the closing signs that follow, or
    behind those of other scripts (danda, ideographic full stop ...), whether a blank comes next or not; a blank line
    ends one as well, so that a heading is not taken for the beginning of what stands below it. spaCy's English
    tokenizer knows what an abbreviation is ("Mr.", "e.g."). The sentencizer leaves a quotation mark that opens a
    sentence to the one before it; here it goes with the word at which it stands.

    :param text: of at most a million characters.
    :returns: the sentences without white space around them; empty ones are left out.
    """
    for paragraph in _BLANK_LINES.split(SENTENCE_ENDS.sub("\\g<0>\n\n", text)):
        if not (paragraph := paragraph.strip()):
            continue
        begin = 0
        for start in [*(span.start_char for span in _SENTENCIZER(paragraph).sents), len(paragraph)]:
            opening = _OPENING.search(paragraph, begin, start) if start < len(paragraph) else None
            end = opening.start(1) if opening else start
            if sentence := paragraph[begin:end].strip():
                yield sentence
            begin = end


class _Sentencizer:
    """spaCy's, made when first asked, and anew where its table of strings may have grown too large."""

    def __init__(self) -> None:
        self._read = 0
        self._spacy: Any = None

    def __call__(self, paragraph: str) -> Any:
        if self._spacy is None or self._read > _SENTENCES_BUDGET:
            with torch_left_out():
                import spacy
            self._spacy, self._read = spacy.blank("en"), 0
            self._spacy.add_pipe("sentencizer")
        self._read += len(paragraph)
        return self._spacy(paragraph)


_SENTENCIZER = _Sentencizer()
"""The sentencizer of this process."""
