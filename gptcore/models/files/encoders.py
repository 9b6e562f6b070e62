"""Hugging Face's folders of encoders: those of one family differ from another's in names and in what layers share.

read    config.json, model.safetensors or the older pytorch_model.bin, or the shards of either
write   config.json, model.safetensors, and the tokenizer's files

A folder may lack heads: of BertModel, say, or BertForMaskedLM. The network is read without them, and says so where one
is asked for. Heads for tasks (a classifier's) are written and not read: a reader is told what was left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from gptcore.base.errors import InputError, require
from gptcore.base.files import checked_object
from gptcore.base.tables import read_table
from gptcore.config import ACTIVATIONS, ENCODER_EPSILON, EncoderConfig
from gptcore.models.files.folder import Exported
from gptcore.models.files.layout import ForeignTensors, Layout, OtherNetwork, check_tokenizer
from gptcore.nlu.forms import Form
from gptcore.text.tokenizer import Tokenizer

_PARTS = ("weight", "bias")
_POSITIONS = "embeddings.positions.weight"
_SAME_ACTIVATIONS = {"gelu_pytorch_tanh": "gelu_new", "gelu_python": "gelu"}


class TaskNetwork(Protocol):
    """A fine-tuned encoder and its linear layer."""

    encoder: Exported[EncoderConfig]
    layer: torch.nn.Linear | None
    head: torch.nn.Linear
    row_form: Form
    clf_pdrop: float
    pooling: str | None
    ngrams: torch.nn.Module | None
    words: bool


@dataclass(frozen=True, kw_only=True)
class EncoderLayout(Layout):
    """What tells the folders of one family of encoders from those of another; the values are in tables beside it."""

    sizes: Mapping[str, str]
    """Our settings -> theirs."""
    rates: Mapping[str, str]
    """Our settings that are no sizes -> theirs; where two of ours share one of theirs, the later one is written."""
    layer: str
    """The name of a layer in a folder, with its number for {}."""
    embeddings: Mapping[str, str]
    """Our names of the tables and the norm before the first layer -> theirs."""
    qkv: tuple[str, ...]
    """The names of a layer's query, key and value in a folder, or of the three as one."""
    biases: bool = True
    """Whether products and norms have one."""
    sub_layers: Mapping[str, str]
    """Our names of a layer's other parts -> theirs."""
    heads: Mapping[str, str]
    """Our names of the layers outside of the encoder's -> theirs, without .weight and .bias."""
    word_bias: str
    """The name of the word head's bias in a folder."""
    bias_copies: tuple[str, ...]
    """Names under which older folders repeat ``word_bias``, and the word embeddings as the head's matrix."""
    architectures: Mapping[str, str]
    """The head that the network has ("pair", "words", "replaced", or "" for none) -> transformers' class."""
    classes: str
    """What the names of transformers' classes begin with."""
    classes_of_places_alone: bool = False
    """Whether those that answer for a text as a whole do not compute the same."""
    classes_of_texts_alone: bool = False
    """Whether those that answer for its places do not."""
    widens: str = ""
    """The name of the layer from the embeddings' width to the states' in a folder; empty: there is none."""
    shares: bool = False
    """Whether all layers of a group are one (ALBERT)."""
    classifier_dropout: str = "classifier_dropout"
    """The name of the dropout before a classifier's last layer in a folder's settings."""
    classifier_layer: str = ""
    """The name of a classifier's own layer before its last one in a folder; empty: it has none."""

    classifier_parts: tuple[str, str] = ("", "")
    """What the pooler and the last layer are called in a classifier of whole texts that has both; empty: it has not."""
    first_position: int = 0
    """Which row of the folder's positions is that of a text's first piece: one behind the padding's id (RoBERTa)."""

    # --- reading ---

    def _tied(self) -> Mapping[str, str]:
        words = f"embeddings.{self.embeddings['words']}.weight"
        return {name: words if name.endswith("weight") else self.word_bias for name in self.bias_copies}

    def _settings_of(self, settings: Mapping[str, Any], theirs: ForeignTensors, where: str) -> dict[str, Any]:
        needed = [name for name in self.sizes.values() if name != "type_vocab_size"]
        checked_object(settings, where, "a JSON object", dict.fromkeys(needed, int))
        known = {**self.sizes, **self.rates}
        fields: dict[str, Any] = {ours: settings[its] for ours, its in known.items() if its in settings}
        fields["n_ctx"] -= self.first_position
        if fields.get("norm_eps") == ENCODER_EPSILON:
            del fields["norm_eps"]
        activation = fields.get("activation", "gelu")
        fields["activation"] = _SAME_ACTIVATIONS.get(str(activation), activation)
        if isinstance(activation, str) and fields["activation"] not in ACTIVATIONS:
            name = self.rates["activation"]
            raise OtherNetwork(f"{where}: {name} = {activation!r}, expected one of {', '.join(ACTIVATIONS)}", name)
        narrow = settings.get("embedding_size", fields["n_embd"])
        if self.shares or (self.widens and narrow != fields["n_embd"]):
            fields["n_embd_words"] = narrow
        if self.shares:
            fields |= {"sharing": "all", "n_groups": settings.get("num_hidden_groups", 1)}
        if "n_segments" not in self.sizes:
            fields["n_segments"] = 0
        if self.classifier_layer:
            fields["classifier_layer"] = True
        present = {name.rpartition(".")[0] for name in theirs}
        pooler = self.heads.get("pooler") in present
        return fields | {
            "words": self.word_bias in theirs,
            "pooler": pooler,
            "pair": pooler and self.heads.get("pair_head") in present,
            "replaced": self.heads.get("replaced_head.dense") in present,
        }

    def _tensors(self, config: EncoderConfig, theirs: ForeignTensors) -> dict[str, Tensor]:
        tensors = {ours: theirs.joined(its) for ours, its in self._names(config)}
        if self.first_position:
            tensors[_POSITIONS] = tensors[_POSITIONS][self.first_position :]
        return tensors

    # --- writing ---

    def write(self, model: Exported[EncoderConfig], tokenizer: Tokenizer, folder: Path) -> None:
        self._write(model, model.config, {}, {}, tokenizer, folder)

    def write_classifier(self, model: TaskNetwork, labels: Sequence[str], tokenizer: Tokenizer, folder: Path) -> None:
        form = model.row_form
        others = self.classes_of_texts_alone if form.places else self.classes_of_places_alone
        if not form.transformers or others:
            raise InputError(
                f"transformers' {self.model_type} has no class that reads tasks of the form {form.name} as this model"
            )
        for setting in ("pooling", "ngrams", "words"):
            if getattr(model, setting):
                raise InputError(f"it was fine-tuned with finetune.{setting}, which no class of transformers has")
        places, config = form.places, model.encoder.config
        if not (places or config.pooler) and any(name.startswith("pooler") for name in self.heads):
            raise InputError(f"it has no pooler, through which transformers' classes of {self.model_type} read")
        name = form.transformers_layer
        layer: dict[str, Tensor] = {}
        if all(self.classifier_parts) and form.transformers == "SequenceClassification":
            dense, name = self.classifier_parts
            state, config = model.encoder.state_dict(), dataclasses.replace(config, pooler=False)
            layer = {f"{dense}.{part}": state[f"pooler.{part}"] for part in _PARTS}
        layer |= {f"{name}.{part}": getattr(model.head, part) for part in _PARTS}
        if model.layer is not None:
            layer |= {f"{self.classifier_layer}.{part}": getattr(model.layer, part) for part in _PARTS}
        said: dict[str, Any] = {"architectures": [f"{self.classes}For{form.transformers}"]}
        said[self.classifier_dropout] = model.clf_pdrop
        if not form.outputs:
            named = dict(enumerate(labels))
            said |= {"problem_type": "multi_label_classification"} if form.several else {}
            said |= {"id2label": named, "label2id": {label: number for number, label in named.items()}}
        without = dataclasses.replace(config, pooler=config.pooler and not places)  # theirs has none there
        self._write(model.encoder, without, layer, said, tokenizer, folder)

    def _write(
        self,
        model: Exported[EncoderConfig],
        config: EncoderConfig,
        layer: Mapping[str, Tensor],
        said: Mapping[str, Any],
        tokenizer: Tokenizer,
        folder: Path,
    ) -> None:
        """A network with the parts that ``config`` names; ``layer`` and ``said``: more tensors and settings."""
        self._check(config, tokenizer)
        config, state = self._spelt_out(model, config)
        tensors = dict(layer)
        if self.first_position:
            state[_POSITIONS] = F.pad(state[_POSITIONS], (0, 0, self.first_position, 0))
        for ours, its in self._names(config):
            tensors |= zip(map(self._prefixed, its), state[ours].chunk(len(its)), strict=True)
        pad = {} if tokenizer.specials is None else {"pad_token_id": tokenizer.specials.pad}
        settings = {**self._settings(config), **pad, **said}
        self._write_files(folder, tensors, settings, tokenizer, {"model_max_length": config.n_ctx})

    def _spelt_out(self, model: Any, config: EncoderConfig) -> tuple[EncoderConfig, dict[str, Tensor]]:
        """Settings and tensors of a network that computes the same: its positions are learned, and its layers have
        copies of what they share where theirs share nothing.
        """
        state: dict[str, Tensor] = {**dict(model.named_buffers()), **model.state_dict()}
        if config.sinusoidal:
            state[_POSITIONS] = state["embeddings.waves"]
        config = dataclasses.replace(config, sinusoidal=False)
        if self.shares and config.sharing == "all":
            return config, state
        shared = {"attention": ("attention", "all"), "feed_forward": ("feed-forward", "all")}
        copies: dict[str, Tensor] = {}
        for name, value in state.items():
            part, number, *rest = name.split(".")
            if config.sharing in shared.get(part, ()):
                same = (n for n in range(config.n_layer) if int(n / (config.n_layer / config.n_groups)) == int(number))
                copies |= {".".join((part, str(layer), *rest)): value for layer in same}
        kind, groups = ("all", config.n_layer) if self.shares else ("none", 1)
        return dataclasses.replace(config, sharing=kind, n_groups=groups), state | copies

    def _prefixed(self, name: str) -> str:
        outside = (*(its for ours, its in self.heads.items() if ours != "pooler"), self.word_bias)
        return name if name.startswith(outside) else f"{self.prefix}.{name}"

    def _check(self, config: EncoderConfig, tokenizer: Tokenizer) -> None:
        """:raises InputError: a tokenizer or a shape that such a folder cannot hold."""
        check_tokenizer(config, tokenizer)
        if self.first_position and tokenizer.specials and tokenizer.specials.pad != self.first_position - 1:
            raise InputError(f"tokenizer: pad = {tokenizer.specials.pad}, expected {self.first_position - 1}")
        folders, narrow = f"{self.model_type} folders", config.n_embd_words
        here, segments = f"in a {self.model_type} folder", "n_segments" in self.sizes
        layer = bool(self.classifier_layer)
        for fits, name, expected in (
            (bool(config.n_segments) == segments, "n_segments", f"{'2 or more' if segments else '0'} {here}"),
            (config.classifier_layer == layer, "classifier_layer", f"{layer} {here}"),
            (self.widens or narrow is None, "n_embd_words", f"None: in {folders} they are as wide as the states"),
            (
                not self.widens or self.shares or narrow != config.n_embd,
                "n_embd_words",
                f"None where the states are as wide, as {here}",
            ),
            (not self.shares or narrow is not None, "n_embd_words", f"a width: {folders} have a layer for it"),
        ):
            require(fits, f"model.{name} = {getattr(config, name)!r}, expected {expected}")

    def _settings(self, config: EncoderConfig) -> dict[str, Any]:
        has = {"pair": config.pair, "replaced": config.replaced, "words": config.words}
        head = next((name for name, there in has.items() if there and name in self.architectures), "")
        extra = {"num_hidden_groups": config.n_groups, "inner_group_num": 1} if self.shares else {}
        return {
            "model_type": self.model_type,
            "architectures": [self.architectures[head]],
            **{its: getattr(config, ours) for ours, its in {**self.sizes, **self.rates}.items()},
            **({"embedding_size": config.width_of_words} if self.widens else {}),
            **extra,
            self.sizes["n_ctx"]: config.n_ctx + self.first_position,
            "layer_norm_eps": config.epsilon,
            "tie_word_embeddings": True,
        }

    # --- names ---

    def _names(self, config: EncoderConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
        """(our name, theirs; or the three that ours is made of), theirs without the encoder's prefix."""
        for ours, theirs in self.embeddings.items():
            if ours not in ("norm", "segments") or (ours == "segments" and config.n_segments):
                yield f"embeddings.{ours}.weight", (f"embeddings.{theirs}.weight",)
        for ours, names in self._layers(config):
            for part in _PARTS if self.biases else _PARTS[:1]:
                yield f"{ours}.{part}", tuple(f"{name}.{part}" for name in names)
        if config.words:
            yield "word_head.bias", (self.word_bias,)

    def _layers(self, config: EncoderConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Modules with a weight and, mostly, a bias: ours with theirs, one by one, as layers may be any number."""
        yield "embeddings.norm", (f"embeddings.{self.embeddings['norm']}",)
        if config.n_embd_words is not None:
            yield "widen", (self.widens,)
        for number in range(config.n_groups if self.shares else config.n_layer):
            layer = self.layer.format(number)
            yield f"attention.{number}.qkv", tuple(f"{layer}.{name}" for name in self.qkv)
            for ours, theirs in self.sub_layers.items():
                yield ours.replace(".", f".{number}."), (f"{layer}.{theirs}",)
        has = {"pooler": config.pooler, "pair_head": config.pair, "word_head": config.words}
        has["replaced_head"] = config.replaced
        for ours, theirs in self.heads.items():
            if has.get(ours.partition(".")[0], True):
                yield ours, (theirs,)


_TABLES = read_table(__file__, "encoders.toml")


def encoder_layout(family: str, table: Mapping[str, Any]) -> EncoderLayout:
    """The folders of a family, which transformers calls by the same name.

    :param table: the fields in which they are not as BERT's.
    """
    return EncoderLayout(model_type=family, family=family, **{"prefix": family} | _TABLES["shared"] | table)


BERT, ALBERT = (encoder_layout(name, _TABLES[name]) for name in ("bert", "albert"))
