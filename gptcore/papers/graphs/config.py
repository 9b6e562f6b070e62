"""Settings of what is learnt from a knowledge graph: vectors, a text encoder beside them, and answers to questions."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import partial

from gptcore.base.errors import InputError, require
from gptcore.base.settings import Checked, derived, setting, share, size
from gptcore.config.network import EncoderConfig, NetworkConfig
from gptcore.config.training import SteppedConfig

_NORMS = (1, 2)
_LEAST_UPDATES = 2000
LOSSES = ("cross-entropy", "margin")
_count = partial(setting, least=1)
_more_than_0 = partial(setting, above=0)


@dataclass(frozen=True)
class TransEConfig(SteppedConfig):
    """TransE ("Translating Embeddings for Modeling Multi-relational Data", Bordes et al. 2013), trained as in "RotatE"
    (Sun et al. 2019, section 3.2), whose negatives are weighted by how likely the model takes them to be.
    """

    section = "transe"
    dim: int = size(100)
    """How many numbers a vector has; ERNIE and KagNET have 100."""
    norm: int = 2
    """Which norm of h + r - t is a fact's distance: 1 or 2."""
    rotation: bool = False
    """Whether a relation turns each pair of numbers by an angle, as in RotatE, and is no step; ``dim`` is even then."""
    margin: float = _more_than_0(3.0)
    """What a fact's distance stays below (gamma)."""
    negatives: int = size(512)
    """How many entities an update puts in the place of a head and of a tail, the same for all of its facts."""
    temperature: float = setting(1.0, least=0)
    """How much likely negatives weigh above others (alpha); 0: all weigh the same."""
    batch_size: int = 1024
    """How many facts an update takes together."""
    epochs: float = 45.0
    """How often the facts to learn from are read; those of a small graph for some 2,000 updates at least."""
    steps: int | None = _count(None)
    """How many updates there are, whatever ``epochs`` says. None: as many as the epochs take."""
    lr: float = 1e-2
    warmup_steps: int = 100
    weight_decay: float = 0.0
    clip_norm: float = 1e9  # as good as none
    eval_every: int = _count(2000)
    """How many updates lie between two validations."""
    eval_facts: int = size(1000)
    """How many held-out facts are ranked by each of them."""
    keep_checkpoints: int = _count(2)
    """How many of the newest checkpoints stay on the disk."""
    precision: str = "float32"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.norm in _NORMS, f"transe.norm = {self.norm}: expected 1 or 2")
        if self.rotation and self.dim % 2:
            raise InputError(f"transe.dim = {self.dim}: expected an even number where transe.rotation is true")

    def total_steps(self, n_facts: int) -> int:
        """Updates of the whole run, over ``n_facts`` to learn from."""
        if self.steps is not None:
            return self.steps
        return max(_LEAST_UPDATES, math.ceil(self.epochs * n_facts / self.batch_size))


@dataclass(frozen=True)
class KnowledgeEncoderConfig(EncoderConfig):
    """BERT's encoder with entities of a knowledge graph beside the words ("ERNIE", Zhang et al. 2019, section 3.3)."""

    n_fused: int | None = size(None, least=0)
    """How many layers, the last ones, fuse words and entities (M in the paper; the N below them read words alone).
    None: half of them, as in the paper."""
    n_embd_entities: int = size(100)
    """How many numbers an entity's vector has."""
    n_head_entities: int = size(4)
    """How many heads the attention of entities to each other has."""
    entity_head: bool = True
    """Whether there is a head that tells entities."""
    linked: bool = True
    """Whether the entities of a text are looked up in it where none are given."""
    n_entities: int = size(0, least=0)
    """How many entities have a vector. This and what follows are counted in the graph."""
    n_names: int = size(0, least=0)
    """How many names of theirs are looked for in texts."""
    n_name_pieces: int = size(0, least=0)
    """How many pieces these names have together."""
    family: str = derived("ernie")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_embd_entities % self.n_head_entities:
            raise InputError(
                f"model.n_embd_entities = {self.n_embd_entities} is not a multiple of model.n_head_entities = "
                f"{self.n_head_entities}"
            )
        if self.fused > self.n_layer:
            raise InputError(f"model.n_fused = {self.n_fused}: expected at most model.n_layer = {self.n_layer}")
        if self.sharing != "none":
            raise InputError(f"model.sharing = {self.sharing!r}: expected 'none', as each layer fuses entities its way")

    def started_from(self, source: NetworkConfig) -> NetworkConfig:
        """These settings, or for a model of another kind those of the encoder that the network has entities beside."""
        return self if source.family == self.family else self.without_entities

    @property
    def fused(self) -> int:
        """Layers that fuse words and entities."""
        return self.n_layer // 2 if self.n_fused is None else self.n_fused

    @property
    def without_entities(self) -> EncoderConfig:
        """The encoder that is left where there are no entities, BERT."""
        names = (f.name for f in dataclasses.fields(EncoderConfig) if f.name != "family")
        return EncoderConfig(**{name: getattr(self, name) for name in names})


@dataclass(frozen=True)
class GroundingConfig(Checked):
    """How questions are laid over a graph (KagNET, sections 3.1 to 3.3); lengths, number and threshold of the paths are
    the released code's, the limits of concepts and neighbours our own."""

    section = "grounding"
    max_hops: int = _count(4)
    """How many relations a path has at most."""
    most_paths: int = _count(100)
    """How many paths of a pair of concepts are kept, the shortest first."""
    least_score: float = share(0.15)
    """How likely the vectors have to find a path, of 1; others are left out."""
    most_concepts: int = _count(10)
    """How many concepts of a question are looked for."""
    most_neighbours: int = _count(1000)
    """How many neighbours an entity may have that a path leads through."""


@dataclass(frozen=True)
class KagNETConfig(SteppedConfig):
    """The network and its training; sizes are the released code's, as the paper names few."""

    section = "kagnet"
    n_hidden: int = size(50)
    """The width of the graph convolution's first layer."""
    n_graph: int = size(25)
    """The width of its second layer."""
    n_path: int = size(128)
    """The width of the LSTM over paths."""
    n_pair: int = size(128)
    """The width of a pair's vector, and half of that of the layer before it."""
    own_weights: bool = True
    """Whether an entity's own vector has weights of its own in the convolution (paper, equation 1); the code leaves it
    out."""
    mean_of_neighbours: bool = True
    """Whether neighbours are averaged (paper); the code adds them up."""
    loss: str = setting("cross-entropy", among=LOSSES)
    """What is minimised: cross-entropy over the choices, or margin (the code's: 0.2 between the right choice's
    probability, a sigmoid of its score, and each other's)."""
    margin: float = _more_than_0(0.2)
    """What lies between the right probability and each other, where that is the loss."""
    pdrop: float = share(0.0)
    """Dropout in the layers of a pair's vector."""
    epochs: float = 15.0
    batch_size: int = 50
    """How many questions an update takes together."""
    lr: float = 1e-3
    warmup_steps: int = 10
    weight_decay: float = 1e-4
    checkpoint_every: int = 200
    precision: str = "float32"
