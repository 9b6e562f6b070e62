"""Networks of others that learn what one of ours does: transformers' and nanoGPT's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    AlbertConfig,
    AlbertForPreTraining,
    BertConfig,
    BertForPreTraining,
    ElectraConfig,
    ElectraForMaskedLM,
    ElectraForPreTraining,
    GPT2Config,
    GPT2LMHeadModel,
    OpenAIGPTLMHeadModel,
)

from gptcore.config import EncoderConfig, LSTMConfig, ModelConfig
from gptcore.papers.electra.config import GENERATOR_SHARE, generator_config
from tests.benchmarks.learners import Learner
from tests.benchmarks.step import as_transformers as decoder_settings


def theirs(ours: Learner, by: str = "transformers") -> tuple[nn.Module, Callable[[], Tensor]]:
    """A network of our one's sizes, and the loss that it finds of our batch; ``by``: transformers or nanoGPT."""
    config = ours.config
    if isinstance(config, EncoderConfig):
        share = ours.settings.generator_share or GENERATOR_SHARE
        words = Electra(config, share) if config.replaced else _WordsAndPairs(config)
        return words.train(), lambda: words(*_marked(ours.batch))
    if isinstance(config, LSTMConfig):
        model = _Recurrent(config)
    elif by.startswith("nanoGPT"):
        model = NanoGPT(config)
    elif config.norm_first:
        sizes = decoder_settings(config)
        names = ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head", "embd_pdrop", "attn_pdrop", "resid_pdrop")
        model = GPT2LMHeadModel(
            GPT2Config(**{name: getattr(sizes, name) for name in names}, bos_token_id=None, eos_token_id=None)
        )
    else:
        model = OpenAIGPTLMHeadModel(decoder_settings(config))
    trained = model.train()
    return trained, lambda: trained(ours.batch["inputs"], labels=ours.batch["inputs"])["loss"]


def _marked(batch: dict[str, Tensor]) -> tuple[Tensor, ...]:
    """Ids, segments and mask [B, T]; the words to tell [B, T], -100 where there is none; labels of the pairs [B]."""
    words = torch.full_like(batch["tokens"], -100).flatten().scatter(0, batch["places"], batch["targets"])
    return *(batch[name] for name in ("tokens", "segments", "mask")), words.view_as(batch["tokens"]), batch["labels"]


def encoder_settings(config: EncoderConfig) -> dict[str, Any]:
    """The network's settings under transformers' names."""
    return {
        "vocab_size": config.n_vocab,
        "hidden_size": config.n_embd,
        "embedding_size": config.width_of_words,
        "num_hidden_layers": config.n_layer,
        "num_attention_heads": config.n_head,
        "intermediate_size": config.n_inner,
        "max_position_embeddings": config.n_ctx,
        "hidden_dropout_prob": config.resid_pdrop,
        "attention_probs_dropout_prob": config.attn_pdrop,
    }


class _WordsAndPairs(nn.Module):
    """BERT, or where the layers share their parameters ALBERT."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        settings, shared = encoder_settings(config), config.sharing == "all"
        self.model = (
            AlbertForPreTraining(AlbertConfig(**settings)) if shared else BertForPreTraining(BertConfig(**settings))
        )
        self._pairs = "sentence_order_label" if shared else "next_sentence_label"

    def forward(self, tokens: Tensor, segments: Tensor, mask: Tensor, words: Tensor, pairs: Tensor) -> Tensor:
        """The loss."""
        labels = {"labels": words, self._pairs: pairs}
        loss: Tensor = self.model(tokens, token_type_ids=segments, attention_mask=mask, **labels).loss
        return loss


class Electra(nn.Module):
    """A generator and a discriminator that share their embeddings."""

    def __init__(self, config: EncoderConfig, share: float) -> None:
        super().__init__()
        self.generator = ElectraForMaskedLM(ElectraConfig(**encoder_settings(generator_config(config, share))))
        self.discriminator = ElectraForPreTraining(ElectraConfig(**encoder_settings(config)))
        self.discriminator.electra.embeddings = self.generator.electra.embeddings

    def forward(self, tokens: Tensor, segments: Tensor, mask: Tensor, words: Tensor, _: Tensor) -> Tensor:
        """Both losses, the discriminator's fifty times."""
        told = self.generator(tokens, token_type_ids=segments, attention_mask=mask, labels=words)
        with torch.no_grad():
            scores = told.logits.float()
            drawn = (scores - torch.empty_like(scores).exponential_().log()).argmax(-1)
            hidden = words != -100
            text = torch.where(hidden, drawn, tokens)
            replaced = (hidden & (drawn != words)).long()
        judged = self.discriminator(text, token_type_ids=segments, attention_mask=mask, labels=replaced)
        loss: Tensor = told.loss + 50 * judged.loss
        return loss


class _Recurrent(nn.Module):
    """An LSTM whose units are projected back to the width of tied embeddings."""

    def __init__(self, c: LSTMConfig) -> None:
        super().__init__()
        self.words, self.recurrent = nn.Embedding(c.n_vocab, c.n_embd), nn.LSTM(c.n_embd, c.n_units, batch_first=True)
        self.projection = nn.Linear(c.n_units, c.n_embd)

    def forward(self, tokens: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """[B, T] twice -> the loss of the next tokens."""
        states = self.projection(self.recurrent(self.words(tokens))[0])
        logits = F.linear(states[:, :-1], self.words.weight)  # (B, T - 1, V)
        return {"loss": F.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())}


class NanoGPT(nn.Module):
    """GPT-2 as https://github.com/karpathy/nanoGPT (model.py) has it: no biases, flash attention, a tied output."""

    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self.heads, D = c.n_head, c.n_embd
        self.words, self.places = nn.Embedding(c.n_vocab, D), nn.Embedding(c.n_ctx, D)
        self.norms = nn.ModuleList(nn.LayerNorm(D, bias=False) for _ in range(2 * c.n_layer + 1))
        sizes = [(D, 3 * D), (D, D), (D, 4 * D), (4 * D, D)] * c.n_layer
        self.layers = nn.ModuleList(nn.Linear(*its, bias=False) for its in sizes)
        for part in (self.words, self.places, *self.layers):
            nn.init.normal_(part.weight, std=0.02)

    def forward(self, tokens: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """[B, T] twice -> the loss of the next tokens."""
        (B, T), D = tokens.shape, self.words.embedding_dim
        x = self.words(tokens) + self.places.weight[:T]
        for at in range(0, len(self.layers), 4):
            qkv, out, up, down = self.layers[at : at + 4]
            q, k, v = qkv(self.norms[at // 2](x)).view(B, T, 3, self.heads, D // self.heads).permute(2, 0, 3, 1, 4)
            x = x + out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, D))
            x = x + down(F.gelu(up(self.norms[at // 2 + 1](x))))
        logits = F.linear(self.norms[-1](x), self.words.weight)  # (B, T, V)
        return {"loss": F.cross_entropy(logits.flatten(0, 1), labels.roll(-1, 1).flatten())}
