"""Hugging Face's folders of GPT-1, "openai-gpt"."""

from __future__ import annotations

from gptcore.config import LAYER_NORM_EPSILON
from gptcore.models.files.decoder_layout import DecoderLayout
from gptcore.text.bpe import UNKNOWN, WordTokenizer

LAYOUT = DecoderLayout(
    model_type="openai-gpt",
    tokens="tokens_embed",
    positions="positions_embed",
    norm=None,
    expected={"afn": "gelu", "layer_norm_epsilon": LAYER_NORM_EPSILON, "tie_word_embeddings": True},
    architecture="OpenAIGPTLMHeadModel",
    tokenizer=(WordTokenizer, "OpenAIGPTTokenizer"),
    unknown=UNKNOWN,
)
