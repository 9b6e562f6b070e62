"""Text to sentences, for families that are pre-trained on pairs of them: spaCy's rule-based sentencizer.

A sentence ends behind a full stop, a question mark or an exclamation mark and the closing signs that follow; a blank
line ends one as well, so that a heading is not taken for the beginning of what stands below it. spaCy's English
tokenizer knows what an abbreviation is ("Mr.", "e.g."). The sentencizer leaves a quotation mark that opens a sentence
to the one before it; here it goes with the word at which it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from gptcore.text.spacy_words import torch_left_out

_BLANK_LINES = re.compile(r"\n\s*\n")
_OPENING = re.compile(r"\s([^\w\s]+)\Z")  # at the end of one: signs that stand at the next one's first word
_BUDGET = 64_000_000  # characters, after which spaCy's table of strings, which grows with each new word, starts afresh


def split_sentences(text: str) -> Iterator[str]:
    """The sentences of a text of at most a million characters, without white space around them; empty ones left out."""
    return _splitter().sentences(text)


@cache
def _splitter() -> _Splitter:
    """This process' own."""
    return _Splitter()


class _Splitter:
    def __init__(self) -> None:
        self._read = 0
        self._spacy: Any = None

    def sentences(self, text: str) -> Iterator[str]:
        for paragraph in _BLANK_LINES.split(text):
            if not (paragraph := paragraph.strip()):
                continue
            begin = 0
            for start in [*(span.start_char for span in self._parsed(paragraph).sents), len(paragraph)]:
                opening = _OPENING.search(paragraph, begin, start) if start < len(paragraph) else None
                end = opening.start(1) if opening else start
                if sentence := paragraph[begin:end].strip():
                    yield sentence
                begin = end

    def _parsed(self, paragraph: str) -> Any:
        if self._spacy is None or self._read > _BUDGET:
            self._spacy, self._read = _sentencizer(), 0
        self._read += len(paragraph)
        return self._spacy(paragraph)


def _sentencizer() -> Any:
    with torch_left_out():
        import spacy
    english = spacy.blank("en")
    english.add_pipe("sentencizer")
    return english
