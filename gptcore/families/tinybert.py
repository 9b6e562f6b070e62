"""TinyBERT: "TinyBERT: Distilling BERT for Natural Language Understanding" (Jiao et al. 2020).

A BERT in layout, narrower and shallower. It learns what its teacher computes layer by layer, first on the corpus
("general distillation", section 3.2), then on each task's rows from the teacher that was fine-tuned on them.
"""

from __future__ import annotations

from gptcore.families.bert import DECAY, ENCODER, FINETUNING, brief
from gptcore.families.family import Family

FAMILY = Family(
    "tinybert",
    "TinyBERT",
    "English",
    **ENCODER,
    network_title="TinyBERT encoder",
    objective="gptcore.objectives.masked:MASKED_WORDS",
    teacher=True,
    distillation="gptcore.objectives.distillation:HIDDEN_WORDS",
    layout="gptcore.models.files.encoders:BERT",
    settings={
        "model": {"pair": False},
        "pretrain": DECAY,
        # Section 4.1: "we do not do the prediction-layer distillation" in general distillation; from random weights.
        "distil": {
            **{"soft_weight": 0.0, "word_weight": 0.0, "cosine_weight": 0.0},
            **{"embedding_weight": 1.0, "hidden_weight": 1.0, "attention_weight": 1.0, "start": "random"},
        },
        # Section 3.2, task-specific distillation: the teacher's layers, then its predictions.
        "finetune": {**FINETUNING, "taught": True, "layer_epochs": 3},
    },
    presets={
        "demo": {"model": {"n_layer": 2}, **brief(batch_size=48, steps=1000)},
        "small": {"model": {"n_layer": 2}, **brief(batch_size=64, steps=2400, lr=1e-3)},
        # Original code: three epochs of 256 sequences, 5e-5.
        "paper": {
            "tokenizer": {"n_merges": 29_000},
            "model": {"n_layer": 4, "n_embd": 312, "n_head": 12, "n_inner": 1200},
            "pretrain": {"batch_size": 256, "epochs": 3.0, "lr": 5e-5, "warmup_steps": 10_000, "epsilon": 1e-6},
            "finetune": {"lr": 3e-5, "layer_epochs": 20},  # section 4.1
        },
    },
    shapes={  # section 4.1
        "tinybert-4": {"n_layer": 4, "n_head": 12, "n_embd": 312, "n_inner": 1200},
        "tinybert-6": {"n_layer": 6, "n_head": 12, "n_embd": 768, "n_inner": 3072},
    },
)
