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
from itertools import combinations
from typing import Any

_BUDGET = 120_000_000  # bytes of remembered strings, estimated; about 500 000 distinct strings
_BREAK = "\x00"  # a line break among strings: ftfy leaves no such character in a text
_BREAK_APART = f" {_BREAK} "
NEIGHBOURS = "\x01"
"""Stands for the words of a string that only its line can tell."""
_ENTRY = 220  # bytes that a remembered string costs besides its characters, spaCy's tables included

_SET_OFF = '-~!";?+,)(/*[]}{|_'
_RUNS = re.compile(rf"([{re.escape(_SET_OFF)}])\1*")
_PLAIN = re.compile(r"('?)([A-Za-zÀ-ÖØ-öø-ſ]+)('s)?(\.)?(:)?(')?")
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


def strings(text: str) -> list[str]:
    r"""Text as its strings between white space; one of them, :data:`_BREAK`, for each "\n"."""
    return text.replace("\n", _BREAK_APART).split()


class LineSplitter:
    """Words of lines, as ``standardise`` -> spaCy's blank English tokenizer -> lower case gives them."""

    def __init__(self, budget: int = _BUDGET) -> None:
        self._budget = budget
        self._known = _Strings()

    def words(self, text: str) -> str:
        r"""The words of lines of repaired text, joined by single spaces, "\n" between two lines."""
        self._forget()
        words = " ".join(map(self._known.__getitem__, strings(text)))
        if NEIGHBOURS not in words:
            return words
        return " ".join(filter(None, map(self._line, re.split("(\n)", text))))

    def string(self, raw: str) -> str:
        """The words of one of :func:`strings`; :data:`NEIGHBOURS` where they depend on those around it."""
        self._forget()
        return self._known[raw]

    def _line(self, line: str) -> str:
        """The words of one line, or what stands between two."""
        if line == "\n":
            return line
        words = " ".join(map(self._known.__getitem__, line.split()))
        return words if NEIGHBOURS not in words else _lower(self._known.pieces.spacy(standardise(line)))

    def _forget(self) -> None:
        # spaCy's own string table grows with every new string as well, so the tokenizers start afresh too
        if self._known.spent + self._known.pieces.spent > self._budget:
            self._known = _Strings()


class _Strings(dict[str, str]):
    """String between white space -> its words, joined by spaces; worked out when first asked for.

    Looked up from C, a known one costs 50 ns.
    """

    def __init__(self) -> None:
        super().__init__({_BREAK: "\n"})
        self.pieces = _Pieces()
        self.spent = 0
        """Bytes that its entries take, estimated."""

    def __missing__(self, raw: str) -> str:
        words = self._shortly(raw)
        if words is None:
            parts = _set_off(raw).split()
            words = " ".join(map(self.pieces.__getitem__, parts))
            if not self.pieces.joined.isdisjoint(parts):
                words = NEIGHBOURS
        self[raw] = words
        self.spent += len(raw) + len(words) + _ENTRY
        return words

    def _shortly(self, raw: str) -> str | None:
        """The words of a string in which nothing but its ends is set off, the commonest kind; None for another."""
        core = raw.strip(_SET_OFF)
        if not core or not core.isascii() or _RUNS.search(core):
            return None
        before, _, after = raw.partition(core)
        parts = [self[before]] if before else []
        words = self.pieces[core]
        parts.append(NEIGHBOURS if core in self.pieces.joined else words)
        if after:
            parts.append(self[after])
        return NEIGHBOURS if NEIGHBOURS in parts else " ".join(parts)


class _Pieces(dict[str, str]):
    """String between the spaces of standardised text -> its words, joined by spaces."""

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
        """The words of letters, alone or with a few signs around them; None: it takes spaCy to tell.

        spaCy takes prefixes and suffixes off a string until a special case is left, or nothing to take off: a quote on
        either side, a colon, an 's, behind a small letter a full stop. In letters alone its patterns find nothing.
        Then it joins those of these tokens that are a special case together.
        """
        if piece in self._special_cases or not (found := _PLAIN.fullmatch(piece)):
            return None
        if piece == found[2]:
            return piece.lower()
        if found[4] and not (found[3] or found[2][-1].islower()):
            return None
        tokens = [token for token in found.groups() if token]
        for first, last in combinations(range(len(tokens) + 1), 2):
            part = "".join(tokens[first:last])
            if part in self._special_cases and (last - first > 1 or part == found[2]):
                return None
        return " ".join(tokens).lower()


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
