"""A model at work on titles: abstracts drawn, and how it takes the words of titles that came after its training."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from gptcore.abstracts.config import SamplingConfig
from gptcore.abstracts.documents import marks, prompt_ids
from gptcore.abstracts.measures import Written
from gptcore.errors import InputError
from gptcore.evaluation.generate import generate_ids
from gptcore.evaluation.likelihood import NetworkLikelihood
from gptcore.models.language_model import LanguageModel
from gptcore.text.tokenizer import Tokenizer

_AT_ONCE = 8  # titles
_WORD = re.compile(r"\w+(?:['’]\w+)*")


def write_abstracts(
    model: LanguageModel,
    tokenizer: Tokenizer,
    titles: Sequence[str],
    config: SamplingConfig,
    progress: Callable[[int], object] | None = None,
) -> list[Written]:
    """An abstract under each title, drawn until the model ends it or ``config.max_tokens`` are there.

    The n-th title's draws are those of the seed ``config.seed + n``.

    :param model: in eval mode, with rows for the marks.
    :param progress: called with the number of titles done since its last call.
    :raises InputError: a tokenizer of another model, or a title without words.
    """
    if model.config.n_vocab != tokenizer.n_vocab:
        raise InputError(f"model: found n_vocab = {model.config.n_vocab}, expected the tokenizer's {tokenizer.n_vocab}")
    if empty := [n for n, title in enumerate(titles, start=1) if not title.strip()]:
        raise InputError(f"title {empty[0]}: found {titles[empty[0] - 1]!r}, expected a word or more")
    end = marks(tokenizer).end
    written = []
    for first in range(0, len(titles), _AT_ONCE):
        some = [" ".join(title.split()) for title in titles[first : first + _AT_ONCE]]
        found = generate_ids(
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
            for title, ids in zip(some, found, strict=True)
        ]
        if progress is not None:
            progress(len(some))
    return written


def future_words(
    model: LanguageModel, tokenizer: Tokenizer, known: Iterable[str], titles: Sequence[str]
) -> dict[str, float]:
    """How unexpected words of later titles are that no earlier text has, beside those that one has (section 2.2).

    Each occurrence of a word counts.

    A word's perplexity is that of its ids together, after the beginning of the title; means are geometric.

    :param known: texts from before the split.
    :returns: "new_words", "new_word_perplexity" and "known_word_perplexity"; the perplexities only where there are
        words.
    """
    seen = {word.lower() for text in known for word in _WORD.findall(text)}
    start = [marks(tokenizer).start]
    pairs, new = [], []
    for title in titles:
        for match in _WORD.finditer(title):
            begin = match.start() - (title[: match.start()].endswith(" "))  # a space goes with the word behind it
            before = [*start, *tokenizer.encode(title[:begin])]
            pairs.append((before, tokenizer.encode(title[begin : match.end()])))
            new.append(match[0].lower() not in seen)
    if not pairs:
        return {"new_words": 0.0}
    sums, _ = NetworkLikelihood(model).continuations(pairs)
    is_new = np.asarray(new)
    found = {"new_words": float(is_new.sum())}
    for name, chosen in (("new", is_new), ("known", ~is_new)):
        if chosen.any():
            found[f"{name}_word_perplexity"] = math.exp(-float(sums[chosen].mean()))
    return found
