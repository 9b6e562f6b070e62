r"""What sections 4.4 to 4.6 say of generated abstracts by eye, counted. Every measure takes real abstracts as well::

    ended            share that ends by itself, before the most that may be written (4.5.1)
    words            mean length, in words set apart by white space (4.5.1)
    abbreviations    of the abbreviations introduced as "full term (FT)", the share that is used again after it (4.5.2)
    introduced       abbreviations introduced that way, for each abstract; a word before begins with
                     their first letter, the last word before holds the last one
    latex_balanced   of the abstracts with LaTeX, the share whose $ are paired and whose { } match (4.5.3)
    latex            share of abstracts that have any; a price is none ("$130 billion")
    key_term         of titles "NAME: full title", the share whose abstract says NAME (4.6)
    copied_4, _8     share of an abstract's 4-grams (8-grams) of words that stand in some training abstract
    longest_copy     words of the longest stretch copied from one, the mean over abstracts
    distinct_1, _2   different words (pairs of words) of all abstracts by their number (Li et al. 2016)
    title_words      of a title's words that no training text has, the share that its abstract says (2.2)
    field            share whose field (first category) a classifier of real training abstracts tells from them (4.4)
    self_bleu        how like the abstracts are to each other: mean BLEU-4 of each against the others (Zhu et al. 2018),
                     a hundred of them, spread evenly, where there are more

A share of nothing is left out.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gptcore.evaluation.overlap import Hashes, stretch_hashes
from gptcore.papers.abstracts.documents import Paper, field_of

_INTRODUCED = re.compile(r"\(([A-Z][A-Za-z0-9-]*[A-Z0-9])s?\)")
_LATEX = re.compile(r"\$|\\[A-Za-z]+")
_PRICE = re.compile(r"(?<![a-z}\])])\$(?=\.?\d[\d.,]*(?:[kKMB]\b(?!\$)|\s*[A-Za-z]{2,}))")
_NAME = re.compile(r"^(\S{2,30}):\s")
_WORD = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]")
COPIES = (4, 8)
"""Lengths of the stretches whose share is told."""
_CHUNK = 500  # abstracts held at once
_MOST_TRAINED = 20_000  # training abstracts of the classifier of fields, spread evenly
_OTHERS = 100  # that one is compared with: time grows with the abstracts, not with their square


@dataclass(frozen=True)
class Written:
    """One abstract under its title."""

    title: str
    abstract: str
    ended: bool = True


@dataclass(frozen=True)
class Copied:
    """What of some texts stands in the training abstracts, word for word."""

    shares: Mapping[int, list[float]]
    """n -> for each text that has one, the share of its n-grams that some training abstract holds."""
    longest: list[int]
    """For each text, the words of the longest stretch that one holds."""


def copied(texts: Sequence[Sequence[str]], training: Iterable[str]) -> Copied:
    """Look for all stretches of ``texts`` (words, by :func:`tokens`) in the training abstracts, read once.

    Memory: that of the texts and of some hundred abstracts. Stretches are told apart by hashes of 64 bits.
    """
    known = {word: n for n, word in enumerate(dict.fromkeys(w for words in texts for w in words), start=1)}
    asked = [np.asarray([known[word] for word in words], np.uint64) for words in texts]
    longest = [0] * len(texts)
    held_of: dict[int, list[npt.NDArray[np.bool_]]] = {}
    rest = iter(training)
    while chunk := list(itertools.islice(rest, _CHUNK)):
        # 0: a word that no text has, and the border between two abstracts
        held = [known.get(word, 0) for abstract in chunk for word in [*tokens(abstract), ""]]
        theirs = np.asarray(held, np.uint64)
        for n in itertools.count(1):  # a stretch that is held makes all shorter ones within it held
            hashes = np.sort(stretch_hashes(theirs, n))  # once for all texts: np.isin would sort for each
            hits = [_among(stretch_hashes(ids, n), hashes) for ids in asked]
            if not any(hit.any() for hit in hits):
                break
            before = held_of.setdefault(n, [np.zeros(len(hit), bool) for hit in hits])
            held_of[n] = [old | hit for old, hit in zip(before, hits, strict=True)]
            longest = [max(old, n * bool(hit.any())) for old, hit in zip(longest, hits, strict=True)]
    shares = {
        n: [float(held_of[n][row].mean()) if n in held_of else 0.0 for row, ids in enumerate(asked) if len(ids) >= n]
        for n in COPIES
    }
    return Copied(shares, longest)


def _among(hashes: Hashes, held: Hashes) -> npt.NDArray[np.bool_]:
    if not len(held):
        return np.zeros(len(hashes), bool)
    hits: npt.NDArray[np.bool_] = held[np.minimum(np.searchsorted(held, hashes), len(held) - 1)] == hashes
    return hits


def measures(written: Sequence[Written], training: Iterable[str]) -> dict[str, float]:
    """The measures at the head of this module, by name.

    :param training: the training abstracts.
    """
    words = [tokens(item.abstract) for item in written]
    copies = copied(words, training)
    told: dict[str, float | None] = {
        "ended": _mean(item.ended for item in written),
        "words": _mean(len(item.abstract.split()) for item in written),
        **_abbreviations([item.abstract for item in written]),
        "latex": _mean(has_latex(item.abstract) for item in written),
        "latex_balanced": _mean(balanced(item.abstract) for item in written if has_latex(item.abstract)),
        "key_term": _mean(
            bool(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", item.abstract))
            for item in written
            if (name := key_term(item.title)) is not None
        ),
        **{f"copied_{n}": _mean(shares) for n, shares in copies.shares.items()},
        "longest_copy": _mean(copies.longest),
        **{f"distinct_{n}": _distinct(words, n) for n in (1, 2)},
        "self_bleu": self_bleu(words) if len(words) > 1 else None,
    }
    return {name: float(value) for name, value in told.items() if value is not None}


def tokens(text: str) -> list[str]:
    """Words and marks in lower case."""
    return _WORD.findall(text.lower())


def key_term(title: str) -> str | None:
    """NAME of a title "NAME: full title"; None where it has another form."""
    match = _NAME.match(title)
    return match[1] if match else None


def has_latex(text: str) -> bool:
    """Whether there is a formula or a command, and not only a price."""
    return bool(_LATEX.search(_PRICE.sub("", text)))


def balanced(text: str) -> bool:
    """Whether dollar signs come in pairs and braces match, those behind a backslash and those of prices left out."""
    text = _PRICE.sub("", re.sub(r"\\[\\${}]", "", text))
    depth = 0
    for character in text:
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return False
    return depth == 0 and text.count("$") % 2 == 0


def self_bleu(texts: Sequence[Sequence[str]]) -> float:
    """Mean BLEU-4 of each text against :data:`_OTHERS` others (0 to 1), by sacrebleu's counts, smoothed by a floor of
    0.1."""
    from sacrebleu.metrics.bleu import BLEU

    bleu = BLEU(tokenize="none", smooth_method="floor", effective_order=True)
    joined = [" ".join(words) for words in texts]
    count = min(_OTHERS, len(joined) - 1)
    steps = [1 + m * (len(joined) - 1) // count for m in range(count)]  # from a text to those it is compared with
    scores = [
        bleu.sentence_score(text, [joined[(n + step) % len(joined)] for step in steps]).score / 100
        for n, text in enumerate(joined)
    ]
    return sum(scores) / len(scores)


def _abbreviations(abstracts: Sequence[str]) -> dict[str, float | None]:
    used, introduced = 0, 0
    for text in abstracts:
        for match in _INTRODUCED.finditer(text):
            before = [word for word in tokens(text[: match.start()]) if re.match(r"\w", word)]  # marks are no words
            words, short = before[-len(match[1]) - 2 :], match[1].lower()
            if not (any(word[0] == short[0] for word in words) and short[-1] in words[-1]):
                continue  # a remark in brackets
            introduced += 1
            used += bool(re.search(rf"\b{re.escape(match[1])}s?\b", text[match.end() :]))
    return {
        "introduced": introduced / len(abstracts) if abstracts else None,
        "abbreviations": used / introduced if introduced else None,
    }


def _distinct(texts: Sequence[Sequence[str]], n: int) -> float | None:
    counts = Counter(tuple(words[at : at + n]) for words in texts for at in range(len(words) - n + 1))
    return len(counts) / counts.total() if counts else None


def _mean(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else None


class FieldClassifier:
    """Whether an abstract fits the field of its title (section 4.4), as a classifier of real abstracts tells.

    Logistic regression on tf-idf weighted words of real training abstracts, with scikit-learn's defaults.

    :param train: papers of the training split, in order of date; those without a category are left out.
    """

    def __init__(self, train: Sequence[Paper]) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression

        known = [paper for paper in train if field_of(paper)]
        known = [known[n * len(known) // min(_MOST_TRAINED, len(known))] for n in range(min(_MOST_TRAINED, len(known)))]
        fields = [field_of(paper) for paper in known]
        self.fields = sorted(set(fields))
        """The fields that the classifier tells apart; where there are fewer than two it tells nothing."""
        self._commonest = Counter(fields).most_common(1)[0][0] if fields else ""
        if len(self.fields) > 1:
            self._weights = TfidfVectorizer(sublinear_tf=True)
            self._model = LogisticRegression(max_iter=1000)
            self._model.fit(self._weights.fit_transform(paper.abstract for paper in known), fields)

    def share_right(self, papers: Sequence[Paper], abstracts: Sequence[str]) -> float | None:
        """Share of abstracts whose field is told to be that of the paper under whose title they stand.

        :param abstracts: one for each of ``papers``; their own, or generated ones.
        :returns: None where no paper has a field that the classifier knows, or it knows fewer than two.
        """
        asked = [(field_of(paper), text) for paper, text in zip(papers, abstracts, strict=True)]
        asked = [(field, text) for field, text in asked if field in self.fields]
        if not asked or len(self.fields) < 2:
            return None
        answers = self._model.predict(self._weights.transform(text for _, text in asked))
        return float(np.mean([field == answer for (field, _), answer in zip(asked, answers, strict=True)]))

    def by_chance(self, papers: Sequence[Paper]) -> float | None:
        """What who always says the commonest training field would reach on ``papers``."""
        fields = [field for paper in papers if (field := field_of(paper)) in self.fields]
        return fields.count(self._commonest) / len(fields) if fields and len(self.fields) > 1 else None
