"""Folders that transformers writes, with random weights and a tokenizer.json of their own: what people bring."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

_WORDS = ("a cat sat on the mat , and the old sailor knew where the key was hidden in the garden .",) * 3
_SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 160,
}
_BERTS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_ROBERTAS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
_PADDED = {"max_position_embeddings": 162, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
_RELATIVE = {
    "relative_attention": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "type_vocab_size": 0,
}
KINDS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "bert": ("MaskedLM", {}),
    "roberta": ("MaskedLM", {**_PADDED, "type_vocab_size": 1}),
    "deberta-v2": ("", _RELATIVE),
    "mpnet": ("", _PADDED),
    "modernbert": ("MaskedLM", {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "local_attention": 16}),
    "distilbert": ("MaskedLM", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}),
    "electra": ("", {"embedding_size": 16}),
    "albert": ("MaskedLM", {"embedding_size": 16}),
    "gpt2": ("CausalLM", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 160}),
    "llama": ("CausalLM", {"num_key_value_heads": 2}),
    "qwen2": ("CausalLM", {"num_key_value_heads": 2}),
    "gpt_neox": ("CausalLM", {}),
    "gpt_neo": ("CausalLM", {"num_layers": 2, "attention_types": [[["global", "local"], 1]], "window_size": 32}),
}
"""model_type -> which of transformers' classes writes the folder, and settings beside the sizes."""


def foreign(folder: Path, kind: str) -> Path:
    """A folder of one of :data:`KINDS`, of which the network has three rows more than its tokenizer pieces."""
    folder.mkdir(parents=True)
    n_pieces = _tokenizer(folder, kind)
    head, more = KINDS[kind]
    own = kind in ("distilbert", "gpt2")
    sizes = {name: value for name, value in _SIZES.items() if not own or (name, kind) == (_LONGEST, "distilbert")}
    if kind == "gpt_neo":
        sizes = {"hidden_size": 32, "num_heads": 4, _LONGEST: 160}
    config = transformers.AutoConfig.for_model(
        kind, vocab_size=n_pieces + 3, initializer_range=0.3, **{**sizes, **more, "bos_token_id": 0, "eos_token_id": 2}
    )
    torch.manual_seed(1)
    made = getattr(transformers, f"AutoModelFor{head}" if head else "AutoModel").from_config(config)
    made.save_pretrained(folder)
    return folder


_LONGEST = "max_position_embeddings"


def _tokenizer(folder: Path, kind: str) -> int:
    """Write the tokenizer.json of a kind's usual sort; the number of its pieces."""
    if kind in ("roberta", "mpnet"):
        names, said = _ROBERTAS, dict(zip(("cls", "pad", "sep", "unk", "mask"), _ROBERTAS, strict=True))
    elif KINDS[kind][0] == "CausalLM":
        names, said = ("<|endoftext|>",), {"eos": "<|endoftext|>", "bos": "<|endoftext|>"}
    else:
        names, said = _BERTS, dict(zip(("pad", "unk", "cls", "sep", "mask"), _BERTS, strict=True))
    if names == _BERTS:
        library = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        library.normalizer, library.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
        trainer: Any = trainers.WordPieceTrainer(vocab_size=300, special_tokens=[*names], show_progress=False)
        around = {"single": "[CLS] $A [SEP]", "pair": "[CLS] $A [SEP] $B:1 [SEP]:1"}
        library.decoder = decoders.WordPiece()
        library.train_from_iterator(_WORDS, trainer)
        library.post_processor = processors.TemplateProcessing(
            **around, special_tokens=[(name, names.index(name)) for name in ("[CLS]", "[SEP]")]
        )
    else:
        library = Tokenizer(models.BPE())
        library.pre_tokenizer, library.decoder = pre_tokenizers.ByteLevel(False), decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=320, special_tokens=[*names], initial_alphabet=alphabet, show_progress=False
        )
        library.train_from_iterator(_WORDS, trainer)
        if names == _ROBERTAS:
            library.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    library.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **{f"{role}_token": name for role, name in said.items()}}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return int(library.get_vocab_size())
