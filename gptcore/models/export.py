"""Models for other programs: Hugging Face's transformers, and the code of the original release.

    export_hugging_face   config.json, model.safetensors, vocab.json, merges.txt, tokenizer_config.json
    export_release        params_shapes.json, params_0.npy .. params_9.npy

Both layouts keep matrices as [n_in, n_out], the release with a leading 1, after the convolutions that it has in the
place of linear layers; ours are torch's [n_out, n_in]. :meth:`GPT.load` reads both back bit for bit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import save_file
from torch import Tensor

from gptcore.config import ModelConfig
from gptcore.errors import InputError
from gptcore.files import fsync_folder, write_json_atomic
from gptcore.models.transformer import GPT, LAYER_NORM_EPSILON
from gptcore.models.weights import BLOCK_PARTS, RELEASED_FILES, RELEASED_HEADS
from gptcore.text.bpe import UNKNOWN, Tokenizer

SPECIAL_NAMES = ("_start_", "_delimiter_", "_classify_")
"""What the added rows are called in the exported tokenizer (original code)."""


def export_hugging_face(model: GPT, tokenizer: Tokenizer, folder: Path) -> None:
    """Write a folder for ``transformers.OpenAIGPTLMHeadModel`` and ``AutoTokenizer``, both by ``from_pretrained``.

    The rows of a fine-tuned decoder come along, as the tokens ``_start_``, ``_delimiter_`` and ``_classify_`` of the
    exported tokenizer; its linear layer has no counterpart in an "openai-gpt" model and stays behind. An `original`
    model drops its embedding table, transformers the sum of token and position: the two agree in eval mode.

    The exported tokenizer has our vocabulary and merges, and with them the ids of every word; but transformers 5 finds
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
    :raises InputError: if the tokenizer has another number of ids than the model, or the model a shape that an
        "openai-gpt" cannot have (n_inner other than 4 * n_embd).
    """
    config = model.config
    if tokenizer.n_vocab != config.n_vocab:
        raise InputError(f"tokenizer: n_vocab = {tokenizer.n_vocab}, the model expects {config.n_vocab}")
    if config.n_special not in (0, len(SPECIAL_NAMES)):
        raise InputError(f"model.n_special = {config.n_special}, expected 0 or {len(SPECIAL_NAMES)}")
    _check_inner(config)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {"tokens_embed.weight": model.tokens.weight, "positions_embed.weight": model.positions.weight}
    tensors |= {f"h.{n}.{part}": value for n, part, value in _block_tensors(model)}
    stored = {f"transformer.{name}": value.detach().cpu().contiguous() for name, value in tensors.items()}
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})  # transformers asks for the format
    write_json_atomic(folder / "config.json", _hugging_face_config(config))
    tokenizer.save(folder)
    names = {0: UNKNOWN, **dict(enumerate(SPECIAL_NAMES[: config.n_special], start=config.n_vocab))}
    added = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    settings = {
        "tokenizer_class": "OpenAIGPTTokenizer",
        "unk_token": UNKNOWN,
        "model_max_length": config.n_ctx,
        "added_tokens_decoder": {str(index): {"content": name, **added} for index, name in names.items()},
    }
    write_json_atomic(folder / "tokenizer_config.json", settings)
    fsync_folder(folder)


def export_release(model: GPT, folder: Path) -> None:
    """Write a folder in the layout of the original release, which its own code reads as its directory ``model``.

    Ten flat float32 arrays that together hold positions, tokens and the blocks in the order of params_shapes.json.

    :raises InputError: if the layout cannot tell the model's shape (12 heads and n_inner = 4 * n_embd go without
        saying), or the model is fine-tuned: the released code adds the special rows itself.
    """
    config = model.config
    if config.n_special:
        raise InputError(f"model.n_special = {config.n_special}, expected 0: the release holds pre-trained models only")
    if config.n_head != RELEASED_HEADS:
        raise InputError(f"model.n_head = {config.n_head}, expected {RELEASED_HEADS} as in the release")
    _check_inner(config)
    folder.mkdir(parents=True, exist_ok=True)
    blocks = (value[None] if value.ndim == 2 else value for _, _, value in _block_tensors(model))
    tensors = [model.positions.weight, model.tokens.weight, *blocks]
    arrays = [tensor.detach().cpu().numpy() for tensor in tensors]
    flat = np.concatenate([array.reshape(-1) for array in arrays])
    for number, piece in enumerate(np.array_split(flat, RELEASED_FILES)):
        np.save(folder / f"params_{number}.npy", piece)
    write_json_atomic(folder / "params_shapes.json", [list(array.shape) for array in arrays])
    fsync_folder(folder)


def _check_inner(config: ModelConfig) -> None:
    if config.n_inner != 4 * config.n_embd:
        raise InputError(f"model.n_inner = {config.n_inner}, expected 4 * model.n_embd = {4 * config.n_embd}")


def _block_tensors(model: GPT) -> Iterator[tuple[int, str, Tensor]]:
    """(block, their name, tensor) in the release's order; matrices [n_in, n_out]."""
    state = model.state_dict()
    for n in range(model.config.n_layer):
        for ours, theirs in BLOCK_PARTS.items():
            value = state[f"blocks.{n}.{ours}"]
            yield n, theirs, value.t() if value.ndim == 2 else value


def _hugging_face_config(config: ModelConfig) -> dict[str, Any]:
    kept = {name: getattr(config, name) for name in ("n_embd", "n_layer", "n_head")}
    rates = {field.name: getattr(config, field.name) for field in dataclasses.fields(config) if "pdrop" in field.name}
    return {
        "model_type": "openai-gpt",
        "architectures": ["OpenAIGPTLMHeadModel"],
        "vocab_size": config.n_vocab + config.n_special,
        "n_special": config.n_special,  # how many of vocab_size are no words; transformers keeps it and looks at none
        "n_positions": config.n_ctx,
        **kept,
        **rates,
        "afn": "gelu",
        "layer_norm_epsilon": LAYER_NORM_EPSILON,
        "initializer_range": config.init_std,
    }
