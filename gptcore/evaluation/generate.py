"""Text from a language model: a prompt read once, then one token at a time, drawn from what the model expects next."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gptcore.errors import InputError
from gptcore.evaluation.sampling import check_sampling
from gptcore.models.incremental import open_reader
from gptcore.models.language_model import LanguageModel
from gptcore.text.bpe import Tokenizer
from gptcore.training.rng import generator


def generate(
    model: LanguageModel,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    max_tokens: int = 100,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
) -> Iterator[str]:
    """The continuation of a prompt, piece by piece, as text that follows the prompt's; it ends after ``max_tokens``.

    Equal arguments give equal text on the same machine. Where the text outgrows n_ctx see
    :mod:`gptcore.models.incremental`.

    :param model: in eval mode.
    :param temperature: divides the logits; 0 takes the likeliest token every time.
    :param top_k: draw from so many of the likeliest tokens (Fan et al. 2018); 0: from all.
    :param top_p: draw from the likeliest tokens that together reach this probability (nucleus sampling, Holtzman et
        al. 2020), among those that ``top_k`` leaves; 1: from all.
    :raises InputError: before the first piece: a setting out of range, a prompt without words, a tokenizer with
        another vocabulary than the model's.
    """
    check_sampling(max_tokens, temperature, top_k, top_p)
    if model.config.n_vocab != tokenizer.n_vocab:
        raise InputError(f"model: found n_vocab = {model.config.n_vocab}, expected the tokenizer's {tokenizer.n_vocab}")
    ids = tokenizer.encode(prompt)
    if not ids:
        raise InputError(f"prompt: found {prompt!r}, expected a word or more to go on from")
    return _pieces(model, tokenizer, ids, max_tokens, temperature, top_k, top_p, seed)


def _pieces(
    model: LanguageModel,
    tokenizer: Tokenizer,
    ids: list[int],
    max_tokens: int,
    temperature: float,
    top_k: int,
    top_p: float,
    seed: int,
) -> Iterator[str]:
    reader, draws = open_reader(model), generator(seed, "generate")
    logits, last = reader.feed(ids), ids[-1]
    for left in range(max_tokens - 1, -1, -1):
        drawn = sample(logits[: tokenizer.n_vocab], temperature, top_k, top_p, draws)  # the specials have no text
        # What a piece adds to the text depends on the one before it: a word's end shows only when more follows.
        yield tokenizer.decode([last, drawn])[len(tokenizer.decode([last])) :]
        last = drawn
        if left:
            logits = reader.feed([drawn])


def sample(logits: Tensor, temperature: float, top_k: int, top_p: float, draws: torch.Generator) -> int:
    """One token's id from logits [V], drawn on the CPU as a GPU's draws differ; settings as :func:`generate`."""
    logits = logits.float().cpu()
    if temperature == 0:
        return int(logits.argmax())
    ordered, ids = torch.sort(logits, descending=True, stable=True)  # [V] each
    kept = ordered[: top_k or None].double() / temperature
    probabilities = torch.softmax(kept, dim=0)
    before = probabilities.cumsum(0) - probabilities  # of all likelier tokens together
    probabilities[before >= top_p] = 0  # never the first, whose share before it is 0
    return int(ids[torch.multinomial(probabilities, 1, generator=draws)])
