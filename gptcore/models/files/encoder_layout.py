"""Hugging Face's folders of encoders: BERT's, ALBERT's and ELECTRA's differ in names and in what layers share.

read    config.json, model.safetensors or the older pytorch_model.bin
write   config.json, model.safetensors, and the tokenizer's files

A folder may lack heads: of BertModel, say, or BertForMaskedLM. The network is read without them, and says so where one
is asked for. Heads for tasks (a classifier's) are written and not read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import save_file
from torch import Tensor

from gptcore.base.errors import InputError
from gptcore.base.files import checked_object, fsync_folder, read_json, write_json_atomic
from gptcore.base.settings import replace_settings
from gptcore.config import EncoderConfig
from gptcore.families import FAMILIES
from gptcore.models.files.folder import ModelFolder
from gptcore.nlu.forms import Form
from gptcore.text.tokenizer import Tokenizer

SIZES = {
    "n_vocab": "vocab_size",
    "n_ctx": "max_position_embeddings",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_embd": "hidden_size",
    "n_inner": "intermediate_size",
    "n_segments": "type_vocab_size",
}
"""Our settings -> BERT's."""
RATES = {
    "embd_pdrop": "hidden_dropout_prob",
    "resid_pdrop": "hidden_dropout_prob",
    "attn_pdrop": "attention_probs_dropout_prob",
    "init_std": "initializer_range",
    "activation": "hidden_act",
}
"""The same of what is no size; a later one of two is what is written."""
_EXPECTED = {
    "layer_norm_eps": 1e-12,
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
    "inner_group_num": 1,
}
"""Settings that change what is computed -> the only value that we compute; each is transformers' default."""
_PARTS = ("weight", "bias")
_OLDER = {".gamma": ".weight", ".beta": ".bias"}  # of norms, in checkpoints converted from the original releases


class EncoderNetwork(Protocol):
    """What a layout is written from: the encoder, of which this room needs to know no more."""

    config: EncoderConfig

    def state_dict(self) -> dict[str, Any]:
        """Its tensors, by our names."""


class TaskNetwork(Protocol):
    """A fine-tuned encoder and its linear layer."""

    encoder: EncoderNetwork
    layer: torch.nn.Linear | None
    head: torch.nn.Linear
    row_form: Form
    clf_pdrop: float


@dataclass(frozen=True)
class SubLayers:
    """Their names of a layer's parts."""

    layer: str
    """Of a layer, with its number for {}."""
    attention: str
    """Of what holds query, key and value."""
    projection: str
    attention_norm: str
    inner: str
    output: str
    norm: str
    qkv: tuple[str, str, str] = ("query", "key", "value")


