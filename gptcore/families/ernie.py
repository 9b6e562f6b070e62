"""ERNIE: "ERNIE: Enhanced Language Representation with Informative Entities" (Zhang et al. 2019, Tsinghua).

BERT with the entities of a knowledge graph beside the words. It goes on from a BERT, whose weights its words have; the
paper's starts from the released base model and reads Wikipedia once.
"""

from __future__ import annotations

from gptcore.families.bert import DECAY, ENCODER, FINETUNING, OF_HIDDEN_WORDS, brief, shape
from gptcore.families.family import Family

FAMILY = Family(
    "ernie",
    "ERNIE",
    "English",
    **{
        **ENCODER,
        "config": "gptcore.config:KnowledgeEncoderConfig",
        "network": "gptcore.models.knowledge_encoder:KnowledgeEncoder",
        "objective_settings": (*OF_HIDDEN_WORDS, "entity_weight"),
    },
    network_title="ERNIE encoder",
    objective="gptcore.objectives.entities:MASKED_WORDS_NEXT_SENTENCE_AND_ENTITIES",
    knowledge=True,
    settings={"pretrain": DECAY, "finetune": FINETUNING},
    presets={
        "demo": brief(batch_size=48, steps=500),
        "small": brief(batch_size=64, steps=2400, lr=1e-3),
        # Original code: 256 tokens, 512 sequences an update, 5e-5, one epoch, the rate rising for a tenth of it: of
        # some 34,000 updates, if the text has 4,500 million pieces.
        "paper": {
            "tokenizer": {"n_merges": 29_000},
            "model": {"n_ctx": 256},
            "pretrain": {"batch_size": 512, "epochs": 1.0, "lr": 5e-5, "warmup_steps": 3400, "epsilon": 1e-6},
            "finetune": {"lr": 3e-5},
        },
    },
    shapes={"ernie-base": shape(12, 768)},
)
