"""Replaced-token detection (ELECTRA, section 2): a small generator fills in hidden words, and the other network tells
which tokens are not the text's own. Beside it stand the controls that the paper compares it with (section 3.4), where
the other network learns less, or other things, from the same filled-in text.

Both are trained at once; no gradient goes through the words drawn (section 2). Each word drawn comes from a uniform
number that belongs to its sequence alone, so that a resumed run and any number of processes draw the same.

Legend of shape comments: B sequences, T positions, D width of the states, N hidden words, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptcore.base.errors import InputError
from gptcore.config import PretrainConfig
from gptcore.data.feed import Data, Losses, MicroBatch, Objective
from gptcore.data.masking import Masking
from gptcore.machine.device import order_unchecked
from gptcore.models.encoder import Encoder
from gptcore.models.network import Network
from gptcore.objectives.masked import Counted, told
from gptcore.objectives.masked_data import Hiding, MaskedData, held_out_batches, unigram_entropy
from gptcore.objectives.objective import PretrainingObjective, Text, summed_metrics
from gptcore.papers.electra.config import GENERATOR_SHARE, generator_config

WEIGHT = 50.0
"""The weight of the discriminator's loss (section 3.2, "lambda")."""

_HEADS = {
    "electra": {"replaced": True, "words": False},
    "electra-15": {"replaced": True, "words": False},
    "replace-mlm": {"replaced": False, "words": True},
    "all-tokens-mlm": {"replaced": True, "words": True},
}
"""Objective -> heads that the network has to have, or must not; nothing here is learnt of pairs of segments."""


