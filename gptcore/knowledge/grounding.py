"""Which entities of a graph a text speaks of (KagNET, section 3.1).

A run of words that is an entity's name is a mention of it, whatever the words' endings. Words that mean nothing by
themselves are none (spaCy's list of them). Of mentions that overlap the shortest stays, as in the original code: "play"
and "ice" rather than "play on ice". A name that several entities have is that of the one that most facts tell of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gptcore.knowledge.graph import KnowledgeGraph

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_LONGEST = 5  # words of a name that is looked for
_ENDINGS = (
    *(("ies", "y"), ("ves", "f"), ("ches", "ch"), ("shes", "sh"), ("sses", "ss"), ("xes", "x"), ("zes", "z")),
    *(("men", "man"), ("es", "e"), ("es", ""), ("s", ""), ("ied", "y"), ("ed", "e"), ("ed", "")),
    *(("ing", "e"), ("ing", ""), ("'s", "")),
)
"""An inflected word's end -> its base's: WordNet's rules of detachment for nouns and verbs."""
_SHORTEST = 3  # letters of what a rule may leave


class Mention(NamedTuple):
    """A run of words that names an entity."""

    start: int
    end: int
    """Words of the text: ``words[start:end]``."""
    entity: int


class Concepts:
    """The entities of a graph by what people call them, to be found in texts."""

    def __init__(self, graph: KnowledgeGraph) -> None:
        from spacy.lang.en.stop_words import STOP_WORDS

        self._stop = STOP_WORDS
        self._known: set[str] = set()
        names: list[tuple[int, list[str]]] = []
        for entity in graph.by_degree:
            own = graph.entities[entity]
            for name in (own.replace("_", " "), *graph.labels.get(own, ())):
                if 0 < len(words := words_of(name)) <= _LONGEST:
                    names.append((entity, words))
                    self._known.update(words)
        self._entities: dict[tuple[str, ...], int] = {}
        for entity, words in names:
            self._entities.setdefault(tuple(map(self._base, words)), entity)

    def mentions(self, text: str) -> list[Mention]:
        """The mentions of a text, in its order; none overlaps with another."""
        words = words_of(text)
        found = sorted(self._all(words), key=lambda mention: (mention.end - mention.start, mention.start))
        kept: list[Mention] = []
        for mention in found:
            if all(mention.end <= other.start or other.end <= mention.start for other in kept):
                kept.append(mention)
        return sorted(kept)

    def entities(self, text: str, besides: Sequence[int] = ()) -> list[int]:
        """The entities that a text mentions, each once, in its order.

        :param besides: entities that are left out.
        """
        found = dict.fromkeys(mention.entity for mention in self.mentions(text))
        return [entity for entity in found if entity not in besides]

    def answer(self, text: str) -> list[int]:
        """The entity that an answer as a whole names, else those that it mentions."""
        whole = self._entities.get(tuple(map(self._base, words_of(text))))
        return [whole] if whole is not None else self.entities(text)

    def _all(self, words: Sequence[str]) -> Iterator[Mention]:
        bases = [self._base(word) for word in words]
        for start in range(len(words)):
            for end in range(start + 1, min(start + _LONGEST, len(words)) + 1):
                if end == start + 1 and words[start] in self._stop:
                    continue
                entity = self._entities.get(tuple(bases[start:end]))
                if entity is not None:
                    yield Mention(start, end, entity)

    def _base(self, word: str) -> str:
        """The shortest base of a word that some name has; the word itself where none has one."""
        there = [base for base in bases(word) if base in self._known]
        return min(there, key=len, default=word)


def words_of(text: str) -> list[str]:
    """The words of a text, lower case."""
    return _WORD.findall(text.lower().replace("\u2019", "'"))


def bases(word: str) -> list[str]:
    """The word, and what it may be a form of."""
    found = [word]
    for end, base in _ENDINGS:
        if word.endswith(end) and len(word) - len(end) + len(base) >= _SHORTEST:
            found.append(word.removesuffix(end) + base)
    if (
        word.endswith(("ing", "ed"))
        and len(stem := re.sub(r"(ing|ed)$", "", word)) > _SHORTEST
        and stem[-1] == stem[-2]
    ):
        found.append(stem[:-1])  # running, stopped
    return found
