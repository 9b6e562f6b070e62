"""Folders of Hugging Face's whose network transformers alone has: it reads them itself, and writes them again."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gptcore.base.errors import InputError, require
from gptcore.models.files.folder import ModelFolder, weight_files
from gptcore.models.files.layout import TASKS, ForeignTensors, Layout, StoredModel
from gptcore.papers.auto.config import WrappedConfig
from gptcore.papers.auto.network import builds_pooler, transformers_library
from gptcore.text.tokenizer import Tokenizer

_NUMBERED = re.compile(r"\.\d+\.")
"""What stands in the names of the tensors of a stack of layers."""
_SIZES = ("vocab_size", "hidden_size", "num_hidden_layers")
_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
"""What transformers' settings call the longest text."""
_OUTPUT = "head.weight"


@dataclass(frozen=True, kw_only=True)
class WrappedLayout(Layout):
    """The folders of networks that only transformers has, of those with or without a head for the next token."""

    decoders: bool
    """Whether they predict the next token."""

    def takes(self, settings: Mapping[str, Any], odd: str = "") -> bool:
        """Whether config.json is of a network of this kind, as transformers tells them, which knows its odd setting."""
        library = transformers_library()
        auto = library.models.auto.modeling_auto
        kind = str(settings.get("model_type"))
        decoder = kind in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and kind not in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
        sees_ahead = odd in ("is_decoder", "add_cross_attention")
        if kind not in auto.MODEL_MAPPING_NAMES or decoder != self.decoders or sees_ahead:
            return False
        theirs = library.AutoConfig.for_model(kind)
        network = library.AutoModel._model_mapping[type(theirs)]
        reads = getattr(network, "main_input_name", "input_ids") == "input_ids"
        known = all(hasattr(theirs, name) for name in (*_SIZES, *([odd] if odd else [])))
        return known and reads and not theirs.is_encoder_decoder

    def read(self, folder: ModelFolder, settings: Mapping[str, Any], defaults: Any) -> StoredModel:
        where, library = folder.at("config.json"), transformers_library()
        kind = library.AutoModelForCausalLM if self.decoders else library.AutoModel
        with _local(folder) as there:
            try:
                model, told = kind.from_pretrained(
                    there, dtype=torch.float32, output_loading_info=True, local_files_only=True, trust_remote_code=False
                )
            except Exception as error:  # of many kinds, each with a page of words
                raise InputError(
                    f"{where}: transformers cannot read it ({str(error).strip().splitlines()[0]})"
                ) from None
        if missing := [name for name in sorted(told["missing_keys"]) if "pooler" not in name]:
            raise InputError(f"{folder.url}: no tensor {missing[0]}")
        left = sorted(told["unexpected_keys"])
        if odd := next((name for name in left if _NUMBERED.search(name) and not name.startswith(TASKS)), None):
            raise InputError(f"{where}: has no place for {odd}, but the weights have it; expected no such tensor")
        trunk = model.base_model if self.decoders else model
        config, tensors = self._known(trunk, defaults), dict(trunk.state_dict())
        poolers = [name for name in tensors if name.startswith("pooler.") and not builds_pooler(type(trunk))]
        own = {f"model.{name}": tensor for name, tensor in tensors.items() if name not in poolers}
        if self.decoders:
            own, output = _with_output(model, own, where)
            config |= output
            left += ["the output layer, whose scores are changed behind it"] if config["headless"] else []
        left += [name for name in poolers if name not in told["missing_keys"]]
        return StoredModel(type(defaults)(**config, family=self.family), own, tuple(left))

    def _known(self, trunk: Any, defaults: WrappedConfig) -> dict[str, Any]:
        """Our settings of a network of transformers'."""
        theirs = trunk.config
        lengths = (getattr(theirs, name, None) for name in _LENGTHS)
        n_ctx = next((most for most in lengths if isinstance(most, int) and most > 0), 512)
        for name, part in trunk.named_modules():  # rows before that of the first word, as RoBERTa's kind has them
            if name.endswith("position_embeddings") and getattr(part, "padding_idx", None) is not None:
                n_ctx -= part.padding_idx + 1
        said = {name: value for name, value in theirs.to_diff_dict().items() if name not in _NOT_OF_A_NETWORK}
        return {
            "n_vocab": theirs.vocab_size,
            "n_ctx": n_ctx,
            "n_embd": theirs.hidden_size,
            "n_layer": theirs.num_hidden_layers,
            "init_std": float(getattr(theirs, "initializer_range", defaults.init_std)),
            "architecture": type(trunk).__name__,
            "settings": json.dumps({"model_type": theirs.model_type, **said}, sort_keys=True),
        }

    def write(self, model: Any, tokenizer: Tokenizer, folder: Path) -> None:
        library, theirs = transformers_library(), json.loads(model.config.settings)
        settings = library.AutoConfig.for_model(**theirs)
        has_output = self.decoders and not model.config.headless
        kind = library.AutoModelForCausalLM if has_output else library.AutoModel
        copy = kind.from_config(settings).float()
        _fill(copy.base_model, model.model.state_dict())
        if self.decoders:
            n = model.config.n_vocab
            copy.get_input_embeddings().weight.data.copy_(model.tokens.weight[:n])
            if has_output and model.output is not None:
                copy.get_output_embeddings().weight.data.copy_(model.output[:n])
        copy.save_pretrained(folder)
        tokenizer.save(folder)

    def trunk(self, model: Any, tokenizer: Tokenizer) -> tuple[dict[str, Any], dict[str, Tensor]]:
        settings, tensors = json.loads(model.config.settings), dict(model.model.state_dict())
        if self.decoders:
            settings |= {"vocab_size": len(model.tokens.weight), "tie_word_embeddings": False}
            with torch.device("meta"):
                library = transformers_library()
                empty = library.AutoModel.from_config(library.AutoConfig.for_model(**settings))
            name = next(name for name, part in empty.named_modules() if part is empty.get_input_embeddings())
            tensors[f"{name}.weight"] = model.tokens.weight
        return settings, tensors

    def _settings_of(self, settings: Mapping[str, Any], theirs: ForeignTensors, where: str) -> dict[str, Any]:
        raise NotImplementedError("transformers reads the folder")

    def _tensors(self, config: Any, theirs: ForeignTensors) -> dict[str, Tensor]:
        raise NotImplementedError("transformers reads the folder")


