"""How generated answers are scored: exact match and F1 (SQuAD), ROUGE (summaries), BLEU (translations), a last word."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Sequence
from random import Random

from gptcore.base.seeds import derive_seed
from gptcore.nlu.place_metrics import exact_match, token_f1
from gptcore.papers.prompting.items import SEED, UNKNOWN, FreeForm

_SENTENCE = re.compile(r"(?<=[.!?])[\"')\u2019\u201d]*\s+")
_WORD = re.compile(r"[\s\"'\u2018\u201c`]*(\w+(?:['\u2019-]\w+)*)")

Measure = Callable[[Sequence[str], Sequence[FreeForm]], dict[str, float]]
"""Takes generated answers and the rows that they answer; gives scores by name as fractions, the headline first."""


def sentences(text: str) -> list[str]:
    """The sentences of a text, which end at a full stop, question mark or exclamation mark."""
    return [part for part in _SENTENCE.split(" ".join(text.split())) if part]


def last_word(answers: Sequence[str], items: Sequence[FreeForm]) -> dict[str, float]:
    """Share of answers whose first word is the right one (LAMBADA)."""
    return {"accuracy": statistics.fmean(map(is_word, answers, items))}


def is_word(answer: str, item: FreeForm) -> bool:
    """Whether an answer begins with the right word, whatever its case."""
    return first_word(answer) == first_word(item.answers[0])


def first_word(text: str) -> str:
    """The word that a text begins with, in lower case; empty where it begins with something else."""
    match = _WORD.match(text)
    return match.group(1).lower() if match else ""


def questions(answers: Sequence[str], items: Sequence[FreeForm]) -> dict[str, float]:
    """F1 of words and exact match, each the best over the right answers (Rajpurkar et al. 2016, section 6.1).

    F1 is also given for the questions with an answer alone, and for those without one.
    """
    pairs = list(zip(answers, items, strict=True))
    f1, exact = (
        [max(score(answer, [right], may_lack=True) for right in item.answers) for answer, item in pairs]
        for score in (token_f1, exact_match)
    )
    scores = {"f1": statistics.fmean(f1), "exact match": statistics.fmean(exact)}
    for name, wanted in (("f1, answerable", False), ("f1, unanswerable", True)):
        if some := [value for value, item in zip(f1, items, strict=True) if (item.answers == (UNKNOWN,)) == wanted]:
            scores[name] = statistics.fmean(some)
    return scores


def always_unknown(items: Sequence[FreeForm]) -> list[tuple[str, list[str]]]:
    """The baseline that calls every question unanswerable."""
    return [(f'always "{UNKNOWN}"', [UNKNOWN] * len(items))]


def rouge(answers: Sequence[str], items: Sequence[FreeForm]) -> dict[str, float]:
    """ROUGE-1, -2 and -L as F1 with stemming, and their mean, which is the headline (GPT-2's paper, Table 4).

    ROUGE-L is that of whole summaries, compared sentence by sentence.
    """
    from rouge_score.rouge_scorer import RougeScorer  # with it comes NLTK: a second

    kinds = ("rouge1", "rouge2", "rougeLsum")
    scorer = RougeScorer(list(kinds), use_stemmer=True)
    scores = [
        scorer.score(item.answers[0], "\n".join(sentences(answer))) for answer, item in zip(answers, items, strict=True)
    ]
    means = {
        name: statistics.fmean(score[kind].fmeasure for score in scores)
        for name, kind in zip(("rouge-1", "rouge-2", "rouge-l"), kinds, strict=True)
    }
    return {"rouge": statistics.fmean(means.values()), **means}


def bleu(answers: Sequence[str], items: Sequence[FreeForm]) -> dict[str, float]:
    """BLEU over the whole corpus, with case and sacrebleu's tokenizer 13a, from 0 to 1."""
    from sacrebleu.metrics.bleu import BLEU

    return {"bleu": BLEU().corpus_score(list(answers), [[item.answers[0] for item in items]]).score / 100}


def article_baselines(items: Sequence[FreeForm]) -> list[tuple[str, list[str]]]:
    """Summaries without a model (GPT-2's paper, Table 4): three random sentences, and the first three."""
    articles = [item.context for item in items]
    return [
        ("Random-3", [random_sentences(article, row, SEED) for row, article in enumerate(articles)]),
        ("Lede-3", [lede(article) for article in articles]),
    ]


def lede(article: str, count: int = 3) -> str:
    """The first sentences of an article: Lede-3."""
    return " ".join(sentences(article)[:count])


def random_sentences(article: str, row: int, seed: int, count: int = 3) -> str:
    """Some of an article's sentences, in their order: Random-3."""
    parts = sentences(article)
    chosen = Random(derive_seed(seed, "sentences", row)).sample(range(len(parts)), min(count, len(parts)))
    return " ".join(parts[place] for place in sorted(chosen))
