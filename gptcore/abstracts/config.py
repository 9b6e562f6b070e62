"""Settings of a language model's fine-tuning on documents of a domain. The defaults are the paper's for 82M and 117M.

(Table 2, section 4.2; what these leave out are its library's defaults of that time.)
"""

from __future__ import annotations

from dataclasses import dataclass

from gptcore.errors import InputError
from gptcore.limits import require_training


@dataclass(frozen=True)
class AdaptConfig:
    """Blocks of a stream of documents, Adam, a rate that falls linearly from the first update to the last."""

    block_size: int = 512
    batch_size: int = 1
    """Blocks that go through the network together."""
    accumulation: int = 1
    """Batches an update, whose gradients are averaged."""
    lr: float = 5e-5
    epochs: float = 5.0
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    evaluations: int = 10
    """On validation documents, in the course of training; checkpoints are as many."""
    eval_blocks: int = 256
    """Of each of them, and of the training documents at the end; validation and test documents are all read then."""
    precision: str = "auto"
    seed: int = 42
    pretrained: bool = True
    """False: the same network from random weights."""
    original: bool = False
    """Never set: Adam as the library has it (see gptcore.training.optim)."""

    def __post_init__(self) -> None:
        require_training(self, "adapt")
        for name, least in (("block_size", 2), ("batch_size", 1), ("accumulation", 1), ("evaluations", 1)):
            if getattr(self, name) < least:
                raise InputError(f"adapt.{name} = {getattr(self, name)}: expected {least} or more")
        if not self.epochs > 0 or self.eval_blocks < 1:
            raise InputError(f"adapt.epochs = {self.epochs:g}, eval_blocks = {self.eval_blocks}: expected more than 0")