@dataclass(frozen=True)
class EncoderLayout:
    """What tells the folders of one family of encoders from those of another; see
    :class:`gptcore.models.files.hugging_face.Layout`.
    """

    model_type: str
    """As in config.json."""
    family: str
    sub_layers: SubLayers
    heads: Mapping[str, str]
    """Our names of the layers outside of the encoder's -> theirs, without .weight and .bias."""
    word_bias: str
    """Their name of the bias of the words' scores."""
    bias_copies: tuple[str, ...]
    """Other names under which older folders repeat it, and the word embeddings as the head's matrix."""
    architectures: Mapping[str, str]
    """The head that the network has ("pair", "words", "replaced", or "" for none) -> transformers' class."""
    classes: str
    """What the names of transformers' classes begin with."""
    classes_of_places_alone: bool = False
    """Whether those that answer for a text as a whole do not compute the same."""
    widens: str = ""
    """Their name of the layer from the embeddings' width to the states'."""
    shares: bool = False
    """Whether all layers of a group are one (ALBERT)."""
    sizes: Mapping[str, str] = field(default_factory=lambda: SIZES)
    rates: Mapping[str, str] = field(default_factory=lambda: RATES)
    classifier_dropout: str = "classifier_dropout"
    """Their name of the dropout before a classifier's last layer."""
    classifier_layer: str = ""
    """Their name of a classifier's own layer before its last one; empty: it has none."""

    # --- reading ---

    def read(
        self, folder: ModelFolder, settings: Mapping[str, Any], defaults: EncoderConfig
    ) -> tuple[EncoderConfig, dict[str, Tensor]]:
        """Configuration and tensors, by our names.

        :param settings: those of config.json.
        :param defaults: the family's, for what config.json does not say.
        :raises InputError: naming the file, what was found and what was expected.
        """
        where = folder.path("config.json")
        for name, value in _EXPECTED.items():
            if settings.get(name, value) != value:
                raise InputError(f"{where}: {name} = {settings[name]!r:.60}, expected {value!r}")
        needed = [name for name in self.sizes.values() if name != "type_vocab_size"]
        checked_object(settings, where, "a JSON object", dict.fromkeys(needed, int))
        older = folder.has("pytorch_model.bin") and not folder.has("model.safetensors")
        file = "pytorch_model.bin" if older else "model.safetensors"
        theirs = self._known(folder.pickled(file) if older else folder.safetensors(file))
        config = replace_settings(defaults, self._settings_of(settings, theirs), f"{where}: model")
        beyond = self.sub_layers.layer.format(config.n_groups if self.shares else config.n_layer)
        if odd := next((name for name in theirs if name.startswith(f"{beyond}.")), None):
            count = self.sizes["n_layer"]
            raise InputError(f"{where}: {count} = {config.n_layer}, but {file} has {odd}; expected no such tensor")
        found: dict[str, Tensor] = {}
        for ours, its in self._names(config):
            pieces = [its] if isinstance(its, str) else its
            for name in pieces:
                if name not in theirs:
                    raise InputError(f"{folder.path(file)}: no tensor {name}")
            found[ours] = theirs[pieces[0]] if len(pieces) == 1 else torch.cat([theirs[name] for name in pieces])
        for name in self.bias_copies:  # tied with others
            tied = "embeddings.words.weight" if name.endswith("weight") else "word_head.bias"
            if name in theirs and tied in found and not torch.equal(theirs[name], found[tied]):
                raise InputError(
                    f"{folder.path(file)}: {name}: differs from {tied}, expected the same, as they are tied"
                )
        return config, found

    def _known(self, stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors under the names that transformers gives them today, those of the encoder without its prefix."""
        found = {}
        for name, tensor in stored.items():
            for old, new in _OLDER.items():
                name = name.removesuffix(old) + new if name.endswith(old) else name
            found[name.removeprefix(f"{self.model_type}.")] = tensor
        return found

    def _settings_of(self, settings: Mapping[str, Any], theirs: Mapping[str, Tensor]) -> dict[str, Any]:
        known = {**self.sizes, **self.rates}
        found: dict[str, Any] = {ours: settings[its] for ours, its in known.items() if its in settings}
        narrow = settings.get("embedding_size", found["n_embd"])
        if self.shares or (self.widens and narrow != found["n_embd"]):
            found["n_embd_words"] = narrow
        if self.shares:
            found |= {"sharing": "all", "n_groups": settings.get("num_hidden_groups", 1)}
        if "n_segments" not in self.sizes:
            found["n_segments"] = 0
        if self.classifier_layer:
            found["classifier_layer"] = True
        present = {name.rpartition(".")[0] for name in theirs}
        return found | {
            "words": self.word_bias in theirs,
            "pooler": self.heads.get("pooler") in present,
            "pair": self.heads.get("pair_head") in present,
            "replaced": self.heads.get("replaced_head.dense") in present,
        }

    # --- writing ---

    def write(self, model: EncoderNetwork, tokenizer: Tokenizer, folder: Path) -> None:
        """See :func:`gptcore.models.files.hugging_face.export_hugging_face`."""
        self._write(model, model.config, {}, {}, tokenizer, folder)

    def write_classifier(self, model: TaskNetwork, labels: Sequence[str], tokenizer: Tokenizer, folder: Path) -> None:
        """See :func:`gptcore.models.files.hugging_face.export_classifier`."""
        form = model.row_form
        if not form.transformers or (self.classes_of_places_alone and not form.places):
            raise InputError(
                f"transformers' {self.model_type} has no class that reads tasks of the form {form.name} as this model"
            )
        places, config = form.places, model.encoder.config
        if not (places or config.pooler) and "pooler" in self.heads:
            raise InputError(f"it has no pooler, through which transformers' classes of {self.model_type} read")
        name = form.transformers_layer
        layer = {f"{name}.weight": model.head.weight, f"{name}.bias": model.head.bias}
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
        model: EncoderNetwork,
        config: EncoderConfig,
        layer: Mapping[str, Tensor],
        said: Mapping[str, Any],
        tokenizer: Tokenizer,
        folder: Path,
    ) -> None:
        """A network with the parts that ``config`` names; ``layer`` and ``said``: more tensors and settings."""
        self._check(config, tokenizer)
        folder.mkdir(parents=True, exist_ok=True)
        state = model.state_dict()
        stored = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in layer.items()}
        for ours, its in self._names(config):
            value = state[ours].detach().cpu()
            parts = (value,) if isinstance(its, str) else value.chunk(3)
            names = (its,) if isinstance(its, str) else its
            for name, part in zip(names, parts, strict=True):
                stored[self._prefixed(name)] = part.contiguous().clone()
        save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})  # transformers asks for the format
        specials = tokenizer.specials
        pad = {} if specials is None else {"pad_token_id": specials.pad}
        write_json_atomic(folder / "config.json", {**self._settings(config), **pad, **said})
        tokenizer.save(folder)
        words = read_json(folder / "tokenizer_config.json")
        write_json_atomic(folder / "tokenizer_config.json", {**words, "model_max_length": config.n_ctx})
        fsync_folder(folder)

    def _prefixed(self, name: str) -> str:
        outside = (*(its for ours, its in self.heads.items() if ours != "pooler"), self.word_bias)
        return name if name.startswith(outside) else f"{self.model_type}.{name}"

    def _check(self, config: EncoderConfig, tokenizer: Tokenizer) -> None:
        """:raises InputError: a tokenizer or a shape that such a folder cannot hold."""
        kind: type[Tokenizer] = FAMILIES[self.family].part("tokenizer")
        if not isinstance(tokenizer, kind):
            raise InputError(f"tokenizer: a {tokenizer.kind} one, expected a {kind.kind} one for {self.model_type}")
        if tokenizer.n_vocab != config.n_vocab:
            raise InputError(f"tokenizer: n_vocab = {tokenizer.n_vocab}, the model expects {config.n_vocab}")
        if config.sinusoidal:
            raise InputError(
                f"model.sinusoidal = True, expected False: {self.model_type} folders hold learned positions"
            )
        if bool(config.n_segments) != ("n_segments" in self.sizes):
            wanted = "2 or more" if "n_segments" in self.sizes else "0"
            raise InputError(f"model.n_segments = {config.n_segments}, expected {wanted} in a {self.model_type} folder")
        if config.classifier_layer != bool(self.classifier_layer):
            raise InputError(
                f"model.classifier_layer = {config.classifier_layer}, expected {bool(self.classifier_layer)} in a "
                f"{self.model_type} folder"
            )
        if config.sharing != ("all" if self.shares else "none"):
            expected = "all" if self.shares else "none"
            raise InputError(f"model.sharing = {config.sharing!r}, expected {expected!r} in a {self.model_type} folder")
        if not self.widens and config.n_embd_words is not None:
            raise InputError(
                f"model.n_embd_words = {config.n_embd_words}, expected None: in {self.model_type} folders they are "
                "as wide as the states"
            )
        if self.widens and not self.shares and config.n_embd_words == config.n_embd:
            raise InputError(
                f"model.n_embd_words = {config.n_embd_words}, expected None where the states are as wide, as in a "
                f"{self.model_type} folder"
            )
        if self.shares and config.n_embd_words is None:
            raise InputError(
                f"model.n_embd_words = None, expected a width: {self.model_type} folders have a layer for it"
            )

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
            "layer_norm_eps": _EXPECTED["layer_norm_eps"],
            "tie_word_embeddings": True,
        }

    # --- names ---

    def _names(self, config: EncoderConfig) -> Iterator[tuple[str, str | tuple[str, ...]]]:
        """(our name, theirs; or the three that ours is made of), theirs without the encoder's prefix."""
        embeddings = {
            "words": "word_embeddings",
            "positions": "position_embeddings",
            "segments": "token_type_embeddings",
        }
        if not config.n_segments:
            del embeddings["segments"]
        for ours, name in embeddings.items():
            yield f"embeddings.{ours}.weight", f"embeddings.{name}.weight"
        yield from _both("embeddings.norm", "embeddings.LayerNorm")
        if config.n_embd_words is not None:
            yield from _both("widen", self.widens)
        its = self.sub_layers
        for number in range(config.n_groups if self.shares else config.n_layer):
            layer = its.layer.format(number)
            for part in _PARTS:
                yield (
                    f"attention.{number}.qkv.{part}",
                    tuple(f"{layer}.{its.attention}.{name}.{part}" for name in its.qkv),
                )
            yield from _both(f"attention.{number}.projection", f"{layer}.{its.projection}")
            yield from _both(f"attention.{number}.norm", f"{layer}.{its.attention_norm}")
            yield from _both(f"feed_forward.{number}.inner", f"{layer}.{its.inner}")
            yield from _both(f"feed_forward.{number}.projection", f"{layer}.{its.output}")
            yield from _both(f"feed_forward.{number}.norm", f"{layer}.{its.norm}")
        has = {"pooler": config.pooler, "pair_head": config.pair, "word_head": config.words}
        has["replaced_head"] = config.replaced
        for ours, theirs in self.heads.items():
            if has[ours.partition(".")[0]]:
                yield from _both(ours, theirs)
        if config.words:
            yield "word_head.bias", self.word_bias


def _both(ours: str, theirs: str) -> Iterator[tuple[str, str]]:
    for part in _PARTS:
        yield f"{ours}.{part}", f"{theirs}.{part}"


BERT_SUB_LAYERS = SubLayers(
    layer="encoder.layer.{}",
    attention="attention.self",
    projection="attention.output.dense",
    attention_norm="attention.output.LayerNorm",
    inner="intermediate.dense",
    output="output.dense",
    norm="output.LayerNorm",
)
"""BERT's, and ELECTRA's too."""
