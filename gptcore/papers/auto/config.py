"""Settings of a network that transformers builds: its own settings as it writes them, and what is asked of any."""

from __future__ import annotations

from dataclasses import dataclass

from gptcore.base.settings import derived, setting, size
from gptcore.config import NetworkConfig


@dataclass(frozen=True)
class WrappedConfig(NetworkConfig):
    """An encoder of transformers'."""

    shapes = ("{n_layer} x {n_embd}", "{architecture}, {n_layer} layers x {n_embd}")
    n_layer: int = size(12)
    """How many layers it has."""
    architecture: str = setting("")
    """transformers' class of the network: MPNetModel."""
    settings: str = setting("{}")
    """transformers' settings of it, as JSON."""
    words = False
    """Whether it tells words; the heads of encoders are left out."""
    family: str = derived("auto-encoder")

    @property
    def layers(self) -> int:
        return self.n_layer

    @property
    def attention_widths(self) -> int:
        return self.n_layer * self.n_embd


@dataclass(frozen=True)
class WrappedDecoderConfig(WrappedConfig):
    """A decoder of transformers'."""

    words = True
    untied: bool = False
    """Whether the output layer has rows of its own, where others tell words by the rows of the embedding."""
    headless: bool = False
    """Whether what tells words is no such layer alone, and was left out: the network is fine-tuned all the same."""
    family: str = derived("auto-decoder")
