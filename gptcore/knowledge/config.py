"""Settings of what is learnt from a knowledge graph: vectors, and answers to questions."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gptcore.base.errors import InputError
from gptcore.config.limits import LARGEST_SIZE, require_training

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
    margin: float = 3.0
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
    lr: float = 1e-2
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
        for name in ("dim", "negatives", "eval_facts"):
            if not 1 <= (found := getattr(self, name)) <= LARGEST_SIZE:
                raise InputError(f"transe.{name} = {found}: expected 1 to {LARGEST_SIZE}")
        if self.norm not in _NORMS:
            raise InputError(f"transe.norm = {self.norm}: expected 1 or 2")
        if not self.margin > 0:
            raise InputError(f"transe.margin = {self.margin}: expected more than 0")
        if not self.temperature >= 0:
            raise InputError(f"transe.temperature = {self.temperature}: expected 0 or more")


@dataclass(frozen=True)
class GroundingConfig:
    """How questions are laid over a graph (KagNET, sections 3.1 and 3.2)."""

    max_hops: int = 4
    most_paths: int = 100
    """Of a pair, the shortest first."""
    least_score: float = 0.15
    """A path that the vectors find less likely is left out."""
    most_concepts: int = 10
    """Of a question."""
    most_neighbours: int = 1000
    """Of an entity that a path may lead through."""

    def __post_init__(self) -> None:
        for name in ("max_hops", "most_paths", "most_concepts", "most_neighbours"):
            if (found := getattr(self, name)) < 1:
                raise InputError(f"grounding.{name} = {found}: expected 1 or more")
        if not 0 <= self.least_score < 1:
            raise InputError(f"grounding.least_score = {self.least_score}: expected 0 or more, and less than 1")


LOSSES = ("cross-entropy", "margin")


@dataclass(frozen=True)
class KagNETConfig:
    """The network and its training; sizes are the released code's, as the paper names few."""

    n_hidden: int = 50
    """Width of the graph convolution's first layer."""
    n_graph: int = 25
    """Width of its second."""
    n_path: int = 128
    """Width of the LSTM over paths."""
    n_pair: int = 100
    """Width of a pair's vector."""
    n_score: int = 64
    """Width of the hidden layer of the score."""
    own_weights: bool = True
    """Whether an entity's own vector has weights of its own in the convolution (paper, equation 1); the code adds it
    to its neighbours'."""
    mean_of_neighbours: bool = True
    """Whether neighbours are averaged (paper); the code adds them up."""
    most_concepts: int | None = None
    """Concepts of a path that are read; None: all (paper); the code reads three."""
    loss: str = "cross-entropy"
    """cross-entropy over the choices, or margin (the code's: 0.2 between the right score and each other)."""
    margin: float = 0.2
    pdrop: float = 0.1
    epochs: float = 15.0
    batch_size: int = 50
    """Questions an update."""
    lr: float = 1e-3
    warmup_steps: int = 10
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 1e-4
    clip_norm: float = 1.0
    checkpoint_every: int = 200
    precision: str = "float32"
    seed: int = 0
    original: bool = False

    def __post_init__(self) -> None:
        require_training(self, "kagnet")
        if self.loss not in LOSSES:
            raise InputError(f"kagnet.loss = {self.loss!r}: expected one of {', '.join(LOSSES)}")
        for name in ("n_hidden", "n_graph", "n_path", "n_pair", "n_score"):
            if not 1 <= (found := getattr(self, name)) <= LARGEST_SIZE:
                raise InputError(f"kagnet.{name} = {found}: expected 1 to {LARGEST_SIZE}")
        if not 0 <= self.pdrop < 1:
            raise InputError(f"kagnet.pdrop = {self.pdrop}: expected 0 or more, and less than 1")
        if not self.margin > 0:
            raise InputError(f"kagnet.margin = {self.margin}: expected more than 0")
        if self.most_concepts is not None and self.most_concepts < 2:
            raise InputError(f"kagnet.most_concepts = {self.most_concepts}: expected 2 or more")
