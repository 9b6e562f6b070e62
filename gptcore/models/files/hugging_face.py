"""Hugging Face's folders of GPT-1 and GPT-2.

read    config.json ("model_type": "openai-gpt" or "gpt2"), model.safetensors or the older pytorch_model.bin
write   config.json, model.safetensors, vocab.json, merges.txt, tokenizer_config.json
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from gptcore.config import LAYER_NORM_EPSILON, ModelConfig
from gptcore.errors import InputError
from gptcore.files import checked_object, fsync_folder, write_json_atomic
from gptcore.models.files.folder import ModelFolder
from gptcore.models.files.layout import BLOCK_PARTS, Decoder, block_tensors, check_original, ours
from gptcore.settings import replace_settings
from gptcore.text.bpe import UNKNOWN, WordTokenizer
from gptcore.text.byte_bpe import ByteTokenizer
from gptcore.text.tokenizer import Tokenizer
from gptcore.text.vocabulary import END_OF_TEXT, PAPER_MARKS

_SIZES = ("vocab_size", "n_positions", "n_layer", "n_head", "n_embd")
SPECIAL_NAMES = ("_start_", "_delimiter_", "_classify_")
"""What the rows that a task adds are called in the exported tokenizer (original code)."""
_ADDED_ROWS = {len(names): names for names in ((), PAPER_MARKS, SPECIAL_NAMES)}


@dataclass(frozen=True)
class _Kind:
    """What tells the folders of one family from those of the other."""

    tokens: str
    positions: str
    """Names of the two embeddings."""
    norm: str | None
    """Name of the norm after the last block."""
    expected: Mapping[str, Any]
    """Settings that change what is computed -> the only value that we compute; each is transformers' default."""
    architecture: str
    """transformers' class of the language model."""
    tokenizer: tuple[type[Tokenizer], str]
    """Our class and theirs."""
    unknown: str
    """The piece that stands for what has none; of GPT-2's, which know all bytes, it is the end of a text."""


_KINDS = {
    "openai-gpt": _Kind(
        "tokens_embed",
        "positions_embed",
        None,
        {"afn": "gelu", "layer_norm_epsilon": LAYER_NORM_EPSILON, "tie_word_embeddings": True},
        "OpenAIGPTLMHeadModel",
        (WordTokenizer, "OpenAIGPTTokenizer"),
        UNKNOWN,
    ),
    "gpt2": _Kind(
        "wte",
        "wpe",
        "ln_f",
        {
            "activation_function": "gelu_new",
            "layer_norm_epsilon": LAYER_NORM_EPSILON,
            "scale_attn_weights": True,
            "scale_attn_by_inverse_layer_idx": False,
            "add_cross_attention": False,
            "tie_word_embeddings": True,
        },
        "GPT2LMHeadModel",
        (ByteTokenizer, "GPT2Tokenizer"),
        END_OF_TEXT,
    ),
}
MODEL_TYPES = tuple(_KINDS)
"""Values of `model_type` that are read."""


