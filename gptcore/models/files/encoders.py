"""Hugging Face's folders of each family of encoders, as values of :class:`EncoderLayout`."""

from __future__ import annotations

from gptcore.models.files.encoder_layout import BERT_SUB_LAYERS, EncoderLayout, SubLayers

BERT = EncoderLayout(
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
"""Folders of BERT: of BertForPreTraining, BertForMaskedLM and BertModel."""

ALBERT = EncoderLayout(
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
"""Folders of ALBERT: of AlbertForPreTraining, AlbertForMaskedLM and AlbertModel."""

ELECTRA = EncoderLayout(
    model_type="electra",
    family="electra",
    sub_layers=BERT_SUB_LAYERS,
    heads={
        "word_head.dense": "generator_predictions.dense",
        "word_head.norm": "generator_predictions.LayerNorm",
        "replaced_head.dense": "discriminator_predictions.dense",
        "replaced_head.output": "discriminator_predictions.dense_prediction",
    },
    word_bias="generator_lm_head.bias",
    bias_copies=("generator_lm_head.weight",),
    architectures={"replaced": "ElectraForPreTraining", "words": "ElectraForMaskedLM", "": "ElectraModel"},
    # Its other classes have a second layer before the linear one.
    classes="Electra",
    classes_of_places_alone=True,
    widens="embeddings_project",
)
"""Folders of ELECTRA: the discriminator's (ElectraForPreTraining) or the generator's (ElectraForMaskedLM), which is
which by the head that the folder holds."""

DISTILBERT = EncoderLayout(
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
"""Folders of DistilBERT: of DistilBertForMaskedLM and DistilBertModel."""
