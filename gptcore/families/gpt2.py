"""GPT-2: "Language Models are Unsupervised Multitask Learners" (Radford et al. 2019).

It reads the bytes of any text (section 2.2), and its norms stand before the sub-layers, one more after the last block
(section 2.3). For the rest it is GPT-1.
"""

from __future__ import annotations

from gptcore.families.family import Family


def _shape(n_layer: int, n_head: int, n_embd: int) -> dict[str, int]:
    return {"n_layer": n_layer, "n_head": n_head, "n_embd": n_embd, "n_inner": 4 * n_embd}


FAMILY = Family(
    "gpt2",
    "GPT-2",
    "English",
    raw_text=True,
    tokenizer="gptcore.text.byte_bpe:ByteTokenizer",
    network_title="GPT-2 Transformer",
    distillation="gptcore.objectives.distillation:NEXT_TOKENS",
    layout="gptcore.models.files.decoder_layout:GPT2",
    settings={"model": {"norm_first": True}},
    # Section 2.3: a vocabulary of 50,257, 1,024 positions, batches of 512. What its paper leaves open is GPT-1's of
    # section 4.1: the rate ("manually tuned for the best perplexity" in section 3, no value), warm-up, cosine, Adam's
    # settings, weight decay, dropout, epochs; and GPT-1's original code's gradient clipping.
    presets={"paper": {"tokenizer": {"n_merges": 50_000}, "model": {"n_ctx": 1024}, "pretrain": {"batch_size": 512}}},
    shapes={
        "82M": _shape(6, 12, 768),  # DistilGPT-2
        "117M": _shape(12, 12, 768),  # this and what follows: Table 2
        "345M": _shape(24, 16, 1024),
        "774M": _shape(36, 20, 1280),
        "1558M": _shape(48, 25, 1600),
    },
    aliases={"762M": "774M", "1542M": "1558M"},  # the paper's counts of the two, less than those of the release
    tokenizer_recorded={"byte_level": True},  # as artifacts recorded it before families were
)
