"""Settings of networks of Llama's kind."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gptcore.base.errors import InputError
from gptcore.base.settings import derived, setting, size
from gptcore.config.network import TransformerConfig


@dataclass(frozen=True)
class LlamaConfig(TransformerConfig):
    """A decoder with norms of root mean squares, gated feed-forward sub-layers and positions in queries and keys alone.

    ("LLaMA: Open and Efficient Foundation Language Models", Touvron et al. 2023, section 2.2.)
    """

    n_head_keys: int | None = size(None)
    """How many heads of keys and values there are, each of which several heads of queries share (Ainslie et al. 2023).
    None: each head has its own."""
    n_head_width: int | None = size(None)
    """The width of a head (Qwen3). None: all heads together are as wide as the states."""
    theta: float = setting(10_000.0, least=1, below=math.inf)
    """Positions in which the slowest pairs of a head's numbers turn by nearly 1 (Su et al. 2021)."""
    norm_eps: float = setting(1e-6, above=0, below=1)
    """What each norm adds to the mean square (original code: 1e-6; Llama 2 and later 1e-5)."""
    qkv_bias: bool = False
    """Whether queries, keys and values have a bias (Qwen2)."""
    output_bias: bool = False
    """Whether what attention gives has a bias."""
    qk_norms: bool = False
    """Whether each head's queries and keys are normalised (Qwen3)."""
    untied: bool = False
    """Whether the output layer has rows of its own, where others tell words by the rows of the embedding."""
    headless: bool = False
    """Whether there is no output layer, as in folders of a classifier: the network is fine-tuned, and tells no word."""
    family: str = derived("llama")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_head % (keys := self.n_head_keys or self.n_head):
            raise InputError(f"model.n_head = {self.n_head} is not a multiple of model.n_head_keys = {keys}")
        if self.width_of_heads % 2:
            raise InputError(f"model: found heads of {self.width_of_heads} numbers, expected an even number")

    @property
    def width_of_heads(self) -> int:
        """The width of a head."""
        return self.n_embd // self.n_head if self.n_head_width is None else self.n_head_width

    @property
    def attention_widths(self) -> int:
        return self.n_layer * self.n_head * self.width_of_heads
