"""The LSTM of GPT-1's Table 5 (section 5, "ablation studies"): one layer of 2048 units in the Transformer's place."""

from __future__ import annotations

from gptcore.families.family import Family

FAMILY = Family(
    "lstm",
    "LSTM",
    "lower-case English",
    config="gptcore.config:LSTMConfig",
    network="gptcore.models.lstm:LSTM",
    network_title="LSTM",
    reader="gptcore.models.incremental:LSTMReader",
    ablation=True,
    tokenizer_recorded={},  # as artifacts recorded it before families were
)
