"""A model at work on titles: abstracts drawn, and how it takes the words of titles that came after its training."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence, Set

import numpy as np

from gptcore.base.errors import InputError
from gptcore.base.types import Advance, quiet
from gptcore.evaluation.generate import generate_ids
from gptcore.evaluation.likelihood import NetworkLikelihood
from gptcore.models.network import LanguageModel
from gptcore.papers.abstracts.config import SamplingConfig
from gptcore.papers.abstracts.documents import Paper, marks, prompt_ids
from gptcore.papers.abstracts.measures import Written
from gptcore.text.tokenizer import Tokenizer

_AT_ONCE = 8  # titles
_WORD = re.compile(r"\w+(?:['’]\w+)*")


def write_abstracts(
    model: LanguageModel,
    tokenizer: Tokenizer,
    titles: Sequence[str],
    config: SamplingConfig,
    progress: Advance = quiet,
) -> list[Written]:
    """An abstract under each title, drawn until the model ends it or ``config.max_tokens`` are there.

    The n-th title's draws are those of the seed ``config.seed + n``.

    :param model: in eval mode, with rows for the marks.
    :param progress: called with the number of titles done since its last call.
    :raises InputError: a tokenizer of another model, or a title without words.
    """
    tokenizer.require_rows(model.config.n_vocab, "model")
    if empty := [n for n, title in enumerate(titles, start=1) if not title.strip()]:
        raise InputError(f"title {empty[0]}: found {titles[empty[0] - 1]!r}, expected a word or more")
    end = marks(tokenizer).end
    written = []
    for first in range(0, len(titles), _AT_ONCE):
        some = [" ".join(title.split()) for title in titles[first : first + _AT_ONCE]]
        drawn = generate_ids(
            model,
            [prompt_ids(tokenizer, title) for title in some],
            n_vocab=tokenizer.n_vocab,
            stop=(end,),
            max_tokens=config.max_tokens,
            temperature=config.temperature,
            top_k=config.top_k,
            top_p=config.top_p,
            repetition_penalty=config.repetition_penalty,
            seed=config.seed + first,
        )
        written += [
            Written(title, tokenizer.decode(ids).strip(), ended=len(ids) < config.max_tokens)
            for title, ids in zip(some, drawn, strict=True)
        ]
        progress(len(some))
    return written


def title_words(seen: Set[str], titles: Sequence[str], abstracts: Sequence[str]) -> float | None:
    """The share of titles' words outside ``seen`` that the abstract below says; None where there is no such word."""
    used = [
        word in words
        for title, abstract in zip(titles, abstracts, strict=True)
        for words in [set(words_of(abstract))]
        for word in dict.fromkeys(words_of(title))
        if word not in seen
    ]
    return sum(used) / len(used) if used else None


def words_of(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return [word.lower() for word in _WORD.findall(text)]


def future_words(
    model: LanguageModel, tokenizer: Tokenizer, seen: Set[str], papers: Sequence[Paper]
) -> dict[str, float]:
    """How well a model uses words of later titles that it was not trained on, beside those that it was (section 2.2).

    A word of a title is looked at where the paper's own abstract says it first: its perplexity is that of its ids
    together, given the title and the abstract up to there. Means are geometric.

    :param seen: the words of the training texts, and of no others, in lower case.
    :returns: "new_words" (that the abstracts say), "new_word_perplexity" and "known_word_perplexity"; the perplexities
        only where there are words.
    """
    pairs, new = [], []
    for paper in papers:
        prompt = prompt_ids(tokenizer, paper.title)
        asked = set(words_of(paper.title))
        for match in _WORD.finditer(paper.abstract):
            if (word := match[0].lower()) not in asked:
                continue
            asked.remove(word)
            begin = match.start() - (paper.abstract[: match.start()].endswith(" "))  # a space goes with its word
            ids = tokenizer.encode(paper.abstract[begin : match.end()])
            room = model.config.n_ctx - len(prompt) - len(ids)
            if room > 0:
                pairs.append(([*prompt, *tokenizer.encode(paper.abstract[:begin])[-room:]], ids))
                new.append(word not in seen)
    if not pairs:
        return {"new_words": 0.0}
    sums, _ = NetworkLikelihood(model).continuations(pairs)
    is_new = np.asarray(new)
    figures = {"new_words": float(is_new.sum())}
    for name, chosen in (("new", is_new), ("known", ~is_new)):
        if chosen.any():
            figures[f"{name}_word_perplexity"] = math.exp(-float(sums[chosen].mean()))
    return figures
