"""Replaced-token detection (ELECTRA, section 2): a small generator fills in hidden words, and the other network tells
which tokens are not the text's own.

Both are trained at once; no gradient goes through the words drawn (section 2). Each word drawn comes from a uniform
number that belongs to its sequence alone, so that a resumed run and any number of processes draw the same.

Legend of shape comments: B sequences, T positions, N hidden words, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptcore.config import NetworkConfig, PretrainConfig
from gptcore.data.feed import Data, MicroBatch, Objective
from gptcore.data.masking import Masking
from gptcore.data.piece_table import PieceTable
from gptcore.data.shards import Shards
from gptcore.errors import InputError
from gptcore.evaluation.held_out import summed_metrics
from gptcore.machine.distributed import World
from gptcore.models.encoder import Detection, Encoder
from gptcore.models.network import Network
from gptcore.objectives.masked_data import Hiding, MaskedData, held_out_batches, unigram_entropy
from gptcore.training.masked_words import Counted, told

WEIGHT = 50.0
"""Of the discriminator's loss (section 3.2, "lambda")."""
GENERATOR_SHARE = 1 / 4
"""The generator's width as a share of the discriminator's: the small model's (Table 6)."""


class Detects(Protocol):
    """What is asked of a generator and a discriminator that are trained together."""

    def word_scores(self, tokens: Tensor, segments: Tensor, mask: Tensor, places: Tensor) -> Tensor:
        """The generator's logits at some of the B*T positions: [B, T] three times, [N] -> [N, V]."""
        ...

    def replaced_scores(self, tokens: Tensor, segments: Tensor, mask: Tensor) -> Tensor:
        """The discriminator's logit of each token's having been replaced: [B, T] three times -> [B, T]."""
        ...


class ReplacedTokens:
    """See :class:`gptcore.training.pretraining_objective.PretrainingObjective`.

    Hidden words are masked or stay as they are, and never become random ones (85 % and 15 %, original code). There
    positions are drawn with replacement, so that a few less are hidden; here each is drawn once.
    """

    _hiding = Hiding("none", Masking(masked=0.85, random=0.0))

    def data(
        self, shards: Shards, model: NetworkConfig, config: PretrainConfig, micro_batch_size: int | None, world: World
    ) -> Data:
        """Sequences of sentences with hidden words.

        :raises InputError: shards without sentence borders, or settings of another objective.
        """
        if config.pairs not in (None, "none"):
            raise InputError(f"pretrain.pairs = {config.pairs!r}: this family tells nothing of pairs, expected none")
        table = PieceTable.read(shards.folder.parent)
        return MaskedData(shards, table, model.n_ctx, config, self._hiding, micro_batch_size, world)

    def network(self, model: Network, generator: torch.Generator) -> nn.Module:
        """The discriminator, which the family's network is, beside a generator.

        :raises InputError: a network without the discriminator's head.
        """
        if not isinstance(model, Encoder) or not model.config.replaced:
            raise InputError("model.replaced = False: expected True, for the objective is to tell replaced tokens")
        return Detection(model, GENERATOR_SHARE, generator)

    def others(self, trained: nn.Module) -> Mapping[str, Network]:
        """The generator."""
        assert isinstance(trained, Detection)
        return {"generator": trained.generator}

    def objective(self, trained: nn.Module, config: PretrainConfig) -> Objective:
        """The generator's loss and, many times heavier, the discriminator's.

        :param trained: a :class:`Detects`.
        """
        weight = WEIGHT if config.replaced_weight is None else config.replaced_weight
        return replaced_tokens_objective(cast(Detects, trained), weight)

    def score(
        self,
        objective: Objective,
        shards: Shards,
        model: NetworkConfig,
        config: PretrainConfig,
        max_tokens: int | None,
        world: World,
        interrupted: Callable[[], bool],
    ) -> dict[str, float]:
        """Scores of held-out sequences whose hidden words are the same each time.

        Of the generator as in :meth:`gptcore.training.masked_words.MaskedWords.score`: "loss" is its nats a hidden
        word. Of the discriminator: "replaced_loss", nats a token; "replaced_share", of the hidden words those that the
        generator did not guess; "replaced_recall" and "replaced_precision", how many of these it finds, and how many
        that it takes for such are some.
        """
        table = PieceTable.read(shards.folder.parent)
        batches = Counted(held_out_batches(shards, table, model.n_ctx, self._hiding.with_settings(config), max_tokens))
        sums = summed_metrics(objective, batches, world, interrupted)
        found = {
            "replaced_loss": sums["replaced_loss"] / batches.tokens,
            "replaced_share": sums["replaced"] / batches.words,
            "replaced_recall": sums["replaced_found"] / max(1.0, sums["replaced"]),
            "replaced_precision": sums["replaced_found"] / max(1.0, sums["replaced_found"] + sums["false_alarms"]),
        }
        return batches.word_scores(sums) | found | {"unigram_entropy": unigram_entropy(shards)}


def replaced_tokens_objective(model: Detects, weight: float) -> Objective:
    """The sum of both losses as an objective of the training loop.

    Its metrics "replaced" and "replaced_found" are shares of the hidden words: those that the generator did not guess,
    and of those the ones that the discriminator finds; "false_alarms" is the share of all tokens that are the text's
    own and are taken for replaced.
    """

    def objective(batch: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
        segments, mask, places, targets = (batch[name] for name in ("segments", "mask", "places", "targets"))
        scores = model.word_scores(batch["tokens"], segments, mask, places).float()  # (N, V)
        word_loss, word_accuracy = told(scores, targets, batch["word_weight"])
        words = drawn_words(scores.detach(), batch["draws"])  # (N,)
        tokens = batch["tokens"].flatten().scatter(0, places, words).view_as(mask)  # (B, T)
        replaced = torch.zeros_like(mask).flatten().scatter(0, places, (words != targets).to(mask.dtype)).view_as(mask)
        logits = model.replaced_scores(tokens, segments, mask).float()  # (B, T)
        nats = F.binary_cross_entropy_with_logits(logits, replaced.float(), reduction="none")
        replaced_loss = (nats * mask).sum() * batch["token_weight"]
        flagged = (logits.detach() > 0) & (mask > 0)
        loss = word_loss + weight * replaced_loss
        metrics = {"loss": loss, "word_loss": word_loss, "word_accuracy": word_accuracy}
        counts = {
            "replaced": replaced.sum() * batch["word_weight"],
            "replaced_found": (flagged & (replaced > 0)).sum() * batch["word_weight"],
            "false_alarms": (flagged & (replaced == 0)).sum() * batch["token_weight"],
        }
        return loss, metrics | {"replaced_loss": replaced_loss} | counts

    return objective


def drawn_words(scores: Tensor, draws: Tensor) -> Tensor:
    """A word from the softmax of each row of scores: [N, V], and a uniform number for each row [N] -> [N].

    It is the one in whose part of the summed probabilities the number falls. The release adds Gumbel noise to V scores
    and takes the largest, which draws from the same distribution.
    """
    sums = scores.float().softmax(-1).cumsum(-1)  # (N, V)
    last = sums[:, -1:]  # one, but for rounding
    found = torch.searchsorted(sums, draws[:, None] * last, right=True)
    return found.squeeze(-1).clamp_(max=scores.shape[-1] - 1)


REPLACED_TOKENS = ReplacedTokens()
"""ELECTRA (section 3.2)."""
