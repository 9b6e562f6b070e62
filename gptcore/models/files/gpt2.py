"""Hugging Face's folders of GPT-2, "gpt2"."""

from __future__ import annotations

from gptcore.config import LAYER_NORM_EPSILON
from gptcore.models.files.decoder_layout import DecoderLayout
from gptcore.text.byte_bpe import ByteTokenizer
from gptcore.text.vocabulary import END_OF_TEXT

LAYOUT = DecoderLayout(
    model_type="gpt2",
    tokens="wte",
    positions="wpe",
    norm="ln_f",
    expected={
        "activation_function": "gelu_new",
        "layer_norm_epsilon": LAYER_NORM_EPSILON,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    },
    architecture="GPT2LMHeadModel",
    tokenizer=(ByteTokenizer, "GPT2Tokenizer"),
    unknown=END_OF_TEXT,
)
