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
    """Words of single lines, as ``standardise`` -> spaCy's blank English tokenizer -> lower case gives them."""

    def __init__(self, budget: int = _BUDGET) -> None:
        self._budget = budget
        self._forget()

    def _forget(self) -> None:
        # spaCy's own string table grows with every new string as well, so the tokenizers start afresh too
        self._spent = 0
        self._memo = _Memo(self._raw)
        self._pieces: dict[str, str] = {}
        self._context: set[str] = set()
        self._spacy, self._without_sequences, self._special_cases = _tokenizers()
        self._joined = {tokens[0] for tokens in self._special_cases.values()}

    def words(self, line: str) -> str:
        """The words of ``line`` (no newline inside), joined by single spaces; "" where it is blank."""
        if self._spent > self._budget:
            self._forget()
        raw = line.split()
        words = " ".join(map(self._memo.__getitem__, raw))
        if self._context and not self._context.isdisjoint(raw):
            return _lower(self._spacy(standardise(line)))
        return words

    def _raw(self, raw: str) -> str:
        """Words of one white-space delimited string of the text, newly met."""
        words = " ".join([self._piece(raw, piece) for piece in _set_off(raw).split()])
        self._spent += len(raw) + len(words) + _ENTRY
        return words

    def _piece(self, raw: str, piece: str) -> str:
        """Words of one string between the spaces of standardised text."""
        words = self._pieces.get(piece)
        if words is None and piece.isascii() and piece.isalpha() and piece not in self._special_cases:
            return piece.lower()  # no pattern of spaCy's finds anything in plain letters
        if words is None:
            tokens = [token.text for token in self._spacy(piece)]
            words = " ".join([token.lower() for token in tokens])
            # a sequence that was joined shows as the first word of a special case, one of several words here
            suspect = len(tokens) > 1 and not self._joined.isdisjoint(tokens)
            if suspect and _lower(self._without_sequences(piece)) != words:
                self._context.add(raw)  # not remembered as a piece, so that every string that holds it is noted
            else:
                self._pieces[piece] = words
                self._spent += len(piece) + len(words) + _ENTRY
        return words


class _Memo(dict[str, str]):
    """A dictionary that computes what it misses: looked up from C, it costs 50 ns a word."""

    def __init__(self, compute: Callable[[str], str]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, key: str) -> str:
        value = self[key] = self._compute(key)
        return value


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
