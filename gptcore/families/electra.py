"""ELECTRA: "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators" (Clark et al. 2020).

The family's network is the discriminator, which is what is fine-tuned (section 2).
"""

from __future__ import annotations

from gptcore.families.bert import DECAY, ENCODER, FINETUNING, OF_HIDDEN_WORDS, PRETRAINING, brief, shape
from gptcore.families.family import Family

FAMILY = Family(
    "electra",
    "ELECTRA",
    "English",
    **{**ENCODER, "objective_settings": (*OF_HIDDEN_WORDS, "replaced_weight", "replaced_objective")},
    network_title="ELECTRA discriminator",
    objective="gptcore.objectives.replaced:REPLACED_TOKENS",
    layout="gptcore.models.files.encoders:ELECTRA",
    settings={
        "model": {"words": False, "pooler": False, "pair": False, "replaced": True},
        "pretrain": DECAY,
        # The appendix's warm-up, and its rates that fall from layer to layer, at the depths that the authors say they
        # meant: a factor of 0.8 for the last layer. Their code's are a setting: layer_decay_original.
        "finetune": {**FINETUNING, "layer_decay": 0.8},
    },
    # The rate of the brief ones is the small model's (Table 6): at higher ones no replaced token is found.
    # Table 6, the base model: 256 sequences an update, 766,000 of them.
    presets={
        "demo": brief(batch_size=48, steps=1800, lr=5e-4, short_share=0.75),
        "small": brief(batch_size=64, steps=4800, lr=5e-4, short_length=16, short_share=0.9),
        "paper": {
            "tokenizer": {"n_merges": 29_000},  # BERT's vocabulary (section 3.1)
            "pretrain": {**PRETRAINING, "batch_size": 256, "steps": 766_000, "lr": 2e-4},
            "finetune": {"lr": 1e-4},  # original code; the large model's is with its shape
        },
    },
    shapes={
        "electra-small": {**shape(12, 256), "n_embd_words": 128},  # Table 6
        "electra-base": shape(12, 768),
        "electra-large": shape(24, 1024),
    },
    finetuning={"electra-large": {"lr": 5e-5, "layer_decay": 0.9}},  # original code; the appendix has the decay
)
