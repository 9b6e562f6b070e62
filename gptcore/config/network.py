"""Settings of networks, of which each family names its own; the defaults are the paper's (section 4.1)."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gptcore.base.errors import InputError
from gptcore.base.settings import Checked, derived, replace_settings, setting, share, size
from gptcore.families import FAMILIES, recorded_family, with_family

if typing.TYPE_CHECKING:
    from gptcore.config.training import PretrainConfig

LAYER_NORM_EPSILON = 1e-5  # original code
ENCODER_EPSILON = 1e-12  # of BERT's norms (original code)
SHARINGS = ("none", "attention", "feed-forward", "all")
ACTIVATIONS = ("gelu", "gelu_new")


@dataclass(frozen=True)
class NetworkConfig(Checked):
    """What the settings of any family's network have in common."""

    section = "model"
    shapes = ("", "")
    """The size in short and in words, of the settings by their names."""
    words = True
    """Whether it tells words, as each does but an encoder without that head."""
    n_vocab: int = size(40_478)
    """How many words and pieces there are; the released vocabulary has 40 478 (original code)."""
    n_special: int = size(0, least=0)
    """How many rows are appended to them: 0 while pre-training, 3 when fine-tuning (start, delimiter, classify), 2 for
    titles of papers."""
    n_ctx: int = size(512)
    """How many positions a sequence has at most."""
    n_embd: int = size(768)
    """The width of the states that a head reads."""
    embd_pdrop: float = share(0.1)
    """Dropout of the embeddings."""
    resid_pdrop: float = share(0.1)
    """Dropout of what each sub-layer adds."""
    init_std: float = setting(0.02, least=0, below=math.inf)
    """The standard deviation of the normal distribution that weights are drawn from; biases start at 0, gains at 1."""
    family: str = derived("")
    """The name of the network's family."""

    def started_from(self, source: NetworkConfig) -> NetworkConfig:
        """The settings that a model has to have for a network of these to go on from it: by default the same.

        :param source: the settings of the model.
        """
        return self

    @property
    def layers(self) -> int:
        """Blocks that a fine-tune can take over."""
        raise NotImplementedError

    def flops_per_token(self, n_positions: float, told: float = 1.0) -> float:
        """Floating-point operations of one trained token in a sequence of ``n_positions``, forward and backward.

        They are 6 for each weight of a matrix product, as in "Scaling Laws for Neural Language Models" (Kaplan et al.
        2020, section 2.1), and those of the attention's two products. Look-ups, norms and what is done once a sequence
        are left out.

        :param told: the share of the positions whose states reach the product with the vocabulary.
        """
        weights = self.inner_weights + self.told_weights(told)
        return 6.0 * weights + 12.0 * self.attention_widths * n_positions

    @property
    def inner_weights(self) -> float:
        """How many weights multiply every token below the product with the vocabulary.

        They are counted in the network of the family, which takes torch, but where settings know the number themselves.
        """
        count: int = FAMILIES[self.family].part("network").count_inner_weights(self)
        return count

    def told_weights(self, told: float) -> float:
        """How many weights of the product with the vocabulary multiply a token on the average.

        :param told: the share of the positions whose states reach it.
        """
        return told * (self.n_vocab + self.n_special) * self.n_embd

    @property
    def attention_widths(self) -> int:
        """The sum of the widths of all layers' attention; 0 where there is none, and the length makes no difference."""
        return 0

    def share_told(self, settings: PretrainConfig) -> float:
        """The share of the positions whose states reach the product with the vocabulary in a pre-training."""
        hidden = settings.hidden_share or 0.0
        return 1 - hidden + hidden * settings.share_of_masked

    def pretraining_flops_per_token(self, n_positions: float, settings: PretrainConfig) -> float:
        """The operations of one token in a pre-training, those of a network that is trained beside this one, too."""
        return self.flops_per_token(n_positions, self.share_told(settings))

    @property
    def shape(self) -> str:
        """The size in short, for tables."""
        return self.shapes[0].format(**vars(self))

    @property
    def shape_in_words(self) -> str:
        """The size in words, for lists of models."""
        return self.shapes[1].format(**vars(self))

    def as_recorded(self, values: dict[str, Any]) -> dict[str, Any]:
        """The settings as they are recorded, with the family's name (:func:`gptcore.families.with_family`)."""
        return with_family(values.pop("family"), values)


