"""Networks from configurations and from model folders, of whichever family they are."""

from __future__ import annotations

import torch

from gptcore.config import NetworkConfig
from gptcore.families import FAMILIES
from gptcore.models.files.read import read_model
from gptcore.models.language_model import LanguageModel
from gptcore.models.shapes import shapes_only


def build_model(config: NetworkConfig, generator: torch.Generator | None = None) -> LanguageModel:
    """The network of a configuration, with weights drawn from ``generator``."""
    model: LanguageModel = FAMILIES[config.family].part("network")(config, generator)
    return model


def load_model(url: str) -> LanguageModel:
    """Read a model of any family, in eval mode on the CPU, from any of the kinds of folder that :meth:`GPT.load` names.

    :raises InputError: naming the file, and what was expected of it.
    """
    config, tensors = read_model(url)
    with shapes_only():
        build_model(config).require(tensors, url)
    return build_model(config).fill(tensors, url)
