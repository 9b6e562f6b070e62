"""Hugging Face's folders of BERT, "bert": of BertForPreTraining, BertForMaskedLM and BertModel."""

from __future__ import annotations

from gptcore.models.files.encoder_layout import BERT_SUB_LAYERS, EncoderLayout

LAYOUT = EncoderLayout(
    model_type="bert",
    family="bert",
    sub_layers=BERT_SUB_LAYERS,
    heads={
        "pooler": "pooler.dense",
        "word_head.dense": "cls.predictions.transform.dense",
        "word_head.norm": "cls.predictions.transform.LayerNorm",
        "pair_head": "cls.seq_relationship",
    },
    word_bias="cls.predictions.bias",
    bias_copies=("cls.predictions.decoder.weight", "cls.predictions.decoder.bias"),
    architectures={"pair": "BertForPreTraining", "words": "BertForMaskedLM", "": "BertModel"},
    classes="Bert",
)
