"""spaCy's English tokenizer, memoised: lines of white-space separated text to lower-case words.

spaCy looks at one white-space delimited string at a time, so its answer for each distinct string is computed once and
remembered, within a fixed memory budget. There is one exception to that locality: afterwards spaCy looks for its
special cases ("Mr.", ":D") as *sequences of tokens*, ignoring the white space between them, and a sequence that spans
two strings, though then discarded, hides one inside either string: "goin ''twas" is not "goin" + "''twas". So a line
that holds a string in which such a sequence was joined goes through spaCy as a whole. No sequence spans a newline.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

_BUDGET = 120_000_000  # bytes of remembered strings, estimated; about 500 000 distinct strings
_BREAK = "\x00"  # a line break among strings; ftfy leaves none in a text
_BREAK_APART = f" {_BREAK} "
_ENTRY = 220  # bytes that a remembered string costs besides its characters, spaCy's tables included

_RUNS = re.compile(r"""([-~!";?+,)(/*\[\]}{|_])\1*""")
_BLANKS = re.compile(r"[^\S\n]+")
_NEWLINES = re.compile(r" ?\n\s*")


def standardise(text: str) -> str:
    r"""Set punctuation off by spaces and make white space uniform (original code, `text_standardize`).

    Dashes become "-", the ellipsis "...", the acute accent "'". Each run of one character of
    ``- ~ ! " ; ? + , ) ( / * [ ] } { | _`` is set off; a backslash is not, because the original's pattern misses a raw
    string prefix, and the released vocabulary was made that way. White space with a newline becomes `` \n ``, other
    white space one space, and the ends are stripped. Takes linear time, which the original's ``\s*\n\s*`` does not.
    """
    text = _BLANKS.sub(" ", _set_off(text))
    return _NEWLINES.sub(" \n ", text).strip()


def _set_off(text: str) -> str:
    for dash in "\u2014\u2013\u2015":
        text = text.replace(dash, "-")
    text = text.replace("\u2026", "...").replace("\u00b4", "'")
    return _RUNS.sub(r" \g<0> ", text)


class LineSplitter:
    """Words of lines, as ``standardise`` -> spaCy's blank English tokenizer -> lower case gives them."""

    def __init__(self, budget: int = _BUDGET) -> None:
        self._budget = budget
        self._forget()

    def _forget(self) -> None:
        # spaCy's own string table grows with every new string as well, so the tokenizers start afresh too
        self._spent = 0
        self._pieces = _Pieces()
        self._known = {_BREAK: "\n"}  # string between white space -> its words, joined by spaces
        self._context: set[str] = set()

    def words(self, text: str) -> str:
        r"""The words of lines of repaired text, joined by single spaces; "\n" where one or more lines end."""
        if self._spent + self._pieces.spent > self._budget:
            self._forget()
        raw = text.replace("\n", _BREAK_APART).split()
        known = self._known
        if new := set(raw).difference(known):
            self._learn(list(new))
        if not self._context or self._context.isdisjoint(raw):
            return _once(" ".join(map(known.__getitem__, raw)))
        return _once(" ".join(filter(None, map(self._line, re.split("(\n)", text)))))

    def _line(self, line: str) -> str:
        """One line's words, or what ends it."""
        if line == "\n":
            return line
        raw = line.split()
        if self._context.isdisjoint(raw):
            return " ".join(map(self._known.__getitem__, raw))
        return _lower(self._pieces.spacy(standardise(line)))

    def _learn(self, new: list[str]) -> None:
        """Words of strings between white space, newly met. What is set off in one reaches none of the others."""
        pieces = self._pieces
        for raw, apart in zip(new, _set_off("\n".join(new)).split("\n"), strict=True):
            parts = apart.split()
            words = self._known[raw] = " ".join(map(pieces.__getitem__, parts))
            self._spent += len(raw) + len(words) + _ENTRY
            if pieces.joined and not pieces.joined.isdisjoint(parts):
                self._context.add(raw)


class _Pieces(dict[str, str]):
    """String between the spaces of standardised text -> its words, joined by spaces; worked out when first asked for.

    Looked up from C, a known one costs 50 ns.
    """

    def __init__(self) -> None:
        super().__init__()
        self.spacy, self._without_sequences, self._special_cases = _tokenizers()
        self._firsts = {tokens[0] for tokens in self._special_cases.values()}
        self.spent = 0
        """Bytes that its entries take, estimated."""
        self.joined: set[str] = set()
        """Those in which spaCy joined a sequence of tokens to a special case."""

    def __missing__(self, piece: str) -> str:
        words = self._plain(piece)
        if words is None:
            tokens = [token.text for token in self.spacy(piece)]
            words = " ".join([token.lower() for token in tokens])
            # a sequence that was joined shows as the first word of a special case, one of several words here
            suspect = len(tokens) > 1 and not self._firsts.isdisjoint(tokens)
            if suspect and _lower(self._without_sequences(piece)) != words:
                self.joined.add(piece)
        self[piece] = words
        self.spent += len(piece) + len(words) + _ENTRY
        return words

    def _plain(self, piece: str) -> str | None:
        """The words where letters alone tell them: no pattern of spaCy's finds anything in plain letters, and of those
        behind small ones only the suffixes find a full stop or an 's, unless a special case has a say.
        """
        if piece in self._special_cases:
            return None
        word, ending = piece, ""
        if piece.endswith("."):
            word, ending = piece[:-1], " ."
        elif piece.endswith("'s"):
            word, ending = piece[:-2], " 's"
        if not (word.isascii() and word.isalpha()):
            return None
        if ending and (word in self._special_cases or not word[-1].islower()):
            return None
        return word.lower() + ending


def _once(words: str) -> str:
    """One line break for several that follow one another."""
    while "\n \n" in words:
        words = words.replace("\n \n", "\n")
    return words


def _lower(tokens: Iterable[Any]) -> str:
    return " ".join([token.text.lower() for token in tokens])


def _tokenizers() -> tuple[Any, Any, dict[str, list[str]]]:
    """spaCy's English tokenizer, its twin that does not search for special cases across tokens, and these with tokens.

    A tokenizer files a special case for that search when its patterns find something in it. The twin's patterns find
    nothing until it is built.
    """
    import spacy
    from spacy.symbols import ORTH
    from spacy.tokenizer import Tokenizer

    english: Any = spacy.blank("en").tokenizer
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
