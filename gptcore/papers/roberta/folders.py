"""Hugging Face's folders of RoBERTa, and of those that are RoBERTas in other languages: XLM-R, CamemBERT."""

from __future__ import annotations

from gptcore.base.tables import read_table
from gptcore.models.files.encoders import encoder_layout

ROBERTA = encoder_layout("roberta", read_table(__file__, "layout.toml"))
