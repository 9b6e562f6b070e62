"""A vocabulary with special pieces, and a tiny encoder of each family to fine-tune on the rows of tiny_tasks."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import torch

from gptcore.config import EncoderConfig, preset_named
from gptcore.models.encoder import Encoder
from gptcore.text.tokenizer import Specials
from tests.gptcore.tiny_tasks import DIGEST, ToyTokenizer

CLS, SEP, PAD = 31, 32, 30
PIECES = Specials(pad=PAD, unk=0, cls=CLS, sep=SEP, mask=33)
N_VOCAB = 34


class PieceTokenizer(ToyTokenizer):
    """One id a known word, 0 for any other, and the special pieces behind them."""

    n_vocab = N_VOCAB
    specials = PIECES


def config(family: str, **changes: int) -> EncoderConfig:
    """A tiny network of a family, heads of pre-training included."""
    found = preset_named("demo", {"family": family}).model
    assert isinstance(found, EncoderConfig)
    sizes = {"n_vocab": N_VOCAB, "n_ctx": 24, "n_layer": 2, "n_head": 2, "n_embd": 16, "n_inner": 32, **changes}
    narrow = {"n_embd_words": 8} if family == "albert" else {}
    return dataclasses.replace(found, **sizes, **narrow, init_std=0.05)


def pretrained_encoder(folder: Path, family: str) -> Path:
    """The ``model/`` folder of a pre-training job, with random weights."""
    torch.manual_seed(0)
    Encoder(config(family)).save(folder)
    (folder / "meta.json").write_text(json.dumps({"tokenizer_digest": DIGEST}), encoding="utf-8")
    return folder
