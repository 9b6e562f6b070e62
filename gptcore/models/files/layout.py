"""Any of the three kinds of model folder, by what is in it; of Hugging Face's by "model_type", which names a family."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from gptcore.base.errors import InputError, require
from gptcore.base.files import checked_object, read_json, write_json_atomic
from gptcore.base.settings import replace_settings
from gptcore.config import NetworkConfig
from gptcore.families import FAMILIES, Family
from gptcore.models.files.folder import MODEL_TYPE, ModelFolder, read_own, read_release, weight_files
from gptcore.models.files.library import ADDED_ROWS
from gptcore.text.library import LibraryTokenizer
from gptcore.text.tokenizer import Tokenizer
from gptcore.text.vocabulary import SETTINGS_FILE

_OLDER = {".gamma": ".weight", ".beta": ".bias"}  # of norms, in checkpoints converted from the original releases
_BUFFERS = (".position_ids", ".token_type_ids", ".inv_freq", ".attn.bias", ".attn.masked_bias")
"""How the names of tensors end that follow from the settings."""
TASKS = ("classifier.", "pre_classifier.", "qa_outputs.", "score.", "multiple_choice_head.", "pooler.", "cls.")
"""How the names of the heads of tasks begin, and of those heads of pre-training that a network can do without."""


@dataclass(frozen=True)
class StoredModel:
    """What a folder holds of a model."""

    config: NetworkConfig
    tensors: dict[str, Tensor]
    """The network's tensors, by our names."""
    left_out: tuple[str, ...] = ()
    """The names of tensors that the folder holds beside the network: the heads of tasks."""


class ForeignTensors(Mapping[str, Tensor]):
    """The tensors of a folder by the names that its layout knows; it remembers which of them were read.

    :param where: the address of the file, for error messages.
    :param named: what a layout calls a tensor, from its name in the file.
    :raises InputError: two tensors that come to have the same name.
    """

    def __init__(self, where: str, stored: Mapping[str, Tensor], named: Callable[[str], str]) -> None:
        self.where = where
        self.names = {named(name): name for name in stored}
        if len(self.names) < len(stored):
            twice = next(name for name in stored if self.names[named(name)] != name)
            raise InputError(f"{where}: found {twice} beside {self.names[named(twice)]}, expected one of the two")
        self._stored = stored
        self._unread = set(self.names)

    def __getitem__(self, name: str) -> Tensor:
        require(name in self.names, f"{self.where}: no tensor {name}")
        self._unread.discard(name)
        return self._stored[self.names[name]]

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def joined(self, names: Sequence[str]) -> Tensor:
        """One tensor, which is not copied, or the rows of several."""
        return self[names[0]] if len(names) == 1 else torch.cat([self[name] for name in names])

    def unread(self) -> list[str]:
        """The names of the tensors that nobody has asked for, sorted."""
        return sorted(self._unread)


class OtherNetwork(InputError):
    """A folder whose settings are of a network that computes something else than ours.

    :param setting: the one that says so, where it is one alone.
    """

    def __init__(self, message: str, setting: str = "") -> None:
        super().__init__(message)
        self.setting = setting


