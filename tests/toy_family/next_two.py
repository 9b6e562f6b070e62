"""An objective and a reader of rows of another package: the token that comes next is learnt and the one behind that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptcore.config import PretrainConfig
from gptcore.data.feed import Data, MicroBatch, Objective
from gptcore.data.sampler import IGNORE_INDEX, WindowSampler, sequential_windows
from gptcore.models.network import LanguageModel
from gptcore.nlu.forms.form import Ids
from gptcore.nlu.inputs import DecoderReader
from gptcore.objectives.next_token import PretrainData, language_model_objective
from gptcore.objectives.objective import PretrainingObjective, Text, exponential, summed_metrics


class LastWords(DecoderReader):
    """One special id at the end, one order of any pair, and of each part the last words alone."""

    n_special = 1

    def sequences(self, fields: Sequence[Ids], choices: Sequence[Ids]) -> tuple[list[Ids], bool]:
        room = (self.n_ctx - 1) // (len(fields) + bool(choices))
        ends = [[*fields, choice] for choice in choices] or [[*fields]]
        cut = any(len(part) > room for parts in ends for part in parts)
        return [np.concatenate([*(part[-room:] for part in parts), [self.n_vocab]]) for parts in ends], cut


class NextTwo(PretrainingObjective):
    """The token that comes next and the one behind that, both told from the same states."""

    def data(self, text: Text, micro_batch_size: int | None) -> Data:
        sampler = WindowSampler(text.shards, text.model.n_ctx, text.config.seed)
        return PretrainData(sampler, text.config.batch_size, micro_batch_size, text.world)

    def objective(self, trained: nn.Module, config: PretrainConfig) -> Objective:
        assert isinstance(trained, LanguageModel)
        told = language_model_objective(trained)

        def objective(batch: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
            next_loss, _ = told(batch)
            behind = F.pad(batch["targets"][:, 1:], (0, 1), value=IGNORE_INDEX)
            later_loss, _ = told({**batch, "targets": behind})
            loss = next_loss + later_loss
            return loss, {"loss": loss, "next_loss": next_loss, "later_loss": later_loss}

        return objective

    def score(
        self, objective: Objective, text: Text, max_tokens: int | None, interrupted: Callable[[], bool]
    ) -> dict[str, float]:
        tokens = 0

        def batches() -> Iterator[MicroBatch]:
            nonlocal tokens
            for window in sequential_windows(text.shards, text.model.n_ctx, max_tokens):
                inputs, targets = map(torch.from_numpy, window)
                tokens += int((targets != IGNORE_INDEX).sum())
                yield {"inputs": inputs, "targets": targets, "weight": torch.ones(())}

        sums = summed_metrics(objective, batches(), text.world, interrupted)
        loss, later = (sums[name] / tokens for name in ("next_loss", "later_loss"))
        return {"loss": loss, "perplexity": exponential(loss), "later_loss": later, "tokens": float(tokens)}


NEXT_TWO = NextTwo()
