"""Text from a language model: a prompt read once, then one token at a time, drawn from what the model expects next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from gptcore.errors import InputError
from gptcore.evaluation.sampling import check_sampling
from gptcore.models.incremental import open_reader
from gptcore.models.language_model import LanguageModel
from gptcore.text.tokenizer import Tokenizer
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
    ids = _encoded(model, tokenizer, prompt)
    steps = _pieces(model, tokenizer, [ids], max_tokens, temperature, top_k, top_p, [seed])
    return (piece for (piece,) in steps)


def generate_batch(
    model: LanguageModel,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    *,
    max_tokens: int = 100,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
) -> list[str]:
    """The continuations of several prompts of any lengths, in their order, which share each pass through the model.

    The first is what :func:`generate` gives for its prompt and ``seed``, the next for ``seed`` + 1, and so on: each
    has draws of its own. (On other shapes a processor rounds otherwise, in the seventh digit of a logit.)

    :raises InputError: as :func:`generate`, naming the prompt.
    """
    check_sampling(max_tokens, temperature, top_k, top_p)
    encoded = [_encoded(model, tokenizer, prompt) for prompt in prompts]
    if not encoded:
        return []
    seeds = range(seed, seed + len(prompts))
    steps = _pieces(model, tokenizer, encoded, max_tokens, temperature, top_k, top_p, seeds)
    return ["".join(pieces) for pieces in zip(*steps, strict=True)]


def _encoded(model: LanguageModel, tokenizer: Tokenizer, prompt: str) -> list[int]:
    if model.config.n_vocab != tokenizer.n_vocab:
        raise InputError(f"model: found n_vocab = {model.config.n_vocab}, expected the tokenizer's {tokenizer.n_vocab}")
    ids = tokenizer.encode(prompt)
    if not ids:
        raise InputError(f"prompt: found {prompt!r}, expected a word or more to go on from")
    return ids


def _pieces(
    model: LanguageModel,
    tokenizer: Tokenizer,
    prompts: Sequence[list[int]],
    max_tokens: int,
    temperature: float,
    top_k: int,
    top_p: float,
    seeds: Sequence[int],
) -> Iterator[list[str]]:
    """The next piece of each text, ``max_tokens`` times."""
    reader = open_reader(model, len(prompts))
    draws = [generator(seed, "generate") for seed in seeds]
    adding = [tokenizer.following(ids[-1]) for ids in prompts]
    new = prompts
    for _ in range(max_tokens):
        logits = reader.feed(new)[:, : tokenizer.n_vocab]  # the specials have no text
        drawn = [sample(row, temperature, top_k, top_p, its) for row, its in zip(logits, draws, strict=True)]
        yield [add(token) for add, token in zip(adding, drawn, strict=True)]
        new = [[token] for token in drawn]


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
