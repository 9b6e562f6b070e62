"""Hugging Face's folders of decoders: GPT-1's and GPT-2's differ in names, in two settings and in their tokenizers.

read    config.json, model.safetensors or the older pytorch_model.bin, or the shards of either
write   config.json, model.safetensors, vocab.json, merges.txt, tokenizer_config.json
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from gptcore.base.errors import InputError
from gptcore.base.files import checked_object
from gptcore.base.tables import read_table
from gptcore.config import ModelConfig
from gptcore.models.files.folder import (
    BLOCK_PARTS,
    Exported,
    block_tensors,
    check_attention,
    check_original,
    ours,
)
from gptcore.models.files.layout import ForeignTensors, Layout, check_tokenizer
from gptcore.models.files.library import ADDED_ROWS, added_token
from gptcore.text.library import LibraryTokenizer
from gptcore.text.tokenizer import Tokenizer

_SIZES = ("vocab_size", "n_positions", "n_layer", "n_head", "n_embd")


@dataclass(frozen=True, kw_only=True)
class DecoderLayout(Layout):
    """What tells the folders of one family of decoders from those of another; the values are in `decoders.toml`."""

    tokens: str
    positions: str
    """Names of the two embeddings."""
    norm: str = ""
    """Name of the norm after the last block, which goes with norms before the sub-layers; empty: it has none."""
    architecture: str
    """transformers' class of the language model."""
    tokenizer_class: str
    """transformers' class of the tokenizer."""
    unknown: str
    """The piece that stands for what has none; of GPT-2's, which know all bytes, it is the end of a text."""

    def _tied(self) -> Mapping[str, str]:
        return {"lm_head.weight": f"{self.tokens}.weight"}

    def _settings_of(self, settings: Mapping[str, Any], theirs: ForeignTensors, where: str) -> dict[str, Any]:
        checked_object(settings, where, "a JSON object", dict.fromkeys(_SIZES, int))
        tokens, n_special = theirs[f"{self.tokens}.weight"], settings.get("n_special", 0)
        if not isinstance(n_special, int):
            raise InputError(f"{where}: n_special: found {n_special!r:.60}, expected int")
        n_inner = settings.get("n_inner") if self.norm else None  # GPT-2's alone
        return {
            # transformers counts special rows among vocab_size; its first versions put them after
            "n_vocab": settings["vocab_size"] - (n_special if tokens.shape[:1] == (settings["vocab_size"],) else 0),
            "n_special": n_special,
            "n_ctx": settings["n_positions"],
            **{name: settings[name] for name in ("n_layer", "n_head", "n_embd")},
            "n_inner": 4 * settings["n_embd"] if n_inner is None else n_inner,
            **{name: settings[name] for name in ("embd_pdrop", "attn_pdrop", "resid_pdrop") if name in settings},
            **({"init_std": settings["initializer_range"]} if "initializer_range" in settings else {}),
            **({"norm_first": True} if self.norm else {}),
        }

    def _tensors(self, config: ModelConfig, theirs: ForeignTensors) -> dict[str, Tensor]:
        parts = BLOCK_PARTS.items()
        blocks = {(n, ours): theirs[f"h.{n}.{its}"] for n in range(config.n_layer) for ours, its in parts}
        norm = {name: theirs[f"{self.norm}.{name}"] for name in ("weight", "bias")} if self.norm else {}
        return ours(theirs[f"{self.tokens}.weight"], theirs[f"{self.positions}.weight"], blocks, norm)

    def write(self, model: Exported[ModelConfig], tokenizer: Tokenizer, folder: Path) -> None:
        config = model.config
        self._check(config, tokenizer)
        state = model.state_dict()
        tensors = {f"{self.tokens}.weight": state["tokens.weight"]}
        tensors |= {f"{self.positions}.weight": state["positions.weight"]}
        tensors |= {f"h.{n}.{part}": value for n, part, value in block_tensors(model)}
        tensors |= {f"{self.norm}.{name}": state[f"norm.{name}"] for name in ("weight", "bias") if self.norm}
        obeyed = isinstance(tokenizer, LibraryTokenizer)  # whose file says all of this
        unknown: Any = tokenizer.end_of_text if obeyed else tokenizer.vocabulary[self.unknown]
        ends = {name: unknown for name in ("bos_token_id", "eos_token_id") if self.norm}
        sizes = {"n_inner": config.n_inner} if self.norm else {}
        rows = ADDED_ROWS[config.n_special]
        names = {unknown: self.unknown, **dict(enumerate(rows, start=config.n_vocab))}
        words = {
            "tokenizer_class": self.tokenizer_class,
            "unk_token": self.unknown,
            **{name.removesuffix("_id"): self.unknown for name in ends},
            "model_max_length": config.n_ctx,
            "added_tokens_decoder": {str(index): added_token(name, rows) for index, name in names.items()},
        }
        words = {"model_max_length": config.n_ctx} if obeyed else words
        stored = {f"transformer.{name}": value for name, value in tensors.items()}
        self._write_files(folder, stored, {**self._settings(config), **sizes, **ends}, tokenizer, words)

    def _check(self, config: ModelConfig, tokenizer: Tokenizer) -> None:
        check_tokenizer(config, tokenizer)
        check_attention(config)
        if not self.norm:
            check_original(config)

    def _settings(self, config: ModelConfig) -> dict[str, Any]:
        kept = {name: getattr(config, name) for name in ("n_embd", "n_layer", "n_head")}
        rates = {f.name: getattr(config, f.name) for f in dataclasses.fields(config) if "pdrop" in f.name}
        return {
            "model_type": self.model_type,
            "architectures": [self.architecture],
            "vocab_size": config.n_vocab + config.n_special,
            "n_special": config.n_special,  # how many of vocab_size are no words; transformers keeps it unread
            "n_positions": config.n_ctx,
            **kept,
            **rates,
            **self.expected,
            "initializer_range": config.init_std,
        }


_TABLES = read_table(__file__, "decoders.toml")
OPENAI_GPT, GPT2 = (DecoderLayout(model_type=name, **_TABLES[name]) for name in ("openai-gpt", "gpt2"))
