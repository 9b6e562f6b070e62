"""An update of pre-training of each family but GPT-1, which `step` has, and scoring of held-out text, beside peers.

transformers multiplies every position with the vocabulary, as its models do that take labels; ours those that are told.
ELECTRA's peer is its generator and discriminator with shared embeddings, as the paper has them. Of GPT-BERT and of
Tsinghua's ERNIE it has no network: beside them stands the one of their sizes that they start from. A student stands
beside its teacher's own pre-training.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import product
from pathlib import Path

import torch
from torch import Tensor, nn

from gptcore.config.distillation import student_of
from gptcore.families import FAMILIES, students
from gptcore.machine.device import autocast, pick_dtype
from gptcore.models.network import build_model
from tests.benchmarks.learners import Learner, preset_of
from tests.benchmarks.peers import theirs
from tests.benchmarks.step import COMPILED, updating
from tests.benchmarks.table import Work, beside

_COMPILED = ("gpt2", "bert", "albert", "electra")
_PEERS = dict.fromkeys(_COMPILED, "transformers") | {
    "gptbert": "transformers' GPT-2",
    "ernie": "transformers' BERT",
    "lstm": "a script around torch's LSTM",
}
_SHAPES = {"demo": (24, 2_026, tuple(_PEERS)), "small": (16, 4_372, tuple(_PEERS)), "base": (8, 30_522, _COMPILED)}
"""Shape: sequences a batch, vocabulary, families; base: sequences of 128, as nine in ten of BERT's updates have."""
_DTYPE = pick_dtype("auto", torch.device("cpu"))


def run(seconds: float, _folder: Path) -> None:
    """Rows 18, 21 and 22."""
    for shape, (_, _, families) in _SHAPES.items():
        for family in families:
            _update(family, shape, seconds)
    for family in students():
        _distillation(family, "demo", seconds)
    for family, shape in product(("gpt", "gpt2", "bert"), ("demo", "small")):
        _scoring(family, shape, seconds)


def learner(family: str, shape: str) -> Learner:
    """What a family trains at a shape."""
    rows, n_vocab, _ = _SHAPES[shape]
    config, settings, _ = preset_of(family, "paper" if shape == "base" else shape)
    changes = {"n_vocab": n_vocab} | ({"n_ctx": 128} if shape == "base" else {})
    changes |= {"n_entities": 200} if FAMILIES[family].knowledge else {}
    return Learner(dataclasses.replace(config, **changes), settings, rows)


def _work(of: Learner) -> Work:
    return updating(of.trained, of.loss, _DTYPE, of.tokens)


def _what(family: str, shape: str, of: Learner) -> str:
    rows, length = of.batch["tokens"].shape
    return f"update, {FAMILIES[family].title}, {shape} {rows} x {length}, {str(_DTYPE)[6:]}"


def _update(family: str, shape: str, seconds: float) -> None:
    ours = learner(family, shape)

    def their(compiled: bool) -> Work:
        model, loss = theirs(ours)
        return updating(model, torch.compile(loss) if compiled else loss, _DTYPE, ours.tokens)

    peers = [(their(False), ">= 1.3x", _PEERS[family])]
    peers += [(their(True), ">= 1.1x", COMPILED)] if family in _COMPILED else []
    beside("18", _what(family, shape, ours), "tokens/s", seconds, _work(ours), *peers, warm=2)
    torch._dynamo.reset()


def _scoring(family: str, shape: str, seconds: float) -> None:
    """The loss of held-out text, which every validation and a pre-training's end has."""
    ours = learner(family, shape)

    def passing(model: nn.Module, loss: Callable[[], Tensor]) -> Work:
        model.eval()

        def scored() -> float:
            with torch.no_grad(), autocast(torch.device("cpu"), _DTYPE):
                loss()
            return ours.tokens

        return scored

    model, loss = theirs(ours)
    peers = ((passing(model, loss), "", "transformers"), (passing(model, torch.compile(loss)), ">= 1.0x", COMPILED))
    what = _what(family, shape, ours).replace("update", "held-out loss", 1)
    beside("22", what, "tokens/s", seconds, passing(ours.trained, ours.loss), *peers, warm=2)
    torch._dynamo.reset()


def _distillation(family: str, shape: str, seconds: float) -> None:
    """A student of half the layers beside its teacher."""
    alone = learner("bert", shape)
    config, (network, settings, distil) = alone.config, preset_of(family, shape)
    half = student_of(config, network, config.layers // 2)
    student = Learner(half, settings, len(alone.batch["tokens"]), (build_model(config).eval(), distil))
    what = _what(family, shape, student) + ", of half the layers of its teacher"
    beside("21", what, "tokens/s", seconds, _work(student), (_work(alone), ">= 0.6x", "the teacher's own"), warm=2)