def read_hugging_face(folder: ModelFolder, settings: Mapping[str, Any]) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Configuration and tensors, by our names; ``settings``: those of config.json, with one of :data:`MODEL_TYPES`."""
    kind = _KINDS[settings["model_type"]]
    for field, value in kind.expected.items():
        if settings.get(field, value) != value:
            raise InputError(f"{folder.path('config.json')}: {field} = {settings[field]!r}, expected {value!r}")
    older = folder.has("pytorch_model.bin") and not folder.has("model.safetensors")
    name = "pytorch_model.bin" if older else "model.safetensors"
    stored = folder.pickled(name) if older else folder.safetensors(name)
    checked_object(settings, folder.path("config.json"), "a JSON object", dict.fromkeys(_SIZES, int))
    theirs = {key.removeprefix("transformer."): value for key, value in stored.items()}

    def part(key: str) -> Tensor:
        if key not in theirs:
            raise InputError(f"{folder.path(name)}: no tensor {key}")
        return theirs[key]

    tokens, n_special = part(f"{kind.tokens}.weight"), settings.get("n_special", 0)
    if not isinstance(n_special, int):
        raise InputError(f"{folder.path('config.json')}: n_special: found {n_special!r:.60}, expected int")
    n_inner = settings.get("n_inner") if kind.norm else None  # GPT-2's alone
    sizes = {
        # transformers counts special rows among vocab_size; its first versions put them after
        "n_vocab": settings["vocab_size"] - (n_special if list(tokens.shape[:1]) == [settings["vocab_size"]] else 0),
        "n_special": n_special,
        "n_ctx": settings["n_positions"],
        **{name: settings[name] for name in ("n_layer", "n_head", "n_embd")},
        "n_inner": 4 * settings["n_embd"] if n_inner is None else n_inner,
        **{name: settings[name] for name in ("embd_pdrop", "attn_pdrop", "resid_pdrop") if name in settings},
        **({"init_std": settings["initializer_range"]} if "initializer_range" in settings else {}),
        **({"norm_first": True} if kind.norm else {}),
    }
    config = replace_settings(ModelConfig(), sizes, f"{folder.path('config.json')}: model")
    blocks = {(n, ours): part(f"h.{n}.{its}") for n in range(config.n_layer) for ours, its in BLOCK_PARTS.items()}
    norm = {name: part(f"{kind.norm}.{name}") for name in ("weight", "bias")} if kind.norm else {}
    return config, ours(tokens, part(f"{kind.positions}.weight"), blocks, norm)


def export_hugging_face(model: Decoder, tokenizer: Tokenizer, folder: Path) -> None:
    """Write a folder for ``transformers.AutoModelForCausalLM`` and ``AutoTokenizer``, both by ``from_pretrained``.

    The rows of a fine-tuned decoder come along, as the tokens ``_start_``, ``_delimiter_`` and ``_classify_`` of the
    exported tokenizer, or the marks around titles of papers; its linear layer has no counterpart there and stays
    behind. An `original` model drops its embedding table, transformers the sum of token and position: the two agree in
    eval mode.

    The exported tokenizer has our vocabulary and merges. GPT-2's gives our ids for any text but the name of a special
    token. GPT-1's has the ids of every word; but transformers 5 finds
    the words by itself, as BERT does, whether ftfy and spaCy are installed or not (up to version 4 it used both where
    they were there, and then read text nearly as we do). Ids agree with ours on words of unaccented letters or digits
    set apart by white space, with punctuation marks one at a time. They differ where transformers

    * drops line breaks, which are tokens here;
    * splits a word at every punctuation mark: "do n't" is "don ' t", "mr." is "mr .", "10.5" is "10 . 5" there, and
      runs such as "--" and "..." are as many tokens as marks;
    * strips accents ("naïve" becomes "naive") and repairs no mis-decoded text;
    * reads a literal ``<unk>``, or the name of a special token, as that one id.

    Where ids must be ours, for the zero-shot scores of a paper, say, encode with :class:`Tokenizer` and hand the ids
    to the exported model.

    :param tokenizer: the one that the model was trained with.
    :raises InputError: if the tokenizer has another number of ids than the model or is of another family, or the model
        a shape that an "openai-gpt" cannot have (n_inner other than 4 * n_embd).
    """
    config = model.config
    model_type = "gpt2" if config.norm_first else "openai-gpt"
    kind = _KINDS[model_type]
    our_tokenizer, their_tokenizer = kind.tokenizer
    if not isinstance(tokenizer, our_tokenizer):
        raise InputError(f"tokenizer: a {tokenizer.kind} one, expected a {our_tokenizer.kind} one for {model_type}")
    if tokenizer.n_vocab != config.n_vocab:
        raise InputError(f"tokenizer: n_vocab = {tokenizer.n_vocab}, the model expects {config.n_vocab}")
    if config.n_special not in _ADDED_ROWS:
        raise InputError(f"model.n_special = {config.n_special}, expected one of {', '.join(map(str, _ADDED_ROWS))}")
    if not config.norm_first:
        check_original(config)
    folder.mkdir(parents=True, exist_ok=True)
    state = model.state_dict()
    tensors = {f"{kind.tokens}.weight": state["tokens.weight"], f"{kind.positions}.weight": state["positions.weight"]}
    tensors |= {f"h.{n}.{part}": value for n, part, value in block_tensors(model)}
    tensors |= {f"{kind.norm}.{name}": state[f"norm.{name}"] for name in ("weight", "bias") if kind.norm}
    stored = {f"transformer.{name}": value.detach().cpu().contiguous() for name, value in tensors.items()}
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})  # transformers asks for the format
    unknown = tokenizer.vocabulary[kind.unknown]
    ends = {name: unknown for name in ("bos_token_id", "eos_token_id") if kind.norm}
    sizes = {"n_inner": config.n_inner} if kind.norm else {}
    write_json_atomic(folder / "config.json", {**_settings(config, model_type, kind), **sizes, **ends})
    tokenizer.save(folder)
    names = {unknown: kind.unknown, **dict(enumerate(_ADDED_ROWS[config.n_special], start=config.n_vocab))}
    added = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    settings = {
        "tokenizer_class": their_tokenizer,
        "unk_token": kind.unknown,
        **{name.removesuffix("_id"): kind.unknown for name in ends},
        "model_max_length": config.n_ctx,
        "added_tokens_decoder": {str(index): {"content": name, **added} for index, name in names.items()},
    }
    write_json_atomic(folder / "tokenizer_config.json", settings)
    fsync_folder(folder)


def _settings(config: ModelConfig, model_type: str, kind: _Kind) -> dict[str, Any]:
    kept = {name: getattr(config, name) for name in ("n_embd", "n_layer", "n_head")}
    rates = {field.name: getattr(config, field.name) for field in dataclasses.fields(config) if "pdrop" in field.name}
    return {
        "model_type": model_type,
        "architectures": [kind.architecture],
        "vocab_size": config.n_vocab + config.n_special,
        "n_special": config.n_special,  # how many of vocab_size are no words; transformers keeps it and looks at none
        "n_positions": config.n_ctx,
        **kept,
        **rates,
        **kind.expected,
        "initializer_range": config.init_std,
    }