_NOT_OF_A_NETWORK = ("model_type", "architectures", "transformers_version", "dtype", "torch_dtype", "_name_or_path")


def _fill(module: torch.nn.Module, tensors: Mapping[str, Tensor]) -> None:
    there = module.state_dict()
    module.load_state_dict({**there, **{name: tensors[name] for name in there if name in tensors}})


def _with_output(model: Any, tensors: dict[str, Tensor], where: str) -> tuple[dict[str, Tensor], dict[str, bool]]:
    """The tensors of a decoder's trunk with the rows that it reads and those of an own output layer apart from it, and
    our settings of the output layer.

    :raises InputError: a network that is no decoder of rows of an embedding.
    """
    first, last = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    kept = {name: tensor for name, tensor in tensors.items() if tensor.data_ptr() != first.data_ptr()}
    untied = last.data_ptr() != first.data_ptr() and not torch.equal(last, first)
    headless = not _scores_are_products(model, where)
    kept |= {"tokens.weight": first.detach()} | ({_OUTPUT: last.detach()} if untied and not headless else {})
    return kept, {"untied": untied and not headless, "headless": headless}


@torch.no_grad()
def _scores_are_products(model: Any, where: str) -> bool:
    """Whether a decoder's scores are the products of its states with its output layer, and nothing is done to them.

    :raises InputError: its states hang on what comes after them, or on more than rows of its embedding.
    """
    first = model.get_input_embeddings()
    ids = torch.arange(1, 9)[None] % first.num_embeddings  # (1, T)
    states = model.base_model(input_ids=ids, use_cache=False)[0]  # (1, T, D)
    rows = F.embedding(ids[:, :4], first.weight) * getattr(first, "embed_scale", 1.0)
    alone = model.base_model(inputs_embeds=rows, use_cache=False)[0]
    expected = "expected one in which they hang on the rows of the words up to there alone"
    require(_close(alone, states[:, :4]), f"{where}: found a decoder whose states hang on more, {expected}")
    return _close(model(input_ids=ids, use_cache=False).logits, states @ model.get_output_embeddings().weight.t())


def _close(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=0, atol=1e-4 * float(other.abs().max()))


@contextmanager
def _local(folder: ModelFolder) -> Iterator[str]:
    """A folder of this machine with the files of a model; those of another are fetched while they are needed."""
    if Path(folder.url).is_dir():
        yield folder.url
        return
    with tempfile.TemporaryDirectory() as there:
        for name in ("config.json", *weight_files(folder)):
            (Path(there) / name).write_bytes(folder.read(name))
        yield there


ENCODERS, DECODERS = (
    WrappedLayout(model_type="", family=name, expected={}, prefix="", decoders=decoders)
    for name, decoders in (("auto-encoder", False), ("auto-decoder", True))
)
