"""Hugging Face's folders of ELECTRA, "electra": the discriminator's (ElectraForPreTraining) or the generator's
(ElectraForMaskedLM), which is which by the head that the folder holds.
"""

from __future__ import annotations

from gptcore.models.files.encoder_layout import BERT_SUB_LAYERS, EncoderLayout

LAYOUT = EncoderLayout(
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
