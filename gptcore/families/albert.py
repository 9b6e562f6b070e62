"""ALBERT: "ALBERT: A Lite BERT for Self-supervised Learning of Language Representations" (Lan et al. 2020)."""

from __future__ import annotations

from typing import Any

from gptcore.families.bert import DECAY, ENCODER, FINETUNING, PRETRAINING, SMALL, brief
from gptcore.families.family import Family


def _shape(n_layer: int, n_embd: int, n_head: int) -> dict[str, int]:
    return {"n_layer": n_layer, "n_head": n_head, "n_embd": n_embd, "n_inner": 4 * n_embd, "n_embd_words": 128}


def _task(lr: float, batch_size: int, epochs: int) -> dict[str, Any]:
    return {"lr": lr, "batch_size": batch_size, "epochs": epochs}


_TASKS = {
    "sst2": _task(1e-5, 32, 10),
    "mnli": _task(3e-5, 128, 3),
    "cola": _task(1e-5, 16, 10),
    "qnli": _task(1e-5, 32, 10),
    "qqp": _task(5e-5, 128, 5),
    "rte": _task(3e-5, 32, 10),
    "stsb": _task(2e-5, 16, 10),
    "mrpc": _task(2e-5, 32, 7),
}
"""Rates and batches of run_glue.sh (original code); epochs: its updates over the published rows, rounded."""

FAMILY = Family(
    "albert",
    "ALBERT",
    "English",
    **{**ENCODER, "tokenizer": "gptcore.text.sentence_piece:SentencePieceTokenizer"},
    network_title="ALBERT encoder",
    objective="gptcore.objectives.masked:MASKED_WORDS_AND_SENTENCE_ORDER",
    distillation="gptcore.objectives.distillation:HIDDEN_WORDS",
    layout="gptcore.models.files.encoders:ALBERT",
    settings={  # the warm-up of fine-tuning is BERT's: Table 14 counts updates
        "model": {"sharing": "all", "n_embd_words": 128, "activation": "gelu_new"},  # original code
        "pretrain": DECAY,
        "finetune": FINETUNING,
    },
    presets={
        "demo": {"model": {"n_embd_words": 64}, **brief(batch_size=48, steps=1800)},  # half of the states' width
        "small": SMALL,
        # Section 4.1: 30,000 pieces, 4,096 sequences an update, 125,000 updates. The paper's optimiser is LAMB, whose
        # rate of 0.00176 is none for Adam: the rate and its warm-up are BERT's.
        "paper": {
            "tokenizer": {"n_merges": 29_000},
            "pretrain": {**PRETRAINING, "batch_size": 4096, "steps": 125_000, "lr": 1e-4},
            "finetune": {"lr": 3e-5},  # MNLI's (original code)
            "tasks": _TASKS,
        },
    },
    shapes={  # Table 1; the heads are the release's
        "albert-base": _shape(12, 768, 12),
        "albert-large": _shape(24, 1024, 16),
        "albert-xlarge": _shape(24, 2048, 16),
        "albert-xxlarge": _shape(12, 4096, 64),
    },
)