@dataclass(frozen=True)
class TransformerConfig(NetworkConfig):
    """What decoders and encoders have in common."""

    shapes = ("{n_layer} x {n_embd}", "{n_layer} layers x {n_embd}")
    n_layer: int = size(12, least=0)
    """How many blocks there are."""
    n_head: int = size(12)
    """How many heads the attention of each has."""
    n_inner: int = size(3072)
    """The width of each feed-forward sub-layer."""
    attn_pdrop: float = share(0.1)
    """Dropout of the weights of attention."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_embd % self.n_head:
            raise InputError(f"model.n_embd = {self.n_embd} is not a multiple of model.n_head = {self.n_head}")

    @property
    def layers(self) -> int:
        return self.n_layer

    @property
    def attention_widths(self) -> int:
        return self.n_layer * self.n_embd


@dataclass(frozen=True)
class ModelConfig(TransformerConfig):
    """The Transformer decoder of section 4.1."""

    original: bool = False
    """Whether embeddings are as released (original code): one table of words, specials and positions, dropped as a
    whole once a forward pass, for the lookup and the tied softmax alike."""
    norm_first: bool = False
    """Whether the decoder is GPT-2's: norms before the sub-layers and after the last block, output weights of
    sub-layers scaled."""
    smeared_keys: bool = False
    """Whether each key of the attention is mixed with the one before it, by a share that each head learns (Olsson et
    al. 2022)."""
    rotary: bool = False
    """Whether queries and keys are turned by their positions, beside the positions that are learned, so that attention
    knows how far apart two tokens are (Su et al. 2021)."""

    def __post_init__(self) -> None:
        if not self.family:  # the one that has such norms
            object.__setattr__(self, "family", recorded_family({"norm_first": self.norm_first}).name)
        super().__post_init__()
        if self.rotary and self.n_embd // self.n_head % 2:
            raise InputError(
                f"model.rotary = True: found heads of {self.n_embd // self.n_head} numbers, expected an even number"
            )

    @property
    def inner_weights(self) -> float:
        return _weights_of_blocks(self)


@dataclass(frozen=True)
class LSTMConfig(NetworkConfig):
    """The recurrent network of Table 5: a single layer of 2048 units in the same framework (section 5).

    It is trained on windows of ``n_ctx`` tokens, but has no bound itself. Its units are projected back to the width of
    the embeddings, so that input and output are tied as in the Transformer (the paper does not say); ``resid_pdrop`` is
    after that projection.
    """

    shapes = ("{n_units}", "LSTM of {n_units}")
    n_units: int = size(2048)
    """How many units the layer has."""
    family: str = derived("lstm")

    @property
    def layers(self) -> int:
        return 1

    @property
    def inner_weights(self) -> float:
        return 4 * self.n_units * (self.n_embd + self.n_units) + self.n_units * self.n_embd


@dataclass(frozen=True)
class EncoderConfig(TransformerConfig):
    """The Transformer encoder of BERT, and what ALBERT and ELECTRA change of it.

    Its special pieces belong to the vocabulary (the released uncased one has 30 522 pieces), so that no row is appended
    to it. Weights that are drawn beyond two deviations are drawn again (original code).
    """

    n_vocab: int = 30_522
    n_embd_words: int | None = size(None)
    """The width of the embeddings where a linear layer brings them to that of the states (ALBERT, section 3.1). None:
    they have it already."""
    n_segments: int = size(2, least=0)
    """How many texts of a sequence are told apart by embeddings of their own; 0: two texts are told apart by the mark
    between them alone (DistilBERT, section 3), and so where 1 is the same for all texts (RoBERTa, original code)."""
    norm_eps: float | None = setting(None, above=0, below=1)
    """What each norm adds to the variance. None: 1e-12 (BERT, original code)."""
    sinusoidal: bool = False
    """Whether positions are sines and cosines ("Attention Is All You Need", section 3.5) in place of learned ones."""
    sharing: str = setting("none", among=SHARINGS)
    """Which parameters all layers of a group have in common: none, attention, feed-forward or all (ALBERT, Table 4);
    each sub-layer's norm goes with it."""
    n_groups: int = size(1)
    """How many groups the layers that share parameters form (ALBERT, original code)."""
    activation: str = setting("gelu", among=ACTIVATIONS)
    """The function between the two matrices of a feed-forward sub-layer: gelu, or its tanh form gelu_new, which BERT's
    and ALBERT's original code compute."""
    words: bool = True
    """Whether there is a head that tells masked words."""
    pooler: bool = True
    """Whether the first state goes through a layer of its own (BERT, original code)."""
    pair: bool = True
    """Whether there is a head that tells next sentences or their order from the pooled state."""
    replaced: bool = False
    """Whether there is a head that tells replaced tokens (ELECTRA's discriminator)."""
    classifier_layer: bool = False
    """Whether a classifier has a layer of its own before the last one (DistilBERT, original code), where others read
    the pooled state."""
    family: str = derived("bert")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_special:
            raise InputError(f"model.n_special = {self.n_special}, expected 0: an encoder's vocabulary has its own")
        if self.n_segments == 1 and self.pair:
            raise InputError("model.n_segments = 1: expected at least 2, for two texts beside each other, or 0")
        if self.n_groups > max(1, self.n_layer):
            raise InputError(f"model.n_groups = {self.n_groups}: expected at most model.n_layer = {self.n_layer}")
        if self.pair and not self.pooler:
            raise InputError("model.pair = True without model.pooler: expected a pooler, whose state that head reads")

    @property
    def epsilon(self) -> float:
        """What each norm adds to the variance."""
        return ENCODER_EPSILON if self.norm_eps is None else self.norm_eps

    @property
    def width_of_words(self) -> int:
        """Width of the embeddings."""
        return self.n_embd if self.n_embd_words is None else self.n_embd_words

    @property
    def layers(self) -> int:
        """Blocks that a fine-tune can take over: of layers that are one, as ALBERT's, their groups."""
        return self.n_groups if self.sharing == "all" else self.n_layer

    @property
    def inner_weights(self) -> float:
        """How many weights multiply every token below the word head; those that layers share count for each of them."""
        widening = self.width_of_words * self.n_embd if self.n_embd_words is not None else 0
        replaced_head = self.n_embd * (self.n_embd + 1) if self.replaced else 0
        return _weights_of_blocks(self) + widening + replaced_head

    def told_weights(self, told: float) -> float:
        """How many weights of the word head, which has a layer of its own, multiply a token on the average."""
        rows = self.n_vocab + self.n_special
        return told * self.width_of_words * (self.n_embd + rows) if self.words else 0

    def share_told(self, settings: PretrainConfig) -> float:
        """The share of the positions that the word head predicts, the masked ones."""
        return settings.share_of_masked


