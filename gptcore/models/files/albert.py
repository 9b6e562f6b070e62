"""Hugging Face's folders of ALBERT, "albert": of AlbertForPreTraining, AlbertForMaskedLM and AlbertModel."""

from __future__ import annotations

from gptcore.models.files.encoder_layout import EncoderLayout, SubLayers

LAYOUT = EncoderLayout(
    model_type="albert",
    family="albert",
    sub_layers=SubLayers(
        layer="encoder.albert_layer_groups.{}.albert_layers.0",
        attention="attention",
        projection="attention.dense",
        attention_norm="attention.LayerNorm",
        inner="ffn",
        output="ffn_output",
        norm="full_layer_layer_norm",
    ),
    heads={
        "pooler": "pooler",
        "word_head.dense": "predictions.dense",
        "word_head.norm": "predictions.LayerNorm",
        "pair_head": "sop_classifier.classifier",
    },
    word_bias="predictions.bias",
    bias_copies=("predictions.decoder.weight", "predictions.decoder.bias"),
    architectures={"pair": "AlbertForPreTraining", "words": "AlbertForMaskedLM", "": "AlbertModel"},
    classes="Albert",
    widens="encoder.embedding_hidden_mapping_in",
    shares=True,
    classifier_dropout="classifier_dropout_prob",
)