class Detection(nn.Module):
    """ELECTRA's two networks, trained together: the embeddings are shared (section 3.2).

    :param discriminator: the family's network.
    :param share: the generator's width, heads and inner width as a share of the discriminator's (Table 6 of the
        paper's appendix: a quarter of the small and the large model's, a third of the base one's).
    :param generator: where the generator network's weights are drawn from.
    """

    def __init__(self, discriminator: Encoder, share: float, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.discriminator = discriminator
        self.generator = Encoder(
            generator_config(discriminator.config, share), generator, embeddings=discriminator.embeddings
        )

    def word_scores(self, tokens: Tensor, segments: Tensor, mask: Tensor, places: Tensor) -> Tensor:
        """The generator's logits at some of the B*T positions: [B, T] three times, [N] -> [N, V]."""
        states = self.generator.encode(tokens, segments, mask).flatten(0, 1)  # (B*T, D)
        return self.generator.word_scores(states[places])

    def replaced_scores(self, tokens: Tensor, segments: Tensor, mask: Tensor) -> Tensor:
        """The discriminator's logits of each token's having been replaced: [B, T] three times -> [B, T]."""
        return self.discriminator.replaced_scores(self.discriminator.encode(tokens, segments, mask))

    def told_scores(self, tokens: Tensor, segments: Tensor, mask: Tensor, places: Tensor) -> Tensor:
        """The other network's logits of words at some of the B*T positions: [B, T] three times, [N] -> [N, V]."""
        states = self.discriminator.encode(tokens, segments, mask).flatten(0, 1)  # (B*T, D)
        return self.discriminator.word_scores(states[places])

    def both_scores(self, tokens: Tensor, segments: Tensor, mask: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """What :meth:`replaced_scores` and :meth:`told_scores` give, both at these places: [N] and [N, V]."""
        states = self.discriminator.encode(tokens, segments, mask).flatten(0, 1)[places]  # (N, D)
        return self.discriminator.replaced_scores(states), self.discriminator.word_scores(states)


class ReplacedTokens(PretrainingObjective):
    """A generator fills in hidden words, and the family's network tells which tokens are not the text's own.

    Hidden words are masked or stay as they are, and never become random ones (85 % and 15 %, original code). There
    positions are drawn with replacement, so that a few less are hidden; here each is drawn once.
    """

    _hiding = Hiding("none", Masking(masked=0.85, random=0.0))

    def data(self, text: Text, micro_batch_size: int | None) -> Data:
        """Sequences of sentences with hidden words.

        :raises InputError: shards without sentence borders, or pairs of segments.
        """
        if (pairs := text.config.pairs) not in (None, "none"):
            raise InputError(f"pretrain.pairs = {pairs!r}: this family tells nothing of pairs, expected none")
        return MaskedData(text, self._hiding, micro_batch_size)

    def network(self, model: Network, config: PretrainConfig, generator: torch.Generator) -> nn.Module:
        """The discriminator, which the family's network is, beside a generator.

        :raises InputError: a network without the discriminator's head, or in a control that of words.
        """
        if not isinstance(model, Encoder) or not (model.config.replaced or model.config.words):
            raise InputError("model.replaced = False: expected True, for the objective is to tell replaced tokens")
        return Detection(model, config.generator_share or GENERATOR_SHARE, generator)

    def others(self, trained: nn.Module) -> Mapping[str, Network]:
        """The generator."""
        assert isinstance(trained, Detection)
        return {"generator": trained.generator}

    def objective(self, trained: nn.Module, config: PretrainConfig) -> Objective:
        """The generator's loss and, many times heavier, the discriminator's; or a control's.

        :param trained: a :class:`Detection`, or what fills in and tells as it does.
        :raises InputError: a network without the heads that the objective is about.
        """
        chosen = config.replaced_objective or "electra"
        if isinstance(trained, Detection):
            for head, wanted in {**_HEADS[chosen], "pair": False, "pooler": False}.items():
                if getattr(trained.discriminator.config, head) != wanted:
                    raise InputError(f"model.{head} = {not wanted}: expected {wanted} for {chosen}")
        model, weight = cast(Detection, trained), config.replaced_weight
        if chosen in ("replace-mlm", "all-tokens-mlm"):
            return partial(told_word_losses, model, 1.0 if weight is None else weight, chosen == "all-tokens-mlm")
        return partial(replaced_token_losses, model, WEIGHT if weight is None else weight, chosen == "electra-15")

    def score(
        self, objective: Objective, text: Text, max_tokens: int | None, interrupted: Callable[[], bool]
    ) -> dict[str, float]:
        """Scores of held-out sequences whose hidden words are the same each time.

        Of the generator as in :meth:`gptcore.objectives.masked.MaskedWords.score`: "loss" is its nats a hidden
        word. Of the discriminator: "replaced_loss", nats a token; "replaced_share", of the hidden words those that the
        generator did not guess; "replaced_recall" and "replaced_precision", how many of these it finds, and how many
        that it takes for such are some. In the controls that tell words, "told_loss" and "told_accuracy" instead: nats
        and right answers of a word that is to be told.
        """
        batches, chosen = Counted(held_out_batches(text, self._hiding, max_tokens)), text.config.replaced_objective
        sums = summed_metrics(objective, batches, text.world, interrupted)
        found = {"replaced_share": sums["replaced"] / batches.words}
        if "told_loss" in sums:
            n_told = batches.tokens if chosen == "all-tokens-mlm" else batches.words
            found |= {name: sums[name] / n_told for name in ("told_loss", "told_accuracy")}
        else:
            n_decided = batches.words if chosen == "electra-15" else batches.tokens
            found |= {
                "replaced_loss": sums["replaced_loss"] / n_decided,
                "replaced_recall": sums["replaced_found"] / max(1.0, sums["replaced"]),
                "replaced_precision": sums["replaced_found"] / max(1.0, sums["replaced_found"] + sums["false_alarms"]),
            }
        return batches.scores(sums) | found | {"unigram_entropy": unigram_entropy(text.shards)}


class FilledIn(NamedTuple):
    """A text whose hidden words the generator has filled in, and what that is worth."""

    tokens: Tensor
    """[B, T] with the words drawn."""
    replaced: Tensor
    """[B, T] 1 where the word drawn is not the text's own, else 0."""
    loss: Tensor
    metrics: dict[str, Tensor]
    """The generator's, and "replaced": the share of the hidden words that it did not guess."""


def _filled_in(model: Detection, batch: MicroBatch) -> FilledIn:
    segments, mask, places, targets = (batch[name] for name in ("segments", "mask", "places", "targets"))
    scores = model.word_scores(batch["tokens"], segments, mask, places).float()  # (N, V)
    loss, accuracy = told(scores, targets, batch["word_weight"])
    words = drawn_words(scores.detach(), batch["draws"])  # (N,)
    tokens = batch["tokens"].flatten().scatter(0, places, words).view_as(mask)  # (B, T)
    replaced = torch.zeros_like(mask).flatten().scatter(0, places, (words != targets).to(mask.dtype)).view_as(mask)
    count = replaced.sum() * batch["word_weight"]
    return FilledIn(tokens, replaced, loss, {"word_loss": loss, "word_accuracy": accuracy, "replaced": count})


def replaced_token_losses(model: Detection, weight: float, only_hidden: bool, batch: MicroBatch) -> Losses:
    """The sum of both losses of a micro-batch.

    Its metrics "replaced" and "replaced_found" are shares of the hidden words: those that the generator did not guess,
    and of those the ones that the discriminator finds; "false_alarms" is the share of all tokens that are the text's
    own and are taken for replaced.

    :param only_hidden: the discriminator learns from the places of hidden words alone ("ELECTRA 15%", section 3.4).
    """
    mask, places = batch["mask"], batch["places"]
    filled = _filled_in(model, batch)
    logits = model.replaced_scores(filled.tokens, batch["segments"], mask).float()  # (B, T)
    nats = F.binary_cross_entropy_with_logits(logits, filled.replaced.float(), reduction="none")
    if only_hidden:
        replaced_loss = nats.flatten()[places].sum() * batch["word_weight"]
    else:
        replaced_loss = (nats * mask).sum() * batch["token_weight"]
    flagged = (logits.detach() > 0) & (mask > 0)
    loss = filled.loss + weight * replaced_loss
    counts = {
        "replaced_found": (flagged & (filled.replaced > 0)).sum() * batch["word_weight"],
        "false_alarms": (flagged & (filled.replaced == 0)).sum() * batch["token_weight"],
    }
    return loss, {"loss": loss, **filled.metrics, "replaced_loss": replaced_loss, **counts}


def told_word_losses(model: Detection, weight: float, every: bool, batch: MicroBatch) -> Losses:
    """The generator's loss and that of the words which the other network tells from the filled-in text (section 3.4).

    Its metrics "told_loss" and "told_accuracy" are of these words.

    :param every: every word is to be told, and the network gives a probability that the token which stands there is
        its own ("All-Tokens MLM"); else the hidden ones are ("Replace MLM").
    """
    segments, mask, places, targets = (batch[name] for name in ("segments", "mask", "places", "targets"))
    filled = _filled_in(model, batch)
    if every:
        own = batch["tokens"].flatten().scatter(0, places, targets)  # (B*T,) the text's own words
        real = mask.flatten().nonzero().squeeze(-1)  # (N,)
        logits, scores = model.both_scores(filled.tokens, segments, mask, real)
        nats, right = copied(logits.float(), scores.float(), filled.tokens.flatten()[real], own[real])
        told_loss, accuracy = (value * batch["token_weight"] for value in (nats, right))
    else:
        scores = model.told_scores(filled.tokens, segments, mask, places).float()  # (N, V)
        told_loss, accuracy = told(scores, targets, batch["word_weight"])
    loss = filled.loss + weight * told_loss
    return loss, {"loss": loss, **filled.metrics, "told_loss": told_loss, "told_accuracy": accuracy}


def copied(logits: Tensor, scores: Tensor, standing: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Summed nats, and right answers, of words that are copied, or else drawn from a softmax.

    :param logits: [N] of each token's having been replaced, so that it is not to be copied.
    :param scores: [N, V] of the words in that case.
    :param standing: [N] the token that stands there.
    :param targets: [N] the word that is to be told.
    """
    words = F.logsigmoid(logits)[:, None] + F.log_softmax(scores, -1)  # (N, V)
    copies = F.logsigmoid(-logits)  # (N,)
    there = standing[:, None]
    found = words.scatter(1, there, torch.logaddexp(words.gather(1, there), copies[:, None]))  # (N, V)
    nats = -found.gather(1, targets[:, None]).sum()
    return nats, (found.detach().argmax(-1) == targets).sum()


def drawn_words(scores: Tensor, draws: Tensor) -> Tensor:
    """A word from the softmax of each row of scores: [N, V], and a uniform number for each row [N] -> [N].

    It is the one in whose part of the summed probabilities the number falls. The release adds Gumbel noise to V scores
    and takes the largest, which draws from the same distribution.
    """
    with order_unchecked():  # a row is added up from left to right
        sums = scores.float().softmax(-1).cumsum(-1)  # (N, V)
    last = sums[:, -1:]  # one, but for rounding
    found = torch.searchsorted(sums, draws[:, None] * last, right=True)
    return found.squeeze(-1).clamp_(max=scores.shape[-1] - 1)


REPLACED_TOKENS = ReplacedTokens()
"""ELECTRA (section 3.2)."""
