"""ELECTRA: "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators" (Clark et al. 2020).

The family's network is the discriminator, which is what is fine-tuned (section 2).
"""

from __future__ import annotations

from gptcore.families.bert import shape
from gptcore.families.family import Family

FAMILY = Family(
    "electra",
    "ELECTRA",
    "English",
    raw_text=True,
    sentences=True,
    tokenizer="gptcore.text.wordpiece:WordPieceTokenizer",
    config="gptcore.config:EncoderConfig",
    network="gptcore.models.encoder:Encoder",
    network_title="ELECTRA discriminator",
    reader="",
    objective="gptcore.training.replaced_tokens:REPLACED_TOKENS",
    inputs="",
    head="",
    layout="gptcore.models.files.electra:LAYOUT",
    settings={"model": {"words": False, "pooler": False, "pair": False, "replaced": True}},
    shapes={
        "electra-small": {**shape(12, 256), "n_embd_words": 128},  # Table 6
        "electra-base": shape(12, 768),
        "electra-large": shape(24, 1024),
    },
)
