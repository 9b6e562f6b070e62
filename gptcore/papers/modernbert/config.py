"""Settings of ModernBERT."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gptcore.base.settings import derived, setting, size
from gptcore.config.network import EncoderConfig


@dataclass(frozen=True)
class ModernBertConfig(EncoderConfig):
    """An encoder whose positions turn queries and keys, with gated feed-forward sub-layers, and norms before those.

    ("Smarter, Better, Faster, Longer: A Modern Bidirectional Encoder", Warner et al. 2024, section 2.1.) What is called
    its pooler is the layer before the head of words, which classifiers read through, too (original code).
    """

    n_vocab: int = 50_368
    n_segments: int = 0
    pair: bool = False
    norm_eps: float | None = 1e-5
    global_every: int = size(3)
    """One layer in so many sees the whole text, the others see what is near (section 2.1.2)."""
    window: int = size(128)
    """How many positions the layers see that see what is near, half of them on either side."""
    theta: float = setting(160_000.0, least=1, below=math.inf)
    """Positions in which the slowest pairs of a head's numbers turn by nearly 1, in layers that see the whole text."""
    local_theta: float = setting(10_000.0, least=1, below=math.inf)
    """Positions in which these pairs turn by nearly 1 in layers that see what is near."""
    family: str = derived("modernbert")
