"""Hugging Face's folders of DistilBERT, "distilbert": of DistilBertForMaskedLM and DistilBertModel."""

from __future__ import annotations

from gptcore.models.files.encoder_layout import EncoderLayout, SubLayers

LAYOUT = EncoderLayout(
    model_type="distilbert",
    family="distilbert",
    sub_layers=SubLayers(
        layer="transformer.layer.{}",
        attention="attention",
        projection="attention.out_lin",
        attention_norm="sa_layer_norm",
        inner="ffn.lin1",
        output="ffn.lin2",
        norm="output_layer_norm",
        qkv=("q_lin", "k_lin", "v_lin"),
    ),
    heads={"word_head.dense": "vocab_transform", "word_head.norm": "vocab_layer_norm"},
    word_bias="vocab_projector.bias",
    bias_copies=("vocab_projector.weight",),
    architectures={"words": "DistilBertForMaskedLM", "": "DistilBertModel"},
    classes="DistilBert",
    sizes={
        "n_vocab": "vocab_size",
        "n_ctx": "max_position_embeddings",
        "n_layer": "n_layers",
        "n_head": "n_heads",
        "n_embd": "dim",
        "n_inner": "hidden_dim",
    },
    rates={
        "embd_pdrop": "dropout",
        "resid_pdrop": "dropout",
        "attn_pdrop": "attention_dropout",
        "init_std": "initializer_range",
        "activation": "activation",
    },
    classifier_dropout="seq_classif_dropout",
    classifier_layer="pre_classifier",
)
