"""BERT: "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding" (Devlin et al. 2019)."""

from __future__ import annotations

from typing import Any

from gptcore.families.family import Family


def shape(n_layer: int, n_embd: int) -> dict[str, int]:
    """Heads of 64 and an inner layer of four widths, as in all sizes of the paper and of the release."""
    return {"n_layer": n_layer, "n_head": n_embd // 64, "n_embd": n_embd, "n_inner": 4 * n_embd}


"""Every word sees all others, so that an encoder can point at places of a text, too."""

OF_HIDDEN_WORDS = ("short_length", "short_share", "pairs", "mask_share", "mask_words", "mask_ngrams", "mask_copies")
"""Settings of an objective that hides words of sentences."""

ENCODER: dict[str, Any] = {
    "raw_text": True,
    "sentences": True,
    "tokenizer": "gptcore.text.wordpiece:WordPieceTokenizer",
    "config": "gptcore.config:EncoderConfig",
    "network": "gptcore.models.encoder:Encoder",
    "reader": "",
    "objective_settings": OF_HIDDEN_WORDS,
    "inputs": "gptcore.nlu.inputs:ENCODER_INPUTS",
    "head": "gptcore.models.encoder_head:EncoderClassificationModel",
    "places": True,
    "auxiliary_loss": False,
    "likelihood": "gptcore.evaluation.likelihood:encoder_likelihood",
}
"""The parts that families of encoders have in common; ALBERT has another tokenizer."""

FINETUNING = {"warmup": 0.1, "lm_coef": 0.0}
"""The share of the updates over which the rate rises is the original code's; nothing is learnt beside the task."""

DECAY = {"decay": "linear"}
"""Of pre-training's rate: BERT's appendix A.2; ALBERT and ELECTRA have the same (original code)."""
PRETRAINING = {"warmup_steps": 10_000, "epsilon": 1e-6}
"""BERT's appendix A.2 and its original code; ELECTRA's appendix A has the same."""


def brief(**pretrain: float) -> dict[str, dict[str, float]]:
    """Settings of pre-training for a preset of some minutes.

    From few updates an encoder learns its words' frequencies and no more where sequences are long: only a share of the
    positions is told, and attention over many others finds no neighbour. Short sequences come first, as in BERT
    (appendix A.2): 32 tokens, in two thirds of the updates, unless ``pretrain`` says otherwise.
    """
    return {"pretrain": {"short_length": 32, "short_share": 0.65, **pretrain}}


SMALL = brief(batch_size=64, steps=4800, lr=1e-3, short_length=16, short_share=0.9)
"""Real text, whose words tell less of each other, wants still shorter sequences first."""

FAMILY = Family(
    "bert",
    "BERT",
    "English",
    **ENCODER,
    network_title="BERT encoder",
    objective="gptcore.objectives.masked:MASKED_WORDS_AND_NEXT_SENTENCE",
    distillation="gptcore.objectives.distillation:HIDDEN_WORDS",
    layout="gptcore.models.files.encoders:BERT",
    settings={"pretrain": DECAY, "finetune": FINETUNING},
    # Section 3 and appendix A.2: 30,000 pieces, 256 sequences an update, a million updates, nine in ten of them with
    # 128 tokens a sequence. Fine-tuning's rate is one of three from which the paper chooses by dev rows (section 4.1).
    presets={
        "demo": brief(batch_size=48, steps=1400),
        "small": SMALL,
        "paper": {
            "tokenizer": {"n_merges": 29_000},  # and some thousand characters, whole and inside of words
            "pretrain": {**PRETRAINING, "batch_size": 256, "steps": 1_000_000, "lr": 1e-4, "short_length": 128},
            "finetune": {"lr": 3e-5},
        },
    },
    shapes={
        "bert-tiny": shape(2, 128),  # this and the next three: the release's "smaller models", Turc et al. 2019
        "bert-mini": shape(4, 256),
        "bert-small": shape(4, 512),
        "bert-medium": shape(8, 512),
        "bert-base": shape(12, 768),  # section 3
        "bert-large": shape(24, 1024),
    },
)
