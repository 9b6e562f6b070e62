"""Text from a language model: a prompt read once, then one token at a time, drawn from what the model expects next."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gptcore.base.errors import require
from gptcore.evaluation.sampling import check_sampling
from gptcore.machine.rng import generator
from gptcore.models.incremental import open_reader
from gptcore.models.network import LanguageModel
from gptcore.text.tokenizer import Tokenizer


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
    """The continuation of a prompt, piece by piece, as text that follows the prompt's.

    It ends after ``max_tokens``, or where the model writes the tokenizer's end of text, if that has one.

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
    settings = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    return (piece for (piece,) in _pieces(model, tokenizer, [ids], max_tokens, settings, [seed]))


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
    settings = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    texts = [""] * len(encoded)
    for pieces in _pieces(model, tokenizer, encoded, max_tokens, settings, seeds):
        texts = [text + piece for text, piece in zip(texts, pieces, strict=True)]
    return texts


def _encoded(model: LanguageModel, tokenizer: Tokenizer, prompt: str) -> list[int]:
    tokenizer.require_rows(model.config.n_vocab, "model")
    ids = tokenizer.encode(prompt)
    require(ids, f"prompt: found {prompt!r}, expected a word or more to go on from")
    return [*tokenizer.opening, *ids]


def generate_ids(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    *,
    n_vocab: int,
    max_tokens: int,
    stop: Collection[int] = (),
    ended: Callable[[Sequence[int]], bool] | None = None,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    repetition_penalty: float = 1.0,
    seed: int | Sequence[int] = 0,
) -> list[list[int]]:
    """The ids that go on each prompt, special ones allowed there; without the one that they stop at.

    A prompt of up to half of n_ctx stays in sight when its text outgrows that.

    :param n_vocab: ids below it are drawn, none of the special rows behind them.
    :param stop: ids at which a text ends; none: all are ``max_tokens`` long.
    :param ended: whether a text has come to its end with these ids, the last of which is new; None: none has.
    :param repetition_penalty: positive logits of ids that the text holds already, its prompt included, are divided by
        it, negative ones multiplied (Keskar et al. 2019, section 4.1, as transformers has it); 1: off.
    :param seed: of the first prompt's draws, each next one's is one more; or one for each prompt.
    :raises InputError: a setting out of range, or a prompt without ids.
    """
    check_sampling(max_tokens, temperature, top_k, top_p, repetition_penalty)
    require(all(prompts), "prompts: found one without ids, expected one or more in each")
    settings = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    generated: list[list[int]] = [[] for _ in prompts]
    going = set(range(len(prompts)))
    if not going:
        return generated
    seeds = range(seed, seed + len(prompts)) if isinstance(seed, int) else seed
    longest = max(map(len, prompts))
    for drawn in _drawn(model, prompts, n_vocab, settings, seeds, repetition_penalty, kept=longest):
        for row in list(going):
            if drawn[row] not in stop:
                generated[row].append(drawn[row])
            is_over = drawn[row] in stop or (ended is not None and ended(generated[row]))
            if is_over or len(generated[row]) == max_tokens:
                going.remove(row)
        if not going:
            break
    return generated


def _pieces(
    model: LanguageModel,
    tokenizer: Tokenizer,
    prompts: Sequence[list[int]],
    max_tokens: int,
    settings: Mapping[str, Any],
    seeds: Sequence[int],
) -> Iterator[list[str]]:
    """The next piece of each text, at most ``max_tokens`` times; specials have no text, and are not drawn.

    Nothing more comes of a text that has come to its end.
    """
    adding = [tokenizer.following(ids[-1]) for ids in prompts]
    going = [True] * len(prompts)
    for drawn in itertools.islice(_drawn(model, prompts, tokenizer.n_vocab, settings, seeds), max_tokens):
        going = [on and token != tokenizer.end_of_text for on, token in zip(going, drawn, strict=True)]
        if not any(going):
            return
        yield [add(token) if on else "" for on, add, token in zip(going, adding, drawn, strict=True)]


def _drawn(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    n_vocab: int,
    settings: Mapping[str, Any],
    seeds: Sequence[int],
    repetition_penalty: float = 1.0,
    kept: int = 0,
) -> Iterator[list[int]]:
    """Yield the next id of each text, for as long as the caller asks."""
    reader = open_reader(model, len(prompts), kept)
    draws = [generator(seed, "generate") for seed in seeds]
    held = [set(ids) for ids in prompts]
    new: Sequence[Sequence[int]] = prompts
    while True:
        logits = penalised(reader.feed(new)[:, :n_vocab], held, repetition_penalty)
        drawn = [sample(row, **settings, draws=own) for row, own in zip(logits, draws, strict=True)]
        yield drawn
        for ids, token in zip(held, drawn, strict=True):
            ids.add(token)
        new = [[token] for token in drawn]


def penalised(logits: Tensor, held: Sequence[Collection[int]], penalty: float) -> Tensor:
    """Logits [B, V] after a repetition penalty on the ids that each of B texts holds; those beyond V do not matter."""
    if penalty == 1.0:
        return logits
    logits = logits.clone()
    for row, ids in zip(logits, held, strict=True):
        inside = torch.tensor([index for index in ids if index < len(row)], dtype=torch.long, device=row.device)
        row[inside] = torch.where(row[inside] > 0, row[inside] / penalty, row[inside] * penalty)
    return logits


def sample(logits: Tensor, temperature: float, top_k: int, top_p: float, draws: torch.Generator) -> int:
    """One token's id from logits [V], drawn on the CPU as a GPU's draws differ; settings as :func:`generate`."""
    logits = logits.float().cpu()
    if temperature == 0:
        return int(logits.argmax())
    ordered, ids = torch.sort(logits, descending=True, stable=True)  # [V] each
    likely = ordered[: top_k or None].double()
    kept = (likely - likely[0]) / temperature  # not beyond float64 whatever the temperature
    probabilities = torch.softmax(kept, dim=0)
    before = probabilities.cumsum(0) - probabilities  # of all likelier tokens together
    probabilities[before >= top_p] = 0  # never the first, whose share before it is 0
    return int(ids[torch.multinomial(probabilities, 1, generator=draws)])
