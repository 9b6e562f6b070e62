"""Hugging Face's folders of DistilBERT; TinyBERT's are BERT's."""

from __future__ import annotations

from gptcore.base.tables import read_table
from gptcore.models.files.encoders import encoder_layout

DISTILBERT = encoder_layout("distilbert", read_table(__file__, "layout.toml"))
