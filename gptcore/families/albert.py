"""ALBERT: "ALBERT: A Lite BERT for Self-supervised Learning of Language Representations" (Lan et al. 2020)."""

from __future__ import annotations

from gptcore.families.family import Family


def _shape(n_layer: int, n_embd: int, n_head: int) -> dict[str, int]:
    return {"n_layer": n_layer, "n_head": n_head, "n_embd": n_embd, "n_inner": 4 * n_embd, "n_embd_words": 128}


FAMILY = Family(
    "albert",
    "ALBERT",
    "English",
    raw_text=True,
    sentences=True,
    tokenizer="gptcore.text.sentence_piece:SentencePieceTokenizer",
    config="gptcore.config:EncoderConfig",
    network="gptcore.models.encoder:Encoder",
    network_title="ALBERT encoder",
    reader="",
    objective="gptcore.training.masked_words:MASKED_WORDS_AND_SENTENCE_ORDER",
    inputs="",
    head="",
    layout="gptcore.models.files.albert:LAYOUT",
    settings={"model": {"sharing": "all"}},
    shapes={  # Table 1; the heads are the release's
        "albert-base": _shape(12, 768, 12),
        "albert-large": _shape(24, 1024, 16),
        "albert-xlarge": _shape(24, 2048, 16),
        "albert-xxlarge": _shape(12, 4096, 64),
    },
)
