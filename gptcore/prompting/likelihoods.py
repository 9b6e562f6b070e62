"""How likely answers are behind prompts: prompts of like length share a pass, and each one is read once.

What the network keeps of a prompt is copied for those of its answers that have several tokens, as far as it is read,
and all their tokens are then read in one pass. (An answer's first token follows from the prompt's own pass.)

Legend of the shape comments: B prompts of a batch, N answers, T positions, V rows of the embedding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from gptcore.data.batches import by_length, evaluation_tokens
from gptcore.models.incremental import Reader, bytes_per_position, open_reader
from gptcore.models.network import LanguageModel

Ids = Sequence[int]
_CACHE_BYTES = 1 << 29  # of what is kept of the texts that are read together
_LOGITS = 1 << 22  # numbers held at once


@torch.inference_mode()
def answer_likelihoods(
    model: LanguageModel,
    questions: Sequence[tuple[Ids, Sequence[Ids]]],
    progress: Callable[[int, int], object] | None = None,
) -> list[NDArray[np.float64]]:
    """Summed log-probability of each answer behind its prompt, in nats: for each question float64 [its answers].

    An answer without ids has 0.

    :param model: in eval mode, in float32.
    :param questions: a prompt, one id at least, and the answers that may go on it; the model has positions for both.
    :param progress: called with (questions done, in all).
    """
    found = [np.zeros(len(answers)) for _, answers in questions]
    done = 0
    for rows, reader, logits in read_batches(model, [prompt for prompt, _ in questions]):
        owners = [place for place, row in enumerate(rows) for _ in questions[row][1]]
        answers = [answer for row in rows for answer in questions[row][1]]
        sums = continuation_sums(model, reader, logits, owners, answers)
        for row in rows:
            found[row], sums = sums[: len(found[row])], sums[len(found[row]) :]
        done += len(rows)
        if progress is not None:
            progress(done, len(questions))
    return found


def read_batches(
    model: LanguageModel, prompts: Sequence[Ids], copies: int = 1
) -> Iterator[tuple[list[int], Reader, Tensor]]:
    """Prompts read in batches of like length: (which prompts, what has read them, logits of what comes next [B, V]).

    :param copies: how many texts will be spread from each prompt, for which memory is left.
    """
    lengths = np.asarray([len(prompt) for prompt in prompts], dtype=np.int64)
    per_position = max(1, bytes_per_position(model)) * copies
    fitting = _CACHE_BYTES // per_position
    most = min(evaluation_tokens(model.tokens.weight.device), fitting)
    for chosen in by_length(lengths, most):
        rows = chosen.tolist()
        width = int(lengths[chosen].max())
        reader = open_reader(model, len(rows), width=width)
        yield rows, reader, reader.feed([prompts[row] for row in rows])


def continuation_sums(
    model: LanguageModel, reader: Reader, logits: Tensor, owners: Sequence[int], answers: Sequence[Ids]
) -> NDArray[np.float64]:
    """Summed log-probability of answers behind the texts that a reader has read: float64 [N].

    :param logits: of what comes next behind each of the texts: [B, V].
    :param owners: which text each answer goes on.
    """
    nats = torch.log_softmax(logits.float(), dim=-1).double().cpu()  # (B, V)
    sums = np.asarray([float(nats[own, ids[0]]) if ids else 0.0 for own, ids in zip(owners, answers, strict=True)])
    longer = sorted((row for row, ids in enumerate(answers) if len(ids) > 1), key=lambda row: len(answers[row]))
    for some in _groups(model, reader, longer, answers):
        copies = reader.spread([owners[row] for row in some], max(len(answers[row]) for row in some) - 1)
        states = copies.states([answers[row][:-1] for row in some])  # (n, T, D)
        own = torch.tensor([place for place, row in enumerate(some) for _ in answers[row][1:]], device=states.device)
        at = torch.tensor([place for row in some for place in range(len(answers[row]) - 1)], device=states.device)
        targets = torch.tensor([token for row in some for token in answers[row][1:]], device=states.device)
        chosen = states[own, at]  # (tokens, D)
        step = max(1, _LOGITS // logits.shape[-1])
        nats = torch.cat(
            [
                -F.cross_entropy(copies.logits(chosen[part]).float(), targets[part], reduction="none")
                for part in (slice(first, first + step) for first in range(0, len(targets), step))
            ]
        )
        np.add.at(sums, np.asarray(some)[own.cpu().numpy()], nats.double().cpu().numpy())
    return sums


def _groups(
    model: LanguageModel, reader: Reader, rows: Sequence[int], answers: Sequence[Ids]
) -> Iterator[Sequence[int]]:
    """Answers in groups whose copies of what was read fit the memory, those of like length together."""
    first = 0
    while first < len(rows):
        longest = reader.longest + max(len(answers[row]) for row in rows[first:])
        size = max(1, _CACHE_BYTES // max(1, bytes_per_position(model) * longest))
        yield rows[first : first + size]
        first += size
