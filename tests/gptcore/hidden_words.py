"""A text whose words are hidden, and a network without layers: what objectives of hidden words are compared on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptcore.config import NetworkConfig, PretrainConfig
from gptcore.data.masking import Masking
from gptcore.data.shards import Shards
from gptcore.machine.distributed import World
from gptcore.machine.process import Interrupted
from gptcore.objectives.masked_data import Hiding, MaskedData, held_out_batches
from gptcore.objectives.objective import Text
from tests.gptcore.sentence_shards import sentence_shards, table

ALONE = World(0, 1, torch.device("cpu"))
CONFIG = PretrainConfig(batch_size=12, steps=100)
BOOKS = [[5, 9, 7, 3, 8, 6, 4, 11, 5, 6], [6, 6, 7, 9, 4, 5, 8, 8], [4, 12, 5, 7, 9, 3, 6, 5, 5, 6, 7]]
N_CTX = 32


class Toy(nn.Module):
    """Each state is that of its token, its segment and the sum of all; no layers."""

    def __init__(self, n_vocab: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.segment = nn.Embedding(n_vocab, 8), nn.Embedding(2, 8)
        self.pair, self.replaced = nn.Linear(8, 2), nn.Linear(8, 1)

    def encode(self, tokens: Tensor, segments: Tensor, mask: Tensor) -> Tensor:
        states = (self.embedding(tokens) + self.segment(segments)) * mask[..., None]
        return states + states.sum(1, keepdim=True)

    def word_scores(self, *given: Tensor) -> Tensor:
        if len(given) == 1:
            return given[0] @ self.embedding.weight.T
        tokens, segments, mask, places = given
        return self.encode(tokens, segments, mask).flatten(0, 1)[places] @ self.embedding.weight.T

    def pair_scores(self, states: Tensor) -> Tensor:
        return self.pair(states[:, 0])

    def replaced_scores(self, tokens: Tensor, segments: Tensor, mask: Tensor) -> Tensor:
        return self.replaced(self.encode(tokens, segments, mask)).squeeze(-1)

    def told_scores(self, tokens: Tensor, segments: Tensor, mask: Tensor, places: Tensor) -> Tensor:
        return 2 * self.word_scores(tokens, segments, mask, places)

    def both_scores(self, tokens: Tensor, segments: Tensor, mask: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.replaced_scores(tokens, segments, mask).flatten()[places]
        return logits, self.told_scores(tokens, segments, mask, places)


def books(folder: Path) -> Path:
    """Shards as the objectives read them: what the vocabulary is stands beside the two splits."""
    shards, _ = sentence_shards(folder / "train", BOOKS)
    table(shards.n_vocab).save(folder)
    return folder / "train"


def text(folder: Path) -> Text:
    return Text(Shards(folder), cast(NetworkConfig, SimpleNamespace(n_ctx=N_CTX)), CONFIG, ALONE)


def micro_batches(folder: Path, hiding: Hiding, micro: int | None = None, step: int = 3) -> list[dict[str, Tensor]]:
    return MaskedData(text(folder), hiding, micro).update(step).micro_batches


def without_hidden_words(folder: Path) -> dict[str, Tensor]:
    """A batch in which no word is hidden."""
    [whole] = micro_batches(folder, Hiding("none", Masking()))
    return whole | {name: whole[name][:0] for name in ("places", "targets", "draws")}


def scored_held_out(folder: Path, learnt: Any) -> dict[str, float]:
    """What an objective says of held-out sequences, after its scores of words were compared with plain means.

    Those of pairs stand beside under "pairs right", as a plain mean.
    """
    held_out = text(folder)
    model = Toy(held_out.shards.n_vocab)
    objective = learnt.objective(model, CONFIG)
    found: dict[str, float] = learnt.score(objective, held_out, None, lambda: False)
    nats, right, pairs, n = 0.0, 0, [], 0
    for batch in held_out_batches(held_out, learnt._hiding, None):
        states = model.encode(batch["tokens"], batch["segments"], batch["mask"])
        scores = model.word_scores(states.flatten(0, 1)[batch["places"]])
        nats += float(F.cross_entropy(scores, batch["targets"], reduction="sum").detach())
        right += int((scores.argmax(-1) == batch["targets"]).sum())
        pairs += (model.pair_scores(states).argmax(-1) == batch["labels"]).tolist()
        n += len(batch["targets"])
    assert found["tokens"] == n
    assert found["loss"] == pytest.approx(nats / n, rel=1e-5)
    assert found["perplexity"] == pytest.approx(np.exp(nats / n), rel=1e-4)
    assert found["word_accuracy"] == pytest.approx(right / n)
    assert found["unigram_entropy"] == pytest.approx(np.log(held_out.shards.n_vocab - 4))  # each word occurs once
    with pytest.raises(Interrupted):
        learnt.score(objective, held_out, None, lambda: True)
    return {**found, "pairs right": float(np.mean(pairs))}
