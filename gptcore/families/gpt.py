"""GPT-1: "Improving Language Understanding by Generative Pre-Training" (Radford et al. 2018), the default."""

from __future__ import annotations

from gptcore.families.family import Family

FAMILY = Family(
    "gpt",
    "GPT-1",
    "lower-case English",
    distillation="gptcore.objectives.distillation:NEXT_TOKENS",
    layout="gptcore.models.files.decoder_layout:OPENAI_GPT",
    tokenizer_recorded={},  # as artifacts recorded it before families were
)
