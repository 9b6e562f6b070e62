"""GPT-BERT: "GPT or BERT: why not both?" (Charpentier and Samuel 2024).

One network learns both: some sequences word by word from those before, the others with hidden words from both sides.
A hidden word is told from the state at the place before it, so that both are predictions of the next token (section
3.1), and the network that is fine-tuned sees the whole text.

Text and network are GPT-2's here, so that the two differ in the objective alone; the paper's network is LTG-BERT's.
"""

from __future__ import annotations

from gptcore.families.family import Family
from gptcore.families.gpt2 import FAMILY as GPT2

FAMILY = Family(
    "gptbert",
    "GPT-BERT",
    "English",
    raw_text=True,
    tokenizer=GPT2.tokenizer,
    network="gptcore.models.transformer:BothWays",
    network_title="GPT-BERT Transformer",
    objective="gptcore.objectives.both_ways:NEXT_TOKEN_AND_HIDDEN_WORDS",
    objective_settings=("mask_share", "hidden_share", "repeating_steps", "repeating_share"),
    auxiliary_loss=False,
    settings={
        # The special row is what stands in a hidden word's place.
        "model": {**GPT2.settings["model"], "n_special": 1},
        "pretrain": {"hidden_share": 0.5},
        "finetune": {"lm_coef": 0.0},
    },
    presets=GPT2.presets,
    tokenizer_recorded=GPT2.tokenizer_recorded,  # GPT-2's kind, whose tokenizers it shares
)
