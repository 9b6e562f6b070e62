"""BERT: "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding" (Devlin et al. 2019)."""

from __future__ import annotations

from gptcore.families.family import Family


def shape(n_layer: int, n_embd: int) -> dict[str, int]:
    """Heads of 64 and an inner layer of four widths, as in all sizes of the paper and of the release."""
    return {"n_layer": n_layer, "n_head": n_embd // 64, "n_embd": n_embd, "n_inner": 4 * n_embd}


FAMILY = Family(
    "bert",
    "BERT",
    "English",
    raw_text=True,
    sentences=True,
    tokenizer="gptcore.text.wordpiece:WordPieceTokenizer",
    config="gptcore.config:EncoderConfig",
    network="gptcore.models.encoder:Encoder",
    network_title="BERT encoder",
    reader="",
    objective="gptcore.training.masked_words:MASKED_WORDS_AND_NEXT_SENTENCE",
    inputs="",
    head="",
    layout="gptcore.models.files.bert:LAYOUT",
    shapes={
        "bert-tiny": shape(2, 128),  # this and the next three: the release's "smaller models", Turc et al. 2019
        "bert-mini": shape(4, 256),
        "bert-small": shape(4, 512),
        "bert-medium": shape(8, 512),
        "bert-base": shape(12, 768),  # section 3
        "bert-large": shape(24, 1024),
    },
)