@dataclass(frozen=True, kw_only=True)
class Layout(ABC):
    """One family's folders of Hugging Face's kind."""

    model_type: str
    """What config.json calls the kind."""
    family: str
    expected: Mapping[str, Any]
    """Settings that change what is computed -> the only value that we compute; each is transformers' default."""
    prefix: str
    """What the names of the trunk's tensors begin with where the folder holds heads, too."""
    aliases: tuple[str, ...] = ()
    """What else config.json may call the kind: networks of others that compute the same under the same names."""
    absent: Mapping[str, Any] = field(default_factory=dict)
    """Settings that transformers takes where config.json has none, where our family's are others."""

    def read(self, folder: ModelFolder, settings: Mapping[str, Any], defaults: Any) -> StoredModel:
        """The configuration of a folder's model, its tensors by our names, and what of it no network of ours has.

        :param settings: those of config.json.
        :param defaults: the family's configuration, for what config.json does not say.
        :raises InputError: naming the file, what was found and what was expected.
        """
        where, settings = folder.at("config.json"), {**self.absent, **settings}
        for name, value in self.expected.items():
            if settings.get(name, value) != value:
                raise OtherNetwork(f"{where}: {name} = {settings[name]!r:.60}, expected {value!r}", name)
        theirs = ForeignTensors(folder.at(weight_files(folder)[0]), folder.weights(), self._name)
        config = replace_settings(defaults, self._settings_of(settings, theirs, where), f"{where}: model")
        tensors = self._tensors(config, theirs)
        tied, unread = self._tied(), theirs.unread()
        for name, its in tied.items():
            if name in unread and its in theirs and not torch.equal(theirs[name], theirs[its]):
                raise InputError(f"{theirs.where}: {name}: differs from {its}, expected the same, as they are tied")
        left = [name for name in unread if not f".{name}".endswith(_BUFFERS)]
        for name in left:
            if not name.startswith(TASKS) and name not in tied:
                file = theirs.where.rpartition("/")[2]
                raise InputError(f"{where}: has no place for {name}, but {file} has it; expected no such tensor")
        return StoredModel(config, tensors, tuple(theirs.names[name] for name in left if name not in tied))

    def _name(self, name: str) -> str:
        """What a layout calls a tensor: as transformers does today, those of the trunk without its prefix."""
        for old, new in _OLDER.items():
            name = name.removesuffix(old) + new if name.endswith(old) else name
        name = name.replace("_orig_mod.", "")  # what torch.compile puts before the names of what it compiles
        for wrapper in ("module.", "model.", f"{self.prefix}."):
            name = name.removeprefix(wrapper)
        return name

    def _tied(self) -> Mapping[str, str]:
        """Names under which some folders repeat a tensor, as the head's matrix is the embedding -> that one's name."""
        return {}

    def takes(self, settings: Mapping[str, Any], odd: str = "") -> bool:
        """Whether a folder with this config.json, which no network of ours computes, can be read all the same.

        :param odd: the setting that a network of ours refused; empty: no family has a network of the kind.
        """
        return False

    @abstractmethod
    def _settings_of(self, settings: Mapping[str, Any], theirs: ForeignTensors, where: str) -> dict[str, Any]:
        """Our settings of a network; ``where`` theirs are read."""

    @abstractmethod
    def _tensors(self, config: Any, theirs: ForeignTensors) -> dict[str, Tensor]:
        """A network's tensors by our names."""

    @abstractmethod
    def write(self, model: Any, tokenizer: Tokenizer, folder: Path) -> None:
        """Write a network as a folder that transformers' classes read by ``from_pretrained``."""

    def write_classifier(self, model: Any, labels: Sequence[str], tokenizer: Tokenizer, folder: Path) -> None:
        """Write a fine-tuned model as a folder that transformers' classes read by ``from_pretrained``.

        :raises InputError: transformers has no class that computes the same.
        """
        raise InputError(f"transformers' classifiers of {self.model_type} read other states, or have no bias")

    def trunk(self, model: Any, tokenizer: Tokenizer) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """A network without its heads as transformers' AutoModel has it: its settings, and its tensors by their names.

        :raises InputError: transformers has no such network.
        """
        with TemporaryDirectory() as made:
            self.write(model, tokenizer, Path(made))
            folder = ModelFolder(made)
            settings, stored = folder.object("config.json"), folder.safetensors("model.safetensors")
        start = f"{self.prefix}." if self.prefix else ""
        inside = (name for name in stored if name.startswith(start))
        return settings, {name.removeprefix(start): stored[name] for name in inside}

    @staticmethod
    def _write_files(
        folder: Path,
        tensors: Mapping[str, Tensor],
        settings: Mapping[str, Any],
        tokenizer: Tokenizer,
        words: Mapping[str, Any],
    ) -> None:
        """Write all of a folder.

        :param settings: for config.json.
        :param words: what the tokenizer's settings say besides what it writes itself.
        """
        folder.mkdir(parents=True, exist_ok=True)
        stored = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
        save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})  # transformers asks for the format
        write_json_atomic(folder / "config.json", settings)
        tokenizer.save(folder)
        file = folder / SETTINGS_FILE
        write_json_atomic(file, {**(read_json(file) if file.is_file() else {}), **words})