def _weights_of_blocks(config: TransformerConfig) -> int:
    """How many weights multiply a token in all blocks, each of four matrices of attention and two of feed-forward."""
    return config.n_layer * (4 * config.n_embd**2 + 2 * config.n_embd * config.n_inner)


def network_config(settings: Any, where: str = "model") -> NetworkConfig:
    """The network that recorded settings describe, by their family.

    :raises InputError: an unknown family or field, or a value of no use; names ``where`` they stand.
    """
    family = recorded_family(settings, where)
    known = {k: v for k, v in settings.items() if k != "family"} if isinstance(settings, Mapping) else settings
    config: NetworkConfig = replace_settings(family.part("config")(family=family.name), known, where)
    return config


def check_same_shape(found: NetworkConfig, wanted: NetworkConfig, where: str) -> None:
    """Whether weights of the one network fit the other; dropout and how weights are drawn may differ.

    :param where: what has the shape ``found``, for the error message.
    :raises InputError: naming the first setting of the shape that differs.
    """
    if found.family != wanted.family:
        titles = (FAMILIES[config.family].title for config in (found, wanted))
        raise InputError(f"{where}: found {next(titles)}, expected {next(titles)}")
    ours, theirs = ({"network": type(c).__name__, **dataclasses.asdict(c)} for c in (wanted, found))
    for name, value in ours.items():
        if name != "init_std" and not name.endswith("_pdrop") and theirs.get(name) != value:
            raise InputError(f"{where}: its {name} is {theirs.get(name)}, expected {value} as in the settings")
