"""The folders of ELECTRA's networks: Hugging Face's, and ours, in which the generator lies inside of the other's."""

from __future__ import annotations

from pathlib import Path

from gptcore.base.tables import read_table
from gptcore.evaluation.likelihood import PseudoLikelihood, encoder_likelihood
from gptcore.models.files.encoders import encoder_layout
from gptcore.text.tokenizer import Specials

HUGGING_FACE = encoder_layout("electra", read_table(__file__, "layout.toml"))


def generator_likelihood(folder: str, pieces: Specials | None) -> PseudoLikelihood:
    """The likelihood of the generator inside of a discriminator's folder, or of the network that is there alone.

    :raises InputError: no model, or one that predicts no masked words.
    """
    generator = Path(folder, "generator")
    return encoder_likelihood(str(generator) if generator.is_dir() else folder, pieces)