def check_tokenizer(config: NetworkConfig, tokenizer: Tokenizer) -> None:
    """:raises InputError: a tokenizer that is not the model's, or rows behind it that have no names."""
    check_kind(config, tokenizer, "tokenizer")
    if tokenizer.n_vocab > config.n_vocab:  # rows for no piece stay as they are
        raise InputError(
            f"model: found n_vocab = {config.n_vocab}, expected the tokenizer's {tokenizer.n_vocab} or more"
        )
    rows = ", ".join(map(str, ADDED_ROWS))
    require(config.n_special in ADDED_ROWS, f"model.n_special = {config.n_special}, expected one of {rows}")


def check_kind(config: NetworkConfig, tokenizer: Tokenizer, where: str) -> None:
    """:raises InputError: a tokenizer of another kind than a model's family has."""
    family = FAMILIES[config.family]
    kind: type[Tokenizer] = family.part("tokenizer")
    expected = f"expected a {kind.kind} one for {family.title}"
    require(isinstance(tokenizer, (kind, LibraryTokenizer)), f"{where}: a {tokenizer.kind} one, {expected}")


def model_types() -> dict[str, Family]:
    """Value of "model_type" -> the family whose folders have it; TinyBERT's are BERT's, and read as such."""
    families: dict[str, Family] = {}
    for family in FAMILIES.values():
        if family.layout:
            layout: Layout = family.part("layout")
            for kind in filter(None, (layout.model_type, *layout.aliases)):
                families.setdefault(kind, family)
    return families


def read_model(url: str) -> StoredModel:
    """A model's configuration, its tensors by our names, and what else is there, from any fsspec URL of a folder.

    Tensors of a local folder are mapped, so that no second copy of them is in memory beside the network's.

    :raises InputError: naming the file, and what was expected of it.
    """
    model = _read(ModelFolder(url), url)
    layers, found = model.config.layers, len(model.tensors)
    require(layers <= found, f"{url}: {found} tensors, expected those of {layers} blocks")
    return model


def _read_foreign(folder: ModelFolder, settings: Mapping[str, Any]) -> StoredModel:
    """What a folder of Hugging Face's holds: by our own network, or else by one that is wrapped as it is.

    :raises InputError: no network reads it.
    """
    if folder.has(adapter := "adapter_config.json"):
        found = f"{folder.at(adapter)}: found an adapter, which is read by no network here"
        raise InputError(f"{found}; expected the model with it merged in (peft: merge_and_unload)")
    kind, theirs, setting = settings.get("model_type"), model_types(), ""
    refused = InputError(
        f"{folder.at('config.json')}: model_type = {kind!r}, expected {' or '.join((MODEL_TYPE, *theirs))}"
    )
    try:
        if isinstance(kind, str) and kind in theirs:
            return _read_as(theirs[kind], folder, settings)
    except OtherNetwork as error:
        refused, setting = error, error.setting
    for family in FAMILIES.values():
        if family.layout and family.name not in {known.name for known in theirs.values()}:
            try:
                if family.part("layout").takes(settings, setting):
                    return _read_as(family, folder, settings)
            except ImportError as error:
                raise InputError(f"{refused}; or {error}") from None
    raise refused


def _read_as(family: Family, folder: ModelFolder, settings: Mapping[str, Any]) -> StoredModel:
    layout: Layout = family.part("layout")
    if (said := settings.get("is_causal")) not in (None, family.generates):
        raise InputError(f"{folder.at('config.json')}: is_causal = {said!r:.60}, expected {family.generates}")
    return layout.read(folder, settings, family.part("config")(family=family.name))


def _read(folder: ModelFolder, url: str) -> StoredModel:
    """What a folder holds, whether its settings and tensors fit together or not."""
    if folder.has("params_shapes.json"):
        return StoredModel(*read_release(folder))
    if folder.has("config.json"):
        settings = folder.object("config.json")
        kind = settings.get("model_type")
        if kind == MODEL_TYPE:
            return StoredModel(*read_own(folder, "config.json", settings))
        return _read_foreign(folder, settings)
    if folder.has("state.json"):
        identity = folder.object("state.json", {"identity": dict})["identity"]
        where = folder.at("state.json")
        settings = checked_object(identity, where, "a JSON object", {"model": dict})["model"]
        return StoredModel(*read_own(folder, "state.json", settings))
    raise InputError(f"{url}: not a model folder; expected config.json, state.json or params_shapes.json in it")
