"""Networks of others, for a batch of ours: transformers' and nanoGPT's."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, OpenAIGPTLMHeadModel

from gptcore.config import EncoderConfig, ModelConfig, NetworkConfig
from tests.benchmarks.encoders import their_loss
from tests.benchmarks.step import as_transformers


def theirs(config: NetworkConfig, batch: dict[str, Tensor], by: str) -> tuple[nn.Module, Callable[[], Tensor]]:
    """A network of our one's sizes, and the loss that it finds of the batch; ``by``: transformers or nanoGPT."""
    if isinstance(config, EncoderConfig):
        model, loss = their_loss(config.family, config)
        return model, lambda: loss(batch)
    assert isinstance(config, ModelConfig)
    sizes = as_transformers(config)
    names = ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head", "embd_pdrop", "attn_pdrop", "resid_pdrop")
    if by.startswith("nanoGPT"):
        model = NanoGPT(config)
    elif config.norm_first:
        model = GPT2LMHeadModel(GPT2Config(**{name: getattr(sizes, name) for name in names}))
    else:
        model = OpenAIGPTLMHeadModel(sizes)
    return model, lambda: model(batch["inputs"], labels=batch["inputs"])["loss"]


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
