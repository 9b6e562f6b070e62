"""Hugging Face's folders of Llama's kind: Llama, Mistral, Qwen2 and Qwen3, which differ in settings alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gptcore.base.errors import InputError, require
from gptcore.base.files import checked_object
from gptcore.base.tables import read_table
from gptcore.models.files.folder import Exported
from gptcore.models.files.layout import ForeignTensors, Layout, OtherNetwork, check_tokenizer
from gptcore.papers.llama.config import LlamaConfig
from gptcore.text.tokenizer import Tokenizer

_HEAD = "lm_head.weight"
_TOKENS = "embed_tokens.weight"


@dataclass(frozen=True, kw_only=True)
class LlamaLayout(Layout):
    """What the folders of Llama's kind have in common, and what their kinds say otherwise."""

    sizes: Mapping[str, str]
    """Our settings -> theirs."""
    rates: Mapping[str, str]
    """Our settings that are no sizes -> theirs."""
    kinds: Mapping[str, Mapping[str, Any]]
    """What transformers takes where config.json does not say, by what that calls the kind."""
    parts: Mapping[str, Sequence[str]]
    """Our names of a block's tensors -> theirs, of which ours is made."""
    classes: Mapping[str, str]
    """The kinds that are written -> what the names of transformers' classes begin with."""

    # --- reading ---

    def _settings_of(self, settings: Mapping[str, Any], theirs: ForeignTensors, where: str) -> dict[str, Any]:
        kind = settings["model_type"]
        settings = {**self.kinds[kind], **settings}
        checked_object(settings, where, "a JSON object", dict.fromkeys(self.sizes.values(), int))
        turns = settings.get("rope_parameters") or settings.get("rope_scaling") or {}
        rope = checked_object(turns, f"{where}: rope_parameters", "a JSON object")
        scaling = rope.get("rope_type", rope.get("type", "default"))
        if scaling != "default":
            raise OtherNetwork(f"{where}: rope_type = {scaling!r:.60}, expected 'default'")
        used = kind == "mistral" or settings.get("use_sliding_window")
        window, n_ctx = settings.get("sliding_window") if used else None, settings["max_position_embeddings"]
        if window is not None and not (isinstance(window, int) and window >= n_ctx):
            raise OtherNetwork(
                f"{where}: sliding_window = {window!r:.60}, expected null, or at least {n_ctx} positions"
            )
        n_special, tied = settings.get("n_special", 0), settings["tie_word_embeddings"]
        require(isinstance(n_special, int), f"{where}: n_special: found {n_special!r:.60}, expected int")
        width = settings.get("head_dim")
        if width == settings["hidden_size"] // max(1, settings["num_attention_heads"]):
            width = None  # as where nothing is said
        if tied and _HEAD in theirs and _TOKENS in theirs:  # transformers ties none that differ
            tied = torch.equal(theirs[_HEAD], theirs[_TOKENS])
        return {
            **{ours: settings[its] for ours, its in {**self.sizes, **self.rates}.items()},
            "n_vocab": settings["vocab_size"] - n_special,
            "n_special": n_special,
            "n_head_keys": settings.get("num_key_value_heads"),
            "n_head_width": width,
            "theta": rope.get("rope_theta", settings.get("rope_theta", LlamaConfig.theta)),
            "qkv_bias": kind == "qwen2" or settings["attention_bias"],
            "output_bias": kind in ("llama", "qwen3") and settings["attention_bias"],
            "qk_norms": kind == "qwen3",
            "untied": not tied,
            "headless": not tied and _HEAD not in theirs,
            "embd_pdrop": 0.0,
            "resid_pdrop": 0.0,
        }

    def _tensors(self, config: LlamaConfig, theirs: ForeignTensors) -> dict[str, Tensor]:
        return {ours: theirs.joined(its) for ours, its in self._names(config)}

    def _tied(self) -> Mapping[str, str]:
        return {_HEAD: _TOKENS}

    # --- writing ---

    def write(self, model: Exported[LlamaConfig], tokenizer: Tokenizer, folder: Path) -> None:
        config, state = model.config, model.state_dict()
        check_tokenizer(config, tokenizer)
        kind = "qwen3" if config.qk_norms else "qwen2" if config.qkv_bias and not config.output_bias else "llama"
        if kind != "qwen2" and config.qkv_bias != config.output_bias:
            raise InputError(f"model.qkv_bias = {config.qkv_bias}, expected as model.output_bias in a {kind} folder")
        tensors: dict[str, Tensor] = {}
        keys = (config.n_head_keys or config.n_head) * config.width_of_heads
        sizes = {2: [config.n_inner] * 2, 3: [config.n_head * config.width_of_heads, keys, keys]}
        for ours, its in self._names(config):
            parts = state[ours].split(sizes[len(its)]) if len(its) > 1 else [state[ours]]
            names = (name if name == _HEAD else f"{self.prefix}.{name}" for name in its)
            tensors |= zip(names, parts, strict=True)
        settings = {
            "model_type": kind,
            "architectures": [self.classes[kind] + ("Model" if config.headless else "ForCausalLM")],
            **{its: getattr(config, ours) for ours, its in {**self.sizes, **self.rates}.items()},
            "vocab_size": config.n_vocab + config.n_special,
            "n_special": config.n_special,  # how many of vocab_size are no words; transformers keeps it unread
            "num_key_value_heads": config.n_head_keys or config.n_head,
            "head_dim": config.width_of_heads,
            "rope_parameters": {"rope_type": "default", "rope_theta": config.theta},
            "rope_theta": config.theta,  # up to transformers 4, and others
            "attention_bias": config.qkv_bias,
            "bos_token_id": tokenizer.beginning,
            "eos_token_id": tokenizer.end_of_text,
            "tie_word_embeddings": not config.untied,
            **self.expected,
        }
        self._write_files(folder, tensors, settings, tokenizer, {"model_max_length": config.n_ctx})

    # --- names ---

    def _names(self, config: LlamaConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
        """(our name, theirs, of which ours is made), without the trunk's prefix."""
        yield "tokens.weight", (_TOKENS,)
        absent = {
            "attention.qkv.bias": not config.qkv_bias,
            "attention.projection.bias": not config.output_bias,
            "attention.norms.q.weight": not config.qk_norms,
            "attention.norms.k.weight": not config.qk_norms,
        }
        for number in range(config.n_layer):
            for ours, its in self.parts.items():
                if not absent.get(ours):
                    yield f"blocks.{number}.{ours}", tuple(f"layers.{number}.{name}" for name in its)
        yield "norm.weight", ("norm.weight",)
        if config.untied and not config.headless:
            yield "head.weight", (_HEAD,)


LLAMA = LlamaLayout(**read_table(__file__, "layout.toml"))
