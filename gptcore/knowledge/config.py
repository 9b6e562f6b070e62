"""Settings of vectors that are learnt from a knowledge graph."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gptcore.errors import InputError
from gptcore.limits import require_training

_NORMS = (1, 2)
_LEAST_UPDATES = 2000


@dataclass(frozen=True)
class TransEConfig:
    """TransE ("Translating Embeddings for Modeling Multi-relational Data", Bordes et al. 2013), trained as in "RotatE"
    (Sun et al. 2019, section 3.2), whose negatives are weighted by how likely the model takes them to be.
    """

    dim: int = 100
    """Numbers of a vector; ERNIE and KagNET have 100."""
    norm: int = 2
    """Of h + r - t: 1 or 2."""
    margin: float = 9.0
    """What a fact's distance stays below (gamma)."""
    negatives: int = 512
    """Entities an update that take the place of a head and of a tail, the same for all of its facts."""
    temperature: float = 1.0
    """Of the weights of negatives (alpha); 0: all weigh the same."""
    batch_size: int = 1024
    """Facts an update."""
    epochs: float = 45.0
    """Of the facts to learn from; of a small graph at least some 2,000 updates."""
    steps: int | None = None
    """Updates; overrides epochs."""
    lr: float = 3e-3
    warmup_steps: int = 100
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    clip_norm: float = 1e9
    """As good as none."""
    eval_every: int = 2000
    eval_facts: int = 1000
    """Held-out facts that are ranked on the way."""
    checkpoint_every: int = 1000
    keep_checkpoints: int = 2
    precision: str = "float32"
    seed: int = 0
    original: bool = False

    def total_steps(self, n_facts: int) -> int:
        """Updates of the whole run, over ``n_facts`` to learn from."""
        if self.steps is not None:
            return self.steps
        return max(_LEAST_UPDATES, math.ceil(self.epochs * n_facts / self.batch_size))

    def __post_init__(self) -> None:
        require_training(self, "transe")
        for name, least in (("dim", 1), ("negatives", 1), ("eval_facts", 1)):
            if (found := getattr(self, name)) < least:
                raise InputError(f"transe.{name} = {found}: expected {least} or more")
        if self.norm not in _NORMS:
            raise InputError(f"transe.norm = {self.norm}: expected 1 or 2")
        if not self.margin > 0:
            raise InputError(f"transe.margin = {self.margin}: expected more than 0")
        if not self.temperature >= 0:
            raise InputError(f"transe.temperature = {self.temperature}: expected 0 or more")
