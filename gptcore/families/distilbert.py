"""DistilBERT: "DistilBERT, a distilled version of BERT: smaller, faster, cheaper and lighter" (Sanh et al. 2019).

Half of BERT's layers, without segments and pooler (section 3); :class:`gptcore.config.DistilConfig` has its losses.
"""

from __future__ import annotations

from gptcore.families.bert import DECAY, ENCODER, FINETUNING, brief, shape
from gptcore.families.family import Family

FAMILY = Family(
    "distilbert",
    "DistilBERT",
    "English",
    **ENCODER,
    network_title="DistilBERT encoder",
    objective="gptcore.objectives.masked:MASKED_WORDS",
    teacher=True,
    distillation="gptcore.objectives.distillation:HIDDEN_WORDS",
    layout="gptcore.models.files.encoders:DISTILBERT",
    settings={
        "model": {"pooler": False, "pair": False, "n_segments": 0, "classifier_layer": True},
        "pretrain": DECAY,
        "finetune": FINETUNING,
    },
    presets={
        "demo": {"model": {"n_layer": 2}, **brief(batch_size=48, steps=1000)},
        "small": {"model": {"n_layer": 2}, **brief(batch_size=64, steps=2400, lr=1e-3)},
        # Original code: three epochs of some 4,000 sequences an update, 5e-4, a warm-up of 5 % (of some 5,900 updates,
        # with some 4,000 million pieces), no weight decay; the layers are half of the paper's teacher.
        "paper": {
            "tokenizer": {"n_merges": 29_000},
            "model": {"n_layer": 6},
            "pretrain": {
                **{"batch_size": 4000, "epochs": 3.0, "lr": 5e-4, "warmup_steps": 300},
                **{"beta2": 0.98, "epsilon": 1e-6, "weight_decay": 0.0, "clip_norm": 5.0},
            },
            "finetune": {"lr": 3e-5},
        },
    },
    shapes={"distilbert-base": shape(6, 768)},
)
